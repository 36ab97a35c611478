"""Architectures, and their names in the kernel, ELF files, distributions, OCI and the dynamic loader.

All other modules know an architecture by its `name`.

Sources: ELF gABI (e_machine), uname(2), Debian's "Multiarch/Tuples", Go's GOARCH (OCI image-spec `config.md`),
ld.so(8) and getauxval(3) for `$LIB` and `$PLATFORM`, glibc `sysdeps/*/stackinfo.h`.
"""

from __future__ import annotations

from typing import Optional

from gpubind.frozen import NamedTuple


class Architecture(NamedTuple):
    """One architecture."""

    name: str
    """The name that `uname -m` prints on a kernel that runs nothing else: `x86_64`, `i386`, `aarch64`, `ppc64le`."""
    elf_machine: int
    """e_machine of its ELF files; 0 if unknown."""
    bits: int
    """32 or 64: the class of its ELF files."""
    byte_order: str
    """`little` or `big`."""
    triplet: str
    """Debian's name of its directory of libraries."""
    goarch: str
    """The name in OCI and Go: `amd64`."""
    aliases: tuple[str, ...] = ()
    """Other names in uname(2) of machines that run it."""
    compat32: Optional[str] = None
    """The 32-bit architecture whose programs its processors also run."""
    platforms: tuple[str, ...] = ()
    """Possible values of `$PLATFORM` (AT_PLATFORM), which depends on the processor. Empty: the kernel sets none."""
    hwcaps_levels: tuple[str, ...] = ()
    """Subdirectories of `glibc-hwcaps`, the best first."""
    legacy_hwcaps: tuple[tuple[str, ...], ...] = ()
    """The parts of the names of such subdirectories until glibc 2.36; a name has one of each tuple, or none."""
    executable_stack: bool = False
    """Whether a file without PT_GNU_STACK gets an executable stack."""

    @property
    def plain_directories(self) -> tuple[str, str]:
        """Return the library directories of this class in distributions without Debian's multiarch directories."""
        return ("/usr/lib64", "/lib64") if self.bits == 64 else ("/usr/lib32", "/lib32")


_INTEL_PLATFORMS = ("xeon_phi", "haswell", "x86_64")

ARCHITECTURES = (
    Architecture(
        "x86_64", 62, 64, "little", "x86_64-linux-gnu", "amd64",
        compat32="i386", platforms=_INTEL_PLATFORMS, hwcaps_levels=("x86-64-v4", "x86-64-v3", "x86-64-v2"),
        legacy_hwcaps=(("tls",), _INTEL_PLATFORMS, ("avx512_1",), ("x86_64",)), executable_stack=True,
    ),
    Architecture(
        "i386", 3, 32, "little", "i386-linux-gnu", "386", ("i486", "i586", "i686"),
        platforms=("i686",), legacy_hwcaps=(("tls",), ("i686",), ("sse2",)), executable_stack=True,
    ),
    Architecture(
        "aarch64", 183, 64, "little", "aarch64-linux-gnu", "arm64",
        compat32="arm", platforms=("aarch64",), legacy_hwcaps=(("tls",), ("atomics",), ("aarch64",)),
    ),
    Architecture(
        "arm", 40, 32, "little", "arm-linux-gnueabihf", "arm", ("armv6l", "armv7l", "armv8l"),
        platforms=("v8l", "v7l", "v6l"), executable_stack=True,
    ),
    Architecture(
        "ppc64le", 21, 64, "little", "powerpc64le-linux-gnu", "ppc64le",
        platforms=("power11", "power10", "power9", "power8"), hwcaps_levels=("power10", "power9"),
    ),
)  # fmt: skip
"""The architectures of GPU drivers."""
DRIVER_ARCHITECTURES = tuple(known.name for known in ARCHITECTURES)
_OTHER_NAMES = {
    (20, 32, "big"): "ppc",
    (21, 64, "big"): "ppc64",
    (22, 64, "big"): "s390x",
    (62, 32, "little"): "x32",
    (243, 64, "little"): "riscv64",
    (258, 64, "little"): "loongarch64",
}

_BY_NAME = {name: known for known in ARCHITECTURES for name in (known.name, *known.aliases)}
_BY_ELF = {**_OTHER_NAMES, **{(known.elf_machine, known.bits, known.byte_order): known.name for known in ARCHITECTURES}}


def architecture(name: str) -> Architecture:
    """Return the architecture *name*, which may be its name in uname(2). Of an unknown one, only the name is set."""
    return _BY_NAME.get(name) or Architecture(name, 0, 64, "little", f"{name}-linux-gnu", name)


I386 = architecture("i386")


def architecture_of_elf(machine: int, bits: int, order: str) -> str:
    """Return the architecture of ELF files with this e_machine, class and byte order; `machine-N` if unknown."""
    return _BY_ELF.get((machine, bits, order)) or f"machine-{machine}"


def library_token(libc: str) -> Optional[str]:
    """Return the loader's value of `$LIB` for the glibc at the resolved path *libc*; None if it cannot be known.

    The value is fixed when glibc is built: it is the directory of libc itself, without the prefix. Debian has
    `lib/x86_64-linux-gnu`, Fedora and SUSE `lib64`, Arch Linux `lib`.

    Source: glibc `elf/gen-trusted-dirs.awk` (DL_DST_LIB); `ld.so --list-diagnostics` prints it as `dl_dst_lib`.
    """
    import re  # a plan without an image needs no token

    match = re.search(r"/(lib(?:32|64|x32)?(?:/[^/]+-linux-[^/]+)?)$", libc.rpartition("/")[0])
    return match.group(1) if match else None
