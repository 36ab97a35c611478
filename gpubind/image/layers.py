"""Index and read the files of stacked tar layers without unpacking them.

Source: OCI image-spec `layer.md` (whiteouts, opaque directories, hard links). The path of a member follows links inside
the root, as in runtimes that unpack one layer over the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from functools import lru_cache
from posixpath import normpath
from typing import Any, Optional, Union

from gpubind.errors import FormatError
from gpubind.files.blob import Blob, BlobPart, BytesBlob
from gpubind.files.facts import ELF, IDENT, FileFact
from gpubind.files.opened import OpenedTree
from gpubind.formats.archive.oci import OPAQUE, WHITEOUT
from gpubind.formats.archive.tar import TarHeader
from gpubind.formats.elf.elf import ElfIdent, parse_ident
from gpubind.image.tar import Member, members, open_sparse
from gpubind.machine.budget import spend
from gpubind.model import ABSENT, HostPath, Missing, RootedPath, Stat
from gpubind.model.arch import ARCHITECTURES
from gpubind.model.files import NOUNS, Link, walk_path

STEPS_LIMIT = 10_000_000
"""Limit of the names in all paths, and of entries below whiteouts: an image of 400,000 files has about 4 million."""
_PATH_LIMIT = 4096  # PATH_MAX: longer ones cannot be unpacked
NAME_LIMIT = 255
_IDENT_SIZE = 20  # bytes that parse_ident needs
_PARENTS_KEPT = 4096


def members_with_ident(blob: Blob) -> Iterator[Member]:
    """Yield the members of the layer in *blob*. Errors: `FormatError` (`bad-archive`, `image-bomb`), `BoundError`."""
    for member in members(blob):
        spend("entries")
        header = member.header
        may_be_elf = header.kind == "file" and header.size >= _IDENT_SIZE and not header.sparse
        yield member._replace(ident=_ident(blob.read_at(member.data, _IDENT_SIZE))) if may_be_elf else member


def collect_members(layer_members: Iterable[Member]) -> list[Member]:
    """List *layer_members* within the bound of their texts. Errors: as `members_with_ident`."""
    listing = []
    for member in layer_members:
        spend("texts", len(member.header.name) + len(member.header.link))
        listing.append(member)
    return listing


_IMPLIED_DIRECTORY = Stat("dir", 0o755, 0, 0, 0)


def _stat(header: TarHeader) -> Stat:
    assert header.kind is not None and header.kind != "hardlink"
    size = header.size if header.kind == "file" else 0
    return Stat(header.kind, header.mode, header.uid, header.gid, size, header.major, header.minor)


@lru_cache(maxsize=1024)  # there are about five
def _ident(head: bytes) -> Optional[ElfIdent]:
    ident = parse_ident(head) if head[:4] == b"\x7fELF" else None
    return ident if isinstance(ident, ElfIdent) else None


class Entry:
    """A file of any kind."""

    __slots__ = ("ident", "layer", "link", "offset", "source", "sparse", "stat")

    def __init__(self, stat: Stat, layer: int) -> None:
        self.stat = stat
        self.layer = layer
        """The number of the last layer that contains it."""
        self.source = layer
        """The number of the layer with its data; a hard link may lead to a file of a lower layer."""
        self.link = ""
        self.offset = -1
        """The offset of its data, or of a sparse file's header; -1 if it is not a regular file."""
        self.sparse = False
        self.ident: Optional[ElfIdent] = None
        """The identification of an ELF file. It is kept because it is needed often, and going back in a layer is
        slow.
        """


class Directory(Entry):
    """A directory and its entries; without *stat*, one that a path implies and no member describes."""

    __slots__ = ("children", "parent")

    def __init__(self, layer: int, parent: Optional[Directory], stat: Stat = _IMPLIED_DIRECTORY) -> None:
        super().__init__(stat, layer)
        self.children: dict[str, Entry] = {}
        self.parent = parent or self


