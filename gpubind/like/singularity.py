"""--like: the rules by which Apptainer 1.4, 1.5 and SingularityCE 4.5 turn their lists into binds.

Sources: Apptainer 1.4.5 `internal/pkg/util/gpu/{paths,nvidia_legacy,rocm}.go`, `internal/pkg/util/paths/resolve.go`;
SingularityCE 4.5 `internal/pkg/util/gpu/paths.go`. Where they go wrong, so does this; see docs/like.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Optional

from gpubind.arch import architecture
from gpubind.digest import digest
from gpubind.errors import UsageError, one_of
from gpubind.findings import finding
from gpubind.formats.elf import ElfIdent
from gpubind.formats.ldcache import LdCache
from gpubind.formats.liblist import LibList, ListEntry, library_stem, parse_liblist
from gpubind.host import Host
from gpubind.like.names import APPTAINER, ROCM_APPTAINER, ROCM_SINGULARITY_CE, SINGULARITY_CE
from gpubind.model import (
    VENDORS,
    ContainerPath,
    Decision,
    Driver,
    EnvVar,
    Finding,
    HostPath,
    Kind,
    Missing,
    Mount,
    Plan,
    PlannedDriver,
    Request,
    RootedPath,
    SourceUsed,
    Vendor,
)
from gpubind.planner.placement import SINGULARITY
from gpubind.tree import Tree
from gpubind.tree.ldcache import LD_CACHE_PATH, read_ldcache

PERSISTENCED = "/var/run/nvidia-persistenced/socket"
NESTED_LIBRARIES = "/.singularity.d/libs"
LIST_NAMES: dict[Vendor, str] = {"nvidia": "nvliblist.conf", "amd": "rocmliblist.conf"}
LIBRARY_OPTIONS = ("ro", "nosuid", "nodev")


class Flavour(NamedTuple):
    """One program's behaviour."""

    name: str
    program: str
    directory: str
    """Where its list files are on a host."""
    names: dict[Vendor, tuple[str, ...]]
    """What its lists name in that release."""
    plain_files: bool
    """Whether an absolute entry without `.so` is a file at its own path; else it is a program."""
    inherits: bool
    """Whether libraries of a surrounding container are taken first."""
    together: bool
    """Whether both vendors' flags count; else NVIDIA's alone does."""


_APPTAINER_14 = Flavour(
    "apptainer-1.4",
    "Apptainer 1.4",
    "/etc/apptainer",
    {"nvidia": APPTAINER, "amd": ROCM_APPTAINER},
    plain_files=True,
    inherits=True,
    together=True,
)
FLAVOURS = {
    "apptainer": _APPTAINER_14,
    "apptainer-1.4": _APPTAINER_14,
    "apptainer-1.5": _APPTAINER_14._replace(name="apptainer-1.5", program="Apptainer 1.5"),
    "singularity": Flavour(
        "singularity",
        "SingularityCE 4.5",
        "/etc/singularity",
        {"nvidia": SINGULARITY_CE, "amd": ROCM_SINGULARITY_CE},
        plain_files=False,
        inherits=False,
        together=False,
    ),
}


class _Bind(NamedTuple):
    vendor: Vendor
    entry: str
    at: str
    source: RootedPath
    """As the program prints it: often a link."""
    target: ContainerPath
    kind: Kind
    found_by: str


class _Lookup(NamedTuple):
    """What one list, or one entry of it, comes to."""

    binds: tuple[_Bind, ...] = ()
    decisions: tuple[Decision, ...] = ()
    """About what is not bound."""


class _List(NamedTuple):
    """A list file as one program reads it."""

    host: Host
    flavour: Flavour
    vendor: Vendor
    liblist: LibList


def like_plan(host: Host, request: Request) -> Plan:
    """The plan that the flavour `request.like` itself would make on *host*.

    It has no driver version, no GPUs and no device binds: /dev is whole by default there, and the flag adds nothing.
    Errors: `UsageError` for an unknown flavour, `FormatError` for a malformed list file.
    """
    flavour = FLAVOURS.get(request.like or "")
    if flavour is None:
        raise UsageError(
            "unknown-flavour", f"unknown flavour `{request.like}`", hint=one_of(FLAVOURS, request.like or "")
        )
    vendors, findings = _vendors(request, flavour)
    lists = [_List(host, flavour, vendor, _liblist(host, flavour, vendor)) for vendor in vendors]
    cache = read_ldcache(host.driver)
    looked_up: list[_Lookup] = []
    if isinstance(cache, LdCache):
        looked_up = [_look_up(one, cache) for one in lists]
    else:
        # ldconfig -p fails, and with it everything: programs and plain files are lost, too.
        findings.append(_no_ldcache(flavour, vendors[0], str(cache) if isinstance(cache, Missing) else cache.why))
    binds = [bind for lookup in looked_up for bind in lookup.binds]
    binds += _sockets(host.dev) if "nvidia" in vendors else []
    placed = [(bind, _mount(host, bind)) for bind in binds]
    mounts = _placed(mount for _, mount in placed)
    decisions = [decision for lookup in looked_up for decision in lookup.decisions]
    decisions += [_place_decision(bind, is_taken=mounts[mount.target] is mount) for bind, mount in placed]
    findings += _collisions(flavour, placed, mounts)
    findings += [found for one in lists for found in _fatal_entries(one)]
    ordered = tuple(sorted(mounts.values(), key=lambda mount: mount.target))
    env = (EnvVar("LD_LIBRARY_PATH", "append", SINGULARITY.libdir, ":", flavour.name),)
    return Plan(
        request=request._replace(like=flavour.name, vendors=vendors),
        layout=SINGULARITY.name,
        drivers=tuple(map(_driver, lists)),
        gpus=(),
        libdir=SINGULARITY.libdir,
        libdir32=None,
        mounts=ordered,
        devices=(),
        env=env,
        image=None,
        decisions=tuple(sorted(decisions, key=lambda d: (d.subject, d.verdict, d.path or "", d.named_at or ""))),
        findings=tuple(findings),
        digest=digest(ordered, (), env),
    )


