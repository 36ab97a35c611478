"""LayeredTree: the files of tar layers, one over the other; of layers that can be read from their start alone, or that
are in a packed archive, with what is near to what was asked for.

Going back there means to unpack all of it once more: seconds for each GiB. Who asks for one library mostly asks for
others of its directory, too: they are kept on the same way, from all layers of one archive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Optional, Union

from gpubind.files.blob import Blob, BlobPart, Bytes
from gpubind.files.opened import OpenedTree
from gpubind.files.sparse import open_sparse
from gpubind.formats.elf.elf import ElfFacts, ElfIdent, NotElf
from gpubind.image.layers import Directory, Entry, Layers
from gpubind.model import HostPath, Missing, RootedPath, Stat
from gpubind.model.answers import ABSENT
from gpubind.model.arch import ARCHITECTURES

ELF_LIMIT = 8 << 20
TEXT_LIMIT = 64 << 10
KEPT_LIMIT = 64 << 20
FILES_LIMIT = 4096
"""Files that are kept at a time, with `KEPT_LIMIT` bytes in all."""

USUAL = (
    "/etc",
    "/etc/ld.so.conf.d",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    *(f"{head}/{arch.triplet}" for head in ("/lib", "/usr/lib") for arch in ARCHITECTURES),
)
"""Directories that nearly every look at an image needs something of."""


class Near:
    """Files of *layers*, read in the order in which they lie."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._kept: dict[tuple[int, int], bytes] = {}
        self._size = 0
        self._begun: set[int] = set()

    def read(self, path: str, entry: Entry) -> Optional[bytes]:
        """Return the bytes of *entry*, which is at *path*; None if they are too many to be kept."""
        if entry.size > ELF_LIMIT:
            return None
        if (entry.source, entry.offset) not in self._kept:
            self._keep(path.rpartition("/")[0] or "/", entry)
        return self._kept[entry.source, entry.offset]

    def _keep(self, directory: str, asked: Entry) -> None:
        if self._size > KEPT_LIMIT // 2 or len(self._kept) > FILES_LIMIT // 2:
            self._kept.clear()
            self._size = 0
        blobs = self._layers.blobs
        if blobs[asked.source].place:
            layers = {number for number, blob in enumerate(blobs) if blob.place}
        else:
            layers = {asked.source}
        directories = (directory,) if layers <= self._begun else (directory, *USUAL)
        self._begun |= layers
        near = (entry for each in directories for entry in self._files(each, layers))
        wanted = {(entry.source, entry.offset): entry for entry in (*near, asked)}
        for entry in sorted(wanted.values(), key=lambda entry: (blobs[entry.source].place, entry.offset)):
            is_full = self._size + entry.size > KEPT_LIMIT or len(self._kept) >= FILES_LIMIT
            if entry is asked or not (is_full or (entry.source, entry.offset) in self._kept):
                data = blobs[entry.source].read_at(entry.offset, entry.size)
                self._kept[entry.source, entry.offset] = data
                self._size += len(data)

    def _files(self, directory: str, layers: Collection[int]) -> Iterator[Entry]:
        """Yield what of *directory*, in those *layers*, somebody may look into."""
        found = self._layers.find(directory)
        for entry in found.children.values() if isinstance(found, Directory) else ():
            limit = TEXT_LIMIT if entry.ident is None else ELF_LIMIT
            if entry.kind == "file" and entry.source in layers and not entry.sparse and 0 < entry.size <= limit:
                yield entry


class LayeredTree(OpenedTree):
    """The files in *layers*; *root* only names the image. *near*: whether what lies near to a file is kept."""

    def __init__(self, layers: Layers, root: HostPath, *, near: bool = True) -> None:
        super().__init__(root)
        self._layers = layers
        self._near = Near(layers) if near else None
        self.restarts = any(blob.restarts for blob in layers.blobs)

    def close(self) -> None:
        for blob in self._layers.blobs:
            blob.close()
        super().close()

    def open(self, path: RootedPath, label: str = "") -> Union[Blob, Missing]:
        entry = self._layers.find(path)
        if entry is None:
            return ABSENT
        if entry.kind != "file":
            return Missing("unreadable", f"a {entry.kind}")
        layer = self._layers.blobs[entry.source]
        label = label or f"{layer.label}: {path.lstrip('/')}"
        if entry.sparse:
            return open_sparse(layer, entry.offset, label)
        data = self._near.read(path, entry) if self._near and (layer.restarts or layer.place) else None
        return BlobPart(layer, entry.offset, entry.size, label) if data is None else Bytes(data, label)

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        entry = self._layers.find(path)
        if entry is None:
            return ABSENT
        return Stat(entry.kind, entry.mode, entry.uid, entry.gid, entry.size, entry.major, entry.minor)

    def _readlink(self, path: str) -> Union[str, Missing]:
        entry = self._layers.find(path)
        return ABSENT if entry is None else entry.link

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        entry = self._layers.find(path)
        return tuple(entry.children) if isinstance(entry, Directory) else ABSENT

    def _ident(self, path: str) -> Union[ElfIdent, NotElf, Missing]:
        entry = self._layers.find(path)
        return entry.ident if entry is not None and entry.ident is not None else super()._ident(path)

    def _elf(self, path: str) -> Union[ElfFacts, Missing]:
        entry = self._layers.find(path)
        if entry is not None and entry.ident is None and not entry.sparse:
            return Missing("unreadable", "not an ELF file")
        return super()._elf(path)
