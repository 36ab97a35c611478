"""Intel's GPU code in SYCL programs: machine code compiled ahead of time, and SPIR-V.

A section is a sequence of images, each plain or compressed by zstd. An image for several GPUs is an archive of `ocloc`:
a file for each GPU, named by the version of its architecture (`64.12.60.7`), and perhaps one of SPIR-V (`generic_ir`).
Only the first image of a file is read: one option of the compiler selects the GPUs of all images.

Sources: intel/llvm `clang/lib/Driver` (the triples) and `sycl/doc/design/CompiledDeviceImageFormat.md`;
intel/compute-runtime `shared/offline_compiler` (fat binaries), `third_party/aot_config_headers/platforms.h` (versions:
the parts of a number begin at bit 22 and bit 14, the revision has 6 bits; that of 24.35 also has the older GPUs).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Optional, Union

from gpubind.formats.gpucode.fatbin import Charge, ReadAt
from gpubind.model.gpucode import SPIR64, GpuCode, Ptx, gpu_code

GENERATED = "__CLANG_OFFLOAD_BUNDLE__sycl-spir64_gen"
PORTABLE = "__CLANG_OFFLOAD_BUNDLE__sycl-spir64"
EMPTY = 88
"""Bytes of SPIR-V without any functions. Many files of dpnp and dpctl contain only that."""
UNPACKED_LIMIT = 64 << 20
"""Maximum bytes of an unpacked image. Heads of files beyond them are not read."""
STEP = 1 << 16
FILES_LIMIT = 256
_FRAME_HEAD = 18
"""The largest head of a zstd frame, in bytes."""
_ARCHIVE, _ZSTD = b"!<arch>\n", b"\x28\xb5\x2f\xfd"
_HEAD = 60
_VERSION = re.compile(r"(?:32|64)\.([0-9]{1,3}\.[0-9]{1,3})\.[0-9]{1,3}")
_VERSIONS = {
    "8.0": "bdw", "9.0": "skl", "9.1": "kbl", "9.2": "cfl", "9.3": "apl", "9.4": "glk", "9.5": "cfl", "9.6": "kbl",
    "9.7": "cfl", "11.0": "icl", "11.2": "ehl", "12.0": "tgl", "12.1": "rkl", "12.2": "adl-s", "12.3": "adl-p",
    "12.4": "adl-n", "12.10": "dg1", "12.55": "dg2", "12.56": "dg2", "12.57": "dg2", "12.60": "pvc", "12.61": "pvc",
    "12.70": "mtl", "12.71": "mtl", "12.74": "arl", "20.1": "bmg", "20.2": "bmg", "20.4": "lnl", "30.0": "ptl",
    "30.1": "ptl", "30.3": "ptl", "30.4": "nvl-s", "30.5": "nvl-s", "35.10": "nvl-p", "35.11": "cri",
}  # fmt: skip
"""The GPUs of each version of the architecture, without its revision."""


def parse_generated(read: ReadAt, start: int, size: int, charge: Charge, *, has_portable: bool) -> GpuCode:
    """Return the GPU code in the section of *size* bytes at *start*. *has_portable*: the file also has SPIR-V."""
    section = _Plain(read, start, size, charge)
    archive = _Unpacked(section) if section.part(0, len(_ZSTD)) == _ZSTD else section
    code, portable = set[str](), has_portable
    unread: Optional[str] = None
    for name in _files(archive):
        charge(1)
        match = _VERSION.fullmatch(name)
        if name == "generic_ir":
            portable = True
        elif match is None or match.group(1) not in _VERSIONS:
            unread = f"Intel GPU code for {name}, which is not known" if name else "Intel GPU code that cannot be read"
        else:
            code.add(_VERSIONS[match.group(1)])
    return gpu_code([(code, [Ptx(SPIR64)] if portable else [])], None if portable else unread)


class _Plain:
    def __init__(self, read: ReadAt, start: int, size: int, charge: Charge) -> None:
        self._read, self._start, self._size, self._charge = read, start, size, charge
        self._at = 0

    def part(self, at: int, size: int) -> bytes:
        """Return up to *size* bytes at *at*."""
        return self._read(self._start + at, max(min(size, self._size - at), 0))

    def read(self, size: int) -> bytes:
        data = self.part(self._at, min(size, STEP))
        self._charge(len(data) // 1024)
        self._at += len(data)
        return data


class _Unpacked:
    def __init__(self, source: _Plain) -> None:
        self._at, self._size = 0, -1
        self._stream: Any = None
        try:
            import zstandard

            self._size = zstandard.frame_content_size(source.part(0, _FRAME_HEAD))
            self._stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(source)  # type: ignore[arg-type]
        except Exception:  # noqa: BLE001 - the errors of zstandard are its own
            return

    def part(self, at: int, size: int) -> bytes:
        """Return up to *size* bytes at *at*, which never decreases between calls."""
        if 0 <= self._size <= at:  # another image may follow
            return b""
        try:
            while self._at < at <= UNPACKED_LIMIT:
                skipped = len(self._stream.read(min(at - self._at, STEP)))
                self._at += skipped
                if not skipped:
                    return b""
            data = self._stream.read(size) if self._at == at else b"?"  # beyond `UNPACKED_LIMIT`
        except Exception:  # noqa: BLE001 - the errors of zstandard are its own
            return b"?"
        self._at += len(data)
        return data


def _files(archive: Union[_Plain, _Unpacked]) -> Iterator[str]:
    """Yield the name of each file in *archive*; an empty one for an unreadable part."""
    if archive.part(0, len(_ARCHIVE)) != _ARCHIVE:
        yield ""
        return
    at = len(_ARCHIVE)
    for _ in range(FILES_LIMIT):
        head = archive.part(at, _HEAD)
        if head[:1] in (b"", b"\0", b"\n") or head.startswith(_ARCHIVE):  # padding between images, or the next image
            return
        if len(head) < _HEAD or head[58:] != b"`\n":
            yield ""
            return
        name, size = head[:16].decode("ascii", "replace").strip().rstrip("/"), head[48:58].strip()
        if not size.isdigit():
            yield ""
            return
        if not name.startswith("pad_"):
            yield name
        at += _HEAD + int(size) + int(size) % 2
    yield ""
