"""bubblewrap: it starts only directories, needs no privilege, and its options describe the whole container.

The image is bound read-only and never written to. A missing mount point is made outside the image, as Singularity's
underlay does: a tmpfs replaces the directory that lacks it, and each entry of that directory is bound in the tmpfs.
That costs little at the root and much in a large directory. So gpubind does it only where it must, and never in very
large directories.

Source: bwrap(1) 0.8 to 0.12. A device node must be bound with --dev-bind: --bind and --ro-bind mount it with nodev, so
that it cannot be opened.
"""

from __future__ import annotations

from typing import Optional

from gpubind.files import Tree
from gpubind.loader.namespace import UserMounts
from gpubind.model import ContainerPath, FileKind, Missing, Plan
from gpubind.runtimes.bubblewrap import root
from gpubind.runtimes.bubblewrap.environment import environment
from gpubind.runtimes.bubblewrap.options import PROGRAM, UserBwrapOptions, parse_user_options
from gpubind.runtimes.edits import RuntimeArguments, binds_at_same_path, make_edits
from gpubind.runtimes.environment import base_variables
from gpubind.runtimes.runtime import (
    NO_STAGE,
    UNBOUND_WORKING_DIRECTORIES,
    Command,
    Runtime,
    RuntimeLimits,
    Stage,
    Start,
    StartCall,
)

_NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts")
"""Files that are bound even if the image has them. Without them, a name such as `localhost` may have no address."""
HOST_FILES = (*_NETWORK_FILES, "/etc/localtime", "/etc/passwd", "/etc/group")
_SHARED_DIRECTORIES = ("/dev/shm", "/dev/mqueue")
"""Directories that processes in separate containers share: NCCL, UCX and MPI use /dev/shm."""
_HOST_NODES = (
    "/dev/infiniband",
    "/dev/gdrdrv",
    "/dev/nvidia-fs*",
    "/dev/nvidia-caps-imex-channels",
    "/dev/hugepages*",
    "/dev/cxi*",
    "/dev/hfi1_*",
    "/dev/knem",
    "/dev/xpmem",
)
"""The nodes of the host's /dev, other than GPUs, for programs that use several GPUs or nodes."""
_VIRTUAL_DIRECTORIES = ("/sys", "/proc", "/dev")


class Bubblewrap(Runtime):
    name = "bwrap"
    title = "bubblewrap"
    program = PROGRAM
    image_forms = ("directory",)
    image_hint = "unpack it: `apptainer build --sandbox DIR IMAGE`, or use --backend apptainer"
    limits = RuntimeLimits(
        no_namespace_message="it will say `bwrap: No permissions to create new namespace, likely because the kernel "
        "does not allow non-privileged user namespaces`, or `bwrap: setting up uid map: Permission denied`",
        setuid_programs=("/usr/bin/bwrap", "/usr/local/bin/bwrap"),
        hides_missing_command=True,
    )
    extra_nodes = _HOST_NODES
    extra_files = HOST_FILES
    inserts_into_line = True
    arguments_in_line = staticmethod(root.arguments_in_line)

    def hides_caller_variable(self, start: Start, name: str) -> bool:
        user_options = parse_user_options(start.user.arguments)
        return user_options.clears_env or name in dict(user_options.env)

    def arguments(self, plan: Plan, start: Start, stage: Stage = NO_STAGE) -> Optional[RuntimeArguments]:
        """Return the options for a container of the image with *plan* in it, and the shell command that sets its
        environment.

        The user's options follow those of gpubind: `bwrap OPTIONS COMMAND`.
        """
        image, user_options = start.tree, parse_user_options(start.user.arguments)
        if image is None:
            return None
        edits = make_edits(plan, stage.files, user_options.binds, lambda mount, _: root.rebuild_obstacle(mount, image))
        homes = _user_directories(plan, start)
        files = _host_files(start, image)
        places = [root.directory_to_rebuild(image, path) for path in (*(bind.target for bind in edits.binds), *homes)]
        places += [root.directory_to_rebuild(image, path, through_links=False) for path in files]
        rebuilt = sorted({"/", *(place for place in places if place is not None)})
        separate = {*root.BWRAP_MOUNTS, *files}
        options = [arg for place in rebuilt for arg in root.rebuild_args(image, place, without=separate)]
        options += ["--proc", "/proc", "--dev", "/dev"]
        for option, path in _host_binds(start, image):
            options += [option, path, path]
        for path in homes:
            options += ["--bind", path, path]
        if start.caller.working_directory and _inside(start.caller.working_directory, ["/tmp", *homes]):
            options += ["--chdir", start.caller.working_directory]
        for bind in edits.binds:
            options += ["--ro-bind" if bind.read_only else "--bind", bind.source, bind.target]
        for node in edits.devices:
            options += ["--dev-bind", node.source, node.target]
        more, prefix, env = environment(edits.env, start.caller.environ, user_options, image)
        options += [*start.user.arguments, *more]  # a mount point of the user's may have to be made
        for place in reversed(rebuilt):
            options += ["--remount-ro", place]
        return RuntimeArguments((*options, "--", *prefix), edits.binds, env, edits.decisions, edits.findings)

    def start_command(self, call: StartCall, start: Start, arguments: RuntimeArguments) -> Command:
        # bubblewrap stays the container's parent; without --die-with-parent a signal would end only bubblewrap.
        argv = (call.program, "--die-with-parent", *arguments.options, *start.in_directory(call))
        return Command(argv, start.caller.environ)

    def base_mounts(self, plan: Plan, start: Start) -> Optional[UserMounts]:
        image, user_options = start.tree, parse_user_options(start.user.arguments)
        if image is None:
            return None
        homes = _user_directories(plan, start)
        paths = [*(path for _, path in _host_binds(start, image)), *homes]
        binds = (*binds_at_same_path(paths), *user_options.binds)
        env = base_variables(plan.env, dict(user_options.env), {} if user_options.clears_env else start.caller.environ)
        directory = _working_directory(plan, start, image, user_options)
        return UserMounts(binds, env, directory, user_options.unreadable_options)


