"""The driver's libraries on one host: who names each, which file it is, under which names a container needs it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, Optional, Union

from gpubind.formats.liblist import VENDOR_NEUTRAL, ListEntry, library_stem
from gpubind.model import (
    CAPABILITIES,
    Capability,
    Decision,
    Family,
    HostFile,
    Missing,
    RootedPath,
    Stat,
    Step,
    Vendor,
    Verdict,
)
from gpubind.sources.search import LD_CACHE, Accepted, Candidate, Refused, Search
from gpubind.sources.table import NameTable, capability_of, driver_version_of

ALIASES = (
    ("libcuda.so", "libcuda.so.1"),
    ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
    ("libGLX_indirect.so.0", "libGLX_nvidia.so.0"),
    ("nvidia-drm_gbm.so", "libnvidia-allocator.so.1"),
)
"""Names that programs open, and the library that each is, whether or not the host has the link.

Source: libnvidia-container `src/nvc_mount.c`; NVIDIA driver README, chapter "Installed Components" (GBM).
"""

_MAJOR_ONLY = re.compile(r"\.so\.[0-9]+$")


class Named(NamedTuple):
    """Who says that a container needs a name."""

    by: str
    """`liblist`, `driver`, `nvidia-container-cli` or `completion`."""
    at: str
    """`etc/nvliblist.conf:12`, or the rule."""
    section: Optional[str]
    outside: bool = False
    """True if the list in force, which is the law, lacks it."""
    vendor: Vendor = "nvidia"


class Namer(NamedTuple):
    """Which libraries are needed, by name."""

    source: str
    listed: NameTable
    """The list file in force."""
    table: NameTable
    """The shipped list: capabilities for all, and the companions for completion."""
    lawful: bool
    """Whether `listed` is a user's or site's own: then nothing else is taken."""
    completion: bool
    version: Optional[str]
    driver_files: frozenset[str]
    """Library names in the driver's own file list."""
    printed: frozenset[str] = frozenset()
    """Library names that another program's list means (`nvidia-container-cli`, a CDI spec), where it serves."""
    printed_by: tuple[str, str] = ("nvidia-container-cli", "list")
    """That list, and which part of it."""
    vendor: Vendor = "nvidia"

    def stems(self) -> frozenset[str]:
        """What to look for: the names up to `.so` of everything that somebody names."""
        named = map(library_stem, (*self.driver_files, *self.printed))
        return frozenset((*self.listed.libraries, *self.table.libraries, *named))

    def named(self, name: str) -> Optional[Named]:
        """Who names *name*; None if nobody does."""
        known = self.table.library(name)
        section = known.section if known else None
        if name in self.printed:
            return Named(*self.printed_by, section)
        if self.source == "liblist":
            entry = self.listed.library(name)
            if entry is not None:
                return Named("liblist", self.listed.liblist.at(entry), entry.section or section, vendor=self.vendor)
        by = "driver" if self.source == "driver" else "completion"
        outside = self.lawful or (by == "completion" and not self.completion)
        if self.version is not None and driver_version_of(name) == self.version:
            return Named(by, f"its name carries {self.version}", section, outside)
        if name in self.driver_files:
            return Named(by, "the driver's own file list", section, outside)
        if known is not None:
            by = "completion"
            outside = self.lawful or not self.completion
            return Named(by, self.table.liblist.at(known), section, outside, self.vendor)
        return None


class Found(NamedTuple):
    """The libraries of a driver, and what became of everything else that was looked at."""

    files: tuple[HostFile, ...]
    decisions: tuple[Decision, ...]
    other_versions: tuple[Decision, ...]
    """Those of `decisions` that turned down another driver version."""
    outside: tuple[str, ...]
    """Names that the driver has and the list in force lacks."""


class _Win(NamedTuple):
    candidate: Candidate
    accepted: Accepted
    named: Named
    capability: Optional[Capability]
    family: Optional[Family]


