"""ELF: the facts about a file, its identification, and the stubs of drivers. `dynamic` reads the facts.

Stubs replace libcuda or NVML while programs are linked. The CUDA toolkit has them in `lib64/stubs`, and users copy them
from there. Those of CUDA 11.8 and 12.4:

- `libcuda.so` (62 and 70 KB, soname `libcuda.so.1`) defines all of libcuda's functions and imports none; each returns
  CUDA_ERROR_STUB_LIBRARY (34).
- `libnvidia-ml.so` (46 and 59 KB, soname `libnvidia-ml.so.1`) prints that it is a stub; nvmlInit returns 9.

A real libcuda has over 10 MB, a real NVML over 1 MB. But libcuda of Windows Subsystem for Linux is a loader of 140 to
160 KB: the size proves nothing.

Source: gABI chapter 4 (ELF header).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Optional, Union

from gpubind.frozen import NamedTuple
from gpubind.model import CudaNote
from gpubind.model.arch import architecture_of_elf

EXECUTABLE = 2
"""e_type of a program with a fixed address."""
HEAD_SIZE = 256
"""Bytes that `parse_ident` needs. They also suffice to recognize a linker script."""
STUB_LIMIT = 1 << 20
"""Maximum bytes of a stub: a larger file is none."""
_DRIVER_ACCESS_SYMBOLS = (b"ioctl\0", b"dlopen\0", b"dlmopen\0", b"syscall\0", b"socket\0", b"mmap\0", b"mmap64\0")


class ElfIdent(NamedTuple):
    """The facts in the first 20 bytes of an ELF file."""

    bits: Annotated[int, (32, 64)]
    order: Literal["little", "big"]
    machine: Annotated[int, range(1 << 16)]
    """e_machine, 62 for x86-64."""
    type: Annotated[int, range(1 << 16)]
    """e_type: 2 executable, 3 shared object."""

    @property
    def arch(self) -> str:
        """The name of its architecture (`gpubind.model.arch`): `x86_64`, `i386`, `aarch64`; `x32` for 32-bit x86-64."""
        return architecture_of_elf(self.machine, self.bits, self.order)


class NotElf(NamedTuple):
    """Why a file is not an ELF object."""

    rule: Literal["zero-byte", "linker-script", "truncated-elf", "not-elf"]
    detail: str


class VersionNeed(NamedTuple):
    """The symbol versions that a file needs of one library (.gnu.version_r)."""

    library: str
    versions: tuple[str, ...]


class ElfFacts(NamedTuple):
    """The dynamic facts of one ELF file, in the order of the file."""

    ident: ElfIdent
    soname: Optional[str] = None
    needed: tuple[str, ...] = ()
    rpath: Optional[str] = None
    runpath: Optional[str] = None
    interpreter: Optional[str] = None
    version_needs: tuple[VersionNeed, ...] = ()
    version_definitions: tuple[str, ...] = ()
    cuda_note: Optional[CudaNote] = None
    """libcuda's note about the CUDA versions and kernel modules that it supports."""
    executable_stack: bool = False
    """Whether it requires an executable stack (PT_GNU_STACK)."""
    no_default_directories: bool = False
    """Whether its libraries must not come from the default directories (DF_1_NODEFLIB)."""
    pie: bool = False
    """Whether it is a position-independent executable (DF_1_PIE), which dlopen refuses."""


def parse_ident(head: bytes) -> Union[ElfIdent, NotElf]:
    """Return the identification in the first `HEAD_SIZE` bytes of a file, or why it has none. Never raises."""
    if not head:
        return NotElf("zero-byte", "the file is empty")
    if not head.startswith(b"\x7fELF"):
        if b"GNU ld script" in head or head.lstrip().startswith((b"INPUT", b"GROUP", b"OUTPUT_FORMAT")):
            return NotElf("linker-script", "a text for the link editor; the loader cannot use it")
        return NotElf("not-elf", f"starts with {head[:4]!r}")
    if len(head) < 20:
        return NotElf("truncated-elf", f"{len(head)} bytes")
    bits = {1: 32, 2: 64}.get(head[4])
    order: Optional[Literal["little", "big"]] = {1: "little", 2: "big"}.get(head[5])  # type: ignore[assignment]
    if bits is None or order is None:
        return NotElf("not-elf", f"EI_CLASS {head[4]}, EI_DATA {head[5]}")
    return ElfIdent(bits, order, int.from_bytes(head[18:20], order), int.from_bytes(head[16:18], order))


def split_library_path(value: str) -> list[str]:
    """Return the elements of *value*, an LD_LIBRARY_PATH. `:` and `;` separate them (glibc `elf/dl-load.c`,
    fillin_rpath).
    """
    return value.replace(";", ":").split(":")


def is_stub(data: bytes) -> bool:
    """Return whether *data*, a whole ELF file, is a stub of libcuda or NVML.

    A libcuda is a stub if it imports no function to access devices or other libraries. An NVML is a stub only if it
    contains the stub's message: libraries that emulate GPUs do not access a device either, and must be accepted.
    """
    if not data.startswith(b"\x7fELF"):
        return False
    # Symbol names end with a zero byte. This search needs no section headers, which may be stripped.
    if b"cuInit\0" in data:
        return not any(name in data for name in _DRIVER_ACCESS_SYMBOLS)
    return b"nvmlInit_v2\0" in data and b"is a stub library" in data


# The names of the files of a glibc that only work with each other. Source: glibc `Makeconfig`, `shlib-versions`; the
# file lists of Debian's libc6, libc-bin and libc6-i386, Fedora's glibc and glibc-common.
LIBC = "libc.so.6"
CORE_LIBRARIES = (LIBC, "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libresolv.so.2")
"""The libraries of glibc with which programs are linked. An older copy of one does not work with a newer C library."""
PROGRAMS = ("getconf", "getent", "iconv", "iconvconfig", "ldconfig", "ldd", "locale", "localedef", "pldd", "sprof")
GCONV_DIRECTORY = "gconv"
"""The directory with the converters between encodings. glibc loads them by their paths."""
SOTRUSS_MODULE = "audit/sotruss-lib.so"

_LOADER = r"ld(-linux(-[\w-]+)?|64)?\.so\.\d+"
_LIBRARY = (
    r"lib(c\.so\.6|nsl\.so\.1"  # later versions of libnsl belong to another project
    r"|(m|mvec|dl|pthread|rt|util|resolv|anl|thread_db|BrokenLocale|c_malloc_debug)\.so\.\d+"
    r"|nss_(files|dns|compat|hesiod|db|nis|nisplus)\.so\.\d+"
    r"|(memusage|pcprofile|SegFault)\.so)"
)
_MEMBER = f"{_LOADER}|{_LIBRARY}"


def is_loader(name: str) -> bool:
    """Return whether *name* is the name of a dynamic loader."""
    return re.fullmatch(_LOADER, name) is not None


def is_glibc_file(name: str) -> bool:
    """Return whether the loader or library *name* must be replaced together with all others of its glibc."""
    return re.fullmatch(_MEMBER, name) is not None
