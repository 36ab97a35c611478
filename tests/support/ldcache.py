"""`ld.so.cache` files from entries, in every layout that glibc has written.

Source: glibc `sysdeps/generic/dl-cache.h`, `elf/cache.c`, `elf/stringtable.c`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Literal, Optional

from gpubind.formats.elf.ldcache import LdCacheEntry

ELF_LIBC6, X86_64, I386, AARCH64 = 3, 0x0300, 0x0000, 0x0A00
LEGACY_HWCAP = 1 << 5

Layout = Literal["new", "old", "combined"]
Order = Literal["little", "big"]


def entry(name: str, path: str = "", flags: int = ELF_LIBC6 | X86_64, hwcap: str = "") -> LdCacheEntry:
    """An entry for *name*, by default of x86-64 and in /usr/lib64."""
    return LdCacheEntry(name, path or f"/usr/lib64/{name}", flags, hwcap)


def build_ldcache(
    entries: Sequence[LdCacheEntry],
    layout: Layout = "new",
    order: Order = "little",
    flag: Optional[int] = None,
    generator: str = "",
    subdirectories: Sequence[str] = (),
    share_tails: bool = True,
) -> bytes:
    """The cache that holds *entries* in their order.

    *flag* is the header's byte that names the byte order (2 or 3; older versions of glibc wrote 0). *subdirectories*
    are glibc-hwcaps names that come before those that the entries use. Without *share_tails* each string stands alone.
    """
    names = [*subdirectories]
    names += [hwcap for hwcap in dict.fromkeys(e.hwcap for e in entries) if hwcap not in (*names, "", "legacy")]
    blob, at = _strings((*(text for e in entries for text in (e.name, e.path)), *names), share_tails)
    old_entries = [e for e in entries if not e.hwcap] if layout == "combined" else entries
    mark = "<" if order == "little" else ">"
    old = b"ld.so-1.7.0\0" + struct.pack(mark + "I", len(old_entries))
    old_strings = len(old) + 12 * len(old_entries)
    base = old_strings + -old_strings % 8
    shift = base + 48 + 24 * len(entries) - old_strings if layout == "combined" else 0
    for e in old_entries:
        old += struct.pack(mark + "iII", e.flags, shift + at[e.name], shift + at[e.path])
    if layout == "old":
        return old + blob
    head = old + bytes(base - len(old)) if layout == "combined" else b""
    return head + _new(
        entries, blob, at, names, mark, {"<": 2, ">": 3}[mark] if flag is None else flag, generator, len(head)
    )


def _new(
    entries: Sequence[LdCacheEntry],
    blob: bytes,
    at: dict[str, int],
    names: Sequence[str],
    mark: str,
    flag: int,
    generator: str,
    before: int,
) -> bytes:
    """The new layout. Its strings count from its own start, its extensions from that of the file, *before* it."""
    table_end = 48 + 24 * len(entries)
    strings_end = table_end + len(blob)
    extension = before + strings_end + -strings_end % 4 if names or generator else 0
    out = b"glibc-ld.so.cache1.1" + struct.pack(mark + "IIB3xI12x", len(entries), len(blob), flag, extension)
    for e in entries:
        hwcap = {"": 0, "legacy": LEGACY_HWCAP}.get(e.hwcap, -1)
        if hwcap < 0:
            hwcap = 1 << 62 | names.index(e.hwcap)
        out += struct.pack(mark + "iIIIQ", e.flags, table_end + at[e.name], table_end + at[e.path], 0, hwcap)
    out += blob
    if not extension:
        return out
    out += bytes(extension - before - len(out))
    table = b"".join(struct.pack(mark + "I", table_end + at[name]) for name in names)
    sections = [(tag, data) for tag, data in ((1, table), (0, generator.encode())) if data]  # the table stays aligned
    data_at = extension + 8 + 16 * len(sections)
    out += struct.pack(mark + "II", 0xEAA42174, len(sections))
    for tag, data in sections:
        out += struct.pack(mark + "IIII", tag, 0, data_at, len(data))
        data_at += len(data)
    return out + b"".join(data for _, data in sections)


def _strings(texts: Iterable[str], share_tails: bool) -> tuple[bytes, dict[str, int]]:
    """The NUL-terminated strings, and where each starts; a string that ends another is kept only once."""
    coded = {text: text.encode("utf-8", "surrogateescape") for text in texts}
    blob = bytearray()
    at: dict[str, int] = {}
    last, end = b"", 0
    for text, data in sorted(coded.items(), key=lambda item: item[1][::-1], reverse=True):
        if not (share_tails and blob and last.endswith(data)):
            blob += data + b"\0"
            last, end = data, len(blob) - 1
        at[text] = end - len(data)
    return bytes(blob), at
