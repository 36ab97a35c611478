"""Libraries: the file of each claimed name, and the names that it needs in a container."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, Optional, Union

from gpubind.formats.driver.liblist import VENDOR_NEUTRAL, library_stem
from gpubind.formats.driver.names import ALIASES, driver_version_of
from gpubind.frozen import NamedTuple
from gpubind.inventory.claims import Claim
from gpubind.inventory.liblist import NameTable, capability_of
from gpubind.inventory.search import LD_CACHE, Accepted, Candidate, Rejected, Search
from gpubind.model import CAPABILITIES, Capability, Decision, HostFile, Missing, ResolvedFile, RootedPath
from gpubind.model.host import FileGroup, Step, Verdict

_NEUTRAL: dict[Optional[FileGroup], Capability] = {"glvnd": "graphics", "opencl": "compute"}
"""The capability of each vendor-neutral group."""
_MAJOR_ONLY = re.compile(r"\.so\.[0-9]+$")


class ClaimsByName:
    """The claims on libraries, by the names that they mean. The first claim on a name takes precedence."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        numbered = list(enumerate(claims))
        self._versions = [item for item in numbered if item[1].kind == "version"]
        self._by_stem: dict[str, list[tuple[int, Claim]]] = {}
        for number, claim in numbered:
            if claim.kind in ("library", "library-name"):
                self._by_stem.setdefault(library_stem(claim.name), []).append((number, claim))

    @property
    def stems(self) -> frozenset[str]:
        """The claimed names up to `.so`."""
        return frozenset(self._by_stem)

    def claim_on(self, name: str) -> Optional[Claim]:
        """Return the claim that means library *name* (`libcuda.so.1`)."""
        meant = self._by_stem.get(library_stem(name), [])
        if self._versions:
            meant = sorted((*meant, *self._versions))
        return next((claim for _, claim in meant if _means(claim, name)), None)


def _means(claim: Claim, name: str) -> bool:
    if claim.kind == "library":
        return name.startswith(claim.name)
    return claim.name == (name if claim.kind == "library-name" else driver_version_of(name))


class Libraries(NamedTuple):
    """The libraries, and the Decisions about every other candidate."""

    files: tuple[HostFile, ...]
    decisions: tuple[Decision, ...]
    not_in_list: tuple[str, ...]
    """Names that the driver has, but not the list in force."""


class _ChosenName(NamedTuple):
    candidate: Candidate
    accepted: Accepted
    claim: Claim
    capability: Optional[Capability]
    group: Optional[FileGroup]


def find_libraries(
    search: Search, table: NameTable, by_name: ClaimsByName, extra: Iterable[tuple[Candidate, Claim]]
) -> Libraries:
    """Return the libraries that the claims in *by_name* mean, each with the names that it needs in a container.

    *extra* are candidates with a given path, which precede all others. The result is sorted by path, and has at most
    one file for each name and architecture.
    """
    choice = _LibraryChooser(search, table)
    for candidate, claim in extra:
        choice.consider(candidate, claim)
    for candidate in search.candidates(by_name.stems):
        meant = by_name.claim_on(candidate.name)
        if meant is not None:
            choice.consider(candidate, meant)
    by_file: dict[tuple[str, str, int], list[_ChosenName]] = {}
    for win in choice.wins.values():
        order = CAPABILITIES.index(win.capability) if win.capability else -1
        by_file.setdefault((win.accepted.path, win.accepted.arch, order), []).append(win)
    files = tuple(_library(search, wins) for _, wins in sorted(by_file.items(), key=lambda item: item[0]))
    files = tuple(file for file in _without_second_files(files) if not choice.is_shadowed(file))
    return Libraries(files, tuple(choice.decisions.values()), tuple(sorted(choice.not_in_list)))


