"""The subdirectories in which glibc looks for libraries that are made for some processors, before the directory itself.

Source: ld.so(8), "glibc-hwcaps"; glibc `elf/dl-hwcaps.c`, `sysdeps/x86_64/dl-hwcaps_subdirs.c`, and until 2.36
`sysdeps/x86/cpu-features.c` (platforms and important bits); the x86-64 psABI for the levels.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple, Optional

from gpubind.loader.versions import numbers
from gpubind.model.arch import architecture

LEVELS = "glibc-hwcaps"
LEVELS_SINCE, OLD_KINDS_UNTIL = (2, 33), (2, 36)

_V2 = {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_FLAGS = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
"""What /proc/cpuinfo calls that which a level asks for."""

_INTELS = {
    "xeon_phi": {"avx512f", "avx512cd", "avx512er", "avx512pf"},
    "haswell": {"avx2", "bmi1", "bmi2", "fma", "abm", "movbe", "popcnt"},
    "avx512_1": {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"},
}
"""What glibc calls Intel's processors alone, and what they must have for it."""


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
    version = numbers(glibc)[:2]
    names: list[str] = []
    if version >= LEVELS_SINCE:
        levels = architecture(arch).levels
        names += [f"{LEVELS}/{level}" for level in levels if cpu is None or cpu.flags >= _FLAGS.get(level, set())]
    if version <= OLD_KINDS_UNTIL:
        names += _old_kinds(arch, cpu)
    return tuple(names)


def platforms(arch: str, cpu: Optional[Cpu]) -> tuple[str, ...]:
    """Return what `$PLATFORM` is on *cpu*; all that it may be if that is None. Empty: the kernel has no word for it."""
    return _usable(architecture(arch).platforms, cpu)


def _old_kinds(arch: str, cpu: Optional[Cpu]) -> Iterable[str]:
    """Return every choice of `tls`, the platform and the important bits, largest first."""
    kinds = architecture(arch).old_kinds or (("tls",), (arch,))
    choices = product(*((*_usable(step, cpu), "") for step in kinds))
    return dict.fromkeys("/".join(part for part in choice if part) for choice in choices if any(choice))


def _usable(names: tuple[str, ...], cpu: Optional[Cpu]) -> tuple[str, ...]:
    """Return the first of *names* that glibc gives to *cpu*; all of them if that is not known."""
    if cpu is None:
        return names
    is_intels = cpu.vendor == "GenuineIntel"
    usable = (name for name in names if name not in _INTELS or (is_intels and cpu.flags >= _INTELS[name]))
    return tuple(name for name in usable if name != "avx512_1" or "avx512er" not in cpu.flags)[:1]
