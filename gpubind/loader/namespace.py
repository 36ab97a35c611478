"""Follow paths in a container: the image's tree, and what is mounted over it.

The mount that covers a component decides which tree has it; links are followed in the container, in whichever tree.
A mount is made where its target's links lead, and hides all files and mounts below; missing mount points are made.

Source: path_resolution(7), mount(2); Apptainer 1.4 and bubblewrap make missing mount points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from posixpath import dirname, normpath
from typing import Any, Optional, TypeVar, Union

from gpubind.files import Tree
from gpubind.files.facts import FileFact
from gpubind.frozen import NamedTuple
from gpubind.machine.links import Link, follow
from gpubind.model import ABSENT, ContainerPath, EnvVar, FileKind, HostPath, Missing, Mount, RootedPath, Stat

T = TypeVar("T")

PYTHON_VARIABLES = ("PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONPATH", "PYTHONUSERBASE")
"""Variables that decide, with HOME and the path of the interpreter, where Python looks for packages."""


class UserBind(NamedTuple):
    """A bind of the user, of the site, or that the runtime makes by itself."""

    source: HostPath
    """A file or a directory of this host."""
    target: ContainerPath


class OwnMounts(NamedTuple):
    """What a container gets in addition to the plan."""

    binds: tuple[UserBind, ...] = ()
    """In the order in which the runtime mounts them: a later one covers an earlier one."""
    env: tuple[EnvVar, ...] = ()
    """The user's operations on search paths, LD_PRELOAD, Python's and ROCm's variables, after the image's. `default`
    takes effect where the image sets nothing."""
    working_directory: Optional[ContainerPath] = None
    """The directory in which the program starts; None if it is unknown."""
    unseen: tuple[str, ...] = ()
    """Options, variables or directives whose effect is unknown: `--overlay x.img`."""


class Cover(NamedTuple):
    """A mount: a file or directory of a tree, laid over the container's *target*."""

    target: str
    tree: Optional[Tree]
    """The tree that has the source; None for a generated text or a socket of another root."""
    source: str
    """The source in that tree, in which its links are followed."""
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
    """None for a directory that is made for a mount point, or if no tree has it."""
    at: RootedPath
    """The resolved path in that tree."""
    cover: Optional[Cover]
    """The mount that provides it; None if it is the image's."""


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

    def entry(self, path: str) -> Union[Place, Link, Missing]:
        """Return what absolute *path* itself is: a string is the target of a link."""
        head, _, name = path.rpartition("/")
        parent = self.look(head or "/")
        return parent if isinstance(parent, Missing) else self._step(parent, name)

    def mounted_in(self, path: str) -> tuple[str, ...]:
        """Return the names of mounts and of directories made for them in the link-free directory *path*."""
        entries = (at.rpartition("/") for at in (*self._covers, *self._needed))
        return tuple(name for directory, _, name in entries if directory == path)

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
        found, at, rest = follow(path, here, self._root, self._step, self._parent, lambda here: here.kind == "dir")
        return found, normpath("/".join((at.path, *rest))) if rest else at.path

    def _parent(self, here: Place) -> Place:
        found = self._follow(self._root, dirname(here.path))[0]  # link-free, and gone through before
        return self._root if isinstance(found, Missing) else found

    def _step(self, here: Place, name: str) -> Union[Place, Link, Missing]:
        """Return what *name* is in directory *here*."""
        path = f"{here.path}/{name}"
        cover = self._covers.get(path)
        if cover is not None:
            return _entered(cover, path)
        found: Union[Place, Link, Missing] = ABSENT
        if here.tree is not None:
            found = _inside(here, here.tree, path, name)
        if isinstance(found, Missing) and path in self._needed:
            return Place(path, "dir", None, RootedPath("/"), None)
        return found


def _inside(here: Place, tree: Tree, path: str, name: str) -> Union[Place, Link, Missing]:
    at = RootedPath(f"{here.at.rstrip('/')}/{name}")
    found = tree.lstat(at)
    if isinstance(found, Missing):
        return found
    if found.kind == "link":
        target = tree.readlink(at) or ABSENT
        return target if isinstance(target, Missing) else Link(target)
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


class MountedTree(Tree):
    """The files of the container of *namespace*, as one tree. It has no real path on the host."""

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(HostPath("/"))
        self._namespace = namespace

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        found = self._namespace.entry(path)
        if isinstance(found, Link):
            return Stat("link", 0o777, 0, 0, len(found.target))
        if isinstance(found, Missing):
            return found
        return Stat(found.kind, 0o755, 0, 0, 0) if found.tree is None else found.tree.lenient.lstat(found.at)

    def _readlink(self, path: str) -> Union[str, Missing]:
        found = self._namespace.entry(path)
        return found.target if isinstance(found, Link) else ABSENT

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        found = self._namespace.look(path)
        if isinstance(found, Missing):
            return found
        names = () if found.tree is None else found.tree.lenient.list(found.at)
        mounted = self._namespace.mounted_in(found.path)
        return tuple(dict.fromkeys((*(() if isinstance(names, Missing) else names), *mounted))) or names

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        return self._ask(path, lambda tree, at: tree.read(at, limit))

    def _fact(self, path: str, fact: FileFact[Any]) -> Any:
        return self._ask(path, lambda tree, at: tree.fact(at, fact))

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        return self._ask(path, lambda tree, at: tree.head(at, size))

    def _ask(self, path: str, question: Callable[[Tree, str], Union[T, Missing]]) -> Union[T, Missing]:
        found = self._namespace.look(path)
        if isinstance(found, Missing):
            return found
        return ABSENT if found.tree is None else question(found.tree.lenient, found.at)
