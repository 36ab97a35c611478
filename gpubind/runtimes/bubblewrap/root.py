"""A root for bubblewrap in which mount points can be made.

bubblewrap makes mount points only where it can write. So an image as the root is replaced with a new directory of
bubblewrap, in which each entry of the image is bound. No mount point is ever made in the image itself.

In the user's command line, the plan's binds follow the user's options: some of these, such as `--dev /dev`, would cover
them. The binds precede the user's `--remount-ro /`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from posixpath import dirname
from typing import Optional

from gpubind.errors import RuntimeLimitError
from gpubind.files import Tree
from gpubind.model import EnvVar, Missing, Mount, Plan
from gpubind.runtimes.bubblewrap.options import BINDS, PROGRAM, UserBwrapOptions, parse_user_options
from gpubind.runtimes.edits import RuntimeArguments, make_edits
from gpubind.runtimes.environment import BaseEnvironment, compose, set_variables
from gpubind.runtimes.runtime import NO_STAGE, Stage, Start

REBUILD_LIMIT = 150
"""The most entries of a directory that is rebuilt for an optional mount. Rebuilding 280 entries takes over 100 ms."""
BWRAP_MOUNTS = ("/proc", "/dev", "/sys", "/tmp")
_NEW_DIRECTORY_OPTIONS = ("dev", "tmpfs", "proc", "mqueue", "dir")
"""Options that make a new directory at a path, in which mount points can be made."""


def directory_to_rebuild(image: Tree, target: str, *, through_links: bool = True) -> Optional[str]:
    """Return the deepest existing directory of *image* above *target*, resolved; None if *target* itself exists.

    With *through_links*, a link at *target* exists if its destination does. Without, a link is taken as missing.
    """
    if image.has(target) and (through_links or isinstance(image.readlink(target), Missing)):
        return None
    directory = dirname(target)
    while directory != "/":
        entry = image.find(directory)
        if not isinstance(entry, Missing) and entry.stat.kind == "dir":
            return entry.path
        directory = dirname(directory)
    return "/"


def rebuild_obstacle(mount: Mount, image: Tree) -> Optional[str]:
    """Return why *mount* gets no mount point: it is optional, and its directory in *image* is too large to be rebuilt.

    None if it gets one.
    """
    place = directory_to_rebuild(image, mount.target)
    if place is None or place == "/" or mount.required or len(image.names(place)) <= REBUILD_LIMIT:
        return None
    return f"{place} of the image lacks it, and has too many entries to be rebuilt"


def rebuild_args(
    image: Tree, directory: str, bind: str = "--ro-bind", without: Collection[str] = BWRAP_MOUNTS
) -> list[str]:
    """Return the options that make *directory* a tmpfs in which all entries of the image are bound again.

    The root needs no tmpfs, because it is one already. *bind* is the option for the entries; *without* has the paths
    that are rebuilt in another way.
    """
    args = [] if directory == "/" else ["--tmpfs", directory]
    for name in image.names(directory):
        path = f"{directory.rstrip('/')}/{name}"
        if path in without:
            continue
        target = image.readlink(path)
        if isinstance(target, str):
            args += ["--symlink", target, path]
            continue
        stat = image.lstat(path)
        if not isinstance(stat, Missing) and stat.kind in ("dir", "file"):
            args += [bind, image.root.rstrip("/") + path, path]
    return args


def arguments_in_line(plan: Plan, start: Start, stage: Stage = NO_STAGE) -> RuntimeArguments:
    """Return the user's options with *plan* among them, for a start whose root is the image or a new directory.

    Errors: `RuntimeLimitError` (code `fixed-root`) for a root in which no mount point can be made.
    """
    image = start.tree
    options = PROGRAM.read(start.user.arguments).options
    user_options = parse_user_options(start.user.arguments)
    roots = [i for i, opt in enumerate(options) if opt.name in BINDS and opt.args[2:3] == ("/",)]
    root_index = roots[-1] if roots else None
    # Without a /dev of the container no node has a place.
    makes_dev = any(opt.args[-1] == "/dev" for opt in options if opt.name in (*_NEW_DIRECTORY_OPTIONS, *BINDS))
    if any(option.name == "ro-overlay" and option.args[-1] == "/" for option in options):
        hint = "use --tmp-overlay / instead: nothing is written to the layers then, either"
        raise RuntimeLimitError("fixed-root", "no place can be made in a root of --ro-overlay", hint=hint)
    writable = root_index is None or not options[root_index].name.startswith("ro-")
    root = image if root_index is not None else None
    edits = make_edits(
        plan, stage.files, user_options.binds, lambda mount, _: _obstacle(mount, image, writable=writable)
    )
    args: list[str] = []
    targets = [bind.target for bind in edits.binds]
    places = {"/", *(directory_to_rebuild(root, path) or "/" for path in targets)} if root is not None else set()
    plan_args = [
        *(() if makes_dev else ("--dev", "/dev")),
        *(arg for b in edits.binds for arg in ("--ro-bind" if b.read_only else "--bind", b.source, b.target)),
        *(arg for node in edits.devices for arg in ("--dev-bind", node.source, node.target)),
    ]
    env = tuple(_environment(edits.env, start.caller.environ, user_options))
    remount_index = next((i for i, option in enumerate(options) if option.args == ("--remount-ro", "/")), len(options))
    for index, option in enumerate(options):
        if index == remount_index:
            args += plan_args
        if index == root_index and root is not None:
            kind = "--bind" if writable else "--ro-bind"
            args += [arg for place in sorted(places) for arg in rebuild_args(root, place, kind, ())]
        else:
            args += option.args
    args += plan_args if remount_index == len(options) else []
    for name, value in env:
        args += ["--setenv", name, value] if value is not None else ["--unsetenv", name]
    if not writable:
        args += [arg for place in sorted(places, reverse=True) for arg in ("--remount-ro", place)]
    return RuntimeArguments(tuple(args), edits.binds, set_variables(dict(env)), edits.decisions, edits.findings)


def _obstacle(mount: Mount, image: Optional[Tree], *, writable: bool) -> Optional[str]:
    """Return why *mount* gets no mount point in the image's root, or in a *writable* root of the user."""
    if image is None:
        return None
    place = directory_to_rebuild(image, mount.target)
    if writable and place not in (None, "/") and not mount.required:
        return f"{place} of the image lacks it, and what would be made there is made in your files"
    return rebuild_obstacle(mount, image)


def _environment(
    operations: Sequence[EnvVar], environ: Mapping[str, str], user_options: UserBwrapOptions
) -> Iterator[tuple[str, Optional[str]]]:
    """Yield the plan's variables. A user's --setenv takes precedence over the plan's value, and that over the
    caller's.
    """
    users = dict(user_options.env)
    callers = {} if user_options.clears_env else {name: value for name, value in environ.items() if name not in users}
    for name, value in compose(operations, BaseEnvironment(users, images=callers)).items():
        if name != "PATH" or name in users or not user_options.clears_env:  # without PATH execvp(3) has a default
            yield name, value
