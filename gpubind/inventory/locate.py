"""The locator: the only module that resolves claims to files, or rejects them."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from posixpath import basename
from typing import Optional

from gpubind.errors import FormatError
from gpubind.files import Tree, glob
from gpubind.formats.driver.icd import parse_icd
from gpubind.formats.driver.liblist import library_stem
from gpubind.formats.driver.names import RUN_DIRECTORY, driver_version_of
from gpubind.formats.elf.elf import ElfIdent
from gpubind.frozen import NamedTuple
from gpubind.inventory.claims import Claim, Outcome, is_clean, partition_outcomes
from gpubind.inventory.interpreters import interpreter_directories
from gpubind.inventory.liblist import NameTable
from gpubind.inventory.libraries import ClaimsByName, Libraries, find_libraries, unmatched_claims, with_aliases
from gpubind.inventory.search import Accepted, Candidate, Search
from gpubind.model import READ_ONLY_OPTIONS, USERSPACES, Capability, Decision, HostFile
from gpubind.model.files import ContainerPath, Missing, ResolvedFile, RootedPath
from gpubind.model.layouts import TEGRA_PASSTHROUGH, UNBINDABLE_DIRECTORIES, data_prefix_pairs

_PASSTHROUGH_PREFIXES = ("/", f"{TEGRA_PASSTHROUGH}/")


class LocatedFiles(NamedTuple):
    """The files that claims mean, and the Decisions about all others."""

    libraries: tuple[HostFile, ...]
    """The libraries, sorted by path."""
    files: tuple[HostFile, ...]
    """Programs and files, in the order of the claims; no two with one target."""
    decisions: tuple[Decision, ...]
    listed_decisions: tuple[Decision, ...]
    """The Decisions about paths in another program's list."""
    found_libraries: Libraries
    """The libraries before they got names that no file of the host has."""


def locate(
    search: Search,
    table: NameTable,
    claims: Iterable[Claim],
    existing_files: Iterable[HostFile] = (),
    earlier_decisions: Iterable[Decision] = (),
    nodes: Iterable[str] = (),
) -> LocatedFiles:
    """Return the files that *claims* mean on one host, and a Decision for each claim that means none.

    The first claim on a name takes precedence. *table* is the shipped list, with the capabilities of names.
    *existing_files* need no claim. A path in another program's list is only examined if no other claim, none of
    *earlier_decisions* and none of *nodes* is about it.
    """
    claims = tuple(claims)
    listed = _follow_paths(search, claims)
    in_force = [claim for claim in claims if not claim.not_in_list and claim.host_only_reason is None]
    candidates: list[tuple[Candidate, Claim]] = []
    outcomes: list[Outcome] = []
    for claim in in_force:
        if claim.kind == "program":
            outcomes.append(find_program(search, table, claim))
        elif claim.kind in ("path", "own-path"):
            libraries_named = _library_candidates(search.tree, claim.name) if claim.kind == "path" else []
            candidates += [(candidate, claim) for candidate in libraries_named]
            outcomes += [] if libraries_named else _find_files(search, table, claim)
    by_name = ClaimsByName(claims)
    names, unreached = _claims_on_names(search, by_name.stems, listed.libraries)
    by_name = ClaimsByName((*names, *claims)) if names else by_name
    found_libraries = find_libraries(search, table, by_name, (*candidates, *unreached))
    libraries = _with_links(with_aliases(found_libraries.files), listed.libraries)
    located, refused = partition_outcomes(outcomes)
    files: dict[str, HostFile] = {}
    for file in located:
        files.setdefault(file.target or file.names[0], file)
    decisions = [*found_libraries.decisions, *refused]
    decisions += unmatched_claims((claim for claim in in_force if claim.kind == "library"), found_libraries)
    decisions += _host_only_decisions(search, claims, (*libraries, *files.values()))
    by_source = {search.tree.real(path): claim for path, claim in listed.others.items()}
    sourced = [
        file._replace(named_by=by_source[file.source].source, named_at=by_source[file.source].location)
        if file.source in by_source
        else file
        for file in (*files.values(), *existing_files)
    ]
    unclaimed = _unclaimed_outcomes(search, table, listed, sourced, (*earlier_decisions, *decisions), nodes)
    more, skipped = partition_outcomes(unclaimed)
    loaders = interpreter_directories(search.tree, (*sourced, *more))
    skipped_decisions = (*listed.decisions, *skipped)
    return LocatedFiles(libraries, (*sourced, *more, *loaders), tuple(decisions), skipped_decisions, found_libraries)


def _host_only_decisions(search: Search, claims: Iterable[Claim], files: Iterable[HostFile]) -> Iterable[Decision]:
    taken_paths = {file.path for file in files}
    decisions: dict[RootedPath, Decision] = {}
    for claim in claims:
        for path in glob(search.tree, claim.name) if claim.kind == "path" and claim.host_only_reason else ():
            resolved = search.tree.resolve(path)
            if isinstance(resolved, str) and resolved not in taken_paths:
                decisions.setdefault(resolved, claim._replace(name=path).left_on_host(resolved, "name"))
    return decisions.values()


