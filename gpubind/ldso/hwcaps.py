"""The subdirectories in which glibc looks for libraries that are made for some processors, before the directory itself.

Source: ld.so(8), "glibc-hwcaps"; glibc `elf/dl-hwcaps.c`, `sysdeps/x86_64/dl-hwcaps_subdirs.c`, and until 2.36
`sysdeps/x86/cpu-features.c` (platforms and important bits); the x86-64 psABI for the levels.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple, Optional

LEVELS = "glibc-hwcaps"
LEVELS_SINCE, OLD_KINDS_UNTIL = (2, 33), (2, 36)
LEVELS_OF = {
    "x86_64": ("x86-64-v4", "x86-64-v3", "x86-64-v2"),
    "ppc64le": ("power10", "power9"),
    "s390x": ("z17", "z16", "z15", "z14", "z13"),
}

_V2 = {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_FLAGS = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
"""What /proc/cpuinfo calls that which a level asks for."""

_HASWELL = {"avx2", "bmi1", "bmi2", "fma", "abm", "movbe", "popcnt"}
_XEON_PHI = {"avx512f", "avx512cd", "avx512er", "avx512pf"}
_AVX512_1 = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}


class Cpu(NamedTuple):
    """A processor, as far as the loader asks."""

    vendor: str
    """`GenuineIntel`, `AuthenticAMD`."""
    flags: frozenset[str]


def parse_cpuinfo(text: str) -> Optional[Cpu]:
    """The first processor in the text of /proc/cpuinfo; None if it has no flags, as on other machines than x86."""
    fields: dict[str, str] = {}
    for line in text.split("\n"):
        if not line.strip():
            break
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return Cpu(fields.get("vendor_id", ""), frozenset(fields["flags"].split())) if fields.get("flags") else None


def hwcaps_subdirectories(arch: str, glibc: Optional[str], cpu: Optional[Cpu]) -> tuple[str, ...]:
    """Below which names the loader of *glibc* (`2.36`) looks on *cpu*, in its order; all that may be if that is None.

    None at all where the C library is not glibc.
    """
    if glibc is None:
        return ()
    version = tuple(int(part) for part in glibc.split(".")[:2])
    names: list[str] = []
    if version >= LEVELS_SINCE:
        levels = LEVELS_OF.get(arch, ())
        names += [f"{LEVELS}/{level}" for level in levels if cpu is None or cpu.flags >= _FLAGS.get(level, set())]
    if version <= OLD_KINDS_UNTIL:
        names += _old_kinds(arch, cpu)
    return tuple(names)


def _old_kinds(arch: str, cpu: Optional[Cpu]) -> Iterable[str]:
    """Every choice of `tls`, the platform and the important bits, largest first."""
    steps: list[tuple[str, ...]]
    if arch == "i386":
        steps = [("tls",), ("i686",), ("sse2",)]
    elif arch == "x86_64":
        platforms, bits = _intel(cpu)
        steps = [("tls",), platforms, bits, ("x86_64",)]
    else:
        steps = [("tls",), ("atomics",) if arch == "aarch64" else (), (arch,)]
    choices = product(*((*step, "") for step in steps))
    return dict.fromkeys("/".join(part for part in choice if part) for choice in choices if any(choice))


def _intel(cpu: Optional[Cpu]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The platform and the bits besides x86_64: glibc looked for them on Intel's processors alone."""
    if cpu is None:
        return ("xeon_phi", "haswell", "x86_64"), ("avx512_1",)
    if cpu.vendor != "GenuineIntel":
        return ("x86_64",), ()
    phi = cpu.flags >= _XEON_PHI
    bits = ("avx512_1",) if cpu.flags >= _AVX512_1 and "avx512er" not in cpu.flags else ()
    return ("xeon_phi" if phi else "haswell" if cpu.flags >= _HASWELL else "x86_64",), bits