def _working_directory(
    plan: Plan, start: Start, image: Tree, user_options: UserBwrapOptions
) -> Optional[ContainerPath]:
    if user_options.working_directory is not None:
        return user_options.working_directory
    working, home = start.caller.working_directory, start.caller.environ.get("HOME", "")
    if working is None:
        return None
    if _inside(working, ["/tmp", *_user_directories(plan, start)]) or image.has(working):
        return ContainerPath(working)
    return ContainerPath(home if home in start.caller.directories else "/")


def _host_binds(start: Start, image: Tree) -> list[tuple[str, str]]:
    """Return (option, path) for each host path that every container has, in the order in which they are mounted."""
    binds = [("--ro-bind", "/sys"), ("--bind", "/tmp")]
    if _has(image, "/var/tmp", "dir"):
        binds.append(("--bind-try", "/var/tmp"))
    binds += [("--bind-try", path) for path in _SHARED_DIRECTORIES]
    binds += [("--dev-bind", path) for path in start.facts.nodes]
    return [*binds, *(("--ro-bind-try", path) for path in _host_files(start, image))]


def _host_files(start: Start, image: Tree) -> list[str]:
    """Return the `HOST_FILES` that a container of *image* has.

    For the first three, gpubind makes mount points, as Apptainer does. A link of the image is replaced, because
    bubblewrap refuses to mount on a link. A very large /etc is rebuilt only for the network files.
    """
    creatable: tuple[str, ...] = HOST_FILES[:3] if len(image.names("/etc")) <= root.REBUILD_LIMIT else _NETWORK_FILES
    if isinstance(image.readlink("/etc"), str):
        creatable = ()
    return [path for path in start.facts.files if path in creatable or _has(image, path, "file")]


def _has(image: Tree, path: str, kind: FileKind) -> bool:
    stat = image.lstat(path)
    return not isinstance(stat, Missing) and stat.kind == kind


def _user_directories(plan: Plan, start: Start) -> list[str]:
    """Return the caller's home and working directory. They are bound writable at the same paths, as with Apptainer."""
    paths: list[str] = []
    for path in (start.caller.environ.get("HOME", ""), start.caller.working_directory or ""):
        is_bindable = path.startswith("/") and path not in UNBOUND_WORKING_DIRECTORIES and "\0" not in path
        if any(_inside(mount.target, [path]) for mount in plan.mounts):
            continue  # it would hide the mount points that the plan needs
        is_covered = _inside(path, [*_VIRTUAL_DIRECTORIES, "/tmp", "/var/tmp", *paths])
        if is_bindable and path in start.caller.directories and not is_covered:
            paths.append(path)
    return paths


def _inside(path: str, directories: list[str]) -> bool:
    return any(path == directory or path.startswith(directory + "/") for directory in directories)


BWRAP = Bubblewrap()