class _ListedPaths(NamedTuple):
    """The claims on paths in another program's list, by their resolved paths."""

    libraries: dict[RootedPath, Claim]
    others: dict[RootedPath, Claim]
    devices: dict[str, Claim]
    decisions: tuple[Decision, ...]
    """The Decisions about paths that do not exist or stay on the host."""


def _follow_paths(search: Search, claims: Iterable[Claim]) -> _ListedPaths:
    libraries: dict[RootedPath, Claim] = {}
    others: dict[RootedPath, Claim] = {}
    devices: dict[str, Claim] = {}
    decisions: list[Decision] = []
    for claim in claims:
        if claim.kind not in ("library-file", "file", "device"):
            continue
        tree = search.host.dev if claim.kind == "device" else search.tree
        resolved = tree.lenient.resolve(claim.name)
        if isinstance(resolved, Missing):
            detail = f"{claim.source} names it, but it leads nowhere" if resolved.why == "absent" else None
            decisions.append(claim.unreadable(resolved, detail=detail))
        elif claim.host_only_reason is not None:
            decisions.append(claim.left_on_host(resolved))
        elif claim.kind == "device":
            devices[claim.name] = claim
        elif claim.kind == "file":
            others[resolved] = claim
        else:
            before = libraries.get(resolved, claim)
            names = dict.fromkeys((*before.extra_names, *claim.extra_names))
            libraries[resolved] = before._replace(extra_names=tuple(names))
    return _ListedPaths(libraries, others, devices, tuple(decisions))


def _claims_on_names(
    search: Search, stems: frozenset[str], listed: dict[RootedPath, Claim]
) -> tuple[list[Claim], list[tuple[Candidate, Claim]]]:
    """Return claims on the names that lead to libraries in *listed*, and candidates for libraries without names."""
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
    files = tuple(libraries)
    taken_names = {name for file in files for name in file.names}
    result = []
    for file in files:
        links = listed[file.path].extra_names if file.path in listed else ()
        more = [name for name in links if name not in taken_names]
        taken_names.update(more)
        result.append(file._replace(names=tuple(sorted({*file.names, *more}))) if more else file)
    return tuple(result)


def _unclaimed_outcomes(
    search: Search,
    table: NameTable,
    listed: _ListedPaths,
    files: list[HostFile],
    decisions: Iterable[Decision],
    nodes: Iterable[str],
) -> list[Outcome]:
    """Return the files and Decisions of those paths in *listed* that no other claim is about, except libraries."""
    handled: set[Optional[str]] = {*nodes, *(file.target for file in files)}
    for decision in decisions:
        handled |= {decision.subject, decision.path}
    sources = {file.source for file in files}
    programs = {file.names[0]: file.path for file in files if file.kind == "binary"}
    outcomes: list[Outcome] = []
    for path, claim in listed.others.items():
        if search.tree.real(path) not in sources and path not in handled:
            outcomes.append(_other(search, table, claim, path, programs))
    for device, claim in listed.devices.items():
        resolved = search.host.dev.find(device)
        if device not in handled and not isinstance(resolved, Missing) and resolved.stat.kind != "dir":
            detail = f"{claim.source} names it, nobody else does"
            outcomes.append(claim.decision("left-out", "unknown-device", detail, path=device))
    return outcomes


def _other(
    search: Search, table: NameTable, claim: Claim, path: RootedPath, programs: dict[str, RootedPath]
) -> Outcome:
    """Return the file at *path*, or a Decision against it: one of *programs* may have its name."""
    tree, name = search.tree, basename(path)
    claim = claim._replace(name=path, target=claim.target or ContainerPath(path))
    capability = table.capability(claim)
    resolved = tree.find(path)
    if isinstance(resolved, Missing):
        return claim.rejected("unreadable", str(resolved), path)
    if "/firmware/" in path:
        return claim._replace(host_only_reason="firmware: the kernel reads it, not a process").left_on_host(path)
    if resolved.stat.kind != "file" or resolved.stat.mode & 0o111 == 0:
        return claim.to_file(tree, resolved, found_by=path, capability=capability)
    claim = claim._replace(name=name, target=None)
    file = _program_file(search, claim, resolved, path, capability)
    if isinstance(file, HostFile) and name in programs:
        return claim.decision("left-out", "shadowed", f"{programs[name]} comes first", path=path)
    return file


def find_program(search: Search, table: NameTable, claim: Claim) -> Outcome:
    """Return the program that *claim* names, from the program directories or PATH."""
    if "/" in claim.name:
        return claim.rejected("relative-path", "a relative path would depend on the current directory")
    tree = search.tree.lenient
    for directory in search.programs:
        resolved = tree.find(f"{directory.rstrip('/')}/{claim.name}")
        if isinstance(resolved, Missing) or resolved.stat.kind != "file":
            continue
        if claim.group in USERSPACES and not isinstance(tree.ident(resolved.path), ElfIdent):
            # Scripts need Python and modules in their directory.
            detail = "a script, which needs the files beside it and an interpreter: it has to come with the image"
            return claim.decision("left-out", "script", detail, path=resolved.path, found_by=directory, step="name")
        return _program_file(search, claim, resolved, directory, table.capability(claim))
    return claim.absent("in none of the program directories")


