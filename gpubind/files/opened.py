"""OpenedTree: a tree whose files are opened, on this machine or in an image, as against a recorded one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, Union, cast

from gpubind.errors import FormatError
from gpubind.files.tree import Tree
from gpubind.formats.elf.elf import HEAD_SIZE, ElfFacts, ElfIdent, NotElf, parse_ident
from gpubind.model import Missing, RootedPath

if TYPE_CHECKING:
    from gpubind.files.blob import Blob

BUFFER = 1 << 16
COPY_STEP = 1 << 18
COPY_MEMORY = 16 << 20
COPY_LIMIT = 512 << 20  # the largest driver libraries have 100 MB


class OpenedTree(Tree):
    """The one way from an open file to its bytes, its identification and its ELF facts.

    Subclasses open regular files. Errors: damage of what the tree is stored in comes up as `FormatError` when it is
    met, failures of reading as `HostReadError`.
    """

    def open(self, path: RootedPath, label: str = "") -> Union[Blob, Missing]:
        """Return the bytes of the regular file *path*, which must be resolved; *label* names them in errors."""
        raise NotImplementedError

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        """Return the first *size* bytes; fewer only if the file has no more."""
        blob = self.open(RootedPath(path))
        return blob if isinstance(blob, Missing) else blob.read_at(0, size)

    def _stream(self, path: str) -> Union[BinaryIO, Missing]:
        """Return the file as a seekable stream, copied first if going back in it is slow. Whoever asked closes it."""
        blob = self.open(RootedPath(path))
        if isinstance(blob, Missing):
            return blob
        from gpubind.files.blob import BlobStream

        if blob.quick:
            return io.BufferedReader(BlobStream(blob), BUFFER)
        import tempfile

        size = blob.size or 0
        if size > COPY_LIMIT:
            return Missing("unreadable", f"too large to be looked at: {size} bytes in a compressed layer")
        copy = tempfile.SpooledTemporaryFile(max_size=COPY_MEMORY)  # noqa: SIM115
        for offset in range(0, size, COPY_STEP):
            copy.write(blob.read_at(offset, COPY_STEP))
        copy.seek(0)
        return cast("BinaryIO", copy)

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        data = self._head(path, limit + 1)
        if isinstance(data, Missing) or len(data) <= limit:
            return data
        return Missing("unreadable", f"larger than {limit} bytes")

    def _ident(self, path: str) -> Union[ElfIdent, NotElf, Missing]:
        head = self._head(path, HEAD_SIZE)
        return head if isinstance(head, Missing) else parse_ident(head)

    def _elf(self, path: str) -> Union[ElfFacts, Missing]:
        stream = self._stream(path)
        if isinstance(stream, Missing):
            return stream
        from gpubind.formats.elf.dynamic import parse_elf

        try:
            with stream:
                return parse_elf(stream)
        except FormatError as error:
            if error.code != "bad-elf":  # the image is damaged, not the file alone
                raise
            return Missing("unreadable", f"{error.what}: {error.why}")
