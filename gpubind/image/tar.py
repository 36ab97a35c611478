"""Read the members of a tar archive, sparse files included, in bounded memory.

Source for sparse files: GNU tar's manual, "Storing Sparse Files": the old GNU format, and the PAX formats 0.0 to 1.0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Optional

from gpubind.errors import FormatError, in_file
from gpubind.files.blob import Blob
from gpubind.formats.archive import tar
from gpubind.formats.archive.tar import BLOCK, TarHeader, damaged
from gpubind.formats.elf.elf import ElfIdent
from gpubind.frozen import NamedTuple

RECORDS_LIMIT = 16
"""Limit of the records before a member; tar writes up to three."""
_MAP_BLOCKS_LIMIT = 4096
"""Limit of the blocks of a sparse file's map in the old GNU format."""
PIECES_LIMIT = 1 << 16
_MAP_TEXT_LIMIT = 1 << 20
"""Limit of the bytes of a map of format 1.0."""
_NO_MAP = "a sparse file without its map"


class Member(NamedTuple):
    """A member, and its offsets in the archive."""

    header: TarHeader
    start: int
    """The offset of its header, or of the first record before the header."""
    data: int
    """The offset after its header."""
    ident: Optional[ElfIdent] = None
    """The ident of an ELF file in a layer."""


def members(archive: Blob, start: int = 0) -> Iterator[Member]:
    """Yield the members of *archive* from *start* on, with the attributes of the records before each.

    Errors: `FormatError` (code `bad-archive`) with the byte offset in the archive.
    """
    at, end, records = start, 0, 0
    attributes: dict[str, str] = {}
    while True:
        block = archive.read_at(at, BLOCK)
        parsed = at  # where the parsed bytes start
        try:
            if not block and not records:  # some writers omit the zeros at the end
                if end and not archive.read_at(end - 1, 1):
                    raise damaged("the last member ends after the end of the archive")
                return
            header = tar.parse_tar_header(block)
            if header is None:
                if archive.read_at(at + BLOCK, BLOCK).strip(b"\0"):
                    raise damaged("a block of zeros between members; two end an archive")
                return
            data = at + BLOCK
            if header.record:
                records += 1
                if header.data_size > tar.RECORD_LIMIT or records > RECORDS_LIMIT:
                    raise damaged(f"record {records} before a member has {header.data_size} bytes")
                parsed = data
                attributes.update(_attributes(header, archive.read_at(data, header.data_size)))
                at = data + _padded(header.data_size)
                continue
            header = tar.apply_pax(header, attributes)
        except FormatError as error:
            raise error.behind(parsed).in_file(archive.label) from error
        attributes = {}
        records = 0
        yield Member(header, start, data)
        if header.has_more_map:
            data += BLOCK * sum(1 for _ in _map_blocks(archive, data))
        at = data + _padded(header.data_size)
        start, end = at, data + header.data_size


def _attributes(record: TarHeader, body: bytes) -> dict[str, str]:
    if len(body) < record.data_size:
        raise damaged("truncated record")
    if record.record == "pax":
        return tar.parse_pax(body)
    text = body.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    return {"name": {"path": text}, "link": {"linkpath": text}}.get(record.record or "", {})


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _map_blocks(archive: Blob, offset: int) -> Iterator[bytes]:
    """Yield the further blocks of the map of an old GNU sparse file; the last may be truncated."""
    for _ in range(_MAP_BLOCKS_LIMIT):
        block = archive.read_at(offset, BLOCK)
        offset += BLOCK
        yield block
        if len(block) < BLOCK or not block[504]:
            return
    raise damaged("the map of a sparse file has no end", offset).in_file(archive.label)


class SparseBlob(Blob):
    """A file of *size* bytes: *pieces* are (offset, length) pairs, whose data follows *start* in *archive*."""

    size: int

    def __init__(self, archive: Blob, start: int, size: int, pieces: Sequence[tuple[int, int]], label: str) -> None:
        self.label, self.quick, self.restarts = label, archive.quick, archive.restarts
        self._archive, self.size, self._pieces = archive, size, pieces
        self._places = [start, *accumulate((length for _, length in pieces), initial=start)][1:]
        self._offsets = [offset for offset, _ in pieces]

    def read_at(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self.size)
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
                    raise damaged("the data of a sparse file is cut").in_file(self.label)
                data[first - offset : last - offset] = piece
        return bytes(data)


def open_sparse(archive: Blob, start: int, label: str) -> SparseBlob:
    """Return the sparse file whose header, or first record, is at *start* in *archive*.

    Errors: `FormatError` (code `bad-archive`): a damaged map, or one of more than `PIECES_LIMIT` pieces.
    """
    with in_file(label):
        member = next(members(archive, start), None)
        if member is None:
            raise damaged(_NO_MAP)
        numbers, data = _map(archive, member.header, member.data)
        pieces = list(zip(numbers[::2], numbers[1::2]))
        ends = [0, *(offset + length for offset, length in pieces)]
        if len(pieces) > PIECES_LIMIT or any(offset < end for (offset, _), end in zip(pieces, ends)):
            raise damaged(_NO_MAP)
    return SparseBlob(archive, data, member.header.size, pieces, label)


def _map(archive: Blob, header: TarHeader, at: int) -> tuple[list[int], int]:
    """Return the numbers of the map, and the offset of the data. *header* ends at *at*."""
    if header.old_sparse:
        numbers = tar.parse_sparse_block(archive.read_at(at - BLOCK, BLOCK)[386:482])
        for block in _map_blocks(archive, at) if header.has_more_map else ():
            if len(block) < BLOCK:
                raise damaged(_NO_MAP)
            numbers += tar.parse_sparse_block(block[:504])
            at += BLOCK
        return numbers, at
    if header.sparse_map:
        return tar.parse_sparse_map(header.sparse_map), at
    numbers, length = tar.parse_sparse_text(archive.read_at(at, min(header.data_size, _MAP_TEXT_LIMIT)))
    return numbers, at + _padded(length)
