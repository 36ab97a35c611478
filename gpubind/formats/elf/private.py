"""The symbols of version GLIBC_PRIVATE in an ELF file, which only the files of one glibc use among themselves.

Source: gABI chapter 4 (symbol table), LSB "Symbol Versioning" (.gnu.version and its numbers).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice
from typing import Any

from gpubind.frozen import NamedTuple

PRIVATE = b"GLIBC_PRIVATE"
SYMBOLS_LIMIT, VERSIONS_LIMIT = 65536, 4096
_HIDDEN = 0x8000


class PrivateSymbols(NamedTuple):
    """The private symbols that a file defines for other files of its glibc, and those that it needs from them."""

    defined: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()


def private_symbols(data: bytes) -> PrivateSymbols:
    """Return the private symbols of the ELF file *data*; none if it has none, or is damaged. Never raises."""
    if PRIVATE not in data:
        return PrivateSymbols()
    from elftools.elf.elffile import ELFFile

    try:
        return _read(ELFFile(io.BytesIO(data)))
    except Exception:  # noqa: BLE001 - pyelftools fails in many ways on damage
        return PrivateSymbols()


def _read(elf: Any) -> PrivateSymbols:
    numbers = {number for number, name in _versions(elf) if name == PRIVATE.decode()}
    versions, symbols = elf.get_section_by_name(".gnu.version"), elf.get_section_by_name(".dynsym")
    defined: set[str] = set()
    needed: set[str] = set()
    for at, version in enumerate(islice(versions.iter_symbols(), SYMBOLS_LIMIT)):
        number = version.entry["ndx"]
        if isinstance(number, int) and number & ~_HIDDEN in numbers:
            symbol = symbols.get_symbol(at)
            (needed if symbol.entry["st_shndx"] == "SHN_UNDEF" else defined).add(symbol.name)
    return PrivateSymbols(frozenset(defined), frozenset(needed))


def _versions(elf: Any) -> Iterator[tuple[int, str]]:
    """Yield the number and name of each version that the file defines or needs."""
    defines, wants = elf.get_section_by_name(".gnu.version_d"), elf.get_section_by_name(".gnu.version_r")
    if defines is not None:
        for definition, names in islice(defines.iter_versions(), VERSIONS_LIMIT):
            yield definition["vd_ndx"], next(names).name
    if wants is not None:
        for _, several in islice(wants.iter_versions(), VERSIONS_LIMIT):
            for version in islice(several, VERSIONS_LIMIT):
                yield version["vna_other"], version.name
