"""Enroot: starts named containers, which are directories of the user, and squashfs files. Needs a user namespace.

--mount takes the fields of an fstab line, separated by colons: it can bind read-only and create the mount point. Only
files and --env set variables of a container. Commands run in a login shell, whose scripts replace PATH; so gpubind puts
programs into /usr/bin. The container has the host's whole /dev, unless the site or the user restricts it.

If NVIDIA_VISIBLE_DEVICES requests it, Enroot's hook provides the driver with nvidia-container-cli; if that program is
missing, the hook ends the start. The plan replaces the hook, so gpubind sets that variable to `void` for the hook.

Source: Enroot 4.1.2, which was run: `enroot.in`, `src/runtime.sh`, `bin/enroot-mount.c`, `bin/enroot-switchroot.c`,
`conf/hooks/`, `conf/mounts/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Optional

from gpubind.formats.driver.gpu_names import CAPS_VARIABLE, NVIDIA_VISIBLE_DEVICES, split_nvidia_visible
from gpubind.loader.namespace import UserBind, UserMounts
from gpubind.model import ContainerPath, HostPath, Mount, Plan
from gpubind.model.environ import changed
from gpubind.planner.placement import GPUBIND_LAYOUT, Layout
from gpubind.runtimes import enroot_files
from gpubind.runtimes.cmdline.programs import ALL_ACTIONS, RuntimeProgram, StartSubcommand
from gpubind.runtimes.cmdline.reader import WHOLE, UserOptionValues
from gpubind.runtimes.edits import (
    GPUBIND_DIRECTORY,
    RuntimeArguments,
    binds_at_same_path,
    make_base_mounts,
    make_edits,
    shared_dev_findings,
    unsupported_value,
)
from gpubind.runtimes.environment import BaseEnvironment, compose, set_variables
from gpubind.runtimes.lost_choice import choice_outside
from gpubind.runtimes.runtime import NO_STAGE, Command, Runtime, RuntimeLimits, Stage, Start, StartCall

if TYPE_CHECKING:
    from gpubind.image.reference import ImageReference

FILE_OPTIONS = "x-create=auto,bind,ro,nosuid,nodev,private"
NODE_OPTIONS = "x-create=auto,bind,rw,nosuid,noexec,private"
"""The options with which Enroot's own hook binds nodes if /dev is restricted. `nodev` would keep them closed."""
GPUBIND_TMPFS = f"tmpfs:{GPUBIND_DIRECTORY}:tmpfs:x-create=dir,nosuid,nodev,noexec,mode=755,private"
"""The tmpfs for mount points below `GPUBIND_DIRECTORY`, so that none of them stays in the container's directory."""
_HOST_DIRECTORIES = ("/dev", "/proc", "/sys")
"""Directories of the host that every container has; /dev only if it is not restricted."""

_START_OPTIONS = "conf/c= env/e= help/h ipc mount/m= net pid rc= root/r rw/w uts"


