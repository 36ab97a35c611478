"""Charliecloud's ch-run: needs no privilege, binds everything writable, and gives a container the host's whole /dev.

It never makes a mount point for a file. It makes one for a directory only if a tmpfs covers the image (`-W`). gpubind
therefore makes a skeleton: a directory with an empty file for each path that the image lacks. ch-run binds the
skeleton, and then each host file onto its empty file. Nothing is written to the image.

Source: `ch-run --help` and `bin/ch_core.c`, `bin/ch-run.c`, `bin/ch_misc.c` of 0.38, which was run. 0.31 has no -W.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from posixpath import dirname, join
from typing import TYPE_CHECKING, Optional

from gpubind.errors import RuntimeLimitError
from gpubind.files import Tree
from gpubind.loader.namespace import UserMounts
from gpubind.model import ContainerPath, HostPath, Missing, Mount, Plan
from gpubind.model.environ import changed
from gpubind.runtimes.cmdline.programs import ALL_ACTIONS, RuntimeProgram, StartSubcommand
from gpubind.runtimes.cmdline.reader import GETOPT_PERMUTING, UserOptionValues
from gpubind.runtimes.cmdline.values import parse_assignment
from gpubind.runtimes.edits import (
    GPUBIND_DIRECTORY,
    HOST_DIRECTORIES,
    Bind,
    Edits,
    RuntimeArguments,
    binds_at_same_path,
    in_host_directory,
    make_base_mounts,
    make_edits,
    parse_user_binds,
    shared_dev_findings,
    unsupported_path,
    unsupported_value,
)
from gpubind.runtimes.environment import PROGRAM_VARIABLES, BaseEnvironment, compose, is_added_to, set_variables
from gpubind.runtimes.runtime import NO_STAGE, Command, Runtime, RuntimeLimits, Stage, Start, StartCall

if TYPE_CHECKING:
    from gpubind.image.reference import ImageReference

_OVERLAY_VERSION = (0, 32)
"""The first version with -W."""
_HIDDEN_BY_OVERLAY = "/srv"
"""The host's directory on which -W mounts the tmpfs, before ch-run looks up the image and the binds."""
_IMAGE_ENV_FILE = "/ch/environment"
"""The file with the variables of a Charliecloud image, `NAME=VALUE` on each line. It applies on the user's request."""

_OPTIONS = """
    bind/b= cd/c= cdi/d? cdi-dirs= ch-ssh env-no-expand feature= gid/g= home join/j join-ct= join-pid= join-tag=
    mount/m= no-home no-passwd private-tmp/t quiet/q seccomp set-env? set-env0? storage/s= test= uid/u= unsafe
    unset-env= verbose/v version/V warnings= write/w write-fake/W? help/? usage
"""


