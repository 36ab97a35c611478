"""--like: the rules by which Apptainer 1.4, 1.5 and SingularityCE 4.5 turn their lists into binds.

Sources: Apptainer 1.4.5 `internal/pkg/util/gpu/{paths,nvidia_legacy,rocm}.go`, `internal/pkg/util/paths/resolve.go`;
SingularityCE 4.5 `internal/pkg/util/gpu/paths.go`. Where they go wrong, so does this; see docs/like.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpubind.errors import UsageError, one_of
from gpubind.files import Tree
from gpubind.files.ldcache import LD_CACHE_PATH, read_ldcache
from gpubind.formats.driver.liblist import LibList, parse_liblist
from gpubind.formats.elf.ldcache import LdCache
from gpubind.host import Host
from gpubind.inventory.search import ldconfig
from gpubind.model import (
    VENDORS,
    ContainerPath,
    Decision,
    Driver,
    EnvVar,
    Finding,
    HostPath,
    Missing,
    Mount,
    Plan,
    PlannedDriver,
    Request,
    RootedPath,
    SourceUsed,
    Vendor,
)
from gpubind.model.digest import digest
from gpubind.model.findings import finding
from gpubind.planner.like.flavours import FLAVOURS, Flavour
from gpubind.planner.like.lists import ListAsRead, ListBind, Lookup, look_up
from gpubind.planner.placement import SINGULARITY

PERSISTENCED = "/var/run/nvidia-persistenced/socket"
LIST_NAMES: dict[Vendor, str] = {"nvidia": "nvliblist.conf", "amd": "rocmliblist.conf"}
LIBRARY_OPTIONS = ("ro", "nosuid", "nodev")


def like_plan(host: Host, request: Request) -> Plan:
    """Return the plan that the flavour `request.like` itself would make on *host*.

    It has no driver version, no GPUs and no device binds: /dev is whole by default there, and the flag adds nothing.
    Errors: `UsageError` for an unknown flavour, `FormatError` for a malformed list file.
    """
    flavour = FLAVOURS.get(request.like or "")
    if flavour is None:
        raise UsageError(
            "unknown-flavour", f"unknown flavour `{request.like}`", hint=one_of(FLAVOURS, request.like or "")
        )
    vendors, findings = _vendors(request, flavour)
    lists = [ListAsRead(host, flavour, vendor, _liblist(host, flavour, vendor)) for vendor in vendors]
    cache = read_ldcache(host.driver)
    looked_up: list[Lookup] = []
    if isinstance(cache, LdCache):
        looked_up = [look_up(one, cache) for one in lists]
    else:
        # ldconfig -p fails, and with it everything: programs and plain files are lost, too.
        why = str(cache) if isinstance(cache, Missing) else cache.why
        findings.append(_no_ldcache(flavour, vendors[0], host.driver.root, why))
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
        isolated=SINGULARITY.isolated,
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


def _no_ldcache(flavour: Flavour, vendor: Vendor, root: HostPath, why: str) -> Finding:
    return finding(
        "like-ldcache",
        subject=LD_CACHE_PATH,
        vendor=vendor,
        where=LD_CACHE_PATH,
        program=flavour.program,
        detail=why,
        ldconfig=ldconfig(root),
    )


def _driver(one: ListAsRead) -> PlannedDriver:
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
    """Return the first mount of each target."""
    placed: dict[ContainerPath, Mount] = {}
    for mount in mounts:
        placed.setdefault(mount.target, mount)
    return placed


def _place_decision(bind: ListBind, *, is_taken: bool) -> Decision:
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
    flavour: Flavour, placed: Iterable[tuple[ListBind, Mount]], mounts: Mapping[ContainerPath, Mount]
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


def _fatal_entries(one: ListAsRead) -> Iterator[Finding]:
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


def _sockets(tree: Tree) -> list[ListBind]:
    if not tree.has(PERSISTENCED):
        return []
    path = RootedPath(PERSISTENCED)
    return [ListBind("nvidia", "ipc", PERSISTENCED, path, ContainerPath(path), "socket", PERSISTENCED)]


def _mount(host: Host, bind: ListBind) -> Mount:
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
