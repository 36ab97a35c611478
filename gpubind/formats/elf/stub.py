"""Stubs: libraries that stand in for libcuda or NVML while programs are linked, recognised by their bytes.

The CUDA toolkit has them in `lib64/stubs`, from where they get copied. Seen in those of CUDA 11.8 and 12.4:

- `libcuda.so` (62 and 70 KB, soname `libcuda.so.1`) has all of libcuda's functions and imports none at all; each
  answers CUDA_ERROR_STUB_LIBRARY (34).
- `libnvidia-ml.so` (46 and 59 KB, soname `libnvidia-ml.so.1`) prints that it is a stub; nvmlInit answers 9.

A real libcuda has over 10 MB, and a real NVML over 1 MB. In Windows' subsystem for Linux libcuda is a loader of 140 to
160 KB: size proves nothing.
"""

from __future__ import annotations

STUB_LIMIT = 1 << 20
"""Bytes. A larger file is not a stub."""

_WAYS_TO_A_DRIVER = (b"ioctl\0", b"dlopen\0", b"dlmopen\0", b"syscall\0", b"socket\0", b"mmap\0", b"mmap64\0")


def is_stub(data: bytes) -> bool:
    """Return whether *data*, a whole ELF file, is a stub of libcuda or NVML.

    A libcuda that imports no function by which it could reach a device or another library can only be a stub. An NVML
    must contain the words: stand-ins that report made-up GPUs reach no device either, and are accepted.
    """
    if not data.startswith(b"\x7fELF"):
        return False
    # Names of symbols end with a zero byte. To look for those bytes needs no section headers, which may be stripped.
    if b"cuInit\0" in data:
        return not any(name in data for name in _WAYS_TO_A_DRIVER)
    return b"nvmlInit_v2\0" in data and b"is a stub library" in data
