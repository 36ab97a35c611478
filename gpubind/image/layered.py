"""LayeredTree: the files of tar layers, without unpacking them anywhere."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import BinaryIO, Union, cast

from gpubind.errors import FormatError
from gpubind.formats.elf import HEAD_SIZE, ElfFacts, ElfIdent, NotElf, parse_elf, parse_ident
from gpubind.image.layers import Entry, Layers
from gpubind.image.sources import CHUNK, Part, Source, SourceStream
from gpubind.model import HostPath, Missing, RootedPath, Stat
from gpubind.tree import Tree
from gpubind.tree.base import ABSENT

SPOOL_MEMORY = 16 << 20
SPOOL_LIMIT = 512 << 20  # the largest driver libraries have 100 MB


class LayeredTree(Tree):
    """The files in *layers*; *root* only names the image. Errors of damage come up as `FormatError` when met."""

    def __init__(self, layers: Layers, root: HostPath) -> None:
        super().__init__(root)
        self._layers = layers

    def open(self, path: RootedPath) -> Union[Source, Missing]:
        """The bytes of the regular file *path*, which must be resolved."""
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

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        source = self.open(RootedPath(path))
        if isinstance(source, Missing):
            return source
        if (source.size or 0) > limit:
            return Missing("unreadable", f"larger than {limit} bytes")
        return source.read_at(0, limit)

    def _ident(self, path: str) -> Union[ElfIdent, NotElf, Missing]:
        entry = self._entry(path)
        if isinstance(entry, Entry) and entry.ident is not None:
            return entry.ident
        source = self.open(RootedPath(path))
        return source if isinstance(source, Missing) else parse_ident(source.read_at(0, HEAD_SIZE))

    def _elf(self, path: str) -> Union[ElfFacts, Missing]:
        entry = self._entry(path)
        if isinstance(entry, Entry) and entry.ident is None:
            return Missing("unreadable", "not an ELF file")
        source = self.open(RootedPath(path))
        if isinstance(source, Missing):
            return source
        try:
            return elf_facts(source)
        except FormatError as error:
            if error.code != "bad-elf":
                raise
            return Missing("unreadable", f"{error.what}: {error.why}")


def elf_facts(source: Source) -> ElfFacts:
    """The dynamic facts of the ELF file in *source*, which is copied first if going back in it is slow.

    Errors: `FormatError` (`bad-elf`, and those of the source).
    """
    import tempfile

    if source.quick:
        return parse_elf(io.BufferedReader(SourceStream(source), 1 << 16))
    size = source.size or 0
    if size > SPOOL_LIMIT:
        why = f"{size} bytes in a compressed layer"
        raise FormatError("bad-elf", "too large to be looked at", place="byte 0", why=why)
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_MEMORY) as copy:
        for offset in range(0, size, CHUNK):
            copy.write(source.read_at(offset, CHUNK))
        copy.seek(0)
        return parse_elf(cast("BinaryIO", copy))
