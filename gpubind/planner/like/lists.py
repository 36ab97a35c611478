"""What the entries of a list file lead to, by the rules of the program that reads it.

Sources: Apptainer 1.4.5 `internal/pkg/util/gpu/{paths,nvidia_legacy,rocm}.go`, `internal/pkg/util/paths/resolve.go`;
SingularityCE 4.5 `internal/pkg/util/gpu/paths.go`.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from gpubind.files import Tree
from gpubind.files.ldcache import matching
from gpubind.formats.driver.liblist import LibList, ListEntry, library_stem
from gpubind.formats.elf.elf import ElfIdent
from gpubind.formats.elf.ldcache import LdCache
from gpubind.host import Host
from gpubind.model import ContainerPath, Decision, Kind, Missing, RootedPath, Vendor
from gpubind.model.arch import architecture
from gpubind.planner.like.flavours import Flavour
from gpubind.planner.placement import SINGULARITY

NESTED_LIBRARIES = "/.singularity.d/libs"


class ListBind(NamedTuple):
    vendor: Vendor
    entry: str
    at: str
    source: RootedPath
    """As the program prints it: often a link."""
    target: ContainerPath
    kind: Kind
    found_by: str


class Lookup(NamedTuple):
    """What one list, or one entry of it, comes to."""

    binds: tuple[ListBind, ...] = ()
    decisions: tuple[Decision, ...] = ()
    """About what is not bound."""


class ListAsRead(NamedTuple):
    """A list file as one program reads it."""

    host: Host
    flavour: Flavour
    vendor: Vendor
    liblist: LibList


def look_up(one: ListAsRead, cache: LdCache) -> Lookup:
    """What the entries of a list lead to. A name in the ld cache counts once, for the first entry that it matches."""
    lookups = [_inherited(one)]
    seen = {bind.source.rpartition("/")[2] for bind in lookups[0].binds}
    for entry in one.liblist.entries:
        if entry.kind == "library":
            found, names = _cached(one, entry, cache, frozenset(seen))
            lookups.append(found)
            seen.update(names)
        elif entry.kind == "library-path":
            lookups.append(_library_path(one, entry))
        elif entry.kind == "file" and one.flavour.plain_files:
            lookups.append(_plain_file(one, entry))
        else:
            lookups.append(_program(one, entry))
    return Lookup(
        tuple(bind for lookup in lookups for bind in lookup.binds),
        tuple(decision for lookup in lookups for decision in lookup.decisions),
    )


def _inherited(one: ListAsRead) -> Lookup:
    """Libraries of a surrounding container."""
    tree = one.host.driver
    names = tree.names(NESTED_LIBRARIES) if one.flavour.inherits else ()
    stats = [(path, tree.lstat(path)) for path in (RootedPath(f"{NESTED_LIBRARIES}/{name}") for name in names)]
    files = [path for path, found in stats if not isinstance(found, Missing) and found.kind == "file"]
    return Lookup(
        tuple(
            ListBind(one.vendor, "nested", NESTED_LIBRARIES, path, _library_target(path), "library", NESTED_LIBRARIES)
            for path in files
        )
    )


def _cached(one: ListAsRead, entry: ListEntry, cache: LdCache, seen: frozenset[str]) -> tuple[Lookup, tuple[str, ...]]:
    """Return what the ld cache has for a name beside what was *seen* already; and the names of that.

    The first of a name counts, whatever its architecture; then only the machine is compared.
    """
    named = tuple(matching(cache, (entry.text,)))
    fresh: dict[str, RootedPath] = {}
    for cached in named:
        if cached.name not in seen:
            fresh.setdefault(cached.name, RootedPath(cached.path))
    fits = {path: _machine_fits(one.host, path) for path in fresh.values()}
    fitting = [path for path in fresh.values() if fits[path]]
    decisions = [_wrong_machine(one, entry, path) for path in fresh.values() if not fits[path]]
    if not fitting and len(named) == len(fresh):
        decisions.append(_absent(one, entry, "no name in the ld cache starts with it"))
    return Lookup(tuple(_library(one, entry, path, "ld.so.cache") for path in fitting), tuple(decisions)), tuple(fresh)


def _library_path(one: ListAsRead, entry: ListEntry) -> Lookup:
    """Return a library by its path, and the links that lead to it."""
    if not _machine_fits(one.host, entry.text):
        return Lookup(decisions=(_wrong_machine(one, entry, entry.text),))
    paths = (RootedPath(entry.text), *_links_to(one.host.driver, entry.text))
    return Lookup(tuple(_library(one, entry, path, entry.text) for path in paths))


def _plain_file(one: ListAsRead, entry: ListEntry) -> Lookup:
    """Return a file at its own path."""
    if not one.host.driver.has(entry.text):
        return Lookup(decisions=(_absent(one, entry, "it is not there"),))
    path = RootedPath(entry.text)
    bind = ListBind(one.vendor, entry.text, one.liblist.at(entry), path, ContainerPath(path), "file", entry.text)
    return Lookup((bind,))


def _program(one: ListAsRead, entry: ListEntry) -> Lookup:
    found = _look_path(one.host, entry.text)
    if found is None:
        return Lookup(decisions=(_absent(one, entry, "no such program in PATH"),))
    target = ContainerPath("/usr/bin/" + found.rpartition("/")[2])
    return Lookup((ListBind(one.vendor, entry.text, one.liblist.at(entry), found, target, "binary", "PATH"),))


def _library(one: ListAsRead, entry: ListEntry, path: RootedPath, found_by: str) -> ListBind:
    return ListBind(one.vendor, entry.text, one.liblist.at(entry), path, _library_target(path), "library", found_by)


def _absent(one: ListAsRead, entry: ListEntry, detail: str) -> Decision:
    return Decision(
        vendor=one.vendor,
        subject=entry.text,
        verdict="absent",
        rule="no-match",
        step="search",
        named_by=entry.text,
        named_at=one.liblist.at(entry),
        detail=detail,
    )


def _wrong_machine(one: ListAsRead, entry: ListEntry, path: str) -> Decision:
    detail = "ignored: not an ELF file of this machine"
    return _absent(one, entry, detail)._replace(verdict="rejected", rule="wrong-machine", path=path)


def _library_target(path: str) -> ContainerPath:
    return ContainerPath(f"{SINGULARITY.libdir}/{path.rpartition('/')[2]}")


def _machine_fits(host: Host, path: str) -> bool:
    ident = host.driver.ident(path)
    # Only the machine counts; the class is not compared.
    return isinstance(ident, ElfIdent) and ident.machine == architecture(host.uname.machine).machine


def _links_to(tree: Tree, path: str) -> list[RootedPath]:
    """Return the links beside *path*, of its name up to `.so`, whose full resolution is exactly *path*."""
    directory, _, name = path.rpartition("/")
    links = []
    for other in tree.names(directory or "/"):
        beside = f"{directory}/{other}"
        found = tree.lstat(beside)
        is_link = not isinstance(found, Missing) and found.kind == "link"
        if is_link and other.startswith(library_stem(name)) and tree.resolve(beside) == path:
            links.append(RootedPath(beside))
    return links


def _look_path(host: Host, name: str) -> Optional[RootedPath]:
    """As Go's exec.LookPath: the first executable regular file of that name in PATH; a path is taken as it is."""
    if "/" in name:
        candidates = [name] if name.startswith("/") else []
    else:
        candidates = [f"{d.rstrip('/')}/{name}" for d in host.variable("PATH").split(":") if d.startswith("/")]
    for candidate in candidates:
        found = host.driver.stat(candidate)
        if not isinstance(found, Missing) and found.kind == "file" and found.mode & 0o111:
            return RootedPath(candidate)
    return None
