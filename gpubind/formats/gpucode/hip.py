"""AMD's GPU code: offload bundles in the section `.hip_fatbin`, and the names of Tensile's files.

Source: LLVM, "Clang Offload Bundler" (the bundle, the compressed bundle, IDs of entries), and
`clang/lib/Driver/OffloadBundler.cpp`; Tensile and hipBLASLt name a file after the processor that it is for.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Optional

from gpubind.formats.gpucode.fatbin import Read
from gpubind.model.gpucode import SPIRV, GpuCode, made_of

SECTION = ".hip_fatbin"
MAGIC, PACKED_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
ALIGNMENT = 4096
"""Of each bundle in its section."""
STEPS_LIMIT = 1 << 14
"""Places where a bundle may begin that are looked at: of PyTorch's 2,000."""
ENTRIES_LIMIT, ID_LIMIT = 512, 256
HEAD_LIMIT = 1 << 16
"""Bytes of a bundle that its head may have."""
PACKED_LIMIT = 256 << 10
"""Bytes of a compressed bundle that are read for its head: a block of zstd has 128 KiB."""
_ENTRY = struct.Struct("<QQQ")
_ID = re.compile(rf"hip(?:v4)?-(?:amdgcn|spirv64)-amd-amdhsa-{{1,2}}(gfx[0-9a-z-]+(?::[a-z]+[+-])*|{SPIRV})")
_IN_NAME = re.compile(r"gfx[0-9]+(?:-[0-9])?-generic|gfx[0-9a-f]{3,4}(?:-xnack[+-])?")


def parse_bundles(read: Read, start: int, size: int) -> GpuCode:
    """Return the GPU code in the section of *size* bytes at *start*. Never raises by itself."""
    found: set[str] = set()
    unread: Optional[str] = None
    at, end = start, start + size
    for _ in range(STEPS_LIMIT):
        if at >= end:
            break
        head = read(at, 32)
        if head.startswith(PACKED_MAGIC):
            length, data = _unpacked(read(at, min(PACKED_LIMIT, end - at)))
            ids = None if data is None else list(_ids(data))
        elif head.startswith(MAGIC):
            count = int.from_bytes(head[len(MAGIC) :], "little")
            data = read(at, min(len(head) + count * (_ENTRY.size + ID_LIMIT), HEAD_LIMIT, end - at))
            length, ids = _length(data), list(_ids(data))
        else:
            at += ALIGNMENT  # what fills the section up, or the rest of a bundle
            continue
        if not ids:
            unread = f"a bundle at byte {at} that cannot be read"
        found.update(ids or ())
        at += max(ALIGNMENT, (length + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)
    else:
        unread = f"over {STEPS_LIMIT} places of bundles"
    code = (arch for arch in found if arch.startswith("gfx"))
    return made_of(code, (arch for arch in found if arch == SPIRV), unread)


def arch_in_name(name: str) -> Optional[str]:
    """Return the processor in the name of a file of Tensile's: `Kernels.so-000-gfx90a-xnack+.hsaco`; None if none."""
    match = _IN_NAME.search(name)
    return match.group().replace("-xnack", ":xnack") if match else None


def parse_names(names: Iterable[str]) -> GpuCode:
    """Return the processors that files with these *names* are for."""
    return made_of(arch for name in names if (arch := arch_in_name(name)) is not None)


def _entries(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield offset, size and ID of each entry in the head *data* of a bundle, as far as it goes."""
    at = len(MAGIC) + 8
    count = int.from_bytes(data[len(MAGIC) : at], "little")
    for _ in range(min(count, ENTRIES_LIMIT)):
        if len(data) < at + _ENTRY.size:
            return
        offset, size, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if length > ID_LIMIT or at + length > len(data):
            return
        yield offset, size, data[at : at + length].decode("ascii", "replace")
        at += length


def _ids(data: bytes) -> Iterator[str]:
    """Yield the processors in the head *data* of a bundle; an empty text for the host's entry."""
    for _, size, name in _entries(data):
        match = _ID.fullmatch(name)
        yield match.group(1) if match and size else ""


def _length(data: bytes) -> int:
    """Return the bytes of the bundle with the head *data*."""
    return max((offset + size for offset, size, _ in _entries(data)), default=0)


def _unpacked(data: bytes) -> tuple[int, Optional[bytes]]:
    """Return the length of the compressed bundle that begins with *data*, 0 if unknown, and its unpacked head."""
    version, method = struct.unpack_from("<HH", data.ljust(32, b"\0"), 4)
    # Version 1 does not have the size of the whole, and version 3 has larger numbers.
    header, length = {1: (20, None), 2: (24, "<I"), 3: (32, "<Q")}.get(version, (0, None))
    if not header or len(data) < header:
        return 0, None
    size = struct.unpack_from(length, data, 8)[0] if length else 0
    return size, _head(method, data[header : size or None])


def _head(method: int, packed: bytes) -> Optional[bytes]:
    """Return the first bytes that *packed* unpacks to; None where that fails. *method*: 0 zlib, 1 zstd."""
    try:
        data: Any
        if method == 0:
            import zlib

            data = zlib.decompressobj().decompress(packed, HEAD_LIMIT)
        else:
            import zstandard

            with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(packed) as stream:
                data = stream.read(HEAD_LIMIT)
    except Exception:  # noqa: BLE001 - each library has other errors
        return None
    return data if isinstance(data, bytes) and data.startswith(MAGIC) else None
