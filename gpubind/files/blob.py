"""Read bytes at offsets of a file, or of a part of one, in any order. A file is never held in memory as a whole."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Optional, Protocol, TypeVar

from gpubind.errors import HostReadError, closed_error
from gpubind.machine import system
from gpubind.machine.answers import changed, inspection_error, retry_transient
from gpubind.machine.budget import current, report_progress, spend
from gpubind.machine.regular import open_regular
from gpubind.machine.system import OpenFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")

IMAGE_UNREADABLE = "the image cannot be read"
_COPY_STEP = 1 << 18
_READ_LEAST = 4 << 10
"""The minimum cost of a read in bytes: many small reads also take time."""


class Blob:
    """Bytes at offsets. *label* names them in errors.

    Unless the blob is `quick`, going back is slow; if it `restarts`, going back unpacks it from its beginning.
    """

    label: str
    size: Optional[int] = None
    """The number of bytes; None if it is unknown until all are read."""
    quick = True
    restarts = False
    place = 0
    """Where it starts in the packed archive that contains it; 0 if there is no archive."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Return the *size* bytes at *offset*; fewer only at the end of the blob."""
        raise NotImplementedError

    def let_read_all(self) -> None:
        """Allow each byte to be read once. Otherwise only samples of a file in packed blocks may be read."""

    def close(self) -> None:
        """Close the underlying file, for every blob in it."""


class FileBlob(Blob):
    """A regular file, kept open until `close`, or as long as it is used."""

    size: int

    def __init__(self, file: OpenFile, label: str) -> None:
        self.label = label
        self._file: Optional[OpenFile] = file
        stat_result = file.facts()
        self.size, self._written = stat_result.st_size, stat_result.st_mtime_ns
        self._key = stat_result.st_dev, stat_result.st_ino

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        file, self._file = getattr(self, "_file", None), None
        if file is not None:
            file.close()

    def read_at(self, offset: int, size: int) -> bytes:
        size = min(size, self.size - offset)  # the size at the time of opening
        if size <= 0:
            return b""
        file = self._file
        if file is None:
            raise closed_error(self.label)
        budget = current()
        if budget is not None:
            budget.grant(self._key, self.size)  # a later command has another budget than the one that opened it
        spend("read", max(size, _READ_LEAST))
        report_progress(self.label, offset + size, self.size)
        try:
            return retry_transient(lambda: self._read(file, offset, size))
        except OSError as error:
            raise inspection_error(self.label, error, IMAGE_UNREADABLE) from error

    def _read(self, file: OpenFile, offset: int, size: int) -> bytes:
        """Errors: `OSError`, also if the file changed since it was opened."""
        data = file.read_at(offset, size)
        while len(data) < size:
            more = file.read_at(offset + len(data), size - len(data))
            if not more:
                raise changed()
            data += more
        stat_result = file.facts()
        if (stat_result.st_size, stat_result.st_mtime_ns) != (self.size, self._written):
            raise changed()
        return data


class Closable(Protocol):
    """A blob, a tree, or several of them."""

    def close(self) -> None: ...


def close_on_error(opened: Closable, make: Callable[[], T]) -> T:
    """Return the result of *make*; close *opened* if it fails."""
    try:
        return make()
    except BaseException:
        opened.close()
        raise


def open_blob(path: str) -> FileBlob:
    """Open the regular file *path*. Errors: `HostReadError` (codes `no-image`, `unreadable-file`)."""
    try:
        return FileBlob(retry_transient(lambda: open_regular(path)), path)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EISDIR, errno.EINVAL):
            why = "it is not a regular file"
            raise HostReadError("no-image", IMAGE_UNREADABLE, where=path, why=why) from error
        raise inspection_error(path, error, IMAGE_UNREADABLE) from error


class BlobPart(Blob):
    """*size* bytes of *blob*, from *start*."""

    size: int

    def __init__(self, blob: Blob, start: int, size: int, label: str = "") -> None:
        self.label = label or blob.label
        self.quick, self.restarts = blob.quick, blob.restarts
        self.place = 0 if blob.quick else blob.place + start
        self._blob, self._start, self.size = blob, start, size

    def close(self) -> None:
        self._blob.close()

    def read_at(self, offset: int, size: int) -> bytes:
        size = min(size, self.size - offset)
        return self._blob.read_at(self._start + offset, size) if size > 0 else b""


class BytesBlob(Blob):
    """The bytes *data*."""

    def __init__(self, data: bytes, label: str = "") -> None:
        self.label, self.size = label, len(data)
        self._data = data

    def read_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]


class BlobCopy(Blob):
    """A copy of the first *size* bytes of *blob*, in an unnamed file."""

    size: int

    def __init__(self, blob: Blob, size: int) -> None:
        self.label = blob.label
        self._file = system.temporary_file()
        for offset in range(0, size, _COPY_STEP):
            self._file.write(blob.read_at(offset, min(_COPY_STEP, size - offset)))
        self.size = self._file.tell()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def read_at(self, offset: int, size: int) -> bytes:
        if self._file.closed:
            raise closed_error(self.label)
        self._file.seek(offset)
        return self._file.read(size)


class BlobStream(io.RawIOBase):
    """A blob as a binary stream."""

    def __init__(self, blob: Blob) -> None:
        super().__init__()
        self._blob = blob
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._blob.size or 0}[whence]
        if base + offset < 0:
            raise ValueError(f"a seek to {base + offset}")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        data = self._blob.read_at(self._position, len(view))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)
