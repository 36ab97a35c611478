"""crun and runc, which start OCI bundles: directories with a config.json. A plan becomes edits of that file.

gpubind never writes to the bundle: it writes the edited config.json to a separate directory. Both runtimes create
missing mount points in the root file system, and leave them there. gpubind therefore puts the plan's mount points into
a tmpfs at /.gpubind, so that only this one empty directory stays in the root file system.

Source: OCI runtime-spec 1.2; crun(1) 1.21, runc(8) 1.1.15. Both were run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gpubind.errors import RuntimeLimitError
from gpubind.files import Tree
from gpubind.formats.archive.bundle import (
    Bundle,
    BundleEdits,
    BundleMount,
    absolute_path,
    apply_edits,
    relocated_config,
)
from gpubind.host.base import MIG_VARIABLES
from gpubind.loader.namespace import UserBind, UserMounts
from gpubind.model import ContainerPath, HostPath, Mount, Plan
from gpubind.model.arch import ARCHITECTURES
from gpubind.planner.placement import Layout, cdi_layout
from gpubind.runtimes.cmdline.programs import ALL_ACTIONS, RuntimeProgram, StartSubcommand
from gpubind.runtimes.cmdline.reader import GETOPT, GO_FLAG, OptionParser, ParsedCommandLine
from gpubind.runtimes.edits import GPUBIND_DIRECTORY, Bind, RuntimeArguments, is_utf8, make_edits
from gpubind.runtimes.environment import BaseEnvironment, compose, set_variables
from gpubind.runtimes.runtime import (
    NO_STAGE,
    STAGED_DIRECTORY,
    Command,
    PreparedStart,
    Runtime,
    RuntimeLimits,
    Stage,
    StagedFile,
    Start,
    StartCall,
)

CONFIG = "config.json"
_GPUBIND_TMPFS = BundleMount(GPUBIND_DIRECTORY, "tmpfs", "tmpfs", ("nosuid", "nodev", "noexec", "ro", "mode=755"))
"""The tmpfs for mount points below `GPUBIND_DIRECTORY`. Both runtimes make it read-only after the last mount."""
NODE_OPTIONS = ("bind", "nosuid", "noexec")
"""The options of a bound node. With `nodev` it could not be opened."""
_CHOICES = ("gpus", "handed-on")
"""The values of `EnvVar.rule` for the plan's variables that choose GPUs."""
HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
"""NVIDIA's hooks, which docker's `--gpus` adds to a bundle. The plan replaces them."""
_MIG_MANAGERS = ("/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2")
"""The nodes with which MIG is configured and monitored. Source: /proc/driver/nvidia-caps/mig-minors."""

_CRUN = "cgroup-manager= debug log= log-format= log-level= root= rootless= systemd-cgroup version/vV help/? usage"
_CRUN_CREATE = """
    bundle/b= config/f= console-socket= help/? no-new-keyring no-pivot no-subreaper pid-file= preserve-fds= usage
"""
_CRUN_EXEC = """
    apparmor= cap/c= cgroup= console-socket= cwd= detach/d env/e= no-new-privs pid-file= preserve-fds= process/p=
    process-label= tty/t? user/u= help/? usage
"""
_RUNC = "criu= debug help/h log= log-format= root= rootless= systemd-cgroup version/v"
_RUNC_CREATE = "bundle/b= console-socket= help/h no-new-keyring no-pivot pid-file= preserve-fds="
_RUNC_EXEC = """
    additional-gids/g= apparmor= cap/c= cgroup= console-socket= cwd= detach/d env/e= help/h ignore-paused no-new-privs
    pid-file= preserve-fds= process/p= process-label= tty/t user/u=
"""


def _program(parser: OptionParser, options: str, create: str, only_run: str, joined: str) -> RuntimeProgram:
    starts: dict[tuple[str, ...], StartSubcommand] = {
        ("run",): StartSubcommand(f"{create} {only_run}", "bundle", actions=ALL_ACTIONS),
        ("create",): StartSubcommand(create, "bundle"),
        ("exec",): StartSubcommand(joined, "joined"),
    }
    return RuntimeProgram(parser, starts, options)


_PROGRAMS = {
    "crun": _program(GETOPT, _CRUN, _CRUN_CREATE, "detach/d keep", _CRUN_EXEC),
    "runc": _program(GO_FLAG, _RUNC, _RUNC_CREATE, "detach/d keep no-subreaper", _RUNC_EXEC),
}