class Enroot(Runtime):
    name = "enroot"
    title = "Enroot"
    program = RuntimeProgram(
        WHOLE,
        {
            ("start",): StartSubcommand(_START_OPTIONS, actions=ALL_ACTIONS),
            ("exec",): StartSubcommand("env/e= help/h", "joined"),
        },
    )
    image_forms = ("squashfs", "container")
    image_hint = "`enroot create --name NAME IMAGE.sqsh` makes a container of an image; then give NAME"
    limits = RuntimeLimits(no_namespace_message="it will say `enroot-nsenter: failed to create user namespace`")
    extra_nodes = ("/dev/gdrdrv", "/dev/nvidia-caps-imex-channels/*")
    env_option = "env"
    passes_only_named_variables = True

    def texts(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        return enroot_files.patterns(environ)

    def stored_image(
        self, image: ImageReference, options: UserOptionValues, environ: Mapping[str, str], texts: Mapping[str, str]
    ) -> Optional[str]:
        """Return the directory of the container *image*; None for a path or a squashfs file, which take precedence."""
        if "/" in image.text or image.form == "squashfs":
            return None
        return f"{enroot_files.data_path(environ, texts)}/{image.text}"

    def hides_caller_variable(self, start: Start, name: str) -> bool:
        """Return whether the caller's value of *name* does not reach the container.

        NVIDIA_VISIBLE_DEVICES is not regarded as hidden: it chooses GPUs for Enroot's hook, outside the container.
        """
        return name != NVIDIA_VISIBLE_DEVICES and _base_variables(start).get(name) != start.caller.environ.get(name)

    def layout(self, start: Start, *, is_blind: bool = False) -> Layout:
        layout = GPUBIND_LAYOUT._replace(isolated=_has_restricted_dev(start))
        return layout._replace(bindir=ContainerPath("/usr/bin"), bindir_on_path=True)

    def wants_compat32(self, start: Start) -> bool:
        """Return whether Enroot's hook would provide 32-bit libraries, which the capability `all` includes."""
        variables = _base_variables(start)
        names = (NVIDIA_VISIBLE_DEVICES, CAPS_VARIABLE)
        visible, caps = (_setting(start, name) or variables.get(name, "") for name in names)
        return bool(split_nvidia_visible(visible)) and not {"all", "compat32"}.isdisjoint(caps.split(","))

    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> RuntimeArguments:
        """Return the options for *plan*. Errors: `RuntimeLimitError` (code `unsupported-value`)."""
        is_restricted = _has_restricted_dev(start)
        obstacle = partial(_obstacle, is_restricted=is_restricted)
        edits = make_edits(plan, stage.files, _binds(start), obstacle)
        values = [GPUBIND_TMPFS] if any(bind.target.startswith(f"{GPUBIND_DIRECTORY}/") for bind in edits.binds) else []
        needed = {mount.target for mount in plan.mounts if mount.required}
        for bind in edits.binds:
            options = FILE_OPTIONS if bind.target in needed else f"{FILE_OPTIONS},nofail"
            values.append(enroot_files.mount_value(bind.source, bind.target, options))
        if is_restricted or "conf" in start.user.options.values:  # whose directives may restrict it
            planned = {str(node.target): str(node.source) for node in plan.devices}
            nodes = {**{str(path): str(path) for path in start.facts.nodes if plan.devices}, **planned}
            values += [enroot_files.mount_value(nodes[target], target, NODE_OPTIONS) for target in nodes]
        callers = start.caller.environ
        variables = BaseEnvironment(_users_variables(start, callers), images=_images_variables(start, callers))
        env = {**_for_hook(start), **dict(set_variables(compose(plan.env, variables)))}
        args = [arg for value in values for arg in ("--mount", value)]
        for name, value in env.items():
            if "\n" in value or enroot_files.unquoted(value) != value:
                raise unsupported_value(name, "Enroot ends a value at a line end, and takes the quotes around it away")
            args += ["--env", f"{name}={value}"]
        environ = callers if start.caller.on_host else {}
        outside = choice_outside(plan, environ, partial(self.hides_caller_variable, start), "unnamed")
        dev = () if is_restricted else shared_dev_findings(plan, "enroot")
        findings = (*edits.findings, *dev, *outside)
        return RuntimeArguments(tuple(args), edits.binds, tuple(env.items()), edits.decisions, findings)

    def start_command(self, call: StartCall, start: Start, arguments: RuntimeArguments) -> Command:
        """Return the whole command line. The image's /etc/rc, if any, gets the command as in any start of Enroot."""
        argv = (start.shell, *call.argv) if call.action == "shell" else call.argv
        line = (call.program, "start", *start.user.arguments, *arguments.options, call.image, *argv)
        hook = {NVIDIA_VISIBLE_DEVICES: "void"} if any("/libcuda.so" in bind.target for bind in arguments.binds) else {}
        return Command(line, changed(start.caller.environ, values=hook))

    def base_mounts(self, plan: Plan, start: Start) -> UserMounts:
        variables = _base_variables(start)
        shared = _HOST_DIRECTORIES[1:] if _has_restricted_dev(start) else _HOST_DIRECTORIES
        unseen = tuple(f"--conf={value}" for value in start.user.options.all("conf"))
        binds = (*binds_at_same_path(shared), *_binds(start))
        return make_base_mounts(binds, variables, variables.get("HOME", ""), unseen)


def _setting(start: Start, name: str) -> str:
    uid = {} if start.caller.uid is None else {"UID": str(start.caller.uid)}
    return enroot_files.setting(name, changed(start.caller.environ, values=uid), start.facts.texts)


def _has_restricted_dev(start: Start) -> bool:
    names = ("ENROOT_RESTRICT_DEV", "ENROOT_UNSHARE_IPC")
    return "ipc" in start.user.options.values or any(_setting(start, name) for name in names)


def _image_text(start: Start, path: str) -> str:
    return (start.tree.text(path) if start.tree is not None else None) or ""


def _base_variables(start: Start, environ: Optional[Mapping[str, str]] = None) -> dict[str, str]:
    environ = start.caller.environ if environ is None else environ
    return {**_images_variables(start, environ), **_users_variables(start, environ)}


def _users_variables(start: Start, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of --env and of the files in environ.d."""
    user_env = start.runtime.user_option_values(start.user.arguments, environ).env
    return enroot_files.container_variables(environ, start.facts.texts, "", user_env)


def _images_variables(start: Start, environ: Mapping[str, str]) -> dict[str, str]:
    return enroot_files.container_variables(environ, {}, _image_text(start, "/etc/environment"), {})


def _binds(start: Start) -> Iterator[UserBind]:
    """Yield the binds of the image, the site and the user, without those of `_HOST_DIRECTORIES`."""
    directory = start.caller.working_directory or "/"
    user_binds = enroot_files.user_binds(start.user.options.all("mount"), directory)
    site_binds = enroot_files.site_binds(start.caller.environ, start.facts.texts, _image_text(start, "/etc/fstab"))
    yield from (bind for bind in site_binds if not bind.target.startswith(_HOST_DIRECTORIES))
    home = start.caller.environ.get("HOME")
    if home and _setting(start, "ENROOT_MOUNT_HOME"):
        yield UserBind(HostPath(home), ContainerPath(home))
    yield from user_binds


def _obstacle(mount: Mount, source: HostPath, is_restricted: bool) -> Optional[str]:
    """Return why *mount* has no place in a directory of the host; empty if that directory provides the file."""
    top = next((path for path in _HOST_DIRECTORIES if mount.target.startswith(f"{path}/")), None)
    if top is None or (top == "/dev" and is_restricted):
        return None
    return "" if str(source) == mount.target else f"Enroot binds the host's own {top} there"


def _for_hook(start: Start) -> dict[str, str]:
    """Return the container's `NVIDIA_VISIBLE_DEVICES` if it would be the caller's value, which gpubind replaces for
    the hook.
    """
    name = NVIDIA_VISIBLE_DEVICES
    value = _base_variables(start).get(name, "")
    with_ours = _base_variables(start, changed(start.caller.environ, values={name: "void"})).get(name, "")
    return {} if value == with_ours else {name: value}


ENROOT = Enroot()
