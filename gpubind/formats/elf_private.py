"""The symbols by which the parts of one glibc know each other: those of version GLIBC_PRIVATE in an ELF file.

Source: gABI chapter 4 (symbol table), LSB "Symbol Versioning" (.gnu.version and what its numbers mean).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from gpubind.formats.elf import HEAD_SIZE, ElfIdent, parse_ident

PRIVATE = b"GLIBC_PRIVATE"
SHT_DYNSYM, SHT_GNU_VERDEF, SHT_GNU_VERNEED, SHT_GNU_VERSYM = 11, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
KINDS = (SHT_DYNSYM, SHT_GNU_VERSYM, SHT_GNU_VERDEF, SHT_GNU_VERNEED)
SECTIONS_LIMIT, ENTRIES_LIMIT = 4096, 65536


class PrivateSymbols(NamedTuple):
    """What a file gives to others of its glibc, and what it wants of them."""

    defined: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()


def private_symbols(data: bytes) -> PrivateSymbols:
    """The private symbols of the ELF file *data*; none if it has none, or is damaged. Never raises."""
    ident = parse_ident(data[:HEAD_SIZE])
    if not isinstance(ident, ElfIdent) or PRIVATE not in data:
        return PrivateSymbols()
    try:
        return _read(ident, data)
    except (struct.error, LookupError, ValueError, OverflowError):
        return PrivateSymbols()


def _read(ident: ElfIdent, data: bytes) -> PrivateSymbols:
    order = "<" if ident.order == "little" else ">"
    sections = _sections(ident, order, data)
    symbols, strings = sections[SHT_DYNSYM]
    numbers: set[int] = set()
    for kind, versions in ((SHT_GNU_VERDEF, _definitions), (SHT_GNU_VERNEED, _needs)):
        if kind in sections:
            content, names = sections[kind]
            found = islice(versions(order, content), ENTRIES_LIMIT)
            numbers.update(number for number, name in found if _text(names, name) == PRIVATE)
    form = struct.Struct(order + ("IBBHQQ" if ident.bits == 64 else "IIIBBH"))
    place = 3 if ident.bits == 64 else 5
    defined: set[str] = set()
    wanted: set[str] = set()
    of_symbols = sections[SHT_GNU_VERSYM][0][: 2 * ENTRIES_LIMIT]
    for index, (version,) in enumerate(struct.iter_unpack(order + "H", of_symbols)):
        if version & 0x7FFF in numbers:
            entry = form.unpack_from(symbols, index * form.size)
            (defined if entry[place] else wanted).add(_text(strings, entry[0]).decode("ascii", "replace"))
    return PrivateSymbols(frozenset(defined), frozenset(wanted))


def _sections(ident: ElfIdent, order: str, data: bytes) -> dict[int, tuple[bytes, bytes]]:
    """The last section of each kind that counts here, with its strings."""
    head = struct.unpack_from(order + ("HHIQQQIHHHHHH" if ident.bits == 64 else "HHIIIIIHHHHHH"), data, 16)
    form = order + ("IIQQQQIIQQ" if ident.bits == 64 else "IIIIIIIIII")
    count = min(head[11], SECTIONS_LIMIT)
    entries = [struct.unpack_from(form, data, head[5] + number * head[10]) for number in range(count)]
    by_kind = {entry[1]: entry for entry in entries if entry[1] in KINDS}
    return {kind: (_content(data, entry), _content(data, entries[entry[6]])) for kind, entry in by_kind.items()}


def _content(data: bytes, entry: tuple[int, ...]) -> bytes:
    return data[entry[4] : entry[4] + entry[5]]


def _definitions(order: str, section: bytes) -> Iterator[tuple[int, int]]:
    """The number of each version that a file defines, and where its name is."""
    at, following = 0, 1
    while following:
        _, _, number, _, _, first, following = struct.unpack_from(order + "HHHHIII", section, at)
        yield number, struct.unpack_from(order + "I", section, at + first)[0]
        at += following


def _needs(order: str, section: bytes) -> Iterator[tuple[int, int]]:
    """The number of each version that a file wants of others, and where its name is."""
    at, following = 0, 1
    while following:
        _, count, _, first, following = struct.unpack_from(order + "HHIII", section, at)
        here = at + first
        for _ in range(count):
            _, _, number, name, step = struct.unpack_from(order + "IHHII", section, here)
            yield number, name
            here += step
        at += following


def _text(strings: bytes, at: int) -> bytes:
    return strings[at : strings.index(b"\0", at)]
