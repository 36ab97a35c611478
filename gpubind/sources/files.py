"""The programs and files among what sources claim: found where they are looked for, and looked at."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple, Optional, Union

from gpubind.errors import FormatError, NotRecordedError
from gpubind.formats.elf import ElfIdent
from gpubind.formats.icd import parse_icd
from gpubind.layouts import RUN_DIRECTORY
from gpubind.model import ContainerPath, Decision, HostFile, Kind, Missing, RootedPath, Stat
from gpubind.sources.claims import Claim
from gpubind.sources.liblist import NameTable, capability_of, driver_version_of
from gpubind.sources.search import Candidate, Search
from gpubind.tree import Tree, glob

Answer = Union[HostFile, Decision]

KINDS: dict[str, Kind] = {"socket": "socket", "dir": "directory", "file": "file"}
"""What can be bound as it is, by what it is on the host."""

SYSTEM_DIRECTORIES = frozenset(
    (
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/opt", "/proc"),
        *("/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64"),
        *("/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/sbin", "/usr/share", "/var", "/var/run"),
    )
)
"""What a list file cannot mean as a whole."""


class Followed(NamedTuple):
    """What is at the end of a path."""

    path: RootedPath
    stat: Stat


def follow(tree: Tree, path: str) -> Union[Followed, tuple[str, str]]:
    """What *path* leads to in *tree*; else the rule by which it leads to nothing, and why."""
    real = tree.resolve(path)
    if isinstance(real, Missing):
        return "dangling" if real.why == "absent" else f"path-{real.why}", str(real)
    found = tree.stat(real)
    return ("unreadable", str(found)) if isinstance(found, Missing) else Followed(real, found)


def lead(tree: Tree, path: str) -> Optional[RootedPath]:
    """Where *path* leads in *tree*; None if nowhere, or where a record does not cover it."""
    try:
        real = tree.resolve(path)
    except NotRecordedError:
        return None
    return None if isinstance(real, Missing) else real


def find_program(search: Search, table: NameTable, claim: Claim) -> Answer:
    """The program that *claim* names, from the program directories, then PATH."""
    if "/" in claim.name:
        detail = "a relative path would count from the current directory"
        return claim.decision(verdict="rejected", rule="relative-path", detail=detail)
    tree = search.tree
    for directory in search.programs:
        path = tree.resolve(f"{directory.rstrip('/')}/{claim.name}")
        found = path if isinstance(path, Missing) else tree.stat(path)
        if isinstance(path, Missing) or isinstance(found, Missing) or found.kind != "file":
            continue
        ident = tree.ident(path)
        if isinstance(ident, ElfIdent) and ident.arch != search.arch:
            detail = f"{ident.arch}; this host is {search.arch}"
            return claim.decision(verdict="rejected", rule="wrong-machine", path=path, detail=detail)
        if claim.userspace and not isinstance(ident, ElfIdent):
            # ROCm's scripts need modules that lie beside them, and Python.
            detail = "a script, which needs the files beside it and an interpreter: it has to come with the image"
            return claim.decision(
                verdict="left-out", rule="script", step="name", path=path, found_by=directory, detail=detail
            )
        made = claim.file(
            kind="binary",
            path=path,
            source=tree.real(path),
            size=found.size,
            found_by=directory,
            capability=capability_of(table.section_of(claim), None),
        )
        return made._replace(names=(claim.name,), arch=search.arch)
    return claim.decision(verdict="absent", rule="no-match", detail="in none of the program directories")


def find_files(search: Search, table: NameTable, claim: Claim) -> list[Answer]:
    """The files that an absolute *claim* names: at their own path, or at the top of an extracted .run directory."""
    if {"..", "."} & set(claim.name.split("/")) or "//" in claim.name or claim.name.endswith("/"):
        why = "a path in a list is written without `.`, `..` and doubled or trailing slashes"
        return [claim.decision(verdict="rejected", rule="unclean-path", path=claim.name, detail=why)]
    tree = search.tree
    places: dict[str, str] = {path: path for path in glob(tree, claim.name)}
    if not places:
        top = tree.list("/")
        for name in () if isinstance(top, Missing) else top:
            if name in RUN_DIRECTORY and fnmatchcase(RUN_DIRECTORY[name], claim.name):
                places[f"/{name}"] = RUN_DIRECTORY[name]
    if not places:
        detail = "nothing matches" if set(claim.name) & set("*?[") else "it is not there"
        return [claim.decision(verdict="absent", rule="no-match", detail=detail)]
    return [_file(search, table, claim, path, target) for path, target in places.items()]


def _file(search: Search, table: NameTable, claim: Claim, path: str, target: str) -> Answer:
    tree = search.tree

    def rejected(rule: str, detail: str) -> Decision:
        return claim.decision(subject=target, verdict="rejected", rule=rule, path=path, detail=detail)

    found = follow(tree, path)
    if not isinstance(found, Followed):
        return rejected(*found)
    carried = driver_version_of(path)
    if carried and search.version and carried != search.version:
        return rejected("other-driver-version", f"its name carries {carried}, the driver is {search.version}")
    if found.stat.kind == "dir" and target in SYSTEM_DIRECTORIES:
        return rejected("system-directory", "binding it would hide the container's own")
    kind = KINDS.get(found.stat.kind)
    if kind is None:
        return rejected("special-file", f"a {found.stat.kind}")
    content: Optional[bytes] = None
    if kind == "file" and path.endswith((".json", ".icd")):
        kind = "manifest"
        data = tree.read(found.path)
        if isinstance(data, Missing):
            return rejected("unreadable", str(data))
        try:
            parse_icd(data)
        except FormatError as error:
            return rejected("bad-icd", f"{error.where}: {error.why}")
        content = data
    made = claim.file(
        kind=kind,
        path=found.path,
        source=tree.real(found.path),
        size=found.stat.size,
        found_by=path,
        capability=capability_of(table.section_of(claim), None),
    )
    # Data is the host's in any case; programs and manifests go with the libraries.
    userspace = claim.userspace and kind == "manifest"
    return made._replace(target=ContainerPath(target), version=carried, content=content, userspace=userspace)


def library_candidates(tree: Tree, pattern: str) -> list[Candidate]:
    """The libraries that an absolute *pattern* names, each with the links beside it that lead to the same file."""
    candidates: list[Candidate] = []
    if {"..", "."} & set(pattern.split("/")):
        return []
    for path in glob(tree, pattern):
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