class BundleRuntime(Runtime):
    image_forms = ("bundle",)
    limits = RuntimeLimits("it will say that it may not make a user namespace", hides_missing_command=True)

    def __init__(self, name: str) -> None:
        self.name = self.title = name
        self.program = _PROGRAMS[name]
        self.image_hint = (
            f"a bundle is a directory with a config.json: `{name} spec` writes one, "
            "root.path names the image's directory"
        )

    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> Optional[RuntimeArguments]:
        """Return the config.json of the bundle with *plan* in it; None without a bundle.

        Errors: `RuntimeLimitError` for a path or a value that JSON cannot express (`unsupported-path`,
        `unsupported-value`), and for a root file system without room for a mount point (`read-only-rootfs`).
        """
        bundle, image = start.bundle, start.tree
        if bundle is None or image is None:
            return None
        edits = make_edits(plan, stage.files, obstacle=lambda mount, source: _obstacle(mount, source, bundle, image))
        directories = {mount.target for mount in plan.mounts if mount.kind == "directory"}
        mounts = tuple(_mount(bind, bind.target in directories) for bind in edits.binds)
        if any(_inside(bind.target, GPUBIND_DIRECTORY) for bind in edits.binds):
            _need_place(bundle, image)
            mounts = (_GPUBIND_TMPFS, *mounts)
        provided = {*bundle.nodes, *(mount.destination.rstrip("/") for mount in bundle.mounts)}
        nodes = tuple(node for node in edits.devices if node.target not in provided)
        is_rootless = bundle.has_user_namespace or not start.caller.is_root
        if is_rootless:
            mounts += tuple(BundleMount(node.target, "bind", node.source, NODE_OPTIONS) for node in nodes)
        is_ruled = start.caller.is_root or bundle.rules or not bundle.has_user_namespace
        bundle_variables = bundle.variables
        changed = compose(edits.env, BaseEnvironment(images=bundle_variables))
        env = tuple((name, value) for name, value in changed.items() if value != bundle_variables.get(name))
        groups = {node.gid for node in nodes if node.gid != 0 and node.mode & 0o006 != 0o006}
        bundle_edits = BundleEdits(
            mounts,
            () if is_rootless else nodes,
            edits.devices if is_ruled else (),
            env,
            groups=() if is_rootless else tuple(sorted(groups)),
            without_hooks=HOOKS,
        )
        _need_utf8(bundle_edits)
        text = apply_edits(bundle, bundle_edits)
        variables = set_variables(dict(env))
        return RuntimeArguments((), edits.binds, variables, edits.decisions, edits.findings, document=text)

    def start_command(self, call: StartCall, start: Start, arguments: RuntimeArguments) -> Command:
        """Return the whole command line. The container gets a name that no other container of the user has.

        runc reads only a file named config.json, so the edited one is in a separate directory. Errors:
        `RuntimeLimitError` (code `unsupported-value`) for an argument that is not UTF-8.
        """
        bundle, argv = start.bundle, call.argv
        assert bundle is not None
        if call.action == "run":
            argv = (*bundle.args, *argv)
        elif call.action == "shell":
            argv = (start.shell, *argv)
        for arg in (*argv, bundle.directory):
            if not is_utf8(arg):
                raise _not_utf8_error("unsupported-value", "JSON cannot contain this argument", arg)
        before, after = self._split(start.user.arguments)
        name = f"gpubind-{call.unique_name}"
        text = relocated_config(arguments.document, bundle, argv, call.stdin_is_terminal)
        run = ("run", "--bundle", STAGED_DIRECTORY, *after, name)
        return Command((call.program, *before, *run), start.caller.environ, StagedFile(CONFIG, text))

    def base_mounts(self, plan: Plan, start: Start) -> Optional[UserMounts]:
        """Return the bundle's binds and working directory. The variables of the bundle are those of the image."""
        bundle = start.bundle
        if bundle is None:
            return None
        binds = tuple(
            UserBind(HostPath(absolute_path(bundle, mount.source)), ContainerPath(mount.destination))
            for mount in bundle.mounts
            if mount.is_bind and mount.source
        )
        return UserMounts(binds, (), ContainerPath(bundle.working_directory))

    def parse_user_options(self, arguments: Sequence[str]) -> ParsedCommandLine:
        return self.program.read(arguments, self.program.options)

    def _split(self, arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the user's arguments that belong before `run`, then those that belong after it."""
        of_run = {option.name for option in self.program.start().option_table.names.values()} - {"bundle"}
        after: dict[int, str] = {}
        for option in self.parse_user_options(arguments).options:
            if option.name in of_run:
                after.update(enumerate(option.args, option.position))
        return tuple(arg for at, arg in enumerate(arguments) if at not in after), tuple(after.values())

    def render(self, form: str, prepared: PreparedStart, *, quoted: bool = False) -> str:
        return prepared.arguments.document


def _obstacle(mount: Mount, source: HostPath, bundle: Bundle, image: Tree) -> Optional[str]:
    """Return why *mount* has no place; None if it has one, and empty if the bundle itself mounts that file there."""
    for bundle_mount in bundle.mounts:
        if bundle_mount.destination.rstrip("/") == mount.target:
            return "" if bundle_mount.source == source else "the bundle mounts something of its own there"
        if bundle_mount.is_bind and not mount.required and _inside(mount.target, bundle_mount.destination.rstrip("/")):
            return f"the bundle mounts {bundle_mount.source} at {bundle_mount.destination}, which is not to be changed"
    mounts = (_GPUBIND_TMPFS, *bundle.mounts)
    is_made = any(_inside(mount.target, each.destination.rstrip("/")) for each in mounts)
    if bundle.is_writable or is_made or mount.required or image.has(mount.target):
        return None
    return "the root file system does not have it and is read-only"


def _need_place(bundle: Bundle, image: Tree) -> None:
    """Errors: `RuntimeLimitError` (code `read-only-rootfs`) if `GPUBIND_DIRECTORY` cannot be made."""
    if not bundle.is_writable and not image.has(GPUBIND_DIRECTORY):
        raise RuntimeLimitError(
            "read-only-rootfs",
            f"{GPUBIND_DIRECTORY} cannot be made in the root file system of the bundle",
            where=absolute_path(bundle, bundle.root),
            why="you may not write to it, and crun and runc make mount points in it",
            hint=f"have its owner make the directory {GPUBIND_DIRECTORY[1:]} in it, or use a copy of your own",
        )


def _mount(bind: Bind, is_directory: bool) -> BundleMount:
    options = ("rbind" if is_directory else "bind", *(("ro",) if bind.read_only else ()), "nosuid", "nodev")
    return BundleMount(bind.target, "bind", bind.source, options)


def _need_utf8(edits: BundleEdits) -> None:
    """Errors: `RuntimeLimitError` for bytes that are not UTF-8, which JSON cannot express."""
    paths = [path for mount in edits.mounts for path in (mount.source, mount.destination)]
    for path in (*paths, *(node.target for node in edits.nodes)):
        if not is_utf8(path):
            raise _not_utf8_error("unsupported-path", "JSON cannot contain this path", path)
    for name, value in edits.env:
        if not is_utf8(name) or not is_utf8(value or ""):
            raise _not_utf8_error("unsupported-value", "JSON cannot contain this value of a variable", name)


def _not_utf8_error(code: str, message: str, where: str) -> RuntimeLimitError:
    hint = "rename it, or use --backend bwrap"
    return RuntimeLimitError(code, message, where=where, why="it is not UTF-8", hint=hint)


def _inside(path: str, directory: str) -> bool:
    return path.startswith(directory + "/")


class EngineRuntime(BundleRuntime):
    """crun or runc for a container of an engine. Processes of `docker exec` in it get no variables of the plan."""

    def __init__(self, name: str, loader_directories: tuple[str, ...]) -> None:
        super().__init__(name)
        self.loader_directories = loader_directories
        """Where the loader of the image looks for libraries."""

    def layout(self, start: Start, *, is_blind: bool = False) -> Layout:
        """Return the layout of a CDI spec for this image, in which libraries and programs are found without a variable.

        Only forward compatibility needs LD_LIBRARY_PATH, and only the container's first process gets it.
        """
        layout = cdi_layout(start.facts.architecture or ARCHITECTURES[0].name, self.loader_directories)
        return layout._replace(adds_variables=True)

    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> Optional[RuntimeArguments]:
        """Return the config.json with *plan* in it, without variables that choose GPUs.

        As with NVIDIA's toolkit, only nodes choose GPUs: a privileged container has all nodes, so numbers would mean
        other GPUs there. The nodes that manage MIG are given only to a container that requests them.
        """
        env = tuple(variable for variable in plan.env if variable.rule not in _CHOICES)
        bundle_variables = start.bundle.variables if start.bundle is not None else {}
        devices = plan.devices
        if not any(bundle_variables.get(name) for name in MIG_VARIABLES):
            devices = tuple(node for node in devices if node.target not in _MIG_MANAGERS)
        return super().arguments(plan._replace(env=env, devices=devices), start, stage)


CRUN = BundleRuntime("crun")
RUNC = BundleRuntime("runc")
