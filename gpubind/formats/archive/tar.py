"""tar, one header at a time: a member, and the records before it that change it.

docs/decisions/0003-dependencies.md explains why `tarfile` is not used. Sources: POSIX `pax`, ustar and pax headers; GNU
tar's manual, "Basic Tar Format" (long names, base-256 numbers, sparse files); Go's `archive/tar`, with which podman,
docker, skopeo and Apptainer read images.
"""

from __future__ import annotations

import struct
from typing import Literal, Optional, Union

from gpubind.errors import Format
from gpubind.frozen import NamedTuple
from gpubind.model import FileKind

BLOCK = 512
RECORD_LIMIT = 1 << 20
"""Bytes of a record before a member: a long name or pax attributes."""

_KINDS: dict[bytes, Union[FileKind, Literal["hardlink"]]] = {
    b"0": "file",
    b"\0": "file",
    b"7": "file",
    b"1": "hardlink",
    b"2": "link",
    b"3": "char",
    b"4": "block",
    b"5": "dir",
    b"6": "fifo",
    b"S": "file",
}
_RECORDS: dict[bytes, Literal["pax", "name", "link", "ignored"]] = {
    b"x": "pax",
    b"X": "pax",
    b"L": "name",
    b"K": "link",
    b"g": "ignored",
}
_HEADER = struct.Struct("100s8s8s8s12s12s8s1s100s6s2x32s32s8s8s155s12x")
_MAP = "GNU.sparse.map"

damaged = Format("bad-archive", "damaged tar archive").damaged
"""Returns the error about a damaged archive, with the offset."""


class TarHeader(NamedTuple):
    """A member, or a record about the next one."""

    kind: Union[FileKind, Literal["hardlink"], None]
    """The kind of file; None for a record, and for a member that is never extracted (a volume label)."""
    record: Optional[Literal["pax", "name", "link", "ignored"]]
    name: str
    link: str
    mode: int
    uid: int
    gid: int
    size: int
    """Bytes of the file, including holes."""
    data_size: int
    """Bytes of the data after the header, without padding."""
    major: int
    minor: int
    is_old_file_type: bool
    """Whether the type is the oldest one, which files and directories share. The name of a directory then ends in a
    slash.
    """
    sparse: bool
    """Whether the data after it differs from the content of the file."""
    old_sparse: bool
    """Whether it is in GNU tar's old sparse format, with the map in the header and after it."""
    has_more_map: bool
    """Whether blocks with the rest of the map precede the data."""
    sparse_map: str = ""
    """The map of a sparse file in the formats 0.0 and 0.1, from the records before it."""


def parse_tar_header(block: bytes) -> Optional[TarHeader]:
    """Return the header in *block* (512 bytes); None for the zeros that end an archive.

    Errors: `FormatError` (code `bad-archive`) with the offset from the start of the block.
    """
    if len(block) != BLOCK:
        raise damaged("truncated header", len(block))
    if not block.strip(b"\0"):
        return None
    fields = _HEADER.unpack(block)
    name, mode, uid, gid, size, _, checksum, type_flag, link, magic, _, _, major, minor, prefix = fields
    # The checksum counts its own field as spaces; some old writers summed signed bytes.
    total = sum(block) - sum(checksum) + 256
    stored = _number(checksum, 148)
    if stored != total and stored != total - 256 * sum(byte > 127 for byte in block[:148] + block[156:]):
        raise damaged(f"a checksum of {stored}, not {total}", 148)
    record = _RECORDS.get(type_flag)
    kind = None if record else _KINDS.get(type_flag)
    path = _text(name)
    if magic == b"ustar\0" and type_flag != b"S" and prefix[0]:  # with GNU's magic the field has another meaning
        path = f"{_text(prefix)}/{path}"
    # As in tar implementations, links, directories and nodes have no data, whatever their size field holds.
    stored = 0 if kind not in ("file", None) else _length(size, 124)
    node = kind in ("char", "block")
    sparse = type_flag == b"S"
    return TarHeader(
        kind,
        record,
        path,
        _text(link) if kind in ("link", "hardlink") else "",
        _number(mode, 100) & 0o7777,
        _number(uid, 108) & 0xFFFFFFFF,
        _number(gid, 116) & 0xFFFFFFFF,
        _length(block[483:495], 483) if sparse else stored,
        stored,
        _number(major, 329) & 0xFFFFFFFF if node else 0,
        _number(minor, 337) & 0xFFFFFFFF if node else 0,
        type_flag == b"\0",
        sparse,
        sparse,
        sparse and bool(block[482]),
    )


