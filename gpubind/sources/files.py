"""The driver's programs and data files on one host: list entries without `.so`, or with a path."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Optional, Union

from gpubind.errors import FormatError
from gpubind.formats.elf import ElfIdent
from gpubind.formats.icd import parse_icd
from gpubind.formats.liblist import ListEntry
from gpubind.host import Host
from gpubind.model import ContainerPath, Decision, HostFile, Kind, Missing, RootedPath
from gpubind.sources.layouts import BINARY_DIRECTORIES, HOST_ONLY, RUN_DIRECTORY
from gpubind.sources.libraries import Named
from gpubind.sources.search import Candidate
from gpubind.sources.table import capability_of, driver_version_of
from gpubind.tree import Tree, glob

Answer = Union[HostFile, Decision]

SYSTEM_DIRECTORIES = frozenset(
    (
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/opt", "/proc"),
        *("/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64"),
        *("/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/sbin", "/usr/share", "/var", "/var/run"),
    )
)
"""What a list file cannot mean as a whole."""


def programs_and_files(
    host: Host,
    entries: Iterable[tuple[ListEntry, Named]],
    version: Optional[str],
    directories: tuple[str, ...] = BINARY_DIRECTORIES,
) -> tuple[list[tuple[Candidate, Named]], list[Answer]]:
    """What the entries without a library name stand for; absolute library entries become candidates."""
    candidates: list[tuple[Candidate, Named]] = []
    answers: list[Answer] = []
    for entry, named in entries:
        if entry.kind == "binary":
            answers.append(find_binary(host, entry, named, host.uname.machine, directories))
        elif entry.kind == "file":
            answers += find_files(host.driver, entry, named, version)
        elif entry.kind == "library-path":
            libraries = library_candidates(host.driver, entry)
            candidates += [(candidate, named) for candidate in libraries]
            if not libraries:
                answers += find_files(host.driver, entry, named, version)
    return candidates, answers


def find_binary(host: Host, entry: ListEntry, named: Named, arch: str, directories: tuple[str, ...]) -> Answer:
    """The program that *entry* names, from *directories*, then PATH."""

    def decision(verdict: str, rule: str, path: Optional[str], detail: str) -> Decision:
        return Decision(named.vendor, entry.text, verdict, rule, "search", named.by, named.at, path, None, None, detail)  # type: ignore[arg-type]

    if "/" in entry.text:
        return decision("rejected", "relative-path", None, "a relative path would count from the current directory")
    tree = host.driver
    on_path = (d for d in host.environ.get("PATH", "").split(":") if d.startswith("/"))
    for directory in dict.fromkeys((*directories, *on_path)):
        path = tree.resolve(f"{directory.rstrip('/')}/{entry.text}")
        if isinstance(path, Missing):
            continue
        found = tree.stat(path)
        if isinstance(found, Missing) or found.kind != "file":
            continue
        ident = tree.ident(path)
        if isinstance(ident, ElfIdent) and ident.arch != arch:
            return decision("rejected", "wrong-machine", path, f"{ident.arch}; this host is {arch}")
        return HostFile(
            vendor=named.vendor,
            kind="binary",
            path=path,
            names=(entry.text,),
            target=None,
            arch=arch,
            soname=None,
            version=None,
            capability=capability_of(named.section, None),
            size=found.size,
            source=tree.real(path),
            named_by=named.by,
            named_at=named.at,
            found_by=directory,
        )
    return decision("absent", "no-match", None, "in none of the program directories")


def find_files(tree: Tree, entry: ListEntry, named: Named, version: Optional[str]) -> list[Answer]:
    """The files that absolute *entry* names: at their own path, or at the top of an extracted .run directory."""
    if {"..", "."} & set(entry.text.split("/")) or "//" in entry.text or entry.text.endswith("/"):
        why = "a path in a list is written without `.`, `..` and doubled or trailing slashes"
        return [_rejected(entry.text, named, "unclean-path", why)]
    places: dict[str, str] = {path: path for path in glob(tree, entry.text)}
    if not places:
        top = tree.list("/")
        for name in () if isinstance(top, Missing) else top:
            if name in RUN_DIRECTORY and fnmatchcase(RUN_DIRECTORY[name], entry.text):
                places[f"/{name}"] = RUN_DIRECTORY[name]
    answers = [_file(tree, path, target, named, version) for path, target in places.items()]
    if not answers:
        detail = "nothing matches" if entry.is_glob else "it is not there"
        answers.append(
            Decision(
                named.vendor, entry.text, "absent", "no-match", "search", named.by, named.at, None, None, None, detail
            )
        )
    return answers


def _rejected(subject: str, named: Named, rule: str, detail: str) -> Decision:
    return Decision(named.vendor, subject, "rejected", rule, "search", named.by, named.at, subject, None, None, detail)


def _file(tree: Tree, path: str, target: str, named: Named, version: Optional[str]) -> Answer:
    def rejected(rule: str, detail: str) -> Decision:
        return Decision(named.vendor, target, "rejected", rule, "search", named.by, named.at, path, None, None, detail)

    real = tree.resolve(path)
    if isinstance(real, Missing):
        return rejected("dangling" if real.why == "absent" else f"path-{real.why}", str(real))
    found = tree.stat(real)
    if isinstance(found, Missing):
        return rejected("unreadable", str(found))
    carried = driver_version_of(path)
    if carried and version and carried != version:
        return rejected("other-driver-version", f"its name carries {carried}, the driver is {version}")
    kind: Kind = "file"
    content: Optional[bytes] = None
    if found.kind == "dir" and target in SYSTEM_DIRECTORIES:
        return rejected("system-directory", "binding it would hide the container's own")
    if found.kind in ("socket", "dir"):
        kind = "socket" if found.kind == "socket" else "directory"
    elif found.kind != "file":
        return rejected("special-file", f"a {found.kind}")
    elif path.endswith((".json", ".icd")):
        kind = "manifest"
        data = tree.read(real)
        if isinstance(data, Missing):
            return rejected("unreadable", str(data))
        try:
            parse_icd(data)
        except FormatError as error:
            return rejected("bad-icd", f"{error.where}: {error.why}")
        content = data
    return HostFile(
        vendor=named.vendor,
        kind=kind,
        path=real,
        names=(),
        target=ContainerPath(target),
        arch=None,
        soname=None,
        version=carried,
        capability=capability_of(named.section, None),
        size=found.size,
        source=tree.real(real),
        named_by=named.by,
        named_at=named.at,
        found_by=path,
        content=content,
    )


def library_candidates(tree: Tree, entry: ListEntry) -> list[Candidate]:
    """The libraries that an absolute *entry* names, each with the links beside it that lead to the same file."""
    candidates: list[Candidate] = []
    if {"..", "."} & set(entry.text.split("/")):
        return []
    for path in glob(tree, entry.text):
        directory, _, name = path.rpartition("/")
        candidates.append(Candidate(name, path, directory or "/"))
        real = tree.resolve(path)
        names = tree.list(directory or "/")
        if isinstance(names, Missing):
            continue
        stem = name[: name.index(".so") + 3] if ".so" in name else name
        for other in names:
            beside = RootedPath(f"{directory}/{other}")
            if other != name and other.startswith(stem) and tree.resolve(beside) == real:
                candidates.append(Candidate(other, beside, directory or "/"))
    return candidates


def host_only(tree: Tree, taken: Iterable[str]) -> list[Decision]:
    """A Decision for each file of the driver that stays on the host, and why."""
    known = set(taken)
    decisions: dict[str, Decision] = {}
    for pattern, why in HOST_ONLY:
        for path in glob(tree, pattern):
            real = tree.resolve(path)
            if isinstance(real, Missing) or real in known or real in decisions:
                continue
            decisions[real] = Decision(
                "nvidia", path, "left-out", "host-only", "name", "completion", pattern, real, None, None, why
            )
    return list(decisions.values())