def find_libraries(search: Search, namer: Namer, compat32: bool, extra: Iterable[tuple[Candidate, Named]]) -> Found:
    """Every library that *namer* names, each with the names it needs in a container.

    *extra* are candidates from absolute list entries; they come first, as their path was given.
    Order: by path. At most one file per (name, architecture).
    """
    wins: dict[tuple[str, str], _Win] = {}
    decisions: dict[tuple[str, ...], Decision] = {}
    decided: set[tuple[str, Optional[str]]] = set()
    outside: set[str] = set()

    def decide(verdict: Verdict, step: Step, rule: str, detail: str, real: Optional[str]) -> None:
        """A Decision about the candidate at hand."""
        assert named is not None
        # A file under its own long name adds nothing once its soname has been decided.
        told = real is not None and real.endswith("/" + candidate.name) and (rule, real) in decided
        decided.add((rule, real))
        if not told:
            decisions.setdefault(
                (candidate.name, rule, real or candidate.path),
                Decision(
                    named.vendor,
                    candidate.name,
                    verdict,
                    rule,
                    step,
                    named.by,
                    named.at,
                    real or candidate.path,
                    candidate.found_by,
                    None,
                    detail,
                ),
            )

    def candidates() -> Iterable[tuple[Candidate, Optional[Named]]]:
        yield from extra
        for candidate in search.candidates(namer.stems()):
            yield candidate, namer.named(candidate.name)

    for candidate, named in candidates():
        if named is None:
            continue
        judged = search.judge(candidate)
        if isinstance(judged, Refused):
            decide("rejected", "search", judged.rule, judged.detail, judged.path)
            continue
        if judged.arch != search.arch and not compat32:
            decide("left-out", "capability", "compat32", f"{judged.arch}: not asked for", judged.path)
            continue
        family = _family(search, candidate) if named.section == VENDOR_NEUTRAL and judged.version is None else None
        if family == "foreign":
            detail = "not NVIDIA's: its name carries no driver version, and no libGLdispatch stands beside it"
            decide("rejected", "side", "not-nvidia", detail, judged.path)
            continue
        first = wins.get((candidate.name, judged.arch))
        if first is not None:
            if first.accepted.path != judged.path:
                detail = f"{first.candidate.path} comes first ({first.candidate.found_by})"
                decide("left-out", "search", "shadowed", detail, judged.path)
            continue
        if named.outside:
            outside.add(candidate.name)
            detail = "the driver has it, the list in force does not name it"
            decide("left-out", "name", "not-in-list", detail, judged.path)
            continue
        capability = _capability(search, judged, named, family)
        wins[candidate.name, judged.arch] = _Win(candidate, judged, named, capability, family)

    files = _group(search, wins)
    others = tuple(d for d in decisions.values() if d.rule == "other-driver-version")
    return Found(files, tuple(decisions.values()), others, tuple(sorted(outside)))


def _capability(search: Search, judged: Accepted, named: Named, family: Optional[Family]) -> Optional[Capability]:
    if judged.arch != search.arch:
        return "compat32"
    if family is not None:
        return "graphics" if family == "glvnd" else "compute"
    return capability_of(named.section, judged.version)


def _family(search: Search, candidate: Candidate) -> Union[Family, Literal["foreign"]]:
    """Which vendor-neutral family a library belongs to; Mesa's from before glvnd belong to none."""
    if candidate.name.startswith("libOpenCL.so"):
        return "opencl"
    directory = candidate.path.rpartition("/")[0]
    for place in (directory, f"{directory}/libglvnd"):
        if not isinstance(search.tree.lstat(f"{place}/libGLdispatch.so.0"), Missing):
            return "glvnd"
    return "foreign"


def _group(search: Search, wins: dict[tuple[str, str], _Win]) -> tuple[HostFile, ...]:
    groups: dict[tuple[str, str, Optional[Capability]], list[_Win]] = {}
    for win in wins.values():
        groups.setdefault((win.accepted.path, win.accepted.arch, win.capability), []).append(win)
    return tuple(
        _library(search, group) for _, group in sorted(groups.items(), key=lambda item: _group_order(*item[0]))
    )


def _group_order(path: str, arch: str, capability: Optional[Capability]) -> tuple[str, str, int]:
    return path, arch, CAPABILITIES.index(capability) if capability else -1


