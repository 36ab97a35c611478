"""List where the loader of a container looks for a library, in its order, with the subdirectories for some processors.

Source: ld.so(8) for the order, the tokens of a search path and "glibc-hwcaps"; glibc `elf/dl-load.c`
(`_dl_dst_substitute`, `_dl_map_object`), `elf/dl-cache.c`, `elf/dl-hwcaps.c`, `sysdeps/x86_64/dl-hwcaps_subdirs.c`,
until 2.36 `sysdeps/x86/cpu-features.c` (platforms and important bits); the x86-64 psABI for the levels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import product
from typing import Optional

from gpubind.formats.driver.kernel import parse_params
from gpubind.formats.elf.elf import ElfFacts
from gpubind.frozen import NamedTuple
from gpubind.loader.loader import DEFAULT_DIRECTORIES, DEFAULT_DIRECTORIES_32, Glibc, Loader
from gpubind.model.arch import architecture, library_token
from gpubind.model.cuda import version_key

_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))")
"""A dynamic string token. Source: ld.so(8); glibc `elf/dl-load.c`, `is_dst`: `$LIBS` is not one."""
DEFAULT_PREFIXES = tuple(f"{directory}/" for directory in (*DEFAULT_DIRECTORIES, *DEFAULT_DIRECTORIES_32))


def _replacing(token: str, value: str) -> Callable[[re.Match[str]], str]:
    """Return a function for `re.sub` that replaces only *token* by *value*."""
    return lambda match: value if token in match.groups() else match[0]


LEVELS = "glibc-hwcaps"
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
"""Flags of the processors that glibc until 2.36 gives these names; only Intel's."""


class Cpu(NamedTuple):
    """The facts of a processor that the loader uses."""

    vendor: str
    """`GenuineIntel`, `AuthenticAMD`."""
    flags: frozenset[str]


def parse_cpuinfo(text: str) -> Optional[Cpu]:
    """Return the first processor in /proc/cpuinfo; None if it has no flags, as on other machines than x86."""
    fields = parse_params(text.partition("\n\n")[0])
    return Cpu(fields.get("vendor_id", ""), frozenset(fields["flags"].split())) if fields.get("flags") else None


def hwcaps_subdirectories(arch: str, glibc: Optional[str], cpu: Optional[Cpu]) -> tuple[str, ...]:
    """Return the subdirectories that the loader of *glibc* (`2.36`) searches on *cpu*, in order.

    All of them if *cpu* is None, and none if the C library is not glibc.
    """
    if glibc is None:
        return ()
    version = version_key(glibc)[:2]
    names: list[str] = []
    if version >= LEVELS_SINCE:
        levels = architecture(arch).levels
        names += [f"{LEVELS}/{level}" for level in levels if cpu is None or cpu.flags >= _FLAGS.get(level, set())]
    if version <= OLD_KINDS_UNTIL:
        # Every choice of `tls`, the platform and the important bits, largest first.
        kinds = architecture(arch).old_kinds or (("tls",), (arch,))
        choices = product(*((*_usable(step, cpu), "") for step in kinds))
        names += dict.fromkeys("/".join(filter(None, choice)) for choice in choices if any(choice))
    return tuple(names)


def platforms(arch: str, cpu: Optional[Cpu]) -> tuple[str, ...]:
    """Return the value of `$PLATFORM` on *cpu*; each possible value if that is None, none if the kernel has none."""
    return _usable(architecture(arch).platforms, cpu)


def _usable(names: tuple[str, ...], cpu: Optional[Cpu]) -> tuple[str, ...]:
    """Return the first of *names* that glibc gives to *cpu*; all of them if that is None."""
    if cpu is None:
        return names
    is_intels = cpu.vendor == "GenuineIntel"
    usable = (name for name in names if name not in _INTELS or (is_intels and cpu.flags >= _INTELS[name]))
    return tuple(name for name in usable if name != "avx512_1" or "avx512er" not in cpu.flags)[:1]


