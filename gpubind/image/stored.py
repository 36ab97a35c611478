"""StoredTree: a tree whose files are parts of something larger, a layer or a file system in a file."""

from __future__ import annotations

import io
from typing import BinaryIO, Union, cast

from gpubind.image.sources import CHUNK, Source, SourceStream
from gpubind.model import Missing, RootedPath
from gpubind.tree.opened import OpenedTree

BUFFER = 1 << 16
SPOOL_MEMORY = 16 << 20
SPOOL_LIMIT = 512 << 20  # the largest driver libraries have 100 MB


class StoredTree(OpenedTree):
    """A tree whose regular files are sources. Errors of damage come up as `FormatError` when met."""

    def open(self, path: RootedPath) -> Union[Source, Missing]:
        """The bytes of the regular file *path*, which must be resolved."""
        raise NotImplementedError

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        source = self.open(RootedPath(path))
        return source if isinstance(source, Missing) else source.read_at(0, size)

    def _stream(self, path: str) -> Union[BinaryIO, Missing]:
        """The file as a stream, copied first if going back in it is slow."""
        source = self.open(RootedPath(path))
        if isinstance(source, Missing):
            return source
        if source.quick:
            return io.BufferedReader(SourceStream(source), BUFFER)
        import tempfile

        size = source.size or 0
        if size > SPOOL_LIMIT:
            return Missing("unreadable", f"too large to be looked at: {size} bytes in a compressed layer")
        copy = tempfile.SpooledTemporaryFile(max_size=SPOOL_MEMORY)  # noqa: SIM115  # whoever asked closes it
        for offset in range(0, size, CHUNK):
            copy.write(source.read_at(offset, CHUNK))
        copy.seek(0)
        return cast("BinaryIO", copy)
