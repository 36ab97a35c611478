"""The members of a tar archive, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpubind.errors import FormatError
from gpubind.files.blob import Blob
from gpubind.formats.archive.tar import BLOCK, RECORD_LIMIT, TarHeader, completed, parse_pax, parse_tar_header

RECORDS_LIMIT = 16  # before one member; tar writes up to three
SPARSE_LIMIT = 4096  # blocks of one file's map


class Member(NamedTuple):
    """A member, and where its data is."""

    header: TarHeader
    offset: int
    """Of its data in the archive; of a sparse file, of its header or the first record before that."""


def members(archive: Blob) -> Iterator[Member]:
    """Yield what is in *archive*, in its order, each as the records before it say.

    Errors: `FormatError` (code `bad-archive`) with the byte offset in the archive.
    """
    at = end = records = start = 0
    attributes: dict[str, str] = {}
    while True:
        block = archive.read_at(at, BLOCK)
        parsed = at  # where the bytes start that are looked at
        try:
            if not block and not records:  # without the zeros at the end, which some writers leave out
                if end and not archive.read_at(end - 1, 1):
                    raise _damaged("the last member ends after the end of the archive", 0)
                return
            header = parse_tar_header(block)
            if header is None:
                if archive.read_at(at + BLOCK, BLOCK).strip(b"\0"):
                    raise _damaged("a block of zeros between members; two end an archive", 0)
                return
            data = at + BLOCK
            if header.record:
                records += 1
                if header.stored > RECORD_LIMIT or records > RECORDS_LIMIT:
                    raise _damaged(f"record {records} before a member has {header.stored} bytes", 0)
                parsed = data
                attributes.update(_said(header, archive.read_at(data, header.stored)))
                at = _behind(data, header.stored)
                continue
            header = completed(header, attributes)
        except FormatError as error:
            raise error.behind(parsed).in_file(archive.label) from error
        attributes = {}
        records = 0
        if header.more:
            data = _behind_map(archive, data)
        yield Member(header, start if header.sparse else data)
        at = _behind(data, header.stored)
        start, end = at, data + header.stored


def _said(record: TarHeader, body: bytes) -> dict[str, str]:
    """Return what a record says of the next member, in pax's words."""
    if len(body) < record.stored:
        raise _damaged("truncated record", 0)
    if record.record == "pax":
        return parse_pax(body)
    text = body.partition(b"\0")[0].decode("utf-8", "surrogateescape")
    return {"name": {"path": text}, "link": {"linkpath": text}}.get(record.record or "", {})


def _behind(offset: int, size: int) -> int:
    return offset + (size + BLOCK - 1) // BLOCK * BLOCK


def _behind_map(archive: Blob, offset: int) -> int:
    """Return where the data of a GNU sparse file starts: behind blocks that say whether another one follows."""
    for _ in range(SPARSE_LIMIT):
        block = archive.read_at(offset, BLOCK)
        offset += BLOCK
        if len(block) < BLOCK or not block[504]:
            return offset
    raise _damaged("the map of a sparse file has no end", offset).in_file(archive.label)


def _damaged(why: str, offset: int) -> FormatError:
    return FormatError("bad-archive", "damaged tar archive", offset=offset, why=why)
