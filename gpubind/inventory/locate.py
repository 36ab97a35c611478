"""From claims to files: the only place where a claim is followed, rejected, or becomes a file."""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import basename
from typing import NamedTuple, Optional

from gpubind.files import glob
from gpubind.formats.driver.liblist import library_stem
from gpubind.inventory.claims import Answer, Claim, sorted_out
from gpubind.inventory.files import find_files, find_program, library_candidates, program
from gpubind.inventory.liblist import NameTable, capability_of
from gpubind.inventory.libraries import ByName, Libraries, find_libraries, unmatched, with_aliases
from gpubind.inventory.search import Accepted, Candidate, Search
from gpubind.model import ContainerPath, Decision, HostFile, Missing, RootedPath


class LocatedFiles(NamedTuple):
    """The files that claims mean, and the Decisions about the rest."""

    libraries: tuple[HostFile, ...]
    """By path."""
    files: tuple[HostFile, ...]
    """Programs and files, in the order of the claims; no two with one target."""
    decisions: tuple[Decision, ...]
    listed_decisions: tuple[Decision, ...]
    """About paths that another program's list has."""
    found: Libraries
    """The libraries as they were found, before they got names that no file of the host has."""


def locate(
    search: Search,
    table: NameTable,
    claims: Iterable[Claim],
    there: Iterable[HostFile] = (),
    known: Iterable[Decision] = (),
    nodes: Iterable[str] = (),
) -> LocatedFiles:
    """Return the files that *claims* mean on one host, and a Decision for each claim that means none.

    Of several claims on one name the first takes precedence. *table* is the shipped list, which has the capabilities of
    names. *there* are files that need no claim, *known* and *nodes* what was decided and found elsewhere: a path in
    another program's list is only examined if no other claim is about it.
    """
    claims = tuple(claims)
    listed = _follow_paths(search, claims)
    in_force = [claim for claim in claims if not claim.outside and claim.stays is None]
    candidates: list[tuple[Candidate, Claim]] = []
    answers: list[Answer] = []
    for claim in in_force:
        if claim.kind == "program":
            answers.append(find_program(search, table, claim))
        elif claim.kind == "path":
            libraries_named = library_candidates(search.tree, claim.name)
            candidates += [(candidate, claim) for candidate in libraries_named]
            answers += [] if libraries_named else find_files(search, table, claim)
    by_name = ByName(claims)
    names, unreached = _names_of(search, by_name.stems, listed.libraries)
    by_name = ByName((*names, *claims)) if names else by_name
    found = find_libraries(search, table, by_name, (*candidates, *unreached))
    libraries = _with_links(with_aliases(found.files), listed.libraries)
    located, refused = sorted_out(answers)
    files: dict[str, HostFile] = {}
    for file in located:
        files.setdefault(file.target or file.names[0], file)
    decisions = [*found.decisions, *refused]
    decisions += unmatched((claim for claim in in_force if claim.kind == "library"), found)
    decisions += _staying(search, claims, (*libraries, *files.values()))
    by_source = {search.tree.real(path): claim for path, claim in listed.others.items()}
    named = [
        file._replace(named_by=by_source[file.source].by, named_at=by_source[file.source].at)
        if file.source in by_source
        else file
        for file in (*files.values(), *there)
    ]
    others, left_out = sorted_out(_others(search, table, listed, named, (*known, *decisions), nodes))
    return LocatedFiles(libraries, (*named, *others), tuple(decisions), (*listed.decisions, *left_out), found)


def _staying(search: Search, claims: Iterable[Claim], taken: Iterable[HostFile]) -> Iterable[Decision]:
    """Return a Decision for each file of the driver that stays on the host."""
    known = {file.path for file in taken}
    decisions: dict[RootedPath, Decision] = {}
    for claim in claims:
        for path in glob(search.tree, claim.name) if claim.kind == "path" and claim.stays else ():
            real = search.tree.resolve(path)
            if isinstance(real, str) and real not in known:
                decisions.setdefault(real, claim._replace(name=path).staying(real, "name"))
    return decisions.values()


class _ListedPaths(NamedTuple):
    """The claims on real paths, which another program's list has, by what is at their end."""

    libraries: dict[RootedPath, Claim]
    others: dict[RootedPath, Claim]
    devices: dict[str, Claim]
    decisions: tuple[Decision, ...]
    """About what does not exist, or stays on the host."""


