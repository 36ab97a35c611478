"""Architectures: what the kernel, ELF files, distributions, OCI, SIF and the dynamic loader call each of them.

Everything else knows an architecture by its `name`, and asks here for the rest.

Sources: ELF gABI (e_machine), uname(2), Debian's "Multiarch/Tuples", Go's GOARCH (OCI image-spec `config.md`), SIF's
`HdrArchType`, ld.so(8) and getauxval(3) for `$LIB` and `$PLATFORM`, glibc `sysdeps/*/stackinfo.h`.
"""

from __future__ import annotations

from typing import NamedTuple, Optional


class Architecture(NamedTuple):
    """One architecture."""

    name: str
    """As `uname -m` says it of a kernel that runs nothing else: `x86_64`, `i386`, `aarch64`, `ppc64le`."""
    machine: int
    """e_machine of its ELF files; 0 for one that is not known."""
    bits: int
    """32 or 64: the class of its ELF files."""
    order: str
    """`little` or `big`."""
    triplet: str
    """Debian's name of its directory of libraries."""
    go: str
    """In OCI's words, which are Go's: `amd64`."""
    sif: int = 0
    """Number in a SIF header; 0 if it has none."""
    aliases: tuple[str, ...] = ()
    """What else uname(2) may say of machines that run it."""
    compat32: Optional[str] = None
    """The 32-bit architecture whose programs its processors run, too."""
    platforms: tuple[str, ...] = ()
    """What `$PLATFORM` may be (AT_PLATFORM): it differs with the processor. Empty: the kernel says nothing."""
    levels: tuple[str, ...] = ()
    """Subdirectories of `glibc-hwcaps`, the best first."""
    old_kinds: tuple[tuple[str, ...], ...] = ()
    """What glibc until 2.36 made the names of such subdirectories of; one of each is chosen, or none."""
    executable_stack: bool = False
    """Whether a file that does not say (no PT_GNU_STACK) asks for an executable stack."""

    @property
    def plain_directories(self) -> tuple[str, str]:
        """Where distributions without Debian's directories have its libraries, beside those of another class."""
        return ("/usr/lib64", "/lib64") if self.bits == 64 else ("/usr/lib32", "/lib32")


_INTEL_PLATFORMS = ("xeon_phi", "haswell", "x86_64")
_POWER = ("power11", "power10", "power9", "power8")
_S390 = ("z17", "z16", "z15", "z14", "z13")

ARCHITECTURES = (
    Architecture(
        "x86_64", 62, 64, "little", "x86_64-linux-gnu", "amd64", 2,
        compat32="i386", platforms=_INTEL_PLATFORMS, levels=("x86-64-v4", "x86-64-v3", "x86-64-v2"),
        old_kinds=(("tls",), _INTEL_PLATFORMS, ("avx512_1",), ("x86_64",)), executable_stack=True,
    ),
    Architecture(
        "i386", 3, 32, "little", "i386-linux-gnu", "386", 1, ("i486", "i586", "i686"),
        platforms=("i686",), old_kinds=(("tls",), ("i686",), ("sse2",)), executable_stack=True,
    ),
    Architecture("x32", 62, 32, "little", "x86_64-linux-gnux32", "x32", executable_stack=True),
    Architecture(
        "aarch64", 183, 64, "little", "aarch64-linux-gnu", "arm64", 4,
        compat32="arm", platforms=("aarch64",), old_kinds=(("tls",), ("atomics",), ("aarch64",)),
    ),
    Architecture(
        "arm", 40, 32, "little", "arm-linux-gnueabihf", "arm", 3, ("armv6l", "armv7l", "armv8l"),
        platforms=("v8l", "v7l", "v6l"), executable_stack=True,
    ),
    Architecture(
        "ppc64le", 21, 64, "little", "powerpc64le-linux-gnu", "ppc64le", 6,
        platforms=_POWER, levels=("power10", "power9"),
    ),
    Architecture("ppc64", 21, 64, "big", "powerpc64-linux-gnu", "ppc64", 5, compat32="ppc", platforms=_POWER),
    Architecture("ppc", 20, 32, "big", "powerpc-linux-gnu", "ppc", executable_stack=True),
    Architecture("riscv64", 243, 64, "little", "riscv64-linux-gnu", "riscv64", 12),
    Architecture("loongarch64", 258, 64, "little", "loongarch64-linux-gnu", "loong64"),
    Architecture(
        "s390x", 22, 64, "big", "s390x-linux-gnu", "s390x", 11,
        platforms=_S390, levels=_S390, executable_stack=True,
    ),
    Architecture("mips", 8, 32, "big", "mips-linux-gnu", "mips", 7),
    Architecture("mipsel", 8, 32, "little", "mipsel-linux-gnu", "mipsle", 8),
    Architecture("mips64", 8, 64, "big", "mips64-linux-gnuabi64", "mips64", 9),
    Architecture("mips64el", 8, 64, "little", "mips64el-linux-gnuabi64", "mips64le", 10),
)  # fmt: skip
WITH_DRIVERS = ("x86_64", "i386", "aarch64", "arm", "ppc64le")
"""Those that some GPU driver was made for."""

_BY_NAME = {name: known for known in ARCHITECTURES for name in (known.name, *known.aliases)}
_BY_ELF = {(known.machine, known.bits, known.order): known.name for known in ARCHITECTURES}
_BY_SIF = {known.sif: known.name for known in ARCHITECTURES if known.sif}
_LIBRARY_DIRECTORY = r"/(lib(?:32|64|x32)?(?:/[^/]+-linux-[^/]+)?)$"


def architecture(name: str) -> Architecture:
    """Return the architecture called *name*, by itself or by uname(2); one that is not known has a name and no more."""
    return _BY_NAME.get(name) or Architecture(name, 0, 64, "little", f"{name}-linux-gnu", name)


def of_elf(machine: int, bits: int, order: str) -> str:
    """The name of the architecture of ELF files with this e_machine, class and byte order; `machine-N` if unknown."""
    return _BY_ELF.get((machine, bits, order)) or f"machine-{machine}"


def of_sif(number: int) -> Optional[str]:
    """Return the name of the architecture with this *number* in a SIF header; None if it has no such number."""
    return _BY_SIF.get(number)


def library_token(libc: str) -> Optional[str]:
    """What the loader of the glibc at resolved path *libc* puts in the place of `$LIB`; None if that is not to be told.

    It is fixed when glibc is built, as the directory that its libraries are installed into, without the prefix: Debian
    has `lib/x86_64-linux-gnu`, Fedora and SUSE `lib64`, Arch Linux `lib`. libc itself lies in that directory.
    Source: glibc `elf/gen-trusted-dirs.awk` (DL_DST_LIB); `ld.so --list-diagnostics` says it as `dl_dst_lib`.
    """
    import re  # a plan without an image asks for no token

    match = re.search(_LIBRARY_DIRECTORY, libc.rpartition("/")[0])
    return match.group(1) if match else None
