"""AMD's GPU code: offload bundles in the section `.hip_fatbin`, and the names of Tensile's files.

Source: LLVM, "Clang Offload Bundler" (the bundle, the compressed bundle, IDs of entries), and
`clang/lib/Driver/OffloadBundler.cpp`; Tensile and hipBLASLt name a file after its processor, and rocm-kpack an
archive (`docs/multi_arch_packaging_with_kpack.md`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional

from gpubind.formats.gpucode.fatbin import Charge, ReadAt
from gpubind.model.gpucode import SPIRV, GpuCode, Ptx, gpu_code

SECTION = ".hip_fatbin"
ARCHIVE_SECTION = ".rocm_kpack_ref"
"""The section of a file whose code is in archives. It has their paths, relative to the directory of the file."""
ARCHIVES = (".kpack", "../.kpack")
"""The directories of the archives, relative to the file: `torch/.kpack/torch_gfx1201.kpack` for
`torch/lib/libtorch_hip.so`.
"""
IN_ARCHIVES = "its code is in .kpack archives, which were not found"
MAGIC, PACKED_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
ALIGNMENT = 4096
"""The alignment of each bundle in its section."""
STEPS_LIMIT = 1 << 14
"""Maximum offsets that are inspected for the beginning of a bundle. PyTorch has 2,000."""
ENTRIES_LIMIT, ID_LIMIT = 512, 256
"""Maximum entries of one bundle, and maximum characters of an entry's ID."""
ALL_ENTRIES_LIMIT = 1 << 16
"""Maximum entries of all bundles in a file: 32 for each of PyTorch's 2,000 bundles."""
PLACE_COST, PACKED_COST = 4, 32
"""The cost of inspecting an offset, and that of a compressed bundle, as a number of entries that take the same time."""
BARREN_LIMIT = 1000
"""Maximum bundles of a file that precede the first bundle with code for a GPU."""
HEAD_LIMIT = 1 << 16
"""Bytes of a bundle's head."""
_PACKED_LIMIT = 256 << 10
"""Maximum bytes of a compressed bundle that are read for its head. A block of zstd has 128 KiB."""
_ENTRY = struct.Struct("<QQQ")
_ID = re.compile(rf"hip(?:v4)?-(?:amdgcn|spirv64)-amd-amdhsa-{{1,2}}(gfx[0-9a-z-]+(?::[a-z]+[+-])*|{SPIRV})")
_IN_NAME = re.compile(r"gfx[0-9]+(?:-[0-9])?-generic|gfx[0-9a-f]{3,4}(?:-xnack[+-])?")


def parse_bundles(read: ReadAt, start: int, size: int, charge: Charge) -> GpuCode:
    """Return the GPU code in the section of *size* bytes at *start*, as one module.

    Bundles are not treated as separate modules, because ROCm's libraries have kernels that are made only for some
    processors. Raises only what *read* and *charge* raise.
    """
    archs: set[str] = set()
    unread: Optional[str] = None
    at, end = start, start + size
    entries = bundles = 0
    for _ in range(STEPS_LIMIT):
        if at >= end:
            break
        charge(PLACE_COST)
        bundle = _bundle(read, at, end, charge)
        if bundle is None:
            at += ALIGNMENT  # padding of the section, or the rest of a bundle
            continue
        length, ids = bundle
        if not ids:
            unread = f"a bundle at byte {at} that cannot be read"
        charge(len(ids))
        entries, bundles = entries + len(ids), bundles + 1
        archs.update(ids)
        at += max(ALIGNMENT, (length + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT)
        if entries > ALL_ENTRIES_LIMIT:
            unread = f"over {ALL_ENTRIES_LIMIT} entries of bundles"
            break
        if bundles > BARREN_LIMIT and archs <= {""}:
            unread = f"the first {bundles} bundles are for no processor"
            break
    else:
        unread = f"over {STEPS_LIMIT} places of bundles"
    code = (arch for arch in archs if arch.startswith("gfx"))
    return gpu_code([(code, (Ptx(arch) for arch in archs if arch == SPIRV))], unread)


def _bundle(read: ReadAt, at: int, end: int, charge: Charge) -> Optional[tuple[int, list[str]]]:
    """Return the length of the bundle at *at*, and the processor of each entry; None if no bundle begins there.

    The list is empty for an unreadable bundle. An empty string in it is the entry of the host.
    """
    head = read(at, 32)
    if head.startswith(PACKED_MAGIC):
        charge(PACKED_COST)
        length, data = _unpack_head(head, lambda size: read(at, min(size, end - at)))
        return length, [] if data is None else _ids(_entries(data))
    if not head.startswith(MAGIC):
        return None
    count = int.from_bytes(head[len(MAGIC) :], "little")
    data = read(at, min(len(head) + count * (_ENTRY.size + ID_LIMIT), HEAD_LIMIT, end - at))
    entries = list(_entries(data))
    return max((offset + size for offset, size, _ in entries), default=0), _ids(entries)


def arch_in_name(name: str) -> Optional[str]:
    """Return the processor in the name of a Tensile file: `Kernels.so-000-gfx90a-xnack+.hsaco`; None without one."""
    match = _IN_NAME.search(name)
    return match.group().replace("-xnack", ":xnack") if match else None


def parse_names(names: Iterable[str]) -> GpuCode:
    """Return the processors of the Tensile files *names*."""
    return gpu_code([((arch for name in names if (arch := arch_in_name(name)) is not None), ())])


def parse_archives(names: Iterable[str]) -> GpuCode:
    """Return the processors of the archives *names*: `blas_lib_gfx1151.kpack`.

    Empty if an archive is for a family of processors, instead of a single one.
    """
    matches = [re.fullmatch(rf".*_({_IN_NAME.pattern})\.kpack", name) for name in names if name.endswith(".kpack")]
    archs = [match.group(1).replace("-xnack", ":xnack") for match in matches if match]
    return gpu_code([(archs, ())] if len(archs) == len(matches) else [])


def _entries(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield offset, size and ID of each complete entry in the head *data* of a bundle."""
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


def _ids(entries: Iterable[tuple[int, int, str]]) -> list[str]:
    """Return the processor of each entry; an empty string for the host's, and for an entry without code."""
    matches = ((size, _ID.fullmatch(name)) for _, size, name in entries)
    return [match.group(1) if match and size else "" for size, match in matches]


def _unpack_head(start: bytes, read: Callable[[int], bytes]) -> tuple[int, Optional[bytes]]:
    """Return the length of the compressed bundle that begins with *start*, and its unpacked head. The length may be
    0: unknown.
    """
    version, method = struct.unpack_from("<HH", start.ljust(32, b"\0"), 4)
    # Version 1 lacks the total size, and version 3 has larger numbers.
    header, length = {1: (20, None), 2: (24, "<I"), 3: (32, "<Q")}.get(version, (0, None))
    if not header or len(start) < header:
        return 0, None
    size = struct.unpack_from(length, start, 8)[0] if length else 0
    return size, _head(method, read(min(size or _PACKED_LIMIT, _PACKED_LIMIT))[header:])


def _head(method: int, packed: bytes) -> Optional[bytes]:
    """Return the beginning of *packed*, unpacked; None if that fails. *method*: 0 for zlib, 1 for zstd."""
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
