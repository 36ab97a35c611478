"""LayeredTree: the files of tar layers, without unpacking them anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from gpubind.formats.elf import ElfFacts, ElfIdent, NotElf
from gpubind.image.layers import Entry, Layers
from gpubind.image.sources import Part, Source
from gpubind.image.stored import StoredTree
from gpubind.model import HostPath, Missing, RootedPath, Stat
from gpubind.tree.base import ABSENT


class LayeredTree(StoredTree):
    """The files in *layers*; *root* only names the image."""

    def __init__(self, layers: Layers, root: HostPath) -> None:
        super().__init__(root)
        self._layers = layers

    def open(self, path: RootedPath) -> Union[Source, Missing]:
        entry = self._layers.find(path)
        if entry is None:
            return ABSENT
        if entry.kind != "file" or entry.offset < 0:
            return Missing("unreadable", "a sparse file" if entry.kind == "file" else f"a {entry.kind}")
        layer = self._layers.sources[entry.source]
        return Part(layer, entry.offset, entry.size, f"{layer.label}: {path.lstrip('/')}")

    def _entry(self, path: str) -> Union[Entry, Missing]:
        return self._layers.find(path) or ABSENT

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        entry = self._entry(path)
        if isinstance(entry, Missing):
            return entry
        return Stat(entry.kind, entry.mode, entry.uid, entry.gid, entry.size, entry.major, entry.minor)

    def _readlink(self, path: str) -> Union[str, Missing]:
        entry = self._entry(path)
        return entry if isinstance(entry, Missing) else entry.link

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        entry = self._entry(path)
        if isinstance(entry, Missing):
            return entry
        return tuple(entry.children or ())

    def _ident(self, path: str) -> Union[ElfIdent, NotElf, Missing]:
        entry = self._entry(path)
        return entry.ident if isinstance(entry, Entry) and entry.ident is not None else super()._ident(path)

    def _elf(self, path: str) -> Union[ElfFacts, Missing]:
        entry = self._entry(path)
        if isinstance(entry, Entry) and entry.ident is None:
            return Missing("unreadable", "not an ELF file")
        return super()._elf(path)
