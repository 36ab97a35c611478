"""The loader's names for processors: their subdirectories, and the value of $PLATFORM.

Source: ld.so(8), "glibc-hwcaps"; glibc `elf/dl-hwcaps.c`, `sysdeps/x86_64/dl-hwcaps_subdirs.c`, until 2.36
`sysdeps/x86/cpu-features.c` (platforms and important bits); the x86-64 psABI for the levels.
"""

from __future__ import annotations

from itertools import product
from typing import Optional

from gpubind.formats.driver.kernel import parse_fields
from gpubind.frozen import NamedTuple
from gpubind.model.arch import architecture
from gpubind.model.cuda import version_key

HWCAPS_DIRECTORY = "glibc-hwcaps"
LEVELS_SINCE, OLD_KINDS_UNTIL = (2, 33), (2, 36)

_V2 = {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_FLAGS = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
"""Flags in /proc/cpuinfo that a level requires."""

_INTELS = {
    "xeon_phi": {"avx512f", "avx512cd", "avx512er", "avx512pf"},
    "haswell": {"avx2", "bmi1", "bmi2", "fma", "abm", "movbe", "popcnt"},
    "avx512_1": {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"},
}
"""The names that glibc until 2.36 gives to an Intel processor, each with the flags that it requires."""


class Cpu(NamedTuple):
    """The facts about a processor that the loader uses."""

    vendor: str
    """`GenuineIntel`, `AuthenticAMD`."""
    flags: frozenset[str]


def parse_cpuinfo(text: str) -> Optional[Cpu]:
    """Return the first processor in /proc/cpuinfo; None if it has no flags: only x86 lists them."""
    fields = parse_fields(text.partition("\n\n")[0])
    return Cpu(fields.get("vendor_id", ""), frozenset(fields["flags"].split())) if fields.get("flags") else None


def hwcaps_subdirectories(arch: str, glibc: Optional[str], cpu: Optional[Cpu]) -> tuple[str, ...]:
    """Return the subdirectories that the loader of *glibc* (`2.36`) searches on *cpu*, in order.

    If *cpu* is None, return those of every processor. There are none if *glibc* is None (another C library).
    """
    if glibc is None:
        return ()
    version = version_key(glibc)[:2]
    names: list[str] = []
    if version >= LEVELS_SINCE:
        levels = architecture(arch).hwcaps_levels
        names += [
            f"{HWCAPS_DIRECTORY}/{level}" for level in levels if cpu is None or cpu.flags >= _FLAGS.get(level, set())
        ]
    if version <= OLD_KINDS_UNTIL:
        # Every combination of `tls`, the platform and the important bits, largest first.
        kinds = architecture(arch).legacy_hwcaps or (("tls",), (arch,))
        choices = product(*((*_usable(step, cpu), "") for step in kinds))
        names += dict.fromkeys("/".join(filter(None, choice)) for choice in choices if any(choice))
    return tuple(names)


def platforms(arch: str, cpu: Optional[Cpu]) -> tuple[str, ...]:
    """Return the value of `$PLATFORM` on *cpu*; every possible value if *cpu* is None; empty if the kernel has none."""
    return _usable(architecture(arch).platforms, cpu)


def _usable(names: tuple[str, ...], cpu: Optional[Cpu]) -> tuple[str, ...]:
    """Return the first of *names* that glibc gives to *cpu*; all of them if *cpu* is None."""
    if cpu is None:
        return names
    is_intels = cpu.vendor == "GenuineIntel"
    usable = (name for name in names if name not in _INTELS or (is_intels and cpu.flags >= _INTELS[name]))
    return tuple(name for name in usable if name != "avx512_1" or "avx512er" not in cpu.flags)[:1]
