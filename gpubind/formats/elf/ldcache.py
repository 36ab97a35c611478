"""`/etc/ld.so.cache`, from its bytes.

Source: glibc `sysdeps/generic/dl-cache.h` and `elf/cache.c`. Three layouts exist: the old one (`ld.so-1.7.0`), the new
one (`glibc-ld.so.cache1.1`), and both in one file. A cache may be written by a machine of the other byte order.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Optional

from gpubind.errors import Format
from gpubind.frozen import NamedTuple

OLD_MAGIC = b"ld.so-1.7.0"
NEW_MAGIC = b"glibc-ld.so.cache1.1"
EXTENSION_MAGIC = 0xEAA42174
TAG_HWCAPS = 1

OLD_HEADER, OLD_ENTRY = 16, 12
NEW_HEADER, NEW_ENTRY = 48, 24
HWCAP_IS_SUBDIRECTORY = 1 << 30  # bit 62 of the entry's 64-bit hwcap, seen in its upper word
ENTRIES_LIMIT = 1 << 16  # an installation of everything has about 20,000
ENTRIES_OF_A_NAME = 64  # one for each architecture and processor
NAME_LIMIT = 255  # NAME_MAX
STRING_LIMIT = 4096  # PATH_MAX: longer strings are damage
EXTENSION_SECTIONS_LIMIT = 64  # two tags are defined
SUBDIRECTORIES_LIMIT = 1024

_damaged = Format("bad-ldcache", "not a readable ld.so.cache", "recreate it with `ldconfig` as root").damaged
_ORDERS = {2: "little", 3: "big"}  # the header's flags byte, low two bits


class LdCacheEntry(NamedTuple):
    """One line of `ldconfig -p`."""

    name: str
    """The key, nearly always a soname: `libcuda.so.1`."""
    path: str
    """Where ldconfig found it, as written: `/lib/x86_64-linux-gnu/libcuda.so.1`; usually a link."""
    flags: int
    """Type in the low byte (1 ELF, 3 ELF libc6), architecture above (0x0300 x86-64, 0x0000 i386, 0x0a00 aarch64)."""
    hwcap: str
    """Name of the glibc-hwcaps subdirectory (`x86-64-v3`), `legacy` for the old kind, empty for a plain entry."""


class LdCache:
    """A parsed cache: entries in file order, which is the order in which ld.so takes them.

    Strings are decoded only for the entries that are asked for, so that a cache of 100,000 entries costs little.
    """

    def __init__(
        self, data: bytes, base: int, columns: tuple[array[int], ...], subdirectories: tuple[str, ...] = ()
    ) -> None:
        self._data = data
        self._base = base
        self._flags, self._keys, self._values, self._hwcap_low, self._hwcap_high = columns
        self._subdirectories = subdirectories
        self._named: dict[bytes, list[int]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[LdCacheEntry]:
        return map(self._entry, range(len(self)))

    def matching(self, prefixes: Iterable[str]) -> Iterator[LdCacheEntry]:
        """Return the entries whose name starts with one of *prefixes*, in file order: the first ones of each name."""
        prefixes = tuple(prefixes)
        wanted = tuple(prefix.encode("utf-8", "surrogateescape") for prefix in prefixes)
        if not wanted:
            return
        # Most names are ruled out by their first bytes, without decoding anything.
        width = min(8, *map(len, wanted))
        heads = {prefix[:width] for prefix in wanted}
        data, base = self._data, self._base
        seen: dict[str, int] = {}
        for index, key in enumerate(self._keys):
            start = base + key
            if data[start : start + width] in heads and data.startswith(wanted, start):
                name = self._string(key)
                # startswith() looks past the name's end; the decoded name settles it.
                if name.startswith(prefixes) and seen.setdefault(name, 0) < ENTRIES_OF_A_NAME:
                    seen[name] += 1
                    yield self._entry(index, name)

    def named(self, name: str) -> tuple[LdCacheEntry, ...]:
        """Return the entries of that *name*, in file order: the first `ENTRIES_OF_A_NAME`.

        All are sorted by name at the first call, as callers need many names.
        """
        if not self._named:
            for index, key in enumerate(self._keys):
                start = self._base + key
                known = self._data[start : start + NAME_LIMIT + 1].partition(b"\0")[0]
                indexes = self._named.setdefault(known, [])
                if len(indexes) < ENTRIES_OF_A_NAME:
                    indexes.append(index)
        return tuple(map(self._entry, self._named.get(name.encode("utf-8", "surrogateescape")[: NAME_LIMIT + 1], ())))

    def _entry(self, index: int, name: Optional[str] = None) -> LdCacheEntry:
        hwcap = ""
        high = self._hwcap_high[index]
        if high & HWCAP_IS_SUBDIRECTORY:
            hwcap = self._subdirectories[self._hwcap_low[index]]
        elif high or self._hwcap_low[index]:
            hwcap = "legacy"
        name = self._string(self._keys[index]) if name is None else name
        return LdCacheEntry(name, self._string(self._values[index]), self._flags[index], hwcap)

    def _string(self, offset: int) -> str:
        """Return the string at *offset*, cut where it is too long to name a file anyway."""
        start = self._base + offset
        end = self._data.find(b"\0", start, start + STRING_LIMIT)
        return self._data[start : end if end >= 0 else start + STRING_LIMIT].decode("utf-8", "surrogateescape")


def parse_ldcache(data: bytes) -> LdCache:
    """Return the cache in *data*.

    Errors: `FormatError` (code `bad-ldcache`) with the byte offset, for anything that glibc would not read; every
    offset is checked against the file before use.
    Source: glibc `elf/cache.c`, `sysdeps/generic/dl-cache.h`.
    """
    if data.startswith(NEW_MAGIC):
        return _parse_new(data, 0)
    if data.startswith(OLD_MAGIC):
        order = _plausible_order(data, 12, OLD_HEADER, OLD_ENTRY)
        count = _count(data, 12, order)
        strings = OLD_HEADER + OLD_ENTRY * count
        combined = (strings + 7) & ~7
        if data.startswith(NEW_MAGIC, combined):
            return _parse_new(data, combined)
        words = _words(data, OLD_HEADER, count * 3, order)
        columns = (words[0::3], words[1::3], words[2::3])
        _check_offsets(data, strings, columns[1], columns[2], OLD_HEADER, OLD_ENTRY)
        zeros = array("I", bytes(4 * count))
        return LdCache(data, strings, (*columns, zeros, zeros))
    raise _damaged("neither magic string is there", 0)


def _parse_new(data: bytes, base: int) -> LdCache:
    if len(data) < base + NEW_HEADER:
        raise _damaged("truncated header", len(data))
    order_flag = data[base + 28] & 3
    if order_flag == 1:
        raise _damaged("the header marks the cache as invalid", base + 28)
    order = _ORDERS.get(order_flag) or _plausible_order(data, base + 20, base + NEW_HEADER, NEW_ENTRY)
    count = _count(data, base + 20, order)
    string_length = _u32(data, base + 24, order)
    table_end = base + NEW_HEADER + NEW_ENTRY * count
    if table_end + string_length > len(data):
        raise _damaged(f"{count} entries and {string_length} bytes of strings do not fit in the file", base + 20)
    words = _words(data, base + NEW_HEADER, count * 6, order)
    low, high = (4, 5) if order == "little" else (5, 4)
    columns = (words[0::6], words[1::6], words[2::6], words[low::6], words[high::6])
    _check_offsets(data, base, columns[1], columns[2], base + NEW_HEADER, NEW_ENTRY)
    subdirectories = _extensions(data, base, _u32(data, base + 32, order), order)
    for index, high in enumerate(columns[4]) if any(columns[4]) else ():
        if high & HWCAP_IS_SUBDIRECTORY and columns[3][index] >= len(subdirectories):
            why = f"entry {index} names hwcaps subdirectory {columns[3][index]} of {len(subdirectories)}"
            raise _damaged(why, base + NEW_HEADER + NEW_ENTRY * index + 16)
    return LdCache(data, base, columns, subdirectories)


def _extensions(data: bytes, base: int, start: int, order: str) -> tuple[str, ...]:
    """Return the names of the hwcaps subdirectories. Offsets count from the start of the file."""
    if not start:
        return ()
    if _u32(data, start, order) != EXTENSION_MAGIC:
        raise _damaged("the extension block has no magic", start)
    count = _u32(data, start + 4, order)
    if count > EXTENSION_SECTIONS_LIMIT:
        raise _damaged(f"{count} extension sections", start + 4)
    subdirectories: tuple[str, ...] = ()
    for number in range(count):
        section = start + 8 + 16 * number
        tag = _u32(data, section, order)
        where = _u32(data, section + 8, order)
        size = _u32(data, section + 12, order)
        if where + size > len(data):
            raise _damaged("an extension section ends after the end of the file", section)
        if tag == TAG_HWCAPS:
            if size > 4 * SUBDIRECTORIES_LIMIT:
                raise _damaged(f"{size // 4} hwcaps subdirectories", section)
            names = _words(data, where, size // 4, order)
            subdirectories = tuple(_string(data, base + name) for name in names)
    return subdirectories


def _plausible_order(data: bytes, at: int, table: int, entry_size: int) -> str:
    """Return the byte order in which the entry count at *at* fits the file; the machine's own if both do."""
    orders = (sys.byteorder, "big" if sys.byteorder == "little" else "little")
    for order in orders:
        if table + entry_size * _u32(data, at, order) <= len(data):
            return order
    raise _damaged("the entry count does not fit the file", at)