def _follow_paths(search: Search, claims: Iterable[Claim]) -> _ListedPaths:
    libraries: dict[RootedPath, Claim] = {}
    others: dict[RootedPath, Claim] = {}
    devices: dict[str, Claim] = {}
    decisions: list[Decision] = []
    for claim in claims:
        if claim.kind not in ("library-file", "file", "device"):
            continue
        tree = search.host.dev if claim.kind == "device" else search.tree
        real = tree.lenient.resolve(claim.name)
        if isinstance(real, Missing):
            detail = f"{claim.by} names it, but it leads nowhere" if real.why == "absent" else None
            decisions.append(claim.lost(real, detail=detail))
        elif claim.stays is not None:
            decisions.append(claim.staying(real))
        elif claim.kind == "device":
            devices[claim.name] = claim
        elif claim.kind == "file":
            others[real] = claim
        else:
            before = libraries.get(real, claim)
            libraries[real] = before._replace(links=tuple(dict.fromkeys((*before.links, *claim.links))))
    return _ListedPaths(libraries, others, devices, tuple(decisions))


def _names_of(
    search: Search, stems: frozenset[str], listed: dict[RootedPath, Claim]
) -> tuple[list[Claim], list[tuple[Candidate, Claim]]]:
    """Return a claim on each name on this host that leads to a library in *listed*.

    Libraries that no search would find are returned as candidates under their own names.
    """
    if not listed:
        return [], []
    names: dict[str, Claim] = {}
    reached: set[tuple[str, str]] = set()
    for candidate in search.candidates(stems | {library_stem(basename(path)) for path in listed}):
        judged = search.judge(candidate)
        arch = judged.arch if isinstance(judged, Accepted) else ""
        reached |= {(library_stem(basename(path)), arch) for path in (candidate.name, judged.path or candidate.path)}
        if judged.path in listed:
            names.setdefault(candidate.name, listed[judged.path])
    unreached = []
    for path, claim in listed.items():
        candidate = Candidate(basename(path), path, path.rpartition("/")[0] or "/")
        judged = search.judge(candidate)
        if (library_stem(basename(path)), judged.arch if isinstance(judged, Accepted) else "") not in reached:
            unreached.append((candidate, claim))
    return [claim._replace(kind="library-name", name=name) for name, claim in names.items()], unreached


def _with_links(libraries: Iterable[HostFile], listed: dict[RootedPath, Claim]) -> tuple[HostFile, ...]:
    """Return *libraries* with the further names that claims give them and that no other has."""
    files = tuple(libraries)
    known = {name for file in files for name in file.names}
    result = []
    for file in files:
        links = listed[file.path].links if file.path in listed else ()
        more = [name for name in links if name not in known]
        known.update(more)
        result.append(file._replace(names=tuple(sorted({*file.names, *more}))) if more else file)
    return tuple(result)


def _others(
    search: Search,
    table: NameTable,
    listed: _ListedPaths,
    files: list[HostFile],
    decisions: Iterable[Decision],
    nodes: Iterable[str],
) -> list[Answer]:
    """Return the files and Decisions of *listed*, libraries excepted, that no other claim is about."""
    known: set[Optional[str]] = {*nodes, *(file.target for file in files)}
    for decision in decisions:
        known |= {decision.subject, decision.path}
    sources = {file.source for file in files}
    programs = {file.names[0]: file.path for file in files if file.kind == "binary"}
    answers: list[Answer] = []
    for path, claim in listed.others.items():
        if search.tree.real(path) not in sources and path not in known:
            answers.append(_other(search, table, claim, path, programs))
    for device, claim in listed.devices.items():
        found = search.host.dev.find(device)
        if device not in known and not isinstance(found, Missing) and found.stat.kind != "dir":
            detail = f"{claim.by} names it, nobody else does"
            answers.append(claim.decision("left-out", "unknown-device", detail, path=device))
    return answers


def _other(search: Search, table: NameTable, claim: Claim, path: RootedPath, programs: dict[str, RootedPath]) -> Answer:
    """Return the file at *path*, or a Decision if a program of its name was found elsewhere."""
    tree, name = search.tree, basename(path)
    capability = capability_of(table.section(name, path), None)
    claim = claim._replace(name=path, target=claim.target or ContainerPath(path))
    found = tree.find(path)
    if isinstance(found, Missing):
        return claim.rejected("unreadable", str(found), path)
    if "/firmware/" in path:
        return claim._replace(stays="firmware: the kernel reads it, not a process").staying(path)
    if found.stat.kind != "file" or found.stat.mode & 0o111 == 0:
        return claim.bindable(tree, found, found_by=path, capability=capability)
    claim = claim._replace(name=name, target=None)
    file = program(search, claim, found, path, capability)
    if isinstance(file, HostFile) and name in programs:
        detail = f"{programs[name]} comes first"
        return claim.decision("left-out", "shadowed", detail, path=path)
    return file
