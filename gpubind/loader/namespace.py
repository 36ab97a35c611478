"""Where a path leads in a container: the image's tree, and over it what is mounted.

A path is followed component by component, as the kernel does: at each step the mount that covers it says which tree
answers, and a link counts in the container, whatever tree holds it. A mount lies where the links to its target lead,
hides what was there, and the mounts below that; a directory that only mount points need is made.

Source: path_resolution(7), mount(2); Apptainer 1.4 and bubblewrap make missing mount points.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from posixpath import dirname, normpath
from typing import NamedTuple, Optional, Union

from gpubind.files import Tree
from gpubind.loader.brought import UserBind
from gpubind.model import FileKind, Missing, Mount, RootedPath
from gpubind.model.answers import ABSENT, LOOP
from gpubind.model.budget import LINKS_LIMIT


class Cover(NamedTuple):
    """A mount: a file or directory of a tree, laid over the container's *target*."""

    target: str
    tree: Optional[Tree]
    """The tree that holds the source; None where no tree does: a generated text, a socket of another root."""
    source: str
    """The source in that tree; links in it count there, for whoever mounts follows them outside."""
    directory: bool
    mount: Optional[Mount] = None
    """The plan's bind that this is."""
    bind: Optional[UserBind] = None
    """The bind of the user, the site or the runtime that this is."""


class Place(NamedTuple):
    """What a path leads to."""

    path: str
    """The link-free path in the container; the root is empty."""
    kind: FileKind
    tree: Optional[Tree]
    """None for a directory that only mount points need, and for what no tree holds."""
    at: RootedPath
    """The resolved path in that tree."""
    cover: Optional[Cover]
    """The mount that brings it; None if it is the image's own."""


class Namespace:
    """The paths of a container of the image in *image*, with *covers* mounted one after the other."""

    def __init__(self, image: Tree, covers: Iterable[Cover]) -> None:
        self._root = Place("", "dir", image, RootedPath("/"), None)
        self._covers: dict[str, Cover] = {}
        self._needed: dict[str, None] = {}
        self._directories: dict[str, Union[Place, Missing]] = {}
        for cover in covers:
            self._mount(cover)

    def look(self, path: str) -> Union[Place, Missing]:
        """Return what absolute *path* leads to, with every link followed."""
        head, _, name = path.rpartition("/")
        parent = self._directories.get(head)
        if parent is None:
            parent = self._directories[head] = self._follow(self._root, head)[0]
        return parent if isinstance(parent, Missing) else self._follow(parent, name or ".")[0]

    def entry(self, path: str) -> Union[Place, Missing, str]:
        """Return what absolute *path* itself is: a string is the target of a link."""
        head, _, name = path.rpartition("/")
        parent = self.look(head or "/")
        return parent if isinstance(parent, Missing) else self._step(parent, name)

    def mounted_in(self, path: str) -> tuple[str, ...]:
        """The names of mounts, and of directories that only mount points need, in the link-free directory *path*."""
        return tuple(at[len(path) + 1 :] for at in (*self._covers, *self._needed) if dirname(at) == (path or "/"))

    def _mount(self, cover: Cover) -> None:
        place, path = self._follow(self._root, cover.target)
        path = path if isinstance(place, Missing) else place.path
        if cover.directory:
            self._covers = {at: other for at, other in self._covers.items() if not at.startswith(f"{path}/")}
            self._needed = {above: None for at in self._covers for above in _above(at)}
        if not path:
            self._root = _entered(cover, "", self._root)
            return
        self._covers[path] = cover
        self._needed.update(dict.fromkeys(_above(path)))

    def _follow(self, here: Place, path: str) -> tuple[Union[Place, Missing], str]:
        """Return what *path* leads to from *here*; and where that is, or would be if it were there."""
        todo = path.split("/")[::-1]
        links = 0
        while todo:
            name = todo.pop()
            if here.kind != "dir":
                return ABSENT, normpath("/".join((here.path, name, *reversed(todo))))
            if name in ("", "."):
                continue
            if name == "..":
                here = self._parent(here)
                continue
            following = self._step(here, name)
            if isinstance(following, Place):
                here = following
                continue
            links += 1
            if isinstance(following, str) and links <= LINKS_LIMIT:
                here = self._root if following.startswith("/") else here
                todo.extend(following.split("/")[::-1])
                continue
            why = following if isinstance(following, Missing) else LOOP
            return why, normpath("/".join((here.path, name, *reversed(todo))))
        return here, here.path

    def _parent(self, here: Place) -> Place:
        found = self._follow(self._root, dirname(here.path))[0]  # link-free, and gone through before
        return self._root if isinstance(found, Missing) else found

    def _step(self, here: Place, name: str) -> Union[Place, Missing, str]:
        """Return what *name* is in directory *here*; a string is the target of a link."""
        path = f"{here.path}/{name}"
        cover = self._covers.get(path)
        if cover is not None:
            return _entered(cover, path)
        found: Union[Place, Missing, str] = ABSENT
        if here.tree is not None:
            found = _inside(here, here.tree, path, name)
        if isinstance(found, Missing) and path in self._needed:
            return Place(path, "dir", None, RootedPath("/"), None)
        return found


def _inside(here: Place, tree: Tree, path: str, name: str) -> Union[Place, Missing, str]:
    at = RootedPath(f"{here.at.rstrip('/')}/{name}")
    found = tree.lstat(at)
    if isinstance(found, Missing):
        return found
    if found.kind == "link":
        return tree.readlink(at) or ABSENT
    return Place(path, found.kind, tree, at, here.cover)


def _entered(cover: Cover, path: str, otherwise: Optional[Place] = None) -> Place:
    """Return the mount *cover* at *path*; *otherwise* where its source cannot be looked at."""
    unknown = otherwise or Place(path, "dir" if cover.directory else "file", None, RootedPath("/"), cover)
    if cover.tree is None:
        return unknown
    tree = cover.tree.lenient  # a record may have no list of a directory that is bound
    found = tree.find(cover.source)
    return unknown if isinstance(found, Missing) else Place(path, found.stat.kind, tree, found.path, cover)


def _above(path: str) -> Iterator[str]:
    """Yield the directories above link-free *path*, but the root."""
    above = dirname(path)
    while above != "/":
        yield above
        above = dirname(above)
