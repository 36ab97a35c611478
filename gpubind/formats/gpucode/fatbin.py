"""NVIDIA's fatbins: containers of machine code (cubins) and PTX, one after the other in a section of an ELF file.

Only headers are read, not the code. NVIDIA describes the container in `fatbinary_section.h`. The format of the entries
is that of `fatbinary` 13.5, compared with `cuobjdump --list-elf` and `--list-ptx` of the same release:

- a container: magic, version, size of this header (16), size of all entries;
- an entry: kind at 0, its header's size at 4, the size of the code at 8, the version of PTX at 24 (minor, major),
  architecture at 28, flags at 40; the header has 64 bytes and extensions;
- kind 256: several entries, packed as one. Their headers follow its 64 bytes, after their number and size. An extension
  has 8 bytes, then as many as its second word states, then zeros up to a multiple of 8.

`cuobjdump` prints machine code for sm_100f as `sm_100`: both run on the same GPUs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Optional, Union

from gpubind.frozen import NamedTuple
from gpubind.model.gpucode import GpuCode, Ptx, gpu_code

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
"""Sections with code that the driver loads. The second has code that is not linked yet; it is used only without the
first.
"""
MAGIC = 0xBA55ED50
PTX, CUBIN, ENTRY_GROUP = 1, 2, 256
ARCH_SPECIFIC, FAMILY_SPECIFIC = 1 << 20, 1 << 21
ENTRIES_LIMIT = 1 << 16
"""Maximum entries and containers of a file, including packed ones. The largest known file has 4,000."""
ARCHITECTURES_LIMIT = 128
"""Maximum architectures of a file, each with its version of PTX, and kinds of modules. No release of CUDA has so
many.
"""
_HEADER_LIMIT = 1 << 16
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ4xIHHI8xQ16x")
_EXTENSION = struct.Struct("<II")

ReadAt = Callable[[int, int], bytes]
"""Returns the bytes at an offset of the file, given their number; fewer only at its end."""
Charge = Callable[[int], None]
"""Subtracts a number of entries from the budget of a command. It may raise to end the reading."""


class _FatbinEntry(NamedTuple):
    kind: int
    version: int
    header: int
    size: int
    extension: int
    """The offset of its extensions; 0 without any."""
    minor: int
    major: int
    """The version of its PTX."""
    arch: int
    flags: int


class _DamageError(Exception):
    """The bytes are not a fatbin. The message has their offset."""


def parse_fatbins(read: ReadAt, start: int, size: int, charge: Charge) -> GpuCode:
    """Return the GPU code in the section of *size* bytes at *start*, a module for each container.

    Raises only what *read* and *charge* raise.
    """
    modules: list[tuple[set[str], set[Ptx]]] = []
    seen: set[Union[str, Ptx]] = set()
    unread = None
    try:
        for entry in _entries(read, start, start + size, charge):
            if entry is None:
                modules.append((set(), set()))
                continue
            suffix = "a" if entry.flags & ARCH_SPECIFIC else "f" if entry.flags & FAMILY_SPECIFIC else ""
            code, ptx = modules[-1]
            if entry.kind == CUBIN:
                arch = f"sm_{entry.arch}{suffix}"
                code.add(arch)
                seen.add(arch)
            elif entry.kind == PTX:
                compiled = Ptx(f"compute_{entry.arch}{suffix}", f"{entry.major}.{entry.minor}")
                ptx.add(compiled)
                seen.add(compiled)
            if len(seen) > ARCHITECTURES_LIMIT:
                raise _DamageError(f"over {ARCHITECTURES_LIMIT} architectures and versions of PTX")
    except _DamageError as error:
        unread = str(error)
    fatbin_code = gpu_code(modules, unread)
    if len(fatbin_code.modules) > ARCHITECTURES_LIMIT:
        return GpuCode(fatbin_code.modules[:ARCHITECTURES_LIMIT], f"over {ARCHITECTURES_LIMIT} kinds of modules")
    return fatbin_code


def _entries(read: ReadAt, at: int, end: int, charge: Charge) -> Iterator[Optional[_FatbinEntry]]:
    """Yield None for each container from *at* to *end*, and then its entries. Errors: `_DamageError`."""
    container_end = at
    budget = ENTRIES_LIMIT
    while budget > 0:
        charge(1)
        budget -= 1
        if at >= container_end:
            if at + _CONTAINER.size > end:
                return
            magic, _, header, size = _CONTAINER.unpack(_bytes(read, at, _CONTAINER.size))
            if not magic:  # between two containers
                at += 8
                continue
            if magic != MAGIC or header < _CONTAINER.size or at + header + size > end:
                raise _DamageError(f"no container of GPU code at byte {at}")
            container_end, at = at + header + size, at + header
            yield None
            continue
        entry = _FatbinEntry(*_ENTRY.unpack(_bytes(read, at, _ENTRY.size)))
        if entry.header < _ENTRY.size or at + entry.header + entry.size > container_end:
            raise _DamageError(f"no entry of GPU code at byte {at}")
        if entry.kind == ENTRY_GROUP:
            for packed_entry in islice(_packed(_bytes(read, at, min(entry.header, _HEADER_LIMIT)), at), budget + 1):
                charge(1)
                budget -= 1
                yield packed_entry
        else:
            yield entry
        at += entry.header + entry.size
    raise _DamageError(f"over {ENTRIES_LIMIT} entries")


def _packed(header: bytes, place: int) -> Iterator[_FatbinEntry]:
    """Yield the entries in the group with *header* at offset *place*. Errors: `_DamageError`."""
    at, count = _ENTRY.size + _EXTENSION.size, 0
    if len(header) >= at:
        count, _ = _EXTENSION.unpack_from(header, _ENTRY.size)
    for _ in range(count):
        if at + _ENTRY.size > len(header):
            raise _DamageError(f"no entry of GPU code at byte {place + at}")
        entry = _FatbinEntry(*_ENTRY.unpack_from(header, at))
        yield entry
        at += _ENTRY.size
        if entry.extension and at + _EXTENSION.size <= len(header):
            at += (_EXTENSION.unpack_from(header, at)[1] // 8 + 2) * 8


def _bytes(read: ReadAt, at: int, size: int) -> bytes:
    data = read(at, size)
    if len(data) < size:
        raise _DamageError(f"the file ends in its GPU code, at byte {at + len(data)}")
    return data
