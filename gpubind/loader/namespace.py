"""Follow paths in a container: the image's tree, and what is mounted over it.

The mount that covers a component of a path decides which tree provides it. Links of every tree are followed in the
container. A mount covers the file to which the links of its target lead, with all files and mounts below it. Missing
mount points are created.

Source: path_resolution(7), mount(2); Apptainer 1.4 and bubblewrap make missing mount points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from posixpath import dirname, normpath
from typing import Any, Optional, TypeVar, Union

from gpubind.files import Tree
from gpubind.files.facts import FileFact
from gpubind.frozen import NamedTuple
from gpubind.model import ABSENT, ContainerPath, EnvVar, FileKind, HostPath, Missing, Mount, RootedPath, Stat
from gpubind.model.files import Link, walk_path

T = TypeVar("T")

PYTHON_VARIABLES = ("PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONPATH", "PYTHONUSERBASE")
"""Variables that decide, with HOME and the path of the interpreter, where Python looks for packages."""


class UserBind(NamedTuple):
    """A bind that the user or the site makes, or that the runtime makes by default."""

    source: HostPath
    """A file or a directory of this host."""
    target: ContainerPath


class UserMounts(NamedTuple):
    """The binds, variables and unknown options of a container besides the plan."""

    binds: tuple[UserBind, ...] = ()
    """In the order in which the runtime mounts them: a later one covers an earlier one."""
    env: tuple[EnvVar, ...] = ()
    """The user's operations on search paths, LD_PRELOAD, Python's and ROCm's variables. They are applied after the
    image's. The operation `default` takes effect if the image does not set the variable.
    """
    working_directory: Optional[ContainerPath] = None
    """The directory in which the program starts; None if it is unknown."""
    unknown_options: tuple[str, ...] = ()
    """Options, variables or directives whose effect is unknown: `--overlay x.img`."""


class Cover(NamedTuple):
    """A mount: a file or directory of a tree, laid over the container's *target*."""

    target: str
    tree: Optional[Tree]
    """The tree of the source; None for a generated text or a socket of another root."""
    source: str
    """The source in that tree; its links are followed there."""
    directory: bool
    mount: Optional[Mount] = None
    """The bind of the plan, if it is one."""
    bind: Optional[UserBind] = None
    """The bind of the user, the site or the runtime, if it is one."""


class NamespaceEntry(NamedTuple):
    """The file or directory at a path."""

    path: str
    """The link-free path in the container; empty for the root."""
    kind: FileKind
    tree: Optional[Tree]
    """The tree that holds it; None for a directory that is created for a mount point, or a source outside all trees."""
    tree_path: RootedPath
    """The resolved path in that tree."""
    cover: Optional[Cover]
    """The mount that provides it; None for the image."""


class Namespace:
    """The paths of a container: the tree *image*, and *covers* mounted over it in their order."""

    def __init__(self, image: Tree, covers: Iterable[Cover]) -> None:
        self._root = NamespaceEntry("", "dir", image, RootedPath("/"), None)
        self._covers: dict[str, Cover] = {}
        self._implied_directories: dict[str, None] = {}
        self._directories: dict[str, Union[NamespaceEntry, Missing]] = {}
        for cover in covers:
            self._mount(cover)

    def resolve(self, path: str) -> Union[NamespaceEntry, Missing]:
        """Return the entry at absolute *path*, with every link followed."""
        head, _, name = path.rpartition("/")
        parent = self._directories.get(head)
        if parent is None:
            parent = self._directories[head] = self._follow(self._root, head)[0]
        return parent if isinstance(parent, Missing) else self._follow(parent, name or ".")[0]

    def lstat(self, path: str) -> Union[NamespaceEntry, Link, Missing]:
        """Return the entry or link at absolute *path*; a link at its end is not followed."""
        head, _, name = path.rpartition("/")
        parent = self.resolve(head or "/")
        return parent if isinstance(parent, Missing) else self._step(parent, name)

    def mounted_in(self, path: str) -> tuple[str, ...]:
        """Return the names of the mounts and implied directories in the link-free directory *path*."""
        entries = (at.rpartition("/") for at in (*self._covers, *self._implied_directories))
        return tuple(name for directory, _, name in entries if directory == path)

    def _mount(self, cover: Cover) -> None:
        place, path = self._follow(self._root, cover.target)
        path = path if isinstance(place, Missing) else place.path
        if cover.directory:
            self._covers = {at: earlier for at, earlier in self._covers.items() if not at.startswith(f"{path}/")}
            self._implied_directories = {above: None for at in self._covers for above in _parents(at)}
        if not path:
            self._root = _entry_of_cover(cover, "", self._root)
            return
        self._covers[path] = cover
        self._implied_directories.update(dict.fromkeys(_parents(path)))

    def _follow(self, current: NamespaceEntry, path: str) -> tuple[Union[NamespaceEntry, Missing], str]:
        """Return the entry at *path* from *current*, and its link-free path. A missing file has such a path as well."""
        entry, at, missing_names = walk_path(
            path, current, self._root, self._step, self._parent, lambda current: current.kind == "dir"
        )
        return entry, normpath("/".join((at.path, *missing_names))) if missing_names else at.path

    def _parent(self, entry: NamespaceEntry) -> NamespaceEntry:
        parent = self._follow(self._root, dirname(entry.path))[0]  # link-free, and followed before
        return self._root if isinstance(parent, Missing) else parent

    def _step(self, directory: NamespaceEntry, name: str) -> Union[NamespaceEntry, Link, Missing]:
        path = f"{directory.path}/{name}"
        cover = self._covers.get(path)
        if cover is not None:
            return _entry_of_cover(cover, path)
        entry: Union[NamespaceEntry, Link, Missing] = ABSENT
        if directory.tree is not None:
            entry = _inside(directory, directory.tree, path, name)
        if isinstance(entry, Missing) and path in self._implied_directories:
            return NamespaceEntry(path, "dir", None, RootedPath("/"), None)
        return entry


