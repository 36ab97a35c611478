"""LayeredTree: the files of tar layers, one over the other; of layers that can be read from their start alone, with
what is near to what was asked for.

Going back in a zstd layer means to unpack all of it once more: seconds for each GiB. Who asks for one library mostly
asks for others of its directory, too: they are kept on the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional, Union

from gpubind.arch import ARCHITECTURES
from gpubind.blob.base import Blob, Bytes, Part
from gpubind.formats.elf import ElfFacts, ElfIdent, NotElf
from gpubind.image.layers import Directory, Entry, Layers
from gpubind.model import HostPath, Missing, RootedPath, Stat
from gpubind.tree.base import ABSENT
from gpubind.tree.opened import OpenedTree

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
        """The bytes of *entry*, which is at *path*; None if they are too many to be kept."""
        if entry.size > ELF_LIMIT:
            return None
        if (entry.source, entry.offset) not in self._kept:
            self._keep(path.rpartition("/")[0] or "/", entry)
        return self._kept[entry.source, entry.offset]

    def _keep(self, directory: str, asked: Entry) -> None:
        if self._size > KEPT_LIMIT // 2 or len(self._kept) > FILES_LIMIT // 2:
            self._kept.clear()
            self._size = 0
        directories = (directory,) if asked.source in self._begun else (directory, *USUAL)
        self._begun.add(asked.source)
        wanted = {entry.offset: entry for each in directories for entry in self._files(each, asked.source)}
        wanted[asked.offset] = asked
        blob = self._layers.blobs[asked.source]
        for offset, entry in sorted(wanted.items()):
            is_full = self._size + entry.size > KEPT_LIMIT or len(self._kept) >= FILES_LIMIT
            if entry is asked or not (is_full or (entry.source, offset) in self._kept):
                self._kept[entry.source, offset] = data = blob.read_at(offset, entry.size)
                self._size += len(data)

    def _files(self, directory: str, layer: int) -> Iterator[Entry]:
        """What of *directory*, in that layer, somebody may look into."""
        found = self._layers.find(directory)
        for entry in found.children.values() if isinstance(found, Directory) else ():
            limit = TEXT_LIMIT if entry.ident is None else ELF_LIMIT
            if entry.kind == "file" and entry.source == layer and entry.offset >= 0 and 0 < entry.size <= limit:
                yield entry


class LayeredTree(OpenedTree):
    """The files in *layers*; *root* only names the image."""

    def __init__(self, layers: Layers, root: HostPath) -> None:
        super().__init__(root)
        self._layers = layers
        self._near = Near(layers)

    def open(self, path: RootedPath, label: str = "") -> Union[Blob, Missing]:
        entry = self._layers.find(path)
        if entry is None:
            return ABSENT
        if entry.kind != "file" or entry.offset < 0:
            return Missing("unreadable", "a sparse file" if entry.kind == "file" else f"a {entry.kind}")
        layer = self._layers.blobs[entry.source]
        label = label or f"{layer.label}: {path.lstrip('/')}"
        data = self._near.read(path, entry) if layer.restarts else None
        return Part(layer, entry.offset, entry.size, label) if data is None else Bytes(data, label)

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
        if entry is not None and entry.ident is None:
            return Missing("unreadable", "not an ELF file")
        return super()._elf(path)