def _library(search: Search, group: list[_Win]) -> HostFile:
    first = group[0]
    real = first.accepted.path
    own_name = real.rpartition("/")[2]
    names = {win.candidate.name for win in group}
    in_cache = {win.candidate.name for win in group if win.candidate.found_by == LD_CACHE}
    soname = _soname(search, real, own_name, names, in_cache)
    if soname:
        names.add(soname)
        # Nothing opens libcuda.so.550.163.01 where libcuda.so.1 is there; a bind less is a mount less.
        names -= {own_name} - {soname}
    found = search.tree.stat(real)
    return HostFile(
        vendor=first.named.vendor,
        kind="library",
        path=real,
        names=tuple(sorted(names)),
        target=None,
        arch=first.accepted.arch,
        soname=soname,
        version=first.accepted.version,
        capability=first.capability,
        size=found.size if isinstance(found, Stat) else 0,
        source=search.tree.real(real),
        named_by=first.named.by,
        named_at=first.named.at,
        found_by=first.candidate.found_by,
        family=first.family,
    )


def _soname(search: Search, real: RootedPath, own_name: str, names: set[str], in_cache: set[str]) -> Optional[str]:
    """DT_SONAME, from the names where they tell it; the ELF file is only read where they do not."""
    for told in (in_cache, names):
        majors = sorted(name for name in told if _MAJOR_ONLY.search(name) and "libGLX_indirect" not in name)
        if majors:
            return majors[0]
    if own_name in in_cache:
        return own_name
    if own_name not in names:
        return None  # a second name only, such as GBM's backend
    facts = search.tree.elf(real)
    soname = None if isinstance(facts, Missing) else facts.soname
    # A soname decides where the file lands: only one that belongs to the file's own name counts, so that nothing can
    # claim to be the C library, or hold what no file name should.
    if soname is None or ".so" not in own_name or not re.fullmatch(r"[\w.+-]+", soname, re.ASCII):
        return own_name
    return soname if soname.startswith(library_stem(own_name)) else own_name


def entries_in_force(namer: Namer) -> list[tuple[ListEntry, Named]]:
    """The list entries in force, each with who names it: the list's own, or the shipped ones as completion."""
    if namer.source == "liblist":
        table, by = namer.listed, "liblist"
    elif namer.completion:
        table, by = namer.table, "completion"
    else:
        return []
    entries = []
    for entry in table.liblist.entries:
        section = entry.section or namer.table.section(entry.text.rpartition("/")[2], entry.text)
        entries.append((entry, Named(by, table.liblist.at(entry), section, vendor=namer.vendor)))
    return entries


def unmatched(
    namer: Namer, entries: list[tuple[ListEntry, Named]], found: Found, file_list: str = ""
) -> list[Decision]:
    """An `absent` Decision for each library entry that no name on this host matches; for names in the driver's own
    *file_list* likewise.
    """
    seen = {decision.subject for decision in found.decisions} | {name for file in found.files for name in file.names}
    seen |= {file.path.rpartition("/")[2] for file in found.files}
    by_stem: dict[str, list[str]] = {}
    for name in seen:
        if ".so" in name:
            by_stem.setdefault(library_stem(name), []).append(name)
    detail = "neither in the ld cache nor in a driver directory"
    decisions = []
    for entry, named in entries:
        if entry.kind == "library":
            names = by_stem.get(library_stem(entry.text), ())
            if not any(name.startswith(entry.text) for name in names):
                decisions.append(_absent(named.vendor, entry.text, named.by, named.at, detail))
    return decisions + [
        _absent(namer.vendor, name, "driver", file_list, detail) for name in sorted(namer.driver_files - seen)
    ]


def _absent(vendor: Vendor, subject: str, by: str, at: str, detail: str) -> Decision:
    return Decision(vendor, subject, "absent", "no-match", "search", by, at, None, None, None, detail)


def with_aliases(files: tuple[HostFile, ...]) -> tuple[HostFile, ...]:
    """*files*, each with the names of `ALIASES` that are its; no other file keeps such a name."""
    result: list[HostFile] = []
    owners = {(target, f.arch): f.path for alias, target in ALIASES for f in files if target in f.names}
    for file in files:
        names = set(file.names)
        for alias, target in ALIASES:
            owner = owners.get((target, file.arch))
            if owner is None:
                continue
            if owner != file.path:
                names.discard(alias)
            elif target in names and not any(
                alias in f.names for f in files if f.path == owner and f.arch == file.arch
            ):
                names.add(alias)
        if names:
            result.append(file._replace(names=tuple(sorted(names))))
    return tuple(result)