def _vendors(request: Request, flavour: Flavour) -> tuple[tuple[Vendor, ...], list[Finding]]:
    """The vendors whose flag counts for the program, and what to say where one of those that are asked for does not."""
    vendors = request.vendors or VENDORS[:1]
    if len(vendors) == 1 or flavour.together:
        return vendors, []
    return VENDORS[:1], [finding("like-one-vendor", subject="--rocm", program=flavour.program)]


def _no_ldcache(flavour: Flavour, vendor: Vendor, why: str) -> Finding:
    return finding(
        "like-ldcache",
        subject=LD_CACHE_PATH,
        vendor=vendor,
        where=LD_CACHE_PATH,
        program=flavour.program,
        detail=why,
    )


def _driver(one: _List) -> PlannedDriver:
    driver = Driver(
        vendor=one.vendor,
        version=None,
        version_assumed=False,
        kernel_version=None,
        kind="linux",
        cuda_max=None,
        root=one.host.driver.root,
    )
    return PlannedDriver(driver, SourceUsed("liblist", one.liblist.label), (LD_CACHE_PATH, "PATH"))


def _placed(mounts: Iterable[Mount]) -> dict[ContainerPath, Mount]:
    """The first mount of each target."""
    placed: dict[ContainerPath, Mount] = {}
    for mount in mounts:
        placed.setdefault(mount.target, mount)
    return placed


def _place_decision(bind: _Bind, *, is_taken: bool) -> Decision:
    return Decision(
        vendor=bind.vendor,
        subject=bind.source.rpartition("/")[2] if bind.kind in ("library", "binary") else bind.source,
        verdict="taken" if is_taken else "left-out",
        rule="liblist" if is_taken else "collision",
        step="place",
        named_by=bind.entry,
        named_at=bind.at,
        path=bind.source,
        found_by=bind.found_by,
        target=bind.target,
    )


def _collisions(
    flavour: Flavour, placed: Iterable[tuple[_Bind, Mount]], mounts: Mapping[ContainerPath, Mount]
) -> Iterator[Finding]:
    """Targets that are wanted twice. Exact duplicates are dropped, but libraries, programs and plain files are three
    lists."""
    for bind, mount in placed:
        there = mounts[mount.target]
        if there is not mount and (there.source, there.kind) != (mount.source, mount.kind):
            yield finding(
                "like-collision",
                subject=bind.target,
                case="library" if bind.kind == "library" else "other",
                vendor=bind.vendor,
                where=f"{there.source}, {mount.source}",
                program=flavour.program,
            )


def _liblist(host: Host, flavour: Flavour, vendor: Vendor) -> LibList:
    path = f"{flavour.directory}/{LIST_NAMES[vendor]}"
    data = host.dev.read(path)
    if isinstance(data, Missing):
        return parse_liblist("\n".join(flavour.names[vendor]).encode(), f"the names of {flavour.program}")
    # To those programs a section line is the name of a program that is not there.
    text = b"\n".join(b"" if line.strip().startswith(b"[") else line for line in data.split(b"\n"))
    return parse_liblist(text, path)


def _look_up(one: _List, cache: LdCache) -> _Lookup:
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
    return _Lookup(
        tuple(bind for lookup in lookups for bind in lookup.binds),
        tuple(decision for lookup in lookups for decision in lookup.decisions),
    )


def _inherited(one: _List) -> _Lookup:
    """Libraries of a surrounding container."""
    tree = one.host.driver
    names = tree.names(NESTED_LIBRARIES) if one.flavour.inherits else ()
    stats = [(path, tree.lstat(path)) for path in (RootedPath(f"{NESTED_LIBRARIES}/{name}") for name in names)]
    files = [path for path, found in stats if not isinstance(found, Missing) and found.kind == "file"]
    return _Lookup(
        tuple(
            _Bind(one.vendor, "nested", NESTED_LIBRARIES, path, _library_target(path), "library", NESTED_LIBRARIES)
            for path in files
        )
    )