class Places:
    """The search order of *loader* in a container, with its directories and its processor."""

    def __init__(
        self,
        loader: Loader,
        has_directory: Callable[[str], bool],
        may_have_directory: Callable[[str], bool],
        cpu: Callable[[], Optional[Cpu]] = lambda: None,
        glibc: Callable[[Glibc], Glibc] = lambda own: own,
    ) -> None:
        """*has_directory* returns whether one surely exists, *may_have_directory* whether one may. *glibc* returns the
        glibc that replaces the image's.
        """
        self._loader = loader
        self._has_directory = has_directory
        self._may_have_directory = may_have_directory
        self._read_cpu = cpu
        self._in_place_of = glibc
        self._existing: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._below: dict[tuple[str, str], tuple[str, ...]] = {}

    def of(self, soname: str, directories: Iterable[str], asker: Optional[ElfFacts]) -> Iterator[tuple[str, bool]]:
        """Yield each path for *soname*, in *directories* first; and whether the processor surely uses it.

        *asker* is the file that needs it; None for a program without search paths.
        """
        arch = self._loader.arch or "" if asker is None else asker.ident.arch
        no_defaults = asker is not None and asker.no_default_directories
        for directory in self._there(tuple(directories)):
            yield from self._in_directory(directory, soname, arch)
        for path, is_sure in self._cached(soname, arch):
            if not (no_defaults and path.startswith(DEFAULT_PREFIXES)):
                yield path, is_sure
        for directory in () if no_defaults else self._loader.default_directories:
            yield from self._in_directory(directory, soname, arch)

    def _there(self, directories: tuple[str, ...]) -> tuple[str, ...]:
        """Return the *directories* that may exist, once for all names: a search path may have thousands."""
        found = self._existing.get(directories)
        if found is None:
            found = tuple(directory for directory in directories if self._may_have_directory(directory))
            self._existing[directories] = found
        return found

    def directories(self, search_path: Optional[str], origin: str, arch: str) -> tuple[str, ...]:
        """Return the directories of a DT_RPATH or DT_RUNPATH, for each value that $PLATFORM may have.

        A directory with a token for which the loader has no value is ignored.
        """
        found: list[str] = []
        for part in (search_path or "").split(":"):
            parts = [part]
            for token in dict.fromkeys(match[1] or match[2] for match in _TOKEN.finditer(part)):
                values = self._values(token, origin, arch)
                parts = [_TOKEN.sub(_replacing(token, value), here) for here in parts for value in values]
            found += (part for part in parts if part.startswith("/"))
        return tuple(found)

    def glibc_version(self, arch: str) -> Optional[str]:
        """Return the version of the container's glibc for *arch*; None if it has none."""
        glibc = self._glibc(arch or None)
        return None if glibc is None else glibc.version

    def _glibc(self, arch: Optional[str]) -> Optional[Glibc]:
        own = self._loader.of(arch).glibc
        return None if own is None else self._in_place_of(own)

    def _values(self, token: str, origin: str, arch: str) -> tuple[str, ...]:
        """Return the values that *token* may have; empty if the loader has none."""
        if token == "ORIGIN":
            return (origin,)
        if token == "PLATFORM":
            return platforms(arch, self._cpu)
        glibc = self._glibc(arch)
        library = library_token(glibc.path) if glibc is not None else None
        return () if library is None else (library,)

    def in_directories(self, directories: tuple[str, ...], soname: str, arch: str) -> Iterator[str]:
        """Yield where the loader looks for *soname* in *directories*."""
        for directory in self._there(directories):
            yield from (place for place, _ in self._in_directory(directory, soname, arch))

    def _in_directory(self, directory: str, soname: str, arch: str) -> Iterator[tuple[str, bool]]:
        directory = directory.rstrip("/")
        for name in self._subdirectories(directory, arch):
            yield f"{directory}/{name}/{soname}", self._cpu is not None
        yield f"{directory}/{soname}", True

    def _subdirectories(self, directory: str, arch: str) -> tuple[str, ...]:
        """Return the existing subdirectories of *directory* for some processors that the loader searches."""
        names = self._below.get((directory, arch))
        if names is None:
            glibc = self.glibc_version(arch)
            firsts = dict.fromkeys(name.split("/")[0] for name in hwcaps_subdirectories(arch, glibc, None))
            there = any(self._has_directory(f"{directory}/{first}") for first in firsts)
            # Most images have none: then the processor is not read.
            every = hwcaps_subdirectories(arch, glibc, self._cpu) if there else ()
            names = tuple(name for name in every if self._has_directory(f"{directory}/{name}"))
            self._below[directory, arch] = names
        return names

    def _cached(self, soname: str, arch: str) -> Iterator[tuple[str, bool]]:
        """Return the cache's paths for *soname*, those for the best processor first."""
        entries = self._loader.cached(soname)
        plain = [(entry.path, True) for entry in entries if not entry.hwcap]
        if len(plain) == len(entries):
            return iter(plain)
        glibc = self.glibc_version(arch)
        cpu = self._cpu
        usable = hwcaps_subdirectories(arch, glibc, cpu)
        ranked = [
            (usable.index(f"{LEVELS}/{entry.hwcap}"), entry.path)
            for entry in entries
            if f"{LEVELS}/{entry.hwcap}" in usable
        ]
        has_old = glibc is not None and version_key(glibc)[:2] <= OLD_KINDS_UNTIL
        old = [(entry.path, False) for entry in entries if has_old and entry.hwcap == "legacy"]
        return iter([*((path, cpu is not None) for _, path in sorted(ranked)), *old, *plain])

    @cached_property
    def _cpu(self) -> Optional[Cpu]:
        return self._read_cpu()
