"""`nvidia-container-cli list` as a source of names: what NVIDIA's own tool says that a container needs.

It names; which file a name is, and what else belongs to it, is decided as for every other source. It knows no links, no
manifests, no libraries that carry no version, and, where it is older than the driver, not all libraries
(libnvidia-container `src/nvc_info.c`); so completion adds those.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Optional, Union

from gpubind.errors import FormatError, NotRecordedError
from gpubind.formats.elf import ElfIdent
from gpubind.formats.nvidia_cli import PROGRAM, list_argv, parse_failure, parse_list
from gpubind.host import Host
from gpubind.model import (
    ContainerPath,
    Decision,
    DeviceNode,
    Finding,
    HostFile,
    Kind,
    Missing,
    PassedOver,
    RootedPath,
    Verdict,
)
from gpubind.sources.files import Answer
from gpubind.sources.libraries import Named
from gpubind.sources.search import Accepted, Candidate, Search
from gpubind.sources.table import NameTable, capability_of
from gpubind.tree import Tree

SOURCE = PROGRAM
AT = "list"
TIMEOUT_S = 30.0  # the program itself gives the driver 10 s, and starting GPUs without persistence mode takes seconds


class Printed(NamedTuple):
    """What the program printed that is on the host."""

    command: str
    libraries: tuple[RootedPath, ...]
    """Real files."""
    others: tuple[RootedPath, ...]
    """Programs, sockets, directories and firmware: what they really are."""
    devices: tuple[str, ...]
    decisions: tuple[Decision, ...]
    """What is not there, or has no business in a container."""


def ask(host: Host) -> Union[Printed, PassedOver]:
    """What `nvidia-container-cli list` names on *host*; or why it does not serve. It never raises.

    Codes of `PassedOver`: `absent`, `forbidden` (not safe to run as root), `unreadable` (it hung, or could not be run),
    `<class>-error` with the program's own class of error, `failed`, `bad-nvidia-cli`, `no-library`.
    """
    argv = list_argv(host.driver.root)
    answer = host.run(argv, TIMEOUT_S)
    if isinstance(answer, Missing):
        # A record says the same of a program that is not there as the live host does: the same plan.
        absent = answer.why == "absent"
        return PassedOver(SOURCE, answer.why, f"there is no `{PROGRAM}` to ask" if absent else answer.detail)
    if answer.status != 0:
        failure = parse_failure(answer.stderr)
        code = f"{failure.error_class}-error" if failure.error_class else "failed"
        return PassedOver(SOURCE, code, f"`{PROGRAM} list` ended with {answer.status}: {failure.message}")
    try:
        listed = parse_list(answer.stdout)
    except FormatError as error:
        return PassedOver(SOURCE, error.code, f"{error.place}: {error.why}")

    decisions: list[Decision] = []
    libraries = dict.fromkeys(_present(host.driver, listed.libraries, decisions).values())
    if not libraries:
        count = len(listed.libraries)
        why = f"none of the {count} libraries that it printed is on this host" if count else "it printed no library"
        return PassedOver(SOURCE, "no-library", why)
    others = dict.fromkeys(_present(host.driver, (*listed.others, *listed.firmware), decisions).values())
    devices = tuple(_present(host.dev, listed.devices, decisions))
    shown = "the kernel shows it in a container's own /proc"
    for path in _present(host.dev, listed.procs, decisions):
        decisions.append(_decision(path, "left-out", "host-only", path, shown))
    return Printed(" ".join(argv), tuple(libraries), tuple(others), devices, tuple(decisions))


def library_names(
    search: Search, stems: Iterable[str], printed: Printed
) -> tuple[frozenset[str], list[tuple[Candidate, Named]]]:
    """The names on this host that lead to a printed library: what the program means, since it prints real files.

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
            extra.append((candidate, Named(SOURCE, AT, None)))
    return frozenset(names), extra


