"""The bytes of a sparse file in a tar archive: its holes, and its data, which lies in the archive without them.

Source: GNU tar's manual, "Storing Sparse Files": the old GNU format, and the PAX formats 0.0, 0.1 and 1.0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from gpubind.errors import FormatError, in_file
from gpubind.files.blob import Blob
from gpubind.formats.archive.tar import (
    BLOCK,
    TarHeader,
    completed,
    parse_pax_pairs,
    parse_sparse_block,
    parse_sparse_text,
    parse_tar_header,
    sparse_pairs,
)

Pairs = list[tuple[str, str]]
PIECES_LIMIT = 1 << 16
LINES_LIMIT = 1 << 20  # bytes of a map of format 1.0


class Sparse(Blob):
    """A file of *size* bytes with *pieces*, (offset, length) each, whose data begins at *start* in *archive*."""

    def __init__(self, archive: Blob, start: int, size: int, pieces: Sequence[tuple[int, int]], label: str) -> None:
        self.label, self.quick, self.restarts = label, archive.quick, archive.restarts
        self._archive, self._size, self._pieces = archive, size, pieces
        self._places = [start, *accumulate((length for _, length in pieces), initial=start)][1:]
        self._offsets = [offset for offset, _ in pieces]

    @property
    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self._size)
        if end <= offset:
            return b""
        data = bytearray(end - offset)
        for number in range(max(bisect_right(self._offsets, offset) - 1, 0), len(self._pieces)):
            begin, length = self._pieces[number]
            if begin >= end:
                break
            first, last = max(begin, offset), min(begin + length, end)
            if first < last:
                piece = self._archive.read_at(self._places[number] + first - begin, last - first)
                if len(piece) < last - first:
                    raise _damaged("the data of a sparse file is cut").in_file(self.label)
                data[first - offset : last - offset] = piece
        return bytes(data)


def open_sparse(archive: Blob, start: int, label: str) -> Sparse:
    """Return the sparse file whose header, or the first record before that, is at *start* of *archive*.

    Errors: `FormatError` (code `bad-archive`): a map that is none, or has more than `PIECES_LIMIT` pieces.
    """
    with in_file(label):
        return _opened(archive, start, label)


def _opened(archive: Blob, start: int, label: str) -> Sparse:
    pairs: Pairs = []
    while True:
        block = archive.read_at(start, BLOCK)
        header = parse_tar_header(block)
        start += BLOCK
        if header is None or not header.record:
            break
        if header.record == "pax":
            pairs += parse_pax_pairs(archive.read_at(start, header.stored))
        start += -(-header.stored // BLOCK) * BLOCK
    if header is None:
        raise _damaged("a sparse file without its map")
    header = completed(header, dict(pairs))
    numbers, start = _map(archive, start, header, block, pairs)
    pieces = list(zip(numbers[::2], numbers[1::2]))
    ends = [0, *(offset + length for offset, length in pieces)]
    if len(pieces) > PIECES_LIMIT or any(offset < end for (offset, _), end in zip(pieces, ends)):
        raise _damaged("a sparse file without its map")
    return Sparse(archive, start, header.size, pieces, label)


def _map(
    archive: Blob, start: int, header: TarHeader, block: bytes, pairs: list[tuple[str, str]]
) -> tuple[list[int], int]:
    """Return the numbers of the map, and where the data starts."""
    if header.old_sparse:
        numbers = parse_sparse_block(block[386:482])
        more = header.more
        while more and len(numbers) <= 2 * PIECES_LIMIT:
            block = archive.read_at(start, BLOCK)
            if len(block) < BLOCK:
                raise _damaged("a sparse file without its map")
            numbers += parse_sparse_block(block[:504])
            more, start = bool(block[504]), start + BLOCK
        return numbers, start
    numbers = sparse_pairs(pairs)
    if numbers:
        return numbers, start
    numbers, length = parse_sparse_text(archive.read_at(start, min(header.stored, LINES_LIMIT)))
    return numbers, start + -(-length // BLOCK) * BLOCK


def _damaged(why: str) -> FormatError:
    return FormatError("bad-archive", "damaged tar archive", offset=0, why=why)