def _without_second_files(files: tuple[HostFile, ...]) -> tuple[HostFile, ...]:
    """Return *files* without second files of one library: in a container around this process, each bound link is a
    file.

    Such a file is in the directory, and has the size, of the file that is named like its soname. Its name becomes one
    more name of that file.
    """
    bearers = {(f.path, f.arch): f for f in files if f.soname in f.names and f.path.endswith(f"/{f.soname}")}
    kept_files = []
    for file in files:
        directory, _, name = file.path.rpartition("/")
        key = RootedPath(f"{directory}/{file.soname}"), file.arch
        bearer = bearers.get(key)
        if bearer is None or bearer.path == file.path or bearer.size != file.size:
            kept_files.append(file)
        else:
            names = {*bearer.names, *file.names, *(() if driver_version_of(name) else (name,))}
            bearers[key] = bearer._replace(names=tuple(sorted(names)), version=bearer.version or file.version)
    return tuple(bearers.get((f.path, f.arch), f) if f.soname in f.names else f for f in kept_files)


class _LibraryChooser:
    def __init__(self, search: Search, table: NameTable) -> None:
        self.search = search
        self.table = table
        self.wins: dict[tuple[str, str], _ChosenName] = {}
        self.decisions: dict[tuple[str, ...], Decision] = {}
        self.not_in_list: set[str] = set()
        self._decided: set[tuple[str, Optional[str]]] = set()

    def consider(self, candidate: Candidate, claim: Claim) -> None:
        """Take *candidate*, which *claim* means, or add a Decision."""
        judged = self.search.judge(candidate)
        outcome = self._take(candidate, claim, judged)
        if outcome is None:
            return
        verdict, rule, detail, step = outcome
        # A file under its own long name adds nothing once its soname has been decided.
        is_known = (judged.path or "").endswith("/" + candidate.name) and (rule, judged.path) in self._decided
        self._decided.add((rule, judged.path))
        if not is_known:
            path, name, found_by = judged.path or candidate.path, candidate.name, candidate.found_by
            decision = claim.decision(verdict, rule, detail, path=path, found_by=found_by, subject=name, step=step)
            self.decisions.setdefault((name, rule, path), decision)

    def is_shadowed(self, file: HostFile) -> bool:
        """Return whether the soname of *file* leads to another version of the library; if so, add a Decision."""
        first = self.wins.get((file.soname or "", file.arch or ""))
        name = file.path.rpartition("/")[2]
        if first is None or first.accepted.path == file.path or not name.startswith(f"{file.soname}."):
            return False
        detail = f"{first.candidate.path} comes first ({first.candidate.found_by})"
        decision = file.decision(name, "left-out", "shadowed", "search", detail=detail)
        self.decisions.setdefault((name, "shadowed", file.path), decision)
        return True

    def _take(
        self, candidate: Candidate, claim: Claim, judged: Union[Accepted, Rejected]
    ) -> Optional[tuple[Verdict, str, str, Step]]:
        """Take *candidate*, unless its file is taken already, and return None; or return the reason against it."""
        if isinstance(judged, Rejected):
            return "rejected", judged.rule, judged.detail, "search"
        if judged.arch != self.search.arch and not self.search.compat32:
            return "left-out", "compat32", f"{judged.arch}: not asked for", "capability"
        section = claim.section or self.table.section(candidate.name, candidate.path)
        is_neutral = section == VENDOR_NEUTRAL and judged.version is None
        group = _neutral_group(self.search, candidate) if is_neutral else claim.group
        if group == "foreign":
            detail = "not NVIDIA's: its name carries no driver version, and no libGLdispatch stands beside it"
            return "rejected", "not-nvidia", detail, "side"
        first = self.wins.get((candidate.name, judged.arch))
        if first is not None:
            detail = f"{first.candidate.path} comes first ({first.candidate.found_by})"
            return None if first.accepted.path == judged.path else ("left-out", "shadowed", detail, "search")
        if claim.not_in_list:
            self.not_in_list.add(candidate.name)
            return "left-out", "not-in-list", "the driver has it, the list in force does not name it", "name"
        capability = _NEUTRAL.get(group) if is_neutral else capability_of(section, judged.version)
        self.wins[candidate.name, judged.arch] = _ChosenName(candidate, judged, claim, capability, group)
        return None


