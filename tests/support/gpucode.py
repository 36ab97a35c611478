"""GPU code as NVIDIA's and AMD's tools pack it, without the code.

What `fatbinary` of CUDA 13.5 and `clang-offload-bundler` 19 write was the model; tests/live/test_gpucode.py compares.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from gpubind.model.gpucode import CodeModule, Ptx
from tests.support.elf import elf

CODE = b"\x7fELF code".ljust(16, b"\0")
_SUFFIXES = {"a": 1 << 20, "f": 1 << 21}


ISA = "7.0"
"""The version of PTX where a name has none."""


def module(*names: str, alike: int = 1) -> CodeModule:
    """What is read of a container with code for *names*: `sm_90a`, `compute_100f`, `compute_90@8.4`."""
    ptx = (Ptx(arch, isa or ISA) for arch, _, isa in (name.partition("@") for name in names if name[:1] == "c"))
    return CodeModule(tuple(name for name in names if name[:1] != "c"), tuple(ptx), alike)


def _arch(name: str) -> tuple[int, int, int, int]:
    """`sm_90a`, `compute_100f@8.4`: kind, version of PTX, number, flags."""
    kind, _, number = name.partition("_")
    number, _, isa = number.partition("@")
    major, minor = map(int, (isa or ISA).split("."))
    is_code = kind == "sm"
    version = 8 if is_code else major << 16 | minor
    return (2 if is_code else 1), version, int(number.rstrip("af")), 0x11 | _SUFFIXES.get(number[-1], 0)


def _entry(name: str, code: bytes = CODE) -> bytes:
    kind, version, number, flags = _arch(name)
    more = struct.pack("<II", 0x48, 28) + bytes(32) if number >= 100 else b""  # as the real ones have extensions
    header = 64 + len(more)
    at = 64 if more else 0
    fixed = struct.pack("<HHIQIIIIQQQQ", kind, 0x101, header, len(code), 0, at, version, number, 0, flags, 0, 0)
    return fixed + more + code


def _packed(names: Sequence[str], code: bytes = CODE) -> bytes:
    """All of *names* as one entry, whose code is packed at once."""
    inner = b""
    for name in names:
        kind, version, number, flags = _arch(name)
        more = struct.pack("<II", 0x48, 28) + bytes(32) if number >= 100 else b""
        at = 64 if more else 0
        inner += struct.pack("<HHIQIIIIQQQQ", kind, 0x101, 0, len(code), 0, at, version, number, 0, flags, 0, 0) + more
    header = 64 + 8 + len(inner)
    fixed = struct.pack("<HHIQIIIIQQQQ", 256, 0x101, header, len(code), 0, 64, 1, 0, 0, 0x8011, 0, 0)
    return fixed + struct.pack("<II", len(names), len(inner) + 8) + inner + code


def container(*names: str, packed: bool = False, code: bytes = CODE) -> bytes:
    """A container with *code* for each architecture: `sm_80`, `sm_90a`, `compute_100f`, `compute_90@8.4`."""
    entries = _packed(names) if packed else b"".join(_entry(name, code) for name in names)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def bundle(*names: str) -> bytes:
    """A bundle of code for each processor: `gfx90a:xnack-`; and the host's, which is empty."""
    ids = ("host-x86_64-unknown-linux-gnu-", *(f"hipv4-amdgcn-amd-amdhsa--{name}" for name in names))
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(ids))
    for number, name in enumerate(ids):
        size = 64 if number else 0
        head += struct.pack("<QQQ", 4096 * number, size, len(name)) + name.encode()
    out = head.ljust(4096, b"\0")
    return out + b"".join(CODE.ljust(64, b"\1").ljust(4096, b"\0") for _ in names)


def compressed(data: bytes, version: int = 2, method: int = 0) -> bytes:
    """The bundle *data*, compressed: by zlib, or by zstd (1)."""
    if method:
        import zstandard

        packed = zstandard.compress(data)
    else:
        packed = zlib.compress(data)
    size = {1: 20, 2: 24, 3: 32}[version] + len(packed)
    sizes = {1: b"", 2: struct.pack("<I", size), 3: struct.pack("<Q", size)}[version]
    whole = struct.pack("<I" if version < 3 else "<Q", len(data))
    return b"CCOB" + struct.pack("<HH", version, method) + sizes + whole + bytes(8) + packed


def library(*names: str, soname: str = "libx.so", packed: bool = False) -> bytes:
    """A library with code for these architectures, NVIDIA's or AMD's."""
    if any(name.startswith("gfx") for name in names):
        return elf(soname, more={".hip_fatbin": bundle(*names)})
    return elf(soname, more={".nv_fatbin": container(*names, packed=packed)} if names else None)


def library_of(*modules: CodeModule, soname: str = "libx.so") -> bytes:
    """A library with *modules* of NVIDIA's code, each as often as it says."""
    parts = (container(*one.code, *(f"{ptx.arch}@{ptx.isa}" for ptx in one.ptx)) * one.alike for one in modules)
    return elf(soname, more={".nv_fatbin": b"".join(parts)})
