"""bubblewrap: needs a directory and no privilege, and gives a container of its own making.

The image is bound read-only and never written to. Mount points that it lacks are made beside it, as Singularity's
underlay does: the directory that lacks them is a tmpfs in which everything the image has there is bound again. That is
cheap at the root and dear in a large directory, so it is done where it must be, and not at all in very large ones.

Source: bwrap(1) 0.8 to 0.12. A device node bound with --ro-bind or --bind cannot be opened (nodev): --dev-bind it is.
"""

from __future__ import annotations

from posixpath import dirname
from typing import Optional

from gpubind.image.facts import DEFAULT_PATH
from gpubind.model import Decision, Missing, Plan
from gpubind.planner.placement import GPUBIND
from gpubind.runtimes.start import Action, Bind, Start, Words, no_mount_point
from gpubind.tree import Tree

LAYOUT = GPUBIND
REBUILD_LIMIT = 150
"""Entries of a directory that is still rebuilt for an optional mount: 280 of them cost over 100 ms."""

FROM_HOST = ("/etc/resolv.conf", "/etc/hosts", "/etc/passwd", "/etc/group")
"""Bound where the image has a place for them, as Singularity does."""
MADE_BY_BWRAP = ("proc", "dev", "sys", "tmp")


def words(plan: Plan, start: Start, image: Tree) -> Words:
    """The options that make a container of *image* with *plan* in it; `bwrap WORDS -- COMMAND`."""
    decisions: list[Decision] = []
    binds: list[Bind] = []
    rebuilt: dict[str, None] = {"/": None}
    for mount in plan.mounts:
        source = mount.source or start.staged.get(mount.target)
        if source is None:
            continue
        place = _place_to_rebuild(image, mount.target)
        if place is not None and place != "/" and not mount.required and _entries(image, place) > REBUILD_LIMIT:
            detail = f"{place} of the image lacks it, and has too many entries to be rebuilt"
            decisions.append(no_mount_point(mount, detail))
            continue
        if place is not None:
            rebuilt[place] = None
        binds.append(Bind(source, mount.target, "ro" in mount.options))
    homes = _user_directories(start, image, rebuilt)
    options: list[str] = []
    for place in sorted(rebuilt):
        options += _rebuild(image, place)
    options += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", "/sys", "/sys", "--bind", "/tmp", "/tmp"]
    for path in FROM_HOST:
        found = image.lstat(path)
        if not isinstance(found, Missing) and found.kind == "file":  # bubblewrap refuses to mount on a link
            options += ["--ro-bind-try", path, path]
    options += homes
    for bind in binds:
        options += ["--ro-bind" if bind.read_only else "--bind", bind.source, bind.target]
    for node in plan.devices:
        options += ["--dev-bind", node.source, node.target]
    for place in sorted(rebuilt, reverse=True):
        options += ["--remount-ro", place]
    env = _environment(plan)
    options += ["--unsetenv", "LD_LIBRARY_PATH"]  # the host's own means nothing in there
    for variable in plan.env:
        if variable.op == "unset":
            options += ["--unsetenv", variable.name]
    for name, value in env:
        options += ["--setenv", name, value]
    return Words(tuple(options), tuple(binds), env, tuple(decisions), ())


def command(
    program: str, action: Action, start: Start, made: Words, image: Tree, argv: tuple[str, ...]
) -> tuple[str, ...]:
    """The whole command line; `run` starts the image's runscript, `shell` its shell."""
    if action == "run" and not isinstance(image.stat("/.singularity.d/runscript"), Missing):
        argv = ("/.singularity.d/runscript", *argv)
    elif action == "shell" or not argv:
        shell = "/bin/sh" if isinstance(image.stat("/bin/bash"), Missing) else "/bin/bash"
        argv = (shell, *argv)
    # bubblewrap stays as the parent of the container; without the first word a signal would end it alone.
    return (program, "--die-with-parent", *made.options, *start.arguments, "--", *argv)


def _place_to_rebuild(image: Tree, target: str) -> Optional[str]:
    """The deepest directory of *image* above *target* that is there, if *target* itself is not; as a resolved path."""
    if not isinstance(image.stat(target), Missing):
        return None
    here = dirname(target)
    while here != "/":
        path = image.resolve(here)
        found = path if isinstance(path, Missing) else image.stat(path)
        if not isinstance(path, Missing) and not isinstance(found, Missing) and found.kind == "dir":
            return path
        here = dirname(here)
    return "/"


def _entries(image: Tree, directory: str) -> int:
    names = image.list(directory)
    return 0 if isinstance(names, Missing) else len(names)


def _rebuild(image: Tree, directory: str) -> list[str]:
    """*directory* as a tmpfs that holds everything the image has there. The root is one already."""
    words = [] if directory == "/" else ["--tmpfs", directory]
    names = image.list(directory)
    for name in () if isinstance(names, Missing) else names:
        path = f"{directory.rstrip('/')}/{name}"
        if directory == "/" and name in MADE_BY_BWRAP:
            continue
        target = image.readlink(path)
        if isinstance(target, str):
            words += ["--symlink", target, path]
            continue
        found = image.lstat(path)
        if not isinstance(found, Missing) and found.kind in ("dir", "file"):
            words += ["--ro-bind", image.root.rstrip("/") + path, path]
    return words


def _user_directories(start: Start, image: Tree, rebuilt: dict[str, None]) -> list[str]:
    """The caller's home and working directory, writable at their own paths, as Singularity has them."""
    words: list[str] = []
    home, working = start.environ.get("HOME", ""), start.environ.get("PWD", "")
    covered: list[str] = ["/tmp"]
    for path in (home, working):
        outside = path.startswith("/") and path != "/" and "\0" not in path
        if not outside or any(path == c or path.startswith(c + "/") for c in covered) or path not in start.directories:
            continue
        place = _place_to_rebuild(image, path)
        if place is not None and _entries(image, place) > REBUILD_LIMIT:
            continue
        if place is not None:
            rebuilt[place] = None
        words += ["--bind", path, path]
        covered.append(path)
    if any(working == c or working.startswith(c + "/") for c in covered):
        words += ["--chdir", working]
    return words


def _environment(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Values, composed: ours first, then the image's; the host's own LD_LIBRARY_PATH means nothing in a container."""
    image = plan.image.env if plan.image else {}
    env = {"PATH": image.get("PATH") or DEFAULT_PATH}
    paths: list[str] = []
    for variable in plan.env:
        value = variable.value or ""
        if variable.name == "PATH":
            env["PATH"] = f"{value}:{env['PATH']}" if variable.op == "prepend" else f"{env['PATH']}:{value}"
        elif variable.name == "LD_LIBRARY_PATH":
            paths.append(value)
        elif variable.op == "set":
            env[variable.name] = value
    own = image.get("LD_LIBRARY_PATH")
    if paths or own:
        env["LD_LIBRARY_PATH"] = ":".join([*paths, *([own] if own else [])])
    return tuple(sorted(env.items()))
