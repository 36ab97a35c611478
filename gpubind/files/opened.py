"""A tree whose files are opened: on this machine or in an image, not in a record."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, TypeVar, Union, cast

from gpubind.errors import FormatError
from gpubind.files.tree import Tree
from gpubind.formats.elf.elf import HEAD_SIZE, ElfFacts, ElfIdent, NotElf, parse_ident
from gpubind.model import Missing, RootedPath

if TYPE_CHECKING:
    from gpubind.files.blob import Blob
    from gpubind.formats.elf.named import NamedLibraries
    from gpubind.model.gpucode import GpuCode

T = TypeVar("T")

BUFFER = 1 << 16
COPY_STEP = 1 << 18
COPY_MEMORY = 16 << 20
COPY_LIMIT = 512 << 20  # the largest driver libraries have 100 MB
PACKED = "it is in a layer that is compressed with zstd, where each step back unpacks all that precedes it"


class OpenedTree(Tree):
    """A tree that reads bytes, identifications and ELF facts from open files. Subclasses open regular files.

    Errors: `FormatError` where the image is damaged, `HostReadError` where it cannot be read.
    """

    def open(self, path: RootedPath, label: str = "") -> Union[Blob, Missing]:
        """Open the regular file at the resolved *path*; *label* names it in errors."""
        raise NotImplementedError

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        blob = self.open(RootedPath(path))
        return blob if isinstance(blob, Missing) else blob.read_at(0, size)

    def _stream(self, path: str) -> Union[BinaryIO, Missing]:
        """Return the file as a seekable stream, copied first if going back in it is slow. The caller closes it."""
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
            if error.code != "bad-elf":  # the whole image is damaged
                raise
            return Missing("unreadable", f"{error.what}: {error.why}")

    def _gpu_code(self, path: str) -> Union[GpuCode, Missing]:
        from gpubind.formats.gpucode.sections import parse_gpu_code

        return self._parsed(path, parse_gpu_code)

    def _named_libraries(self, path: str) -> Union[NamedLibraries, Missing]:
        from gpubind.formats.elf.named import parse_named_libraries

        return self._parsed(path, parse_named_libraries)

    def _parsed(self, path: str, parse: Callable[[BinaryIO], T]) -> Union[T, Missing]:
        """Return what *parse* reads here and there in the file *path*: a buffer would read most of the file."""
        if self.restarts:
            return Missing("unreadable", PACKED)
        blob = self.open(RootedPath(path))
        if isinstance(blob, Missing):
            return blob
        from gpubind.files.blob import BlobStream

        blob.let_read_all()  # GPU code is everywhere in a file, and is read from its beginning to its end
        # Of a file that is too large for a copy the end is unpacked for the headers of its sections, then all again.
        is_direct = blob.quick or (blob.size or 0) > COPY_LIMIT
        stream = cast("BinaryIO", BlobStream(blob)) if is_direct else self._stream(path)
        if isinstance(stream, Missing):
            return stream
        try:
            with stream:
                return parse(stream)
        except FormatError as error:
            if error.code != "bad-elf":  # the whole image is damaged
                raise
            return Missing("unreadable", f"{error.what}: {error.why}")
