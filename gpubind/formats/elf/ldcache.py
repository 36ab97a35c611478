"""`/etc/ld.so.cache`, from its bytes: the layout `glibc-ld.so.cache1.1`, which may follow an older one.

Source: glibc `sysdeps/generic/dl-cache.h` and `elf/cache.c`. Two kinds are not supported: caches with only the older
layout, from before glibc 2.2, and those of big-endian machines, for which there is no GPU driver.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Optional

from gpubind.errors import Format
from gpubind.frozen import NamedTuple

_OLD_MAGIC = b"ld.so-1.7.0"
MAGIC = b"glibc-ld.so.cache1.1"
_EXTENSION_MAGIC = 0xEAA42174
_TAG_HWCAPS = 1

_ENTRY_SIZE = 24
_HWCAP_IS_SUBDIRECTORY = 1 << 30  # bit 62 of the entry's 64-bit hwcap, in its upper word
ENTRIES_LIMIT = 1 << 16  # an installation of everything has about 20,000
ENTRIES_OF_A_NAME = 64  # one for each architecture and processor
NAME_LIMIT = 255  # NAME_MAX
STRING_LIMIT = 4096  # PATH_MAX: longer strings are damage
_EXTENSION_SECTIONS_LIMIT = 64  # two tags are defined
_SUBDIRECTORIES_LIMIT = 1024

_HEADER = struct.Struct("<20sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")
_LITTLE_ENDIAN = 2
_INVALID = {1: "the header marks the cache as invalid", 3: "it is of a big-endian machine"}
"""Why a cache is not used, by the low two bits of the flags in its header."""
_damaged = Format("bad-ldcache", "not a readable ld.so.cache", "recreate it with `ldconfig` as root").damaged


class LdCacheEntry(NamedTuple):
    """One line of `ldconfig -p`."""

    name: str
    """The key, usually a soname: `libcuda.so.1`."""
    path: str
    """The path that ldconfig wrote, usually of a link: `/lib/x86_64-linux-gnu/libcuda.so.1`."""
    flags: int
    """The type in the low byte (1 ELF, 3 ELF libc6); the architecture above (0x0300 x86-64, 0x0000 i386, 0x0a00
    aarch64).
    """
    hwcap: str
    """The name of a glibc-hwcaps subdirectory (`x86-64-v3`); `legacy` for the older kind; empty for a plain entry."""


class LdCache:
    """A parsed cache: entries in file order, which is the order in which ld.so tries them.

    Strings are decoded only for the requested entries, so that a cache of 100,000 entries costs little.
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

    def entries_with_prefix(self, prefixes: Iterable[str]) -> Iterator[LdCacheEntry]:
        """Yield the entries whose names begin with one of *prefixes*, in file order; at most `ENTRIES_OF_A_NAME`
        for each name.
        """
        prefixes = tuple(prefixes)
        encoded_prefixes = tuple(prefix.encode("utf-8", "surrogateescape") for prefix in prefixes)
        if not encoded_prefixes:
            return
        # The first bytes exclude most names without decoding.
        width = min(8, *map(len, encoded_prefixes))
        heads = {prefix[:width] for prefix in encoded_prefixes}
        data, base = self._data, self._base
        seen: dict[str, int] = {}
        for index, key in enumerate(self._keys):
            start = base + key
            if data[start : start + width] in heads and data.startswith(encoded_prefixes, start):
                name = self._string(key)
                # startswith() compares past the name's end; the decoded name decides.
                if name.startswith(prefixes) and seen.setdefault(name, 0) < ENTRIES_OF_A_NAME:
                    seen[name] += 1
                    yield self._entry(index, name)

    def entries_named(self, name: str) -> tuple[LdCacheEntry, ...]:
        """Return the first `ENTRIES_OF_A_NAME` entries called *name*, in file order.

        The first call indexes all entries by name, because callers look up many names.
        """
        if not self._named:
            for index, key in enumerate(self._keys):
                start = self._base + key
                entry_name = self._data[start : start + NAME_LIMIT + 1].partition(b"\0")[0]
                indexes = self._named.setdefault(entry_name, [])
                if len(indexes) < ENTRIES_OF_A_NAME:
                    indexes.append(index)
        return tuple(map(self._entry, self._named.get(name.encode("utf-8", "surrogateescape")[: NAME_LIMIT + 1], ())))

    def _entry(self, index: int, name: Optional[str] = None) -> LdCacheEntry:
        hwcap = ""
        high = self._hwcap_high[index]
        if high & _HWCAP_IS_SUBDIRECTORY:
            hwcap = self._subdirectories[self._hwcap_low[index]]
        elif high or self._hwcap_low[index]:
            hwcap = "legacy"
        name = self._string(self._keys[index]) if name is None else name
        return LdCacheEntry(name, self._string(self._values[index]), self._flags[index], hwcap)

    def _string(self, offset: int) -> str:
        """Return the string at *offset*, truncated if it is too long for a path."""
        start = self._base + offset
        end = self._data.find(b"\0", start, start + STRING_LIMIT)
        return self._data[start : end if end >= 0 else start + STRING_LIMIT].decode("utf-8", "surrogateescape")


