"""A tree whose files are opened: on this machine or in an image, not in a record."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, TypeVar, Union, cast

from gpubind.errors import FormatError
from gpubind.files.tree import Tree
from gpubind.formats.elf.elf import HEAD_SIZE, ElfFacts, ElfIdent, NotElf, parse_ident
from gpubind.machine.budget import spend
from gpubind.model import HostPath, Missing, RootedPath

if TYPE_CHECKING:
    from gpubind.files.blob import Blob, Copy
    from gpubind.formats.elf.named import NamedLibraries
    from gpubind.model.gpucode import GpuCode

T = TypeVar("T")

BUFFER = 1 << 16
COPY_MEMORY = 16 << 20
COPY_LIMIT = 512 << 20  # the largest driver libraries have 100 MB
PACKED = "it is in a layer that is compressed with zstd, where each step back unpacks all that precedes it"


class OpenedTree(Tree):
    """A tree that reads bytes, identifications and ELF facts from open files. Subclasses open regular files.

    Errors: `FormatError` where the image is damaged, `HostReadError` where it cannot be read.
    """

    def __init__(self, root: HostPath) -> None:
        super().__init__(root)
        self._copies: dict[str, Copy] = {}

    def open(self, path: RootedPath, label: str = "") -> Union[Blob, Missing]:
        """Open the regular file at the resolved *path*; *label* names it in errors."""
        raise NotImplementedError

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        blob = self.open(RootedPath(path))
        return blob if isinstance(blob, Missing) else blob.read_at(0, size)

    def close(self) -> None:
        for copy in self._copies.values():
            copy.close()
        self._copies.clear()
        super().close()

    def _quick(self, path: str) -> Union[Blob, Missing]:
        """Return the file, as a copy if going back in it is slow and it is not too large for one.

        Large copies are kept for the next question, of `COPY_LIMIT` bytes in all.
        """
        kept = self._copies.get(path)
        blob = kept or self.open(RootedPath(path))
        if isinstance(blob, Missing) or blob.quick or (blob.size or 0) > COPY_LIMIT:
            return blob
        from gpubind.files.blob import Bytes, Copy

        size = blob.size or 0
        if size <= COPY_MEMORY:
            return Bytes(blob.read_at(0, size), blob.label)
        while self._copies and sum(copy.size for copy in self._copies.values()) + size > COPY_LIMIT:
            self._copies.pop(next(iter(self._copies))).close()
        self._copies[path] = copy = Copy(blob, size)
        return copy

    def _stream(self, path: str) -> Union[BinaryIO, Missing]:
        """Return the file as a seekable stream. The caller closes it."""
        blob = self._quick(path)
        if isinstance(blob, Missing):
            return blob
        if not blob.quick:
            return Missing("unreadable", f"too large to be looked at: {blob.size} bytes in a compressed layer")
        from gpubind.files.blob import BlobStream

        return io.BufferedReader(BlobStream(blob), BUFFER)

    def _unbuffered(self, path: str) -> Union[BinaryIO, Missing]:
        """As `_stream`, for what is read here and there: a buffer would read most of the file."""
        if self.restarts:
            return Missing("unreadable", PACKED)
        # Of a file that is too large for a copy the end is unpacked for the headers of its sections, then all again.
        blob = self._quick(path)
        if isinstance(blob, Missing):
            return blob
        from gpubind.files.blob import BlobStream

        blob.let_read_all()  # GPU code is everywhere in a file, and is read from its beginning to its end
        return cast("BinaryIO", BlobStream(blob))

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        data = self._head(path, limit + 1)
        if isinstance(data, Missing) or len(data) <= limit:
            return data
        return Missing("unreadable", f"larger than {limit} bytes")

    def _ident(self, path: str) -> Union[ElfIdent, NotElf, Missing]:
        head = self._head(path, HEAD_SIZE)
        return head if isinstance(head, Missing) else parse_ident(head)

    def _elf(self, path: str) -> Union[ElfFacts, Missing]:
        from gpubind.formats.elf.dynamic import parse_elf

        return _parsed(self._stream(path), parse_elf)

    def _gpu_code(self, path: str) -> Union[GpuCode, Missing]:
        from gpubind.formats.gpucode.sections import parse_gpu_code

        return _parsed(self._unbuffered(path), lambda stream: parse_gpu_code(stream, lambda cost: spend("codes", cost)))

    def _named_libraries(self, path: str) -> Union[NamedLibraries, Missing]:
        from gpubind.formats.elf.named import parse_named_libraries

        return _parsed(self._unbuffered(path), parse_named_libraries)

    def _constants(self, path: str) -> Union[bytes, Missing]:
        from gpubind.formats.elf.named import read_constants

        data = _parsed(self._unbuffered(path), read_constants)
        return Missing("unreadable", "its constants are too large, or cut off") if data is None else data

    def _first_code(self, path: str) -> Union[bytes, Missing]:
        from gpubind.formats.elf.named import read_first_code

        data = _parsed(self._unbuffered(path), read_first_code)
        return Missing("unreadable", "its code is cut off") if data is None else data


def _parsed(stream: Union[BinaryIO, Missing], parse: Callable[[BinaryIO], T]) -> Union[T, Missing]:
    if isinstance(stream, Missing):
        return stream
    try:
        with stream:
            return parse(stream)
    except FormatError as error:
        if error.code != "bad-elf":  # the whole image is damaged
            raise
        return Missing("unreadable", f"{error.what}: {error.why}")