def _program_file(
    search: Search, claim: Claim, resolved: ResolvedFile, found_by: str, capability: Optional[Capability]
) -> Outcome:
    """Return *resolved* as the program that *claim* names, unless it is for another machine; scripts are for any."""
    ident = search.tree.ident(resolved.path)
    if isinstance(ident, ElfIdent) and ident.arch != search.arch:
        return claim.rejected("wrong-machine", f"{ident.arch}; this host is {search.arch}", resolved.path)
    file = claim.file(search.tree, resolved, kind="binary", found_by=found_by, capability=capability)
    return file._replace(names=(claim.name,), arch=search.arch)


def _find_files(search: Search, table: NameTable, claim: Claim) -> list[Outcome]:
    """Return the files that an absolute *claim* names: at that path, or where this host's driver has them."""
    if not is_clean(claim.name):
        why = "a path in a list is written without `.`, `..` and doubled or trailing slashes"
        return [claim.rejected("unclean-path", why, claim.name)]
    places = _paths_by_target(search, claim)
    if not places:
        stat = search.tree.lenient.lstat(claim.name)
        if isinstance(stat, Missing) and stat.why == "forbidden":
            return [claim.unreadable(stat)]
        return [claim.absent("nothing matches" if set(claim.name) & set("*?[") else "it is not there")]
    capability = table.capability(claim)
    return [
        _file(search, claim._replace(name=target, target=ContainerPath(target)), path, capability)
        for target, path in places.items()
    ]


def _paths_by_target(search: Search, claim: Claim) -> dict[str, str]:
    name = claim.name
    places: dict[str, str] = {}
    passed = (_PASSTHROUGH_PREFIXES,) if claim.kind == "own-path" else ()
    for standard, host_prefix in (*data_prefix_pairs(name, search.libcuda_directories), *passed):
        tree = search.tree if host_prefix == standard else search.tree.lenient
        for path in glob(tree, host_prefix + name[len(standard) :]):
            places.setdefault(standard + path[len(host_prefix) :], path)
    # Next, search the top directory of an unpacked .run file, but not if the file also exists below /etc: a second
    # manifest would show each GPU twice.
    if not places and not glob(search.tree.lenient, name.replace("/usr/share/", "/etc/", 1)):
        for top in search.libcuda_directories:
            for file in sorted(RUN_DIRECTORY.keys() & search.tree.names(top)):
                if fnmatchcase(RUN_DIRECTORY[file], name):
                    places.setdefault(RUN_DIRECTORY[file], f"{top.rstrip('/')}/{file}")
    return places


def _file(search: Search, claim: Claim, path: str, capability: Optional[Capability]) -> Outcome:
    resolved = search.tree.find(path)
    if isinstance(resolved, Missing):
        return claim.unreadable(resolved, path)
    carried = driver_version_of(path)
    if carried and search.version and carried != search.version:
        detail = f"its name carries {carried}, the driver is {search.version}"
        return claim.rejected("other-driver-version", detail, path)
    if resolved.stat.kind == "dir" and claim.name in UNBINDABLE_DIRECTORIES:
        return claim.rejected("system-directory", "binding it would hide the container's own", path)
    file = claim.to_file(search.tree, resolved, found_by=path, capability=capability)
    if isinstance(file, Decision):
        return file
    is_listed_directory = file.kind == "directory" and claim.kind == "own-path"
    file = file._replace(version=carried, options=READ_ONLY_OPTIONS if is_listed_directory else None)
    if file.kind != "file" or not path.endswith((".json", ".icd")):
        return file._replace(group=None)  # data is always the host's; manifests follow their libraries
    content = search.tree.read(resolved.path)
    if isinstance(content, Missing):
        return claim.rejected("unreadable", str(content), path)
    try:
        parse_icd(content)
    except FormatError as error:
        return claim.rejected("bad-icd", f"{error.where}: {error.why}", path)
    return file._replace(kind="manifest", content=content)


def _library_candidates(tree: Tree, pattern: str) -> list[Candidate]:
    """Return the libraries that an absolute *pattern* names, and the links to them in their directories."""
    candidates: list[Candidate] = []
    if ".so" not in pattern or {"..", "."} & set(pattern.split("/")):
        return []
    for path in glob(tree, pattern):
        directory, _, name = path.rpartition("/")
        resolved, stem = tree.resolve(path), library_stem(name)
        others = (other for other in tree.names(directory or "/") if other != name and other.startswith(stem))
        same = (other for other in others if tree.resolve(f"{directory}/{other}") == resolved)
        places = ((file_name, RootedPath(f"{directory}/{file_name}")) for file_name in (name, *same))
        candidates += [Candidate(file_name, place, directory or "/") for file_name, place in places]
    return candidates