def parse_ldcache(data: bytes) -> LdCache:
    """Return the cache in *data*.

    Errors: `FormatError` (code `bad-ldcache`) with the byte offset, for anything that glibc would not read. Every
    offset is checked against the file before use.
    """
    base = data.find(MAGIC) if data.startswith((MAGIC, _OLD_MAGIC)) else -1
    if base < 0:
        raise _damaged("the magic string is not there", 0)
    table = base + _HEADER.size
    if len(data) < table:
        raise _damaged("truncated header", len(data))
    _, count, string_length, flags, extensions = _HEADER.unpack_from(data, base)
    if flags & 3 in _INVALID:
        raise _damaged(_INVALID[flags & 3], base + 28)
    if count > ENTRIES_LIMIT:
        raise _damaged(f"{count} entries; no machine has more than {ENTRIES_LIMIT}", base + 20)
    if table + _ENTRY_SIZE * count + string_length > len(data):
        raise _damaged(f"{count} entries and {string_length} bytes of strings do not fit in the file", base + 20)
    values = _words(data, table, count * 6)
    columns = (values[0::6], values[1::6], values[2::6], values[4::6], values[5::6])
    size = data.rfind(b"\0") + 1 - base  # every string that starts before it has an end
    for column, shift in ((columns[1], 4), (columns[2], 8)):
        if column and max(column) >= size:
            index = next(i for i, offset in enumerate(column) if offset >= size)
            raise _damaged(f"entry {index} points past the last string", table + _ENTRY_SIZE * index + shift)
    subdirectories = _extensions(data, base, extensions)
    for index, high in enumerate(columns[4]) if any(columns[4]) else ():
        if high & _HWCAP_IS_SUBDIRECTORY and columns[3][index] >= len(subdirectories):
            why = f"entry {index} names hwcaps subdirectory {columns[3][index]} of {len(subdirectories)}"
            raise _damaged(why, table + _ENTRY_SIZE * index + 16)
    return LdCache(data, base, columns, subdirectories)


def dump_ldcache(entries: Iterable[LdCacheEntry]) -> bytes:
    """Return a cache with *entries*, without those of glibc-hwcaps subdirectories."""
    plain = [entry for entry in entries if not entry.hwcap]
    strings, offset = b"", _HEADER.size + _ENTRY_SIZE * len(plain)
    rows = []
    for entry in plain:
        name, path = (text.encode("utf-8", "surrogateescape") + b"\0" for text in (entry.name, entry.path))
        rows.append(_ENTRY.pack(entry.flags, offset + len(strings), offset + len(strings) + len(name), 0, 0))
        strings += name + path
    return _HEADER.pack(MAGIC, len(rows), len(strings), _LITTLE_ENDIAN, 0) + b"".join(rows) + strings


def _extensions(data: bytes, base: int, start: int) -> tuple[str, ...]:
    """Return the names of the hwcaps subdirectories. Offsets in the file are relative to its start."""
    if not start:
        return ()
    magic, count = _words(data, start, 2)
    if magic != _EXTENSION_MAGIC:
        raise _damaged("the extension block has no magic", start)
    if count > _EXTENSION_SECTIONS_LIMIT:
        raise _damaged(f"{count} extension sections", start + 4)
    subdirectories: tuple[str, ...] = ()
    for section in range(start + 8, start + 8 + 16 * count, 16):
        tag, _, where, size = _words(data, section, 4)
        if where + size > len(data):
            raise _damaged("an extension section ends after the end of the file", section)
        if tag == _TAG_HWCAPS:
            if size > 4 * _SUBDIRECTORIES_LIMIT:
                raise _damaged(f"{size // 4} hwcaps subdirectories", section)
            subdirectories = tuple(_string(data, base + name) for name in _words(data, where, size // 4))
    return subdirectories


def _words(data: bytes, at: int, count: int) -> array[int]:
    end = at + 4 * count
    if end > len(data):
        raise _damaged("truncated table", len(data))
    values = array("I", data[at:end])
    if sys.byteorder == "big":
        values.byteswap()
    return values


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
        fields = line.split()
        if fields[:1] == ["include"]:
            lines += [("include", pattern) for pattern in fields[1:]]
        elif line.startswith("/") and "\0" not in line:
            lines.append(("directory", line.partition("=")[0].rstrip()))
    return tuple(lines)
