"""Where a path leads in a container: the image's tree, and over it what is mounted.

A path is followed component by component, as the kernel does: at each step the mount that covers it says which tree
answers, and a link counts in the container, whatever tree holds it. A mount lies where the links to its target lead,
hides what was there, and the mounts below that; a directory that only mount points need is made.

Source: path_resolution(7), mount(2); Apptainer 1.4 and bubblewrap make missing mount points.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from posixpath import dirname, normpath
from typing import NamedTuple, Optional, Union

from gpubind.files import Tree
from gpubind.files.links import Link, follow
from gpubind.formats.elf.elf import ElfFacts, ElfIdent, NotElf
from gpubind.model import ContainerPath, EnvVar, FileKind, HostPath, Missing, Mount, RootedPath, Stat
from gpubind.model.answers import ABSENT

PYTHON_VARIABLES = ("PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONPATH", "PYTHONUSERBASE")
"""What decides, beside HOME and the place of the interpreter, where Python looks for packages."""


class UserBind(NamedTuple):
    """A bind of a start that is not the plan's: of the user, of the site, or one that the runtime makes by itself."""

    source: HostPath
    """A file or a directory of this host."""
    target: ContainerPath


class Brought(NamedTuple):
    """What a start brings into the container beside the plan."""

    binds: tuple[UserBind, ...] = ()
    """In the order in which the runtime mounts them: a later one covers an earlier one."""
    env: tuple[EnvVar, ...] = ()
    """The user's own operations on the container's LD_LIBRARY_PATH, PATH, LD_PRELOAD and Python's variables: done after
    the image's. `default` counts where the image sets nothing."""
    working_directory: Optional[ContainerPath] = None
    """Where the program starts; None if that is not known."""
    unseen: tuple[str, ...] = ()
    """What is brought and cannot be looked at: the word, variable or directive that brings it (`--overlay x.img`)."""


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

    def entry(self, path: str) -> Union[Place, Link, Missing]:
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
        found, at, rest = follow(path, here, self._root, self._step, self._parent, _is_directory)
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


def _is_directory(here: Place) -> bool:
    return here.kind == "dir"


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
    """The tree that a process in the container of *namespace* sees. It has no place of its own on the host."""

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
        found = self._file(path)
        return found if isinstance(found, Missing) else found[0].read(found[1], limit)

    def _ident(self, path: str) -> Union[ElfIdent, NotElf, Missing]:
        found = self._file(path)
        return found if isinstance(found, Missing) else found[0].ident(found[1])

    def _elf(self, path: str) -> Union[ElfFacts, Missing]:
        found = self._file(path)
        return found if isinstance(found, Missing) else found[0].elf(found[1])

    def _file(self, path: str) -> Union[tuple[Tree, str], Missing]:
        found: Union[Place, Missing] = self._namespace.look(path)
        if isinstance(found, Missing):
            return found
        return ABSENT if found.tree is None else (found.tree.lenient, found.at)