class LayerIndex:
    """An index of the files of layers, which are added from the lowest to the uppermost."""

    def __init__(self, *, whiteouts: bool = True) -> None:
        self.root = Directory(0, None)
        self.blobs: list[Blob] = []
        self._whiteouts = whiteouts
        self._steps = 0
        self._parents: dict[str, Optional[Directory]] = {}

    def add(self, blob: Blob, layer_members: Iterable[Member]) -> None:
        """Add the layer *blob* with its *layer_members* on top of the others.

        Errors: `FormatError` (`image-bomb`), and those of *layer_members*.
        """
        self.blobs.append(blob)
        for member in layer_members:
            header = member.header
            self._count_steps(header.name.count("/") + header.link.count("/"))
            if header.kind is None or len(header.name) > _PATH_LIMIT or len(header.link) > _PATH_LIMIT:
                continue
            path = normpath("/" + header.name.lstrip("/"))  # `..` stops at the root
            head, _, name = path.rpartition("/")
            if "\0" in path or len(name) > NAME_LIMIT:
                continue
            if self._whiteouts and WHITEOUT in path and (f"/{WHITEOUT}" in head or name.startswith(WHITEOUT)):
                if f"/{WHITEOUT}" not in head:  # files below it belong to another storage driver
                    self._hide(head, name)
            elif name:
                self._put(head, name, member)
            elif header.kind == "dir":
                self.root.stat, self.root.layer = _stat(header), self._layer

    def find(self, path: str) -> Optional[Entry]:
        """Return the entry of *path*, without following links."""
        entry: Optional[Entry] = self.root
        for name in path.split("/"):
            if name:
                entry = entry.children.get(name) if isinstance(entry, Directory) else None
        return entry

    @property
    def _layer(self) -> int:
        return len(self.blobs) - 1

    def _put(self, head: str, name: str, member: Member) -> None:
        header, parent = member.header, self._parent(head)
        if parent is None:
            return
        old = parent.children.get(name)
        if header.kind == "hardlink":
            at, _, end = normpath("/" + header.link.lstrip("/")).rpartition("/")
            source = self._parent(at, make=False)
            target = source.children.get(end) if source is not None else None
            if target is None or target.stat.kind == "dir" or target is old:
                return
            new = copy(target)
            new.layer = self._layer
        elif header.kind == "dir" and isinstance(old, Directory):
            old.stat, old.layer = _stat(header), self._layer
            return
        else:
            new = self._make_entry(member, parent)
        spend("texts", len(name) + len(header.link))
        self._replace_entry(parent, name, new)

    def _make_entry(self, member: Member, parent: Directory) -> Entry:
        header, stat = member.header, _stat(member.header)
        new = Directory(self._layer, parent, stat) if stat.kind == "dir" else Entry(stat, self._layer)
        new.link = header.link
        if stat.kind == "file":
            new.offset, new.sparse = member.start if header.sparse else member.data, header.sparse
            new.ident = member.ident
        return new

    def _hide(self, head: str, name: str) -> None:
        """Hide entries of lower layers. Entries of this layer stay, whether the whiteout precedes or follows them."""
        parent = self._parent(head, make=False)
        if parent is None:
            return
        if name == OPAQUE:
            self._prune(parent)
            return
        name = name[len(WHITEOUT) :]
        hidden = parent.children.get(name)
        if isinstance(hidden, Directory):
            self._prune(hidden)
        if hidden is not None:
            self._remove(parent, name, hidden)

    def _prune(self, directory: Directory) -> None:
        entries: list[tuple[Directory, str, Entry]] = []
        todo = [directory]
        while todo:
            parent = todo.pop()
            entries += [(parent, name, child) for name, child in parent.children.items()]
            todo += [child for child in parent.children.values() if isinstance(child, Directory)]
        self._steps += 2 * len(entries)
        for parent, name, child in reversed(entries):  # the deepest first: a directory stays while it has entries
            self._remove(parent, name, child)

    def _remove(self, parent: Directory, name: str, entry: Entry) -> None:
        if entry.layer < self._layer and not (isinstance(entry, Directory) and entry.children):
            self._replace_entry(parent, name, None)

    def _replace_entry(self, parent: Directory, name: str, new: Optional[Entry]) -> None:
        old = parent.children.pop(name, None)
        if old is not None and old.stat.kind in ("dir", "link"):  # paths through it have changed
            self._parents.clear()
        if new is not None:
            parent.children[name] = new

    def _parent(self, path: str, *, make: bool = True) -> Optional[Directory]:
        """Follow links to the directory *path*, and make it if it is missing; None if links loop."""
        if path in self._parents:
            return self._parents[path]
        step = self._find_or_make if make else self._find
        at = walk_path(path, self.root, self.root, step, lambda here: here.parent, self._is_directory)[0]
        directory = at if isinstance(at, Directory) else None
        if directory is not None or make:
            if len(self._parents) > _PARENTS_KEPT:
                self._parents.clear()
            self._parents[path] = directory
        return directory

    def _is_directory(self, _: Directory) -> bool:
        """Count a step of a walk, which only ever visits directories."""
        self._steps += 1
        return True

    def _find(self, parent: Directory, name: str) -> Union[Directory, Link, Missing]:
        entry = parent.children.get(name)
        if isinstance(entry, Directory):
            return entry
        return Link(entry.link) if entry is not None and entry.link else ABSENT

    def _find_or_make(self, parent: Directory, name: str) -> Union[Directory, Link, Missing]:
        """Return the directory or link *name* in *parent*. A file, or a missing entry, is replaced by a new
        directory.
        """
        existing = self._find(parent, name)
        if not isinstance(existing, Missing) or len(name) > NAME_LIMIT:
            return existing
        spend("entries")
        directory = Directory(self._layer, parent)
        self._replace_entry(parent, name, directory)
        return directory

    def _count_steps(self, steps: int) -> None:
        self._steps += steps
        if self._steps > STEPS_LIMIT:
            message, why = "the image has far longer paths than images do", "an index of them would take too much time"
            place = f"more than {STEPS_LIMIT} names in them"
            raise FormatError("image-bomb", message, place=place, why=why).in_file(self.blobs[-1].label)


