"""The symbols by which the parts of one glibc know each other: those of version GLIBC_PRIVATE in an ELF file.

Source: gABI chapter 4 (symbol table), LSB "Symbol Versioning" (.gnu.version and what its numbers mean).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from gpubind.formats.elf import HEAD_SIZE, SHT_GNU_VERDEF, SHT_GNU_VERNEED, ElfIdent, parse_ident

PRIVATE = b"GLIBC_PRIVATE"
SHT_DYNSYM, SHT_GNU_VERSYM = 11, 0x6FFFFFFF
SECTIONS_LIMIT, ENTRIES_LIMIT = 4096, 65536


class PrivateSymbols(NamedTuple):
    """What a file gives to others of its glibc, and what it wants of them."""

    defined: frozenset[str] = frozenset()
    wanted: frozenset[str] = frozenset()


class _Section(NamedTuple):
    kind: int
    data: bytes
    link: int


def private_symbols(data: bytes) -> PrivateSymbols:
    """The private symbols of the ELF file *data*; none if it has none, or is damaged. Never raises."""
    ident = parse_ident(data[:HEAD_SIZE])
    if not isinstance(ident, ElfIdent) or PRIVATE not in data:
        return PrivateSymbols()
    try:
        return _read(ident, data)
    except (struct.error, IndexError, StopIteration, ValueError):
        return PrivateSymbols()


def _read(ident: ElfIdent, data: bytes) -> PrivateSymbols:
    order = "<" if ident.order == "little" else ">"
    sections = tuple(_sections(ident, order, data))
    symbols = next(section for section in sections if section.kind == SHT_DYNSYM)
    strings = sections[symbols.link].data
    numbers = {
        number
        for section in sections
        if section.kind in (SHT_GNU_VERDEF, SHT_GNU_VERNEED)
        for number, name in _versions(order, section, sections[section.link].data)
        if name == PRIVATE
    }
    versions = next(section.data for section in sections if section.kind == SHT_GNU_VERSYM)
    form = struct.Struct(order + ("IBBHQQ" if ident.bits == 64 else "IIIBBH"))
    defined: set[str] = set()
    wanted: set[str] = set()
    for index, (version,) in enumerate(struct.iter_unpack(order + "H", versions[: 2 * ENTRIES_LIMIT])):
        if version & 0x7FFF in numbers:
            entry = form.unpack_from(symbols.data, index * form.size)
            place = entry[3] if ident.bits == 64 else entry[5]
            (defined if place else wanted).add(_text(strings, entry[0]).decode("ascii", "replace"))
    return PrivateSymbols(frozenset(defined), frozenset(wanted))


def _sections(ident: ElfIdent, order: str, data: bytes) -> Iterator[_Section]:
    head = struct.unpack_from(order + ("HHIQQQIHHHHHH" if ident.bits == 64 else "HHIIIIIHHHHHH"), data, 16)
    form = order + ("IIQQQQIIQQ" if ident.bits == 64 else "IIIIIIIIII")
    for number in range(min(head[11], SECTIONS_LIMIT)):
        entry = struct.unpack_from(form, data, head[5] + number * head[10])
        yield _Section(entry[1], data[entry[4] : entry[4] + entry[5]], entry[6])


def _versions(order: str, section: _Section, strings: bytes) -> Iterator[tuple[int, bytes]]:
    """The number and the name of each version that *section* defines, or wants of others."""
    at, seen = 0, 0
    while seen < ENTRIES_LIMIT:
        seen += 1
        if section.kind == SHT_GNU_VERDEF:
            _, _, number, _, _, first, following = struct.unpack_from(order + "HHHHIII", section.data, at)
            yield number, _text(strings, struct.unpack_from(order + "I", section.data, at + first)[0])
        else:
            _, count, _, first, following = struct.unpack_from(order + "HHIII", section.data, at)
            here = at + first
            for _ in range(count):
                _, _, number, name, step = struct.unpack_from(order + "IHHII", section.data, here)
                yield number, _text(strings, name)
                here += step
        if not following:
            return
        at += following


def _text(strings: bytes, at: int) -> bytes:
    return strings[at : strings.index(b"\0", at)]
