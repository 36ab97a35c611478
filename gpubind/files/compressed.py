"""Unpack a compressed blob on demand, as a blob.

Going back starts from the last checkpoint (gzip) or from the beginning (zstd).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Optional

from gpubind.errors import IMAGE_BOMB, Format, FormatError, GpubindError, missing_package
from gpubind.files.blob import Blob, BlobStream
from gpubind.machine.budget import spend

CHUNK = 1 << 18
"""Unpacked bytes of one step."""
INPUT = 1 << 15
"""Compressed bytes that are read in one step. At the end of a gzip member, the remaining ones are copied."""
_CHECKPOINT_EVERY = 32 << 20
_CHECKPOINTS_LIMIT = 256  # about 50 KiB each; above the limit every second one is dropped
_BOMB_RATIO = 200  # the densest real layers stay below 20
_BOMB_ALLOWANCE = 64 << 20
WINDOW_LIMIT = 64 << 20  # memory for unpacking zstd; `zstd -19` needs 8 MiB

_ZSTD_EMPTY = 18  # the largest header of a frame, and a checksum

_FORMAT = Format("bad-archive", "damaged compressed file")
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class Unpacked(Blob):
    """The unpacked bytes of *packed*. It keeps the last chunk; subclasses unpack and go back.

    Errors of reading: `FormatError`, code `bad-archive` for damage, `image-bomb` for an excessive compression ratio.
    """

    quick = False

    def __init__(self, packed: Blob) -> None:
        self.label = packed.label
        self.restarts = type(self).restarts or packed.restarts
        self.place = packed.place
        self._packed = packed
        self._start = 0  # where the current chunk starts, in unpacked bytes
        self._chunk = b""
        self._end: Optional[int] = None

    def close(self) -> None:
        self._packed.close()

    def read_at(self, offset: int, size: int) -> bytes:
        if size <= 0:
            return b""
        if not self._start <= offset <= self._start + len(self._chunk):
            self._rewind(offset)
            while offset > self._start + len(self._chunk) and self._advance():
                pass
        parts = []
        while size > 0:
            at = offset - self._start
            part = self._chunk[at : at + size] if at < len(self._chunk) else b""
            if part:
                parts.append(part)
                offset += len(part)
                size -= len(part)
            elif not self._advance():
                break
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _advance(self) -> bool:
        """Unpack the next chunk; False at the end."""
        position = self._start + len(self._chunk)
        if self._end is not None and position >= self._end:
            return False
        try:
            chunk = self._next()
        except GpubindError:
            raise
        except Exception as error:  # the libraries' errors have no common class
            raise self._damaged(f"{type(error).__name__}: {str(error)[:200]}") from error
        spend("unpacked", len(chunk))
        self._start, self._chunk = position, chunk
        consumed = self._consumed()
        if position + len(chunk) > _BOMB_RATIO * consumed + _BOMB_ALLOWANCE:
            why = f"{consumed} bytes unpack to more than {position} bytes"
            raise IMAGE_BOMB.damaged(why, consumed).in_file(self.label)
        if not chunk:
            self._end = position
        return bool(chunk)

    def _rewind(self, offset: int) -> None:
        """Go back, or on to a later checkpoint, if *offset* can be reached only so."""
        raise NotImplementedError

    def _next(self) -> bytes:
        raise NotImplementedError

    def _consumed(self) -> int:
        """Return the number of compressed bytes that are unpacked so far."""
        raise NotImplementedError

    def _damaged(self, why: str) -> FormatError:
        return _FORMAT.damaged(why, self._consumed()).in_file(self.label)


class Gzip(Unpacked):
    """A gzip file, of one member or several (pigz, eStargz), with checkpoints at least 32 MiB apart."""

    def __init__(self, packed: Blob) -> None:
        super().__init__(packed)
        self._spacing = _CHECKPOINT_EVERY
        self._at = 0  # the offset of the unread compressed bytes
        self._tail = b""  # read but not yet unpacked; it ends at _at
        self._object: Any = _inflater()
        self._checkpoints: list[tuple[int, int, Any]] = [(0, 0, None)]  # unpacked offset, packed offset, state

    def _consumed(self) -> int:
        return self._at - len(self._tail)

    def _next(self) -> bytes:
        position = self._start + len(self._chunk)
        if position >= self._checkpoints[-1][0] + self._spacing and not self._object.eof:
            self._checkpoints.append((position, self._consumed(), self._object.copy()))
            if len(self._checkpoints) > _CHECKPOINTS_LIMIT:
                del self._checkpoints[1::2]
                self._spacing *= 2
        while True:
            if self._object.eof and not self._next_member():
                return b""
            data = self._tail or self._read()
            if not data:
                raise self._damaged("it ends in the middle")
            chunk: bytes = self._object.decompress(data, CHUNK)
            self._tail = self._object.unused_data if self._object.eof else self._object.unconsumed_tail
            if chunk:
                return chunk

    def _next_member(self) -> bool:
        while len(self._tail) < 2 and (more := self._read()):
            self._tail += more
        if not self._tail.startswith(GZIP_MAGIC):  # nothing, zeros of a tape, or garbage, which gzip ignores as well
            return False
        self._object = _inflater()
        return True

    def _read(self) -> bytes:
        data = self._packed.read_at(self._at, INPUT)
        self._at += len(data)
        return data

    def _rewind(self, offset: int) -> None:
        index = bisect_right([unpacked for unpacked, _, _ in self._checkpoints], offset) - 1
        unpacked, packed, state = self._checkpoints[index]
        if offset < self._start or unpacked > self._start + len(self._chunk):
            self._object = _inflater() if state is None else state.copy()
            self._at, self._tail = packed, b""
            self._start, self._chunk = unpacked, b""


class Zstd(Unpacked):
    """A zstd file, of one frame or several; going back starts from the beginning."""

    restarts = True

    def __init__(self, packed: Blob) -> None:
        super().__init__(packed)
        self._restart()

    def _restart(self) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise missing_package("zstandard", "this image", self.label) from error
        self._input = BlobStream(self._packed)
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_LIMIT)
        self._reader = decompressor.stream_reader(self._input, read_across_frames=True)  # type: ignore[arg-type]
        self._start, self._chunk = 0, b""

    def _consumed(self) -> int:
        return self._input.tell()

    def _next(self) -> bytes:
        chunk: bytes = self._reader.read(CHUNK)
        if not chunk and not self._start and not self._chunk and self._consumed() > _ZSTD_EMPTY:
            raise self._damaged("it ends before its first block does")
        return chunk

    def _rewind(self, offset: int) -> None:
        if offset < self._start:
            self._restart()


def unpacked(blob: Blob) -> Blob:
    """Return *blob*, unpacked if its first bytes are those of gzip or zstd."""
    head = blob.read_at(0, 4)
    if head.startswith(GZIP_MAGIC):
        return Gzip(blob)
    if head == ZSTD_MAGIC or (head[1:] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50):  # a frame to be skipped
        return Zstd(blob)
    return blob


def _inflater() -> Any:
    import zlib

    return zlib.decompressobj(31)