def _neutral_group(search: Search, candidate: Candidate) -> Union[FileGroup, Literal["foreign"]]:
    """Return the group of a vendor-neutral library; `foreign` for a library of Mesa from before libglvnd."""
    if candidate.name.startswith("libOpenCL.so"):
        return "opencl"
    directory = candidate.path.rpartition("/")[0]
    beside = (f"{directory}/libGLdispatch.so.0", f"{directory}/libglvnd/libGLdispatch.so.0")
    return "glvnd" if any(map(search.tree.has, beside)) else "foreign"


def _library(search: Search, wins: list[_ChosenName]) -> HostFile:
    first = wins[0]
    path = first.accepted.path
    own_name = path.rpartition("/")[2]
    names = {win.candidate.name for win in wins}
    in_cache = {win.candidate.name for win in wins if win.candidate.found_by == LD_CACHE}
    soname = _soname(search, path, own_name, names, in_cache)
    if soname:
        names.add(soname)
        # Nothing opens libcuda.so.550.163.01 where libcuda.so.1 exists. One bind fewer means one mount fewer.
        names -= {own_name} - {soname}
    resolved, found_by = ResolvedFile(path, first.accepted.stat), first.candidate.found_by
    file = first.claim.file(search.tree, resolved, kind="library", found_by=found_by, capability=first.capability)
    return file._replace(
        names=tuple(sorted(names)),
        arch=first.accepted.arch,
        soname=soname,
        version=first.accepted.version,
        group=first.group,
        compat32=first.accepted.arch != search.arch,
    )


def _soname(search: Search, path: RootedPath, own_name: str, names: set[str], in_cache: set[str]) -> Optional[str]:
    """Return DT_SONAME, from *in_cache* or *names* where they contain it, else from the ELF file."""
    for candidates in (in_cache, names):
        majors = sorted(name for name in candidates if _MAJOR_ONLY.search(name) and "libGLX_indirect" not in name)
        if majors:
            return majors[0]
    if own_name in in_cache:
        return own_name
    if own_name not in names:
        return None  # a second name only, such as GBM's backend
    facts = search.tree.elf(path)
    soname = None if isinstance(facts, Missing) else facts.soname
    # A soname decides on the path in the container. Only one that fits the file's own name is used, so that no file can
    # replace the C library, and no soname can contain characters that file names should not have.
    if soname is None or ".so" not in own_name or not re.fullmatch(r"[\w.+-]+", soname, re.ASCII):
        return own_name
    return soname if soname.startswith(library_stem(own_name)) else own_name


def unmatched_claims(claims: Iterable[Claim], libraries: Libraries) -> list[Decision]:
    """Return an `absent` Decision for each of *claims* on a library that no name on this host matches."""
    seen = {decision.subject for decision in libraries.decisions}
    for file in libraries.files:
        seen |= {*file.names, file.path.rpartition("/")[2]}
    by_stem: dict[str, list[str]] = {}
    for name in seen:
        if ".so" in name:
            by_stem.setdefault(library_stem(name), []).append(name)
    detail = "neither in the ld cache nor in a driver directory"
    return [
        claim.absent(detail)
        for claim in claims
        if claim.kind in ("library", "library-name")
        and not any(_means(claim, name) for name in by_stem.get(library_stem(claim.name), ()))
    ]


def with_aliases(files: tuple[HostFile, ...]) -> tuple[HostFile, ...]:
    """Return *files*, each with its names in `ALIASES`; no other file keeps such a name."""
    nvidia_files = [file for file in files if file.vendor == "nvidia"]
    owners = {(alias, f.arch): f.path for alias, target in ALIASES for f in nvidia_files if target in f.names}
    existing_names = {(f.path, f.arch, name) for f in files for name in f.names}
    result: list[HostFile] = []
    for file in files:
        names = set(file.names)
        for alias, target in ALIASES:
            owner = owners.get((alias, file.arch))
            if owner and owner != file.path:
                names.discard(alias)
            elif owner and target in names and (owner, file.arch, alias) not in existing_names:
                names.add(alias)
        if names:
            result.append(file._replace(names=tuple(sorted(names))))
    return tuple(result)
