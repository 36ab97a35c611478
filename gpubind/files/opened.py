"""A tree of files that can be opened: on this machine or in an image, not in a record."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, BinaryIO, Union, cast

from gpubind.errors import FormatError
from gpubind.files.facts import FileFact
from gpubind.files.tree import Tree
from gpubind.model import HostPath, Missing, RootedPath

if TYPE_CHECKING:
    from gpubind.files.blob import Blob, BlobCopy

_BUFFER = 1 << 16
COPY_MEMORY = 16 << 20
COPY_LIMIT = 512 << 20  # the largest driver libraries have 100 MB
PACKED = "it is in a layer that is compressed with zstd, where each step back unpacks all that precedes it"


class OpenedTree(Tree):
    """A tree that reads bytes, identifications and ELF facts from open files. Subclasses open the regular files.

    Errors: `FormatError` for a damaged image, `HostReadError` for an unreadable one.
    """

    def __init__(self, root: HostPath) -> None:
        super().__init__(root)
        self._copies: dict[str, BlobCopy] = {}

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

    def _seekable_blob(self, path: str) -> Union[Blob, Missing]:
        """Return the file; or a copy of it, if going back in the file is slow and it has at most `COPY_LIMIT` bytes.

        Copies are kept for later questions, up to `COPY_LIMIT` bytes in all.
        """
        cached_copy = self._copies.get(path)
        blob = cached_copy or self.open(RootedPath(path))
        if isinstance(blob, Missing) or blob.quick or (blob.size or 0) > COPY_LIMIT:
            return blob
        from gpubind.files.blob import BlobCopy, BytesBlob

        size = blob.size or 0
        if size <= COPY_MEMORY:
            return BytesBlob(blob.read_at(0, size), blob.label)
        while self._copies and sum(copy.size for copy in self._copies.values()) + size > COPY_LIMIT:
            self._copies.pop(next(iter(self._copies))).close()
        self._copies[path] = copy = BlobCopy(blob, size)
        return copy

    def _stream(self, path: str) -> Union[BinaryIO, Missing]:
        """Return the file as a seekable stream. The caller closes it."""
        blob = self._seekable_blob(path)
        if isinstance(blob, Missing):
            return blob
        if not blob.quick:
            return Missing("unreadable", f"too large to be looked at: {blob.size} bytes in a compressed layer")
        from gpubind.files.blob import BlobStream

        return io.BufferedReader(BlobStream(blob), _BUFFER)

    def _unbuffered(self, path: str) -> Union[BinaryIO, Missing]:
        """Return the file as `_stream` does, but for scattered reads: a buffer would read most of the file."""
        if self.restarts:
            return Missing("unreadable", PACKED)
        # A file too large for a copy is unpacked twice: once to its end for the section headers, then for its code.
        blob = self._seekable_blob(path)
        if isinstance(blob, Missing):
            return blob
        from gpubind.files.blob import BlobStream

        blob.let_read_all()  # GPU code is spread over a file, and is read from beginning to end
        return cast("BinaryIO", BlobStream(blob))

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        data = self._head(path, limit + 1)
        if isinstance(data, Missing) or len(data) <= limit:
            return data
        return Missing("unreadable", f"larger than {limit} bytes")

    def _fact(self, path: str, fact: FileFact[Any]) -> Any:
        if fact.head:
            head = self._head(path, fact.head)
            return head if isinstance(head, Missing) else fact.parse(head)
        stream = self._stream(path) if fact.is_buffered else self._unbuffered(path)
        if isinstance(stream, Missing):
            return stream
        try:
            with stream:
                return fact.parse(stream)
        except FormatError as error:
            if error.code != "bad-elf":  # the whole image is damaged
                raise
            return Missing("unreadable", f"{error.what}: {error.why}")