def _check_offsets(data: bytes, base: int, keys: array[int], values: array[int], table: int, entry_size: int) -> None:
    size = data.rfind(b"\0") + 1 - base  # every string that starts before has an end
    for column, shift in ((keys, 4), (values, 8)):
        if column and max(column) >= size:
            index = next(i for i, offset in enumerate(column) if offset >= size)
            raise _damaged(f"entry {index} points past the last string", table + entry_size * index + shift)


def _words(data: bytes, at: int, count: int, order: str) -> array[int]:
    end = at + 4 * count
    if end > len(data):
        raise _damaged("truncated table", len(data))
    words = array("I", data[at:end])
    if order != sys.byteorder:
        words.byteswap()
    return words


def _count(data: bytes, at: int, order: str) -> int:
    count = _u32(data, at, order)
    if count > ENTRIES_LIMIT:
        raise _damaged(f"{count} entries; no machine has more than {ENTRIES_LIMIT}", at)
    return count


def _u32(data: bytes, at: int, order: str) -> int:
    if at + 4 > len(data):
        raise _damaged("truncated", len(data))
    return int.from_bytes(data[at : at + 4], "little" if order == "little" else "big")


def _string(data: bytes, at: int) -> str:
    end = data.find(b"\0", at, at + STRING_LIMIT)
    if end < 0:
        raise _damaged("a string has no end", at)
    return data[at:end].decode("utf-8", "surrogateescape")


def parse_ldsoconf(text: str) -> tuple[tuple[str, str], ...]:
    """Return the lines of `/etc/ld.so.conf` that glibc does not ignore: ("directory", path) or ("include", pattern).

    Never raises. Source: ldconfig(8); glibc `elf/ldconfig.c` `parse_conf`.
    """
    lines: list[tuple[str, str]] = []
    for line in text.split("\n"):
        line = line.partition("#")[0].strip()
        words = line.split()
        if words[:1] == ["include"]:
            lines += [("include", pattern) for pattern in words[1:]]
        elif line.startswith("/") and "\0" not in line:
            lines.append(("directory", line.partition("=")[0].rstrip()))
    return tuple(lines)
