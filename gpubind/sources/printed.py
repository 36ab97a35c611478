"""What another program's list names, as a source: `nvidia-container-cli list`, or the mounts of a CDI spec.

Such a list names; which file a name is, and what else belongs to it, is decided as for every other source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

from gpubind.errors import NotRecordedError
from gpubind.formats.elf import ElfIdent
from gpubind.host import Host
from gpubind.model import ContainerPath, Decision, DeviceNode, HostFile, Kind, Missing, RootedPath, Verdict
from gpubind.sources.files import Answer
from gpubind.sources.libraries import Named
from gpubind.sources.search import Accepted, Candidate, Search
from gpubind.sources.table import NameTable, capability_of
from gpubind.tree import Tree


class Printed(NamedTuple):
    """What the list names that is on the host."""

    source: str
    """`nvidia-container-cli` or `cdi`."""
    at: str
    """Which part of it names the files."""
    command: str
    """What was asked."""
    libraries: tuple[RootedPath, ...]
    """Real files."""
    others: tuple[RootedPath, ...]
    """Programs, sockets, directories and firmware: what they really are."""
    devices: tuple[str, ...]
    decisions: tuple[Decision, ...]
    """What is not there, or has no business in a container."""
    targets: Mapping[RootedPath, str] = {}
    """Where one of `others` must be in the container, if the list says so."""


def library_names(
    search: Search, stems: Iterable[str], printed: Printed
) -> tuple[frozenset[str], list[tuple[Candidate, Named]]]:
    """The names on this host that lead to a listed library: what the list means, since it has real files.

    With them, as candidates under their own names, printed libraries that no search of ours would come upon.
    """
    mine = frozenset(printed.libraries)
    names: set[str] = set()
    reached: set[tuple[str, str]] = set()
    for candidate in search.candidates(frozenset((*stems, *map(_stem, printed.libraries)))):
        judged = search.judge(candidate)
        arch = judged.arch if isinstance(judged, Accepted) else ""
        reached |= {(_stem(path), arch) for path in (candidate.name, judged.path or candidate.path)}
        if judged.path in mine:
            names.add(candidate.name)
    extra = []
    for path in printed.libraries:
        candidate = Candidate(_name(path), path, path.rpartition("/")[0] or "/")
        judged = search.judge(candidate)
        if (_stem(path), judged.arch if isinstance(judged, Accepted) else "") not in reached:
            extra.append((candidate, Named(printed.source, printed.at, None)))
    return frozenset(names), extra


def confirmed(host: Host, printed: Printed, files: Iterable[HostFile]) -> list[HostFile]:
    """*files*, with the list as the one who names those that are on it."""
    sources = {host.driver.real(path) for path in printed.others}
    return [
        file._replace(named_by=printed.source, named_at=printed.at) if file.source in sources else file
        for file in files
    ]


def unknown(
    host: Host,
    printed: Printed,
    files: Iterable[HostFile],
    nodes: Iterable[DeviceNode],
    decisions: Iterable[Decision],
    table: NameTable,
) -> list[Answer]:
    """What becomes of the rest: everything printed that is no library, and that nobody else took or decided on."""
    files = tuple(files)
    known: set[Optional[str]] = {node.target for node in nodes} | {file.target for file in files}
    for made in decisions:
        known |= {made.subject, made.path}
    sources = {file.source for file in files}
    programs = {file.names[0]: file.path for file in files if file.kind == "binary"}
    answers: list[Answer] = []
    for path in printed.others:
        if host.driver.real(path) not in sources and path not in known:
            answers.append(_unknown(host, printed, path, programs, table))
    for device in printed.devices:
        found = host.dev.stat(device)
        if device not in known and not isinstance(found, Missing) and found.kind != "dir":
            why = f"{printed.source} names it, nobody else does"
            answers.append(decision(printed.source, printed.at, device, "left-out", "unknown-device", device, why))
    return answers


def present(tree: Tree, source: str, at: str, paths: Iterable[str], decisions: list[Decision]) -> dict[str, RootedPath]:
    """Those of *paths* that are there, and where they lead; a Decision for each that is not."""
    here: dict[str, RootedPath] = {}
    for path in paths:
        try:
            real = tree.resolve(path)
        except NotRecordedError as error:
            decisions.append(decision(source, at, path, "rejected", "unreadable", path, error.what))
            continue
        if isinstance(real, Missing):
            rule = "dangling" if real.why == "absent" else f"path-{real.why}"
            detail = f"{source} names it, but it leads nowhere" if real.why == "absent" else str(real)
            decisions.append(decision(source, at, path, "rejected", rule, path, detail))
        else:
            here[path] = real
    return here


def _unknown(
    host: Host, printed: Printed, path: RootedPath, programs: dict[str, RootedPath], table: NameTable
) -> Answer:
    """A printed file that no list knows, or that was found elsewhere."""
    tree = host.driver

    def decided(subject: str, verdict: Verdict, rule: str, path: str, detail: str) -> Decision:
        return decision(printed.source, printed.at, subject, verdict, rule, path, detail)

    found = tree.stat(path)
    if isinstance(found, Missing):
        return decided(path, "rejected", "unreadable", path, str(found))
    if "/firmware/" in path:
        return decided(path, "left-out", "host-only", path, "firmware: the kernel reads it, not a process")
    kinds: dict[str, Kind] = {"socket": "socket", "dir": "directory", "file": "file"}
    kind = kinds.get(found.kind)
    if kind is None:
        return decided(path, "rejected", "special-file", path, f"a {found.kind}")
    name = _name(path)
    arch: Optional[str] = None
    if kind == "file" and found.mode & 0o111:
        kind, arch = "binary", host.uname.machine
        ident = tree.ident(path)
        if isinstance(ident, ElfIdent) and ident.arch != arch:
            return decided(name, "rejected", "wrong-machine", path, f"{ident.arch}; this host is {arch}")
        if name in programs:
            return decided(name, "left-out", "shadowed", path, f"{programs[name]} comes first")
    return HostFile(
        vendor="nvidia",
        kind=kind,
        path=path,
        names=(name,) if kind == "binary" else (),
        target=None if kind == "binary" else ContainerPath(printed.targets.get(path, path)),
        arch=arch,
        soname=None,
        version=None,
        capability=capability_of(table.section(name, path), None),
        size=found.size,
        source=tree.real(path),
        named_by=printed.source,
        named_at=printed.at,
        found_by=path,
    )


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _stem(path: str) -> str:
    """`library_stem` of a file's name; a printed link may lead to a name without `.so`."""
    return _name(path).partition(".so")[0] + ".so"


def decision(source: str, at: str, subject: str, verdict: Verdict, rule: str, path: str, detail: str) -> Decision:
    """A Decision about something on the list."""
    return Decision("nvidia", subject, verdict, rule, "search", source, at, path, None, None, detail)
