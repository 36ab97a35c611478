"""What LLVM's own tools say of files: the processors of `.hip_fatbin`, and what is linked."""

from __future__ import annotations

import mmap
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
SYCL = re.compile(r"__CLANG_OFFLOAD_BUNDLE__sycl-spir64\S*").fullmatch
_TARGET = re.compile(rb"amdgcn-amd-amdhsa--(gfx[0-9a-z-]*[0-9a-z](?::[a-z]+[+-])*)")
_SECTION = re.compile(r"\] (\S+)\s+\S+\s+[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+)")


def tool(name: str) -> str:
    """Return the program *name* of LLVM, with or without its version in the name."""
    found = next(filter(None, (shutil.which(f"{name}{suffix}") for suffix in ("", "-22", "-21", "-20", "-19"))), None)
    if found is None:
        raise SystemExit(f"there is no {name}: install LLVM 19 or newer, with clang and lld")
    return found


def sections(path: Path) -> dict[str, tuple[int, int]]:
    """Return offset and size of the sections of *path*; none if it is no ELF file."""
    done = subprocess.run([tool("llvm-readelf"), "-SW", str(path)], capture_output=True, text=True)
    return {name: (int(at, 16), int(size, 16)) for name, at, size in _SECTION.findall(done.stdout)}


def needed(path: Path) -> list[str]:
    """Return DT_NEEDED of *path*."""
    done = subprocess.run([tool("llvm-readelf"), "-d", str(path)], capture_output=True, text=True)
    return re.findall(r"NEEDED.*\[(.*?)\]", done.stdout)


def processors(path: Path, scratch: Path) -> set[str]:
    """Return the processors of the bundles in *path*, as clang-offload-bundler lists them."""
    start, size = sections(path).get(".hip_fatbin", (0, 0))
    if not size:
        return set()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        data = whole[start : start + size]
    pieces = {head: data[at:end] for at, end, head in _pieces(data)}
    return {name for piece in pieces.values() for name in _listed(piece, scratch)}


def _pieces(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield where each bundle of a section begins and ends, and what tells it from others: its head, or all of it."""
    at = 0
    while True:
        plain, packed = data.find(MAGIC, at), data.find(b"CCOB", at)
        if plain < 0 and packed < 0:
            return
        if packed < 0 or 0 <= plain < packed:
            at = data.find(MAGIC, plain + len(MAGIC))
            at = at if at >= 0 else len(data)
            yield plain, at, _head(data, plain)
            continue
        version, method = struct.unpack_from("<HH", data, packed + 4)
        if version not in (1, 2, 3) or method > 1:
            at = packed + 4
            continue
        form = {1: "", 2: "<I", 3: "<Q"}[version]
        at = packed + (struct.unpack_from(form, data, packed + 8)[0] if form else len(data) - packed)
        yield packed, at, data[packed:at]


def _head(data: bytes, at: int) -> bytes:
    """Return the names of the entries of the bundle at *at*."""
    (count,) = struct.unpack_from("<Q", data, at + len(MAGIC))
    at += len(MAGIC) + 8
    names = b""
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", data, at + 16)
        names += data[at + 24 : at + 24 + length] + b"\n"
        at += 24 + length
    return names


def _listed(piece: bytes, scratch: Path) -> Iterator[str]:
    scratch.write_bytes(piece)
    command = [tool("clang-offload-bundler"), "--list", "--type=o", f"--input={scratch}"]
    done = subprocess.run(command, capture_output=True)
    text = done.stdout
    if done.returncode:  # a newer form of compression
        import zstandard

        version, method = struct.unpack_from("<HH", piece, 4)
        packed = piece[{1: 20, 2: 24, 3: 32}[version] :]
        text = zstandard.ZstdDecompressor().decompressobj().decompress(packed) if method else zlib.decompress(packed)
    yield from (name.decode() for name in _TARGET.findall(text[: 1 << 16]))