def _cached(one: _List, entry: ListEntry, cache: LdCache, seen: frozenset[str]) -> tuple[_Lookup, tuple[str, ...]]:
    """What the ld cache has for a name beside what was *seen* already; and the names of that.

    The first of a name counts, whatever its architecture; then only the machine is compared.
    """
    fresh: dict[str, RootedPath] = {}
    is_matched = False
    for cached in cache.matching((entry.text,)):
        if cached.name in seen or cached.name in fresh:
            is_matched = True
        else:
            fresh[cached.name] = RootedPath(cached.path)
    fitting = [path for path in fresh.values() if _machine_fits(one.host, path)]
    decisions = [_wrong_machine(one, entry, path) for path in fresh.values() if path not in fitting]
    if not (is_matched or fitting):
        decisions.append(_absent(one, entry, "no name in the ld cache starts with it"))
    binds = tuple(_library(one, entry, path, "ld.so.cache") for path in fitting)
    return _Lookup(binds, tuple(decisions)), tuple(fresh)


def _library_path(one: _List, entry: ListEntry) -> _Lookup:
    """A library by its path, and the links that lead to it."""
    if not _machine_fits(one.host, entry.text):
        return _Lookup(decisions=(_wrong_machine(one, entry, entry.text),))
    paths = (RootedPath(entry.text), *_links_to(one.host.driver, entry.text))
    return _Lookup(tuple(_library(one, entry, path, entry.text) for path in paths))


def _plain_file(one: _List, entry: ListEntry) -> _Lookup:
    """A file at its own path."""
    if not one.host.driver.has(entry.text):
        return _Lookup(decisions=(_absent(one, entry, "it is not there"),))
    path = RootedPath(entry.text)
    bind = _Bind(one.vendor, entry.text, one.liblist.at(entry), path, ContainerPath(path), "file", entry.text)
    return _Lookup((bind,))


def _program(one: _List, entry: ListEntry) -> _Lookup:
    found = _look_path(one.host, entry.text)
    if found is None:
        return _Lookup(decisions=(_absent(one, entry, "no such program in PATH"),))
    target = ContainerPath("/usr/bin/" + found.rpartition("/")[2])
    return _Lookup((_Bind(one.vendor, entry.text, one.liblist.at(entry), found, target, "binary", "PATH"),))


def _library(one: _List, entry: ListEntry, path: RootedPath, found_by: str) -> _Bind:
    return _Bind(one.vendor, entry.text, one.liblist.at(entry), path, _library_target(path), "library", found_by)


def _absent(one: _List, entry: ListEntry, detail: str) -> Decision:
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


def _wrong_machine(one: _List, entry: ListEntry, path: str) -> Decision:
    detail = "ignored: not an ELF file of this machine"
    return _absent(one, entry, detail)._replace(verdict="rejected", rule="wrong-machine", path=path)


def _fatal_entries(one: _List) -> Iterator[Finding]:
    """List entries that make the program stop instead of being skipped."""
    for entry in one.liblist.entries:
        case = None
        if entry.kind == "binary" and "/" in entry.text:
            case = "relative"
        elif entry.kind == "file" and one.flavour.plain_files:
            found = one.host.driver.stat(entry.text)
            if isinstance(found, Missing) and found.why == "forbidden":
                case = "forbidden"
        if case is not None:
            yield finding(
                "like-entry",
                subject=entry.text,
                case=case,
                vendor=one.vendor,
                where=one.liblist.at(entry),
                program=one.flavour.program,
            )


def _library_target(path: str) -> ContainerPath:
    return ContainerPath(f"{SINGULARITY.libdir}/{path.rpartition('/')[2]}")


def _machine_fits(host: Host, path: str) -> bool:
    ident = host.driver.ident(path)
    # Only the machine counts; the class is not compared.
    return isinstance(ident, ElfIdent) and ident.machine == architecture(host.uname.machine).machine


def _links_to(tree: Tree, path: str) -> list[RootedPath]:
    """The links beside *path*, of its name up to `.so`, whose full resolution is exactly *path*."""
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
        candidates = [f"{d.rstrip('/')}/{name}" for d in host.environ.get("PATH", "").split(":") if d.startswith("/")]
    for candidate in candidates:
        found = host.driver.stat(candidate)
        if not isinstance(found, Missing) and found.kind == "file" and found.mode & 0o111:
            return RootedPath(candidate)
    return None


def _sockets(tree: Tree) -> list[_Bind]:
    if not tree.has(PERSISTENCED):
        return []
    path = RootedPath(PERSISTENCED)
    return [_Bind("nvidia", "ipc", PERSISTENCED, path, ContainerPath(path), "socket", PERSISTENCED)]


def _mount(host: Host, bind: _Bind) -> Mount:
    tree = host.dev if bind.kind == "socket" else host.driver
    found = tree.stat(bind.source)
    return Mount(
        vendor=bind.vendor,
        source=HostPath(tree.root.rstrip("/") + bind.source),
        content=None,
        target=bind.target,
        kind=bind.kind,
        arch=None,
        soname=None,
        version=None,
        capability=None,
        options=LIBRARY_OPTIONS if bind.kind != "socket" else ("nosuid", "nodev"),
        required=False,
        size=0 if isinstance(found, Missing) else found.size,
        rule="like",
    )