def _inside(directory: NamespaceEntry, tree: Tree, path: str, name: str) -> Union[NamespaceEntry, Link, Missing]:
    at = RootedPath(f"{directory.tree_path.rstrip('/')}/{name}")
    file_stat = tree.lstat(at)
    if isinstance(file_stat, Missing):
        return file_stat
    if file_stat.kind == "link":
        target = tree.readlink(at) or ABSENT
        return target if isinstance(target, Missing) else Link(target)
    return NamespaceEntry(path, file_stat.kind, tree, at, directory.cover)


def _entry_of_cover(cover: Cover, path: str, fallback: Optional[NamespaceEntry] = None) -> NamespaceEntry:
    """Return the mount *cover* at *path*; *fallback* if its source cannot be inspected."""
    unknown = fallback or NamespaceEntry(path, "dir" if cover.directory else "file", None, RootedPath("/"), cover)
    if cover.tree is None:
        return unknown
    tree = cover.tree.lenient  # a record may have no list of a directory that is bound
    resolved = tree.find(cover.source)
    if isinstance(resolved, Missing):
        return unknown
    return NamespaceEntry(path, resolved.stat.kind, tree, resolved.path, cover)


def _parents(path: str) -> Iterator[str]:
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
        ns_entry = self._namespace.lstat(path)
        if isinstance(ns_entry, Link):
            return Stat("link", 0o777, 0, 0, len(ns_entry.target))
        if isinstance(ns_entry, Missing):
            return ns_entry
        if ns_entry.tree is None:
            return Stat(ns_entry.kind, 0o755, 0, 0, 0)
        return ns_entry.tree.lenient.lstat(ns_entry.tree_path)

    def _readlink(self, path: str) -> Union[str, Missing]:
        ns_entry = self._namespace.lstat(path)
        return ns_entry.target if isinstance(ns_entry, Link) else ABSENT

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        ns_entry = self._namespace.resolve(path)
        if isinstance(ns_entry, Missing):
            return ns_entry
        names = () if ns_entry.tree is None else ns_entry.tree.lenient.list(ns_entry.tree_path)
        mounted = self._namespace.mounted_in(ns_entry.path)
        return tuple(dict.fromkeys((*(() if isinstance(names, Missing) else names), *mounted))) or names

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        return self._delegate(path, lambda tree, at: tree.read(at, limit))

    def _fact(self, path: str, fact: FileFact[Any]) -> Any:
        return self._delegate(path, lambda tree, at: tree.fact(at, fact))

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        return self._delegate(path, lambda tree, at: tree.head(at, size))

    def _delegate(self, path: str, operation: Callable[[Tree, str], Union[T, Missing]]) -> Union[T, Missing]:
        ns_entry = self._namespace.resolve(path)
        if isinstance(ns_entry, Missing):
            return ns_entry
        return ABSENT if ns_entry.tree is None else operation(ns_entry.tree.lenient, ns_entry.tree_path)