ELF_LIMIT = 8 << 20
TEXT_LIMIT = 64 << 10
_KEPT_LIMIT = 64 << 20
FILES_LIMIT = 4096
"""Limit of files in the cache; `_KEPT_LIMIT` is that of their bytes."""

_COMMON_DIRECTORIES = (
    "/etc",
    "/etc/ld.so.conf.d",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    *(f"{head}/{arch.triplet}" for head in ("/lib", "/usr/lib") for arch in ARCHITECTURES),
)
"""Directories of which nearly every command reads a file."""


class NeighbourCache:
    """A cache that reads the small files of a directory together, in the order of the archive.

    Going back in a packed archive unpacks it again from its start, which takes seconds for each GiB. A command that
    reads one library of a directory usually reads others of the same directory.
    """

    def __init__(self, layers: LayerIndex) -> None:
        self._layers = layers
        self._kept: dict[tuple[int, int], bytes] = {}
        self._size = 0
        self._read_layers: set[int] = set()

    def read(self, path: str, entry: Entry) -> Optional[bytes]:
        """Return the bytes of *entry* at *path*; None if they are more than `ELF_LIMIT`."""
        if entry.stat.size > ELF_LIMIT:
            return None
        if (entry.source, entry.offset) not in self._kept:
            self._cache_neighbours(path.rpartition("/")[0] or "/", entry)
        return self._kept[entry.source, entry.offset]

    def _cache_neighbours(self, directory: str, requested: Entry) -> None:
        if self._size > _KEPT_LIMIT // 2 or len(self._kept) > FILES_LIMIT // 2:
            self._kept.clear()
            self._size = 0
        blobs = self._layers.blobs
        packed = {number for number, blob in enumerate(blobs) if blob.place}
        layers = packed if requested.source in packed else {requested.source}
        directories = (directory,) if layers <= self._read_layers else (directory, *_COMMON_DIRECTORIES)
        self._read_layers |= layers
        near = (entry for each in directories for entry in self._files(each, layers))
        entries = {(entry.source, entry.offset): entry for entry in (*near, requested)}
        for entry in sorted(entries.values(), key=lambda entry: (blobs[entry.source].place, entry.offset)):
            is_full = self._size + entry.stat.size > _KEPT_LIMIT or len(self._kept) >= FILES_LIMIT
            if entry is requested or not (is_full or (entry.source, entry.offset) in self._kept):
                data = blobs[entry.source].read_at(entry.offset, entry.stat.size)
                self._kept[entry.source, entry.offset] = data
                self._size += len(data)

    def _files(self, directory: str, layers: Collection[int]) -> Iterator[Entry]:
        parent = self._layers.find(directory)
        for entry in parent.children.values() if isinstance(parent, Directory) else ():
            limit = TEXT_LIMIT if entry.ident is None else ELF_LIMIT
            is_plain = entry.stat.kind == "file" and not entry.sparse
            if is_plain and entry.source in layers and 0 < entry.stat.size <= limit:
                yield entry


class LayeredTree(OpenedTree):
    """The files in *layers*. *root* is the path of the image. *near*: whether to cache neighbouring files."""

    def __init__(self, layers: LayerIndex, root: HostPath, *, near: bool = True) -> None:
        super().__init__(root)
        self._layers = layers
        self._near = NeighbourCache(layers) if near else None
        self.restarts = any(blob.restarts for blob in layers.blobs)

    def close(self) -> None:
        for blob in self._layers.blobs:
            blob.close()
        super().close()

    def open(self, path: RootedPath, label: str = "") -> Union[Blob, Missing]:
        entry = self._layers.find(path)
        if entry is None:
            return ABSENT
        if entry.stat.kind != "file":
            return Missing("unreadable", NOUNS[entry.stat.kind])
        layer = self._layers.blobs[entry.source]
        label = label or f"{layer.label}: {path.lstrip('/')}"
        if entry.sparse:
            return open_sparse(layer, entry.offset, label)
        data = self._near.read(path, entry) if self._near and (layer.restarts or layer.place) else None
        return BlobPart(layer, entry.offset, entry.stat.size, label) if data is None else BytesBlob(data, label)

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        entry = self._layers.find(path)
        return ABSENT if entry is None else entry.stat

    def _readlink(self, path: str) -> Union[str, Missing]:
        entry = self._layers.find(path)
        return ABSENT if entry is None else entry.link

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        entry = self._layers.find(path)
        return tuple(entry.children) if isinstance(entry, Directory) else ABSENT

    def _fact(self, path: str, fact: FileFact[Any]) -> Any:
        entry = self._layers.find(path)
        if fact is IDENT and entry is not None and entry.ident is not None:
            return entry.ident
        if fact is ELF and entry is not None and entry.ident is None and not entry.sparse:
            return Missing("unreadable", "not an ELF file")
        return super()._fact(path, fact)
