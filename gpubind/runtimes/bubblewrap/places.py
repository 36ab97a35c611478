"""Mount points that an image lacks: bubblewrap gets a directory of its own with them and all that the image has."""

from __future__ import annotations

from collections.abc import Collection
from posixpath import dirname
from typing import Optional

from gpubind.files import Tree
from gpubind.model import Missing, Mount
from gpubind.runtimes.edits import Obstacle

REBUILD_LIMIT = 150
"""Entries of a directory that is still rebuilt for an optional mount: 280 of them cost over 100 ms."""
MADE_BY_BWRAP = ("/proc", "/dev", "/sys", "/tmp")


def place_to_rebuild(image: Tree, target: str, *, through_links: bool = True) -> Optional[str]:
    """The deepest directory of *image* above *target* that is there, if *target* itself is not; as a resolved path.

    A link at *target* counts as what it leads to, or, not *through_links*, as nothing.
    """
    if image.has(target) and (through_links or isinstance(image.readlink(target), Missing)):
        return None
    here = dirname(target)
    while here != "/":
        found = image.find(here)
        if not isinstance(found, Missing) and found.stat.kind == "dir":
            return found.path
        here = dirname(here)
    return "/"


def rebuild_obstacle(mount: Mount, image: Tree) -> Optional[Obstacle]:
    """A directory of *image* that would have to be made anew for an optional file, and is too large for that."""
    place = place_to_rebuild(image, mount.target)
    if place is None or place == "/" or mount.required or len(image.names(place)) <= REBUILD_LIMIT:
        return None
    return Obstacle(f"{place} of the image lacks it, and has too many entries to be rebuilt")


def rebuilt_words(
    image: Tree, directory: str, bind: str = "--ro-bind", without: Collection[str] = MADE_BY_BWRAP
) -> list[str]:
    """Return *directory* as a tmpfs that holds everything the image has there. The root is one already.

    *bind* is the option for that; *without* names entries that are made anew in another way.
    """
    words = [] if directory == "/" else ["--tmpfs", directory]
    for name in image.names(directory):
        path = f"{directory.rstrip('/')}/{name}"
        if path in without:
            continue
        target = image.readlink(path)
        if isinstance(target, str):
            words += ["--symlink", target, path]
            continue
        found = image.lstat(path)
        if not isinstance(found, Missing) and found.kind in ("dir", "file"):
            words += [bind, image.root.rstrip("/") + path, path]
    return words