def parse_pax(data: bytes) -> dict[str, str]:
    """Return the attributes in *data*, the body of a pax record: `path`, `linkpath`, `size`, `uid`, ...

    The single numbers of a sparse map of format 0.0 are joined as in 0.1.
    Errors: `FormatError` (code `bad-archive`) with the byte offset.
    """
    attributes: dict[str, str] = {}
    numbers: list[str] = []
    at = 0
    while at < len(data) and data[at]:
        space = data.find(b" ", at, at + 9)
        digits = data[at:space]
        if space < 0 or not digits.isdigit():
            raise damaged("a pax attribute without its length", at)
        end = at + int(digits)
        if end > len(data) or end <= space + 1 or data[end - 1] != 0x0A:
            raise damaged("a pax attribute of a wrong length", at)
        name, equals, value = data[space + 1 : end - 1].decode("utf-8", "surrogateescape").partition("=")
        if not equals:
            raise damaged("a pax attribute without a value", at)
        attributes[name] = value
        if name in ("GNU.sparse.offset", "GNU.sparse.numbytes"):
            numbers.append(value)
        at = end
    return {**attributes, _MAP: ",".join(numbers)} if numbers else attributes


def parse_sparse_block(fields: bytes) -> list[int]:
    """Return the offsets and lengths in *fields*, a part of an old GNU sparse map, up to the first empty field."""
    numbers: list[int] = []
    for at in range(0, len(fields), 24):
        if not fields[at] and not fields[at + 12]:
            break
        numbers += [_length(fields[at : at + 12], at), _length(fields[at + 12 : at + 24], at)]
    return numbers


def parse_sparse_map(text: str) -> list[int]:
    """Return the offsets and lengths in the map of a sparse file of format 0.0 or 0.1."""
    return [_decimal(_MAP, number) for number in text.split(",")]


def parse_sparse_text(data: bytes) -> tuple[list[int], int]:
    """Return the offsets and lengths of the map of format 1.0 at the start of *data*, and the size of the map in
    bytes.
    """
    count, newline, after_count = data.partition(b"\n")
    if not newline or not count.isdigit() or len(count) > 9:
        raise damaged("a sparse file without its map", 0)
    lines = after_count.split(b"\n", 2 * int(count))[: 2 * int(count)]
    if len(lines) < 2 * int(count) or not all(line.isdigit() and len(line) < 20 for line in lines):
        raise damaged("a sparse file without its map", 0)
    return [int(line) for line in lines], len(count) + 1 + sum(len(line) + 1 for line in lines)


def apply_pax(header: TarHeader, attributes: dict[str, str]) -> TarHeader:
    """Return the member that *header* and the pax *attributes* before it describe.

    Errors: `FormatError` (code `bad-archive`) for a malformed number.
    """
    if attributes:
        header = _with_attributes(header, {name: value for name, value in attributes.items() if value})
    # Only now: the header may have only the first 100 bytes of a longer name, which may end in any of its slashes.
    return header._replace(kind="dir") if header.is_old_file_type and header.name.endswith("/") else header


def _with_attributes(header: TarHeader, attributes: dict[str, str]) -> TarHeader:
    def number(name: str, otherwise: int) -> int:
        return _decimal(name, attributes[name]) if name in attributes else otherwise

    header = header._replace(
        name=attributes.get("GNU.sparse.name", attributes.get("path", header.name)),
        link=attributes.get("linkpath", header.link),
        uid=number("uid", header.uid),
        gid=number("gid", header.gid),
    )
    if header.kind not in ("file", None):
        return header
    stored = number("size", header.data_size)
    sparse = header.sparse or any(name.startswith("GNU.sparse.") for name in attributes)
    size = number("GNU.sparse.size", header.size if header.sparse else stored)
    size, sparse_map = number("GNU.sparse.realsize", size), attributes.get(_MAP, "")
    return header._replace(data_size=stored, size=size, sparse=sparse, sparse_map=sparse_map)


def _decimal(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise damaged(f"pax {name} {text[:40]!r}", 0)
    return int(text)


def _length(field: bytes, offset: int) -> int:
    length = _number(field, offset)
    if not 0 <= length < 1 << 62:
        raise damaged(f"a size of {length} bytes", offset)
    return length


def _number(field: bytes, offset: int) -> int:
    """Return the number in octal digits between spaces and NULs, or in GNU's base-256."""
    if field[0] & 0x80:
        bits = 8 * len(field) - 1  # the first one marks base-256, the second one is the sign
        value = int.from_bytes(field, "big") - (1 << bits)
        return value - (1 << bits) if field[0] & 0x40 else value
    digits = field.partition(b"\0")[0].strip()
    if not digits:
        return 0
    try:
        return int(digits, 8)
    except ValueError:
        raise damaged(f"a number {digits!r}", offset) from None


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")
