"""A root in which mount points can be made: for a container of gpubind's, and in a command line of the user's.

bubblewrap gets a directory of gpubind's with the mount points that an image lacks, and all that the image has.

bubblewrap has no words for GPUs, and makes mount points only where it can write. Where the user binds an image as the
root, the root becomes a directory of bubblewrap's own in which everything of that image is bound again, as in
`bwrap.words`; so nothing is ever made in the image. Our files come after the user's options, for `--dev /dev` and the
like would cover them, and before the user's `--remount-ro /`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from posixpath import dirname
from typing import Optional

from gpubind.errors import RuntimeLimitError
from gpubind.files import Tree
from gpubind.model import EnvVar, Missing, Mount, Plan
from gpubind.runtimes.bubblewrap.options import UserBwrapOptions, parse_user_options
from gpubind.runtimes.cmdline.programs import BWRAP_BINDS, PROGRAMS
from gpubind.runtimes.edits import RuntimeArguments, make_edits
from gpubind.runtimes.environment import BaseEnvironment, compose, set_variables
from gpubind.runtimes.runtime import NO_STAGE, Stage, Start

REBUILD_LIMIT = 150
"""Entries of a directory that is still rebuilt for an optional mount: 280 of them cost over 100 ms."""
BWRAP_MOUNTS = ("/proc", "/dev", "/sys", "/tmp")
_NEW_DIRECTORY_OPTIONS = ("dev", "tmpfs", "proc", "mqueue", "dir")
"""Options that make something new at a path: places can be made in it."""


def directory_to_rebuild(image: Tree, target: str, *, through_links: bool = True) -> Optional[str]:
    """Return the deepest directory of *image* that exists above *target*, resolved; None if *target* itself exists.

    With *through_links* a link at *target* exists if what it leads to does; else none exists.
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
    """Return why an optional file has no place: too large a directory of *image* would have to be rebuilt."""
    place = directory_to_rebuild(image, mount.target)
    if place is None or place == "/" or mount.required or len(image.names(place)) <= REBUILD_LIMIT:
        return None
    return f"{place} of the image lacks it, and has too many entries to be rebuilt"


def rebuild_args(
    image: Tree, directory: str, bind: str = "--ro-bind", without: Collection[str] = BWRAP_MOUNTS
) -> list[str]:
    """Return *directory* as a tmpfs that holds everything the image has there. The root is one already.

    *bind* is the option for that; *without* names entries that are rebuilt in another way.
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
    """Return the user's options with *plan* among them, for a start whose image is their root, or whose root is new.

    Errors: `RuntimeLimitError` (code `fixed-root`) for a root in which no place can be made.
    """
    image = start.tree
    options = PROGRAMS["bwrap"].read(start.user.arguments).options
    user_options = parse_user_options(start.user.arguments)
    roots = [i for i, opt in enumerate(options) if opt.name in BWRAP_BINDS and opt.args[2:3] == ("/",)]
    root_index = roots[-1] if roots else None
    # Without a /dev of the container no node has a place.
    makes_dev = any(opt.args[-1] == "/dev" for opt in options if opt.name in (*_NEW_DIRECTORY_OPTIONS, *BWRAP_BINDS))
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
    """Return why no place for *mount* is made in the image's root, or in a root of the user's that is *writable*."""
    if image is None:
        return None
    place = directory_to_rebuild(image, mount.target)
    if writable and place not in (None, "/") and not mount.required:
        return f"{place} of the image lacks it, and what would be made there is made in your files"
    return rebuild_obstacle(mount, image)


def _environment(
    operations: Sequence[EnvVar], environ: Mapping[str, str], user_options: UserBwrapOptions
) -> Iterator[tuple[str, Optional[str]]]:
    """Yield the variables of the plan with their values: the user's --setenv comes first, then ours, then the caller's
    own.
    """
    users = dict(user_options.env)
    callers = {} if user_options.clears_env else {name: value for name, value in environ.items() if name not in users}
    for name, value in compose(operations, BaseEnvironment(users, images=callers)).items():
        if not (
            name == "PATH" and user_options.clears_env and name not in users
        ):  # else execvp(3) looks where it always does
            yield name, value