class Charliecloud(Runtime):
    name = "ch-run"
    title = "Charliecloud"
    program = RuntimeProgram(
        GETOPT_PERMUTING,
        {(): StartSubcommand(_OPTIONS, needs_command=True, actions=ALL_ACTIONS)},
        family="ch-run",
    )
    image_forms = ("directory",)
    image_hint = "a directory: `ch-convert IMAGE DIR` makes one of what Charliecloud has"
    limits = RuntimeLimits(
        no_namespace_message="it will say `can't init user+mount namespaces: Operation not permitted`",
        no_read_only_bind=True,
        hides_missing_command=True,
    )
    needs_version = True
    isolates_dev = False

    def identify(self, text: str) -> tuple[Runtime, Optional[tuple[int, ...]]]:
        """`0.38` -> (0, 38). ch-run prints nothing if $USER is not set."""
        match = re.search(r"(\d+)\.(\d+)", text)
        return self, tuple(int(part) for part in match.groups()) if match else None

    def user_option_values(self, arguments: Sequence[str], environ: Mapping[str, str]) -> UserOptionValues:
        line = self.parse_user_options(arguments)
        env: dict[str, str] = {}
        for option in line.options:
            if option.name in ("set-env", "set-env0"):
                env.update(parse_assignment(option.value, {}))
            elif option.name == "unset-env":
                env = {name: value for name, value in env.items() if not fnmatchcase(name, option.value)}
        return UserOptionValues.of(line, env)

    def hides_caller_variable(self, start: Start, name: str) -> bool:
        patterns = start.user.options.all("unset-env")
        return name in start.user.options.env or any(fnmatchcase(name, pattern) for pattern in patterns)

    def stored_image(
        self, image: ImageReference, options: UserOptionValues, environ: Mapping[str, str], texts: Mapping[str, str]
    ) -> Optional[str]:
        usual = f"/var/tmp/{_user_name(environ, environ.get('HOME', ''))}.ch"
        storage = options.last("storage") or environ.get("CH_IMAGE_STORAGE") or usual
        return f"{storage}/img/{image.text.replace('/', '%').replace(':', '+')}"

    def mount_point_files(self, plan: Plan, start: Start) -> tuple[ContainerPath, ...]:
        """Return the targets that need an empty file in the skeleton, because the image lacks them."""
        if not _makes_mount_points(start) and not _has(start.tree, GPUBIND_DIRECTORY):
            return ()
        targets = (mount.target for mount in plan.mounts if mount.kind != "directory")
        return tuple(target for target in targets if _missing_place(start.tree, target))

    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> RuntimeArguments:
        image = start.tree
        user_binds = parse_user_binds(start.user.options.all("bind"))
        edits = make_edits(plan, stage.files, user_binds, lambda mount, source: _obstacle(mount, source, start))
        _require_mount_points(plan, edits, start)
        targets = {bind.target: _resolve_target(image, bind.target) for bind in edits.binds}
        tops = dict.fromkeys(top for bind in edits.binds if (top := _missing_place(image, bind.target)) is not None)
        binds = (
            *(Bind(f"{stage.skeleton}{top}", _resolve_target(image, top), True) for top in tops if stage.skeleton),
            *(bind._replace(target=targets[bind.target]) for bind in edits.binds),
        )
        overlay = any(not _has(image, top) for top in tops)
        options = ["-W"] if overlay and "write-fake" not in start.user.options.values else []
        for bind in binds:
            if ":" in bind.source:
                why = "ch-run takes what follows the first colon for the place in the container"
                raise unsupported_path(bind.source, why)
            if overlay or "write-fake" in start.user.options.values:
                _need_visible(bind.source)
            options += ["-b", f"{bind.source}:{bind.target}"]
        env = _environment(plan, start)
        writable = self.writable_bind_findings(edits, plan, start, stage)
        findings = (*shared_dev_findings(plan, "always"), *writable, *edits.findings)
        options += _env_args(env, start)
        return RuntimeArguments(tuple(options), binds, set_variables(env), edits.decisions, findings)

    def start_command(self, call: StartCall, start: Start, arguments: RuntimeArguments) -> Command:
        """Return the whole command line. Errors: `RuntimeLimitError` (code `hidden-path`) if -W hides the image."""
        if "-W" in arguments.options or "write-fake" in start.user.options.values:
            image_path = join(start.caller.working_directory or "/", call.image)
            _need_visible(start.tree.root if start.tree is not None else image_path)
        environ = start.caller.environ
        if "USER" not in environ:
            # ch-run does not start without it. The name of the home directory is nearly always the user's name.
            environ = changed(environ, values={"USER": _user_name(environ, start.caller.home or "")})
        options = (*start.user.arguments, *arguments.options)
        return Command((call.program, *options, call.image, "--", *start.in_directory(call)), environ)

    def base_mounts(self, plan: Plan, start: Start) -> UserMounts:
        options = start.user.options
        shared = [path for path in HOST_DIRECTORIES if path != "/tmp" or "private-tmp" not in options.values]
        users = {name: _user_value(start, name) or "" for name in ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD")}
        users |= {name: value for name in PROGRAM_VARIABLES if (value := _user_value(start, name)) is not None}
        if "/bin" not in users["PATH"].split(":"):
            users["PATH"] = f"{users['PATH']}:/bin".lstrip(":")
        binds = (*binds_at_same_path(shared), *parse_user_binds(options.all("bind")))
        return make_base_mounts(binds, users, options.last("cd") or "/")


def _user_name(environ: Mapping[str, str], home: str) -> str:
    return environ.get("USER") or environ.get("LOGNAME") or home.rpartition("/")[2] or "user"


def _makes_mount_points(start: Start) -> bool:
    """Return whether ch-run makes mount points outside the image."""
    version = start.facts.version or _OVERLAY_VERSION
    return "write" not in start.user.options.values and version >= _OVERLAY_VERSION


def _has(image: Optional[Tree], path: str) -> bool:
    return image is not None and image.has(path)


def _missing_place(image: Optional[Tree], target: str) -> Optional[ContainerPath]:
    """Return the path at which the skeleton must be bound so that *target* exists; None if it exists in the image.

    It is the topmost missing directory above *target*, or *target* itself. For files in /.gpubind it is always that
    directory, even if the image has it: such an image needs no overlay.
    """
    if _has(image, target):
        return None
    if target.startswith(f"{GPUBIND_DIRECTORY}/"):
        return GPUBIND_DIRECTORY
    top = target
    while not _has(image, dirname(top)) and dirname(top) != "/":
        top = dirname(top)
    return ContainerPath(top)


def _resolve_target(image: Optional[Tree], target: str) -> ContainerPath:
    """Return *target* with the image's links resolved, because ch-run would follow an absolute link on the host."""
    ancestor, suffix = target, ""
    while image is not None and ancestor != "/":
        resolved = image.resolve(ancestor)
        if not isinstance(resolved, Missing):
            return ContainerPath(resolved.rstrip("/") + suffix)
        ancestor, suffix = dirname(ancestor), ancestor[len(dirname(ancestor).rstrip("/")) :] + suffix
    return ContainerPath(target)


def _obstacle(mount: Mount, source: HostPath, start: Start) -> Optional[str]:
    """Return why *mount* has no place; None if it has one, and empty if a directory of the host provides the file."""
    if in_host_directory(mount):
        return "" if str(source) == mount.target else "ch-run binds the host's own directory there"
    image = start.tree
    top = _missing_place(image, mount.target)
    if top is None:
        return None
    if image is None and top != GPUBIND_DIRECTORY:
        return "the image is unknown, so it may not have a mount point for the file"
    if top == mount.target and mount.kind != "directory":
        return "ch-run makes no mount point for a file in a directory that the image has"
    if _makes_mount_points(start) or _has(image, top):
        return None
    return "with --write, and before 0.32, ch-run makes no directory outside the image"


def _require_mount_points(plan: Plan, edits: Edits, start: Start) -> None:
    """Errors: `RuntimeLimitError` (code `no-place`) if a required mount has no place."""
    bound = {bind.target for bind in edits.binds}
    lost = next((mount for mount in plan.mounts if mount.required and mount.target not in bound), None)
    if lost is not None and not lost.target.startswith(HOST_DIRECTORIES) and not _makes_mount_points(start):
        raise RuntimeLimitError(
            "no-place",
            f"ch-run can make no place for {lost.target}",
            where=lost.target,
            why="with --write, and before 0.32, it makes directories only in the image",
            hint=f"make an empty directory {GPUBIND_DIRECTORY} in the image, or leave out --write",
        )


def _need_visible(path: str) -> None:
    """Errors: `RuntimeLimitError` (code `hidden-path`) for a *path* that -W hides."""
    if f"{path}/".startswith(f"{_HIDDEN_BY_OVERLAY}/"):
        raise RuntimeLimitError(
            "hidden-path",
            f"ch-run would not find what lies below {_HIDDEN_BY_OVERLAY}",
            where=path,
            why=f"-W puts a tmpfs onto the host's {_HIDDEN_BY_OVERLAY}, and without -W there is no place for "
            "the driver",
            hint=f"put it elsewhere; for an image, an empty directory {GPUBIND_DIRECTORY} in it does, too",
        )


def _environment(plan: Plan, start: Start) -> dict[str, Optional[str]]:
    """Return the value of each variable for the options; None for one that is to be removed.

    ch-run passes on the caller's environment. In the value of a list, it replaces an item `$NAME` with the current
    value of that variable, and drops empty items. So the plan's value of a list begins with `$NAME`.
    """
    lists = {variable.name for variable in plan.env if is_added_to(plan, variable.name)}
    references = {name: _user_value_reference(name, start) for name in lists}
    users: dict[str, Optional[str]] = {**start.user.options.env, **references}
    callers = {name: value for name in start.caller.environ if (value := _user_value(start, name)) is not None}
    images = {"LD_LIBRARY_PATH": _image_library_path(plan, start.tree)}
    return compose(plan.env, BaseEnvironment(users, callers, images))


def _user_value_reference(name: str, start: Start) -> str:
    """Return `$NAME` for the user's value of *name*; the value itself if ch-run would not expand `$NAME`."""
    options = start.user.options
    from_image = name == "LD_LIBRARY_PATH" and "" in (*options.all("set-env"), *options.all("set-env0"))
    if not (from_image or "env-no-expand" in options.values):
        return f"${name}"
    value = _user_value(start, name) or ""
    if name == "PATH" and value and "/bin" not in value.split(":"):
        value += ":/bin"  # as ch-run does
    return ":".join(item for item in value.split(":") if item)


def _user_value(start: Start, name: str) -> Optional[str]:
    callers = None if CH_RUN.hides_caller_variable(start, name) else start.caller.environ.get(name)
    return start.user.options.env.get(name, callers)


def _image_library_path(plan: Plan, image: Optional[Tree]) -> str:
    value = plan.image.env.get("LD_LIBRARY_PATH", "") if plan.image else ""
    for line in ((image.text(_IMAGE_ENV_FILE) if image is not None else None) or "").splitlines():
        name, equals, text = line.partition("=")
        if equals and name == "LD_LIBRARY_PATH":
            value = text
    return ":".join(item for item in value.split(":") if item and not item.startswith("$"))


def _env_args(env: Mapping[str, Optional[str]], start: Start) -> Iterator[str]:
    """Yield the options that set *env*. Errors: `RuntimeLimitError` (code `unsupported-value`)."""
    for name, value in env.items():
        if value is None:
            yield f"--unset-env={name}"
            continue
        items = value.split(":")[1:] if value.startswith(f"${name}") else value.split(":")
        expands = any(item.startswith("$") for item in items if item != f"${name}")
        if "\n" in value or (expands and "env-no-expand" not in start.user.options.values):
            why = "ch-run takes a line end for the end of the value, and a `$` for another variable's name"
            raise unsupported_value(name, why)
        quoted_value = f"'{value}'" if value.startswith("'") and value.endswith("'") else value
        yield f"--set-env={name}={quoted_value}"


CH_RUN = Charliecloud()