def confirmed(host: Host, printed: Printed, files: Iterable[HostFile]) -> list[HostFile]:
    """*files*, with the program as the one who names those that it printed."""
    sources = {host.driver.real(path) for path in printed.others}
    return [file._replace(named_by=SOURCE, named_at=AT) if file.source in sources else file for file in files]


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
    for decision in decisions:
        known |= {decision.subject, decision.path}
    sources = {file.source for file in files}
    programs = {file.names[0]: file.path for file in files if file.kind == "binary"}
    answers: list[Answer] = []
    for path in printed.others:
        if host.driver.real(path) not in sources and path not in known:
            answers.append(_unknown(host, path, programs, table))
    for device in printed.devices:
        found = host.dev.stat(device)
        if device not in known and not isinstance(found, Missing) and found.kind != "dir":
            why = f"{PROGRAM} names it, nobody else does"
            answers.append(_decision(device, "left-out", "unknown-device", device, why))
    return answers


def decision_about(passed: PassedOver) -> Decision:
    """The Decision about a source that does not serve."""
    verdict: Verdict = "absent" if passed.code == "absent" else "rejected"
    detail = f"{passed.code}: {passed.why}"
    return Decision("nvidia", passed.source, verdict, "passed-over", "name", None, None, None, None, None, detail)


def finding_about(passed: PassedOver, instead: str, root: str) -> Finding:
    """The finding about a source that was asked for by name and does not serve."""
    import shlex

    program, *arguments = list_argv(root)
    absent = passed.code == "absent"
    return Finding(
        "source-failed",
        "warning",
        "nvidia",
        passed.source,
        f"the source that was asked for does not serve; {instead} takes its place",
        None,
        f"{passed.code}: {passed.why}",
        "install libnvidia-container-tools, or leave --source out" if absent else "the program itself says more",
        None if absent else shlex.join((program, "--debug=/dev/stderr", *arguments)),
    )


def _present(tree: Tree, paths: Iterable[str], decisions: list[Decision]) -> dict[str, RootedPath]:
    """Those of *paths* that are there, and where they lead; a Decision for each that is not."""
    here: dict[str, RootedPath] = {}
    for path in paths:
        try:
            real = tree.resolve(path)
        except NotRecordedError as error:
            decisions.append(_decision(path, "rejected", "unreadable", path, error.what))
            continue
        if isinstance(real, Missing):
            rule = "dangling" if real.why == "absent" else f"path-{real.why}"
            detail = f"{PROGRAM} names it, but it leads nowhere" if real.why == "absent" else str(real)
            decisions.append(_decision(path, "rejected", rule, path, detail))
        else:
            here[path] = real
    return here


def _unknown(host: Host, path: RootedPath, programs: dict[str, RootedPath], table: NameTable) -> Answer:
    """A printed file that no list knows, or that was found elsewhere."""
    tree = host.driver
    found = tree.stat(path)
    if isinstance(found, Missing):
        return _decision(path, "rejected", "unreadable", path, str(found))
    if "/firmware/" in path:
        return _decision(path, "left-out", "host-only", path, "firmware: the kernel reads it, not a process")
    kinds: dict[str, Kind] = {"socket": "socket", "dir": "directory", "file": "file"}
    kind = kinds.get(found.kind)
    if kind is None:
        return _decision(path, "rejected", "special-file", path, f"a {found.kind}")
    name = _name(path)
    arch: Optional[str] = None
    if kind == "file" and found.mode & 0o111:
        kind, arch = "binary", host.uname.machine
        ident = tree.ident(path)
        if isinstance(ident, ElfIdent) and ident.arch != arch:
            return _decision(name, "rejected", "wrong-machine", path, f"{ident.arch}; this host is {arch}")
        if name in programs:
            return _decision(name, "left-out", "shadowed", path, f"{programs[name]} comes first")
    return HostFile(
        vendor="nvidia",
        kind=kind,
        path=path,
        names=(name,) if kind == "binary" else (),
        target=None if kind == "binary" else ContainerPath(path),
        arch=arch,
        soname=None,
        version=None,
        capability=capability_of(table.section(name, path), None),
        size=found.size,
        source=tree.real(path),
        named_by=SOURCE,
        named_at=AT,
        found_by=path,
    )


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _stem(path: str) -> str:
    """`library_stem` of a file's name; a printed link may lead to a name without `.so`."""
    return _name(path).partition(".so")[0] + ".so"


def _decision(subject: str, verdict: Verdict, rule: str, path: str, detail: str) -> Decision:
    return Decision("nvidia", subject, verdict, rule, "search", SOURCE, AT, path, None, None, detail)
