"""--like: the rules by which Apptainer 1.4, 1.5 and SingularityCE 4.5 turn their lists into binds.

Sources: Apptainer 1.4.5 `internal/pkg/util/gpu/{paths,nvidia_legacy,rocm}.go`, `internal/pkg/util/paths/resolve.go`;
SingularityCE 4.5 `internal/pkg/util/gpu/paths.go`. Where they go wrong, so does this; see docs/like.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Optional

from gpubind.arch import architecture
from gpubind.errors import UsageError
from gpubind.formats.elf import ElfIdent
from gpubind.formats.ldcache import LdCache
from gpubind.formats.liblist import LibList, ListEntry, library_stem, parse_liblist
from gpubind.host import Host
from gpubind.like.names import APPTAINER, ROCM_APPTAINER, ROCM_SINGULARITY_CE, SINGULARITY_CE
from gpubind.model import (
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
    Verdict,
)
from gpubind.planner.digest import digest
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


def like_plan(host: Host, request: Request) -> Plan:
    """The plan that the flavour `request.like` itself would make on *host*.

    It has no driver version, no GPUs and no device binds: /dev is whole by default there, and the flag adds nothing.
    Errors: `UsageError` for an unknown flavour, `FormatError` for a malformed list file.
    """
    flavour = FLAVOURS.get(request.like or "")
    if flavour is None:
        raise UsageError("unknown-flavour", f"unknown flavour `{request.like}`", hint="known: " + ", ".join(FLAVOURS))
    vendors = request.vendors or ("nvidia",)
    cache = read_ldcache(host.driver)
    decisions: list[Decision] = []
    findings: list[Finding] = []
    if len(vendors) > 1 and not flavour.together:
        what = f"{flavour.program} would bind for --nv alone: of --nv and --rocm it takes the first"
        why = "--nv and --rocm cannot be used together. Only --nv will be applied."
        hint = "ask for one of them; gpubind's own plan, and Apptainer since 1.2.3, serve both"
        findings.append(Finding("like-one-vendor", "warning", "amd", "--rocm", what, None, why, hint))
        vendors = ("nvidia",)
    lists = [(vendor, _liblist(host, flavour, vendor)) for vendor in vendors]
    binds: list[_Bind] = []
    if isinstance(cache, LdCache):
        for vendor, liblist in lists:
            binds += _binds(host, flavour, vendor, liblist, cache, decisions)
    else:
        # ldconfig -p fails, and with it everything: programs and plain files are lost, too.
        what = f"{flavour.program} would bind no driver file: `ldconfig -p` fails on this host"
        why = str(cache) if isinstance(cache, Missing) else cache.why
        hint = "run `ldconfig` as root"
        findings.append(Finding("like-ldcache", "error", vendors[0], LD_CACHE_PATH, what, LD_CACHE_PATH, why, hint))
    if "nvidia" in vendors:
        binds += _sockets(host.dev)

    mounts: dict[ContainerPath, Mount] = {}
    for bind in binds:
        mount = _mount(host, bind)
        there = mounts.setdefault(mount.target, mount)
        verdict: Verdict = "taken" if there is mount else "left-out"
        rule = "liblist" if there is mount else "collision"
        subject = bind.source.rpartition("/")[2] if bind.kind in ("library", "binary") else bind.source
        decisions.append(
            Decision(
                bind.vendor,
                subject,
                verdict,
                rule,
                "place",
                bind.entry,
                bind.at,
                bind.source,
                bind.found_by,
                bind.target,
            )
        )
        # Exact duplicates are dropped, but libraries, programs and plain files are three lists.
        if there is not mount and (there.source, there.kind) != (mount.source, mount.kind):
            what = f"{flavour.program} would stop: {bind.target} is wanted twice"
            why = "already exists in layout" if bind.kind == "library" else "is already in the mount point list"
            where = f"{there.source}, {mount.source}"
            hint = "take one of the two out of the list; gpubind's own plan binds the first and goes on"
            findings.append(Finding("like-collision", "error", bind.vendor, bind.target, what, where, why, hint))
    for vendor, liblist in lists:
        findings += _fatal_entries(host, flavour, vendor, liblist)
    ordered = tuple(sorted(mounts.values(), key=lambda mount: mount.target))
    env = (EnvVar("LD_LIBRARY_PATH", "append", SINGULARITY.libdir, ":", flavour.name),)
    drivers = [
        PlannedDriver(
            Driver(vendor, None, False, None, "linux", None, host.driver.root),
            SourceUsed("liblist", liblist.label),
            (LD_CACHE_PATH, "PATH"),
        )
        for vendor, liblist in lists
    ]
    return Plan(
        request=request._replace(like=flavour.name, vendors=vendors),
        layout=SINGULARITY.name,
        drivers=tuple(drivers),
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


def _liblist(host: Host, flavour: Flavour, vendor: Vendor) -> LibList:
    path = f"{flavour.directory}/{LIST_NAMES[vendor]}"
    data = host.dev.read(path)
    if isinstance(data, Missing):
        return parse_liblist("\n".join(flavour.names[vendor]).encode(), f"the names of {flavour.program}")
    # To those programs a section line is the name of a program that is not there.
    text = b"\n".join(b"" if line.strip().startswith(b"[") else line for line in data.split(b"\n"))
    return parse_liblist(text, path)


def _binds(
    host: Host, flavour: Flavour, vendor: Vendor, liblist: LibList, cache: LdCache, decisions: list[Decision]
) -> Iterator[_Bind]:
    def absent(entry: ListEntry, detail: str, path: Optional[str] = None, rule: str = "no-match") -> None:
        verdict: Verdict = "absent" if rule == "no-match" else "rejected"
        at = liblist.at(entry)
        decisions.append(
            Decision(vendor, entry.text, verdict, rule, "search", entry.text, at, path, None, None, detail)
        )

    tree = host.driver
    seen: set[str] = set()
    for name in _inherited(host, flavour):
        seen.add(name)
        path = RootedPath(f"{NESTED_LIBRARIES}/{name}")
        yield _Bind(vendor, "nested", NESTED_LIBRARIES, path, _library_target(path), "library", NESTED_LIBRARIES)
    for entry in liblist.entries:
        at = liblist.at(entry)
        if entry.kind == "library":
            matched = False
            for cached in cache.matching((entry.text,)):
                # The first of a name counts, whatever its architecture; then only the machine is compared.
                if cached.name in seen:
                    matched = True
                    continue
                seen.add(cached.name)
                path = RootedPath(cached.path)
                if _machine_fits(host, path):
                    matched = True
                    yield _Bind(vendor, entry.text, at, path, _library_target(path), "library", "ld.so.cache")
                else:
                    absent(entry, "ignored: not an ELF file of this machine", path, "wrong-machine")
            if not matched:
                absent(entry, "no name in the ld cache starts with it")
        elif entry.kind == "library-path":
            if not _machine_fits(host, entry.text):
                absent(entry, "ignored: not an ELF file of this machine", entry.text, "wrong-machine")
                continue
            for path in (RootedPath(entry.text), *_links_to(tree, entry.text)):
                yield _Bind(vendor, entry.text, at, path, _library_target(path), "library", entry.text)
        elif entry.kind == "file" and flavour.plain_files:
            if isinstance(tree.stat(entry.text), Missing):
                absent(entry, "it is not there")
            else:
                path = RootedPath(entry.text)
                yield _Bind(vendor, entry.text, at, path, ContainerPath(path), "file", entry.text)
        else:
            found = _look_path(host, entry.text)
            if found is None:
                absent(entry, "no such program in PATH")
            else:
                target = ContainerPath("/usr/bin/" + found.rpartition("/")[2])
                yield _Bind(vendor, entry.text, at, found, target, "binary", "PATH")


def _fatal_entries(host: Host, flavour: Flavour, vendor: Vendor, liblist: LibList) -> Iterator[Finding]:
    """List entries that make the program stop instead of being skipped."""
    for entry in liblist.entries:
        why = detail = None
        if entry.kind == "binary" and "/" in entry.text:
            why, detail = "source must be an absolute path", "where it exists, counted from the current directory"
        elif entry.kind == "file" and flavour.plain_files:
            found = host.driver.stat(entry.text)
            if isinstance(found, Missing) and found.why == "forbidden":
                why, detail = "permission denied", "this user may not look at it"
        if why is not None:
            what = f"{flavour.program} would stop at the list entry `{entry.text}`: {detail}"
            hint = "take the entry out of the list"
            yield Finding("like-entry", "error", vendor, entry.text, what, liblist.at(entry), why, hint)


def _inherited(host: Host, flavour: Flavour) -> tuple[str, ...]:
    names = host.driver.list(NESTED_LIBRARIES) if flavour.inherits else ()
    if isinstance(names, Missing):
        return ()
    stats = ((name, host.driver.lstat(f"{NESTED_LIBRARIES}/{name}")) for name in names)
    return tuple(name for name, found in stats if not isinstance(found, Missing) and found.kind == "file")


def _library_target(path: str) -> ContainerPath:
    return ContainerPath(f"{SINGULARITY.libdir}/{path.rpartition('/')[2]}")


def _machine_fits(host: Host, path: str) -> bool:
    ident = host.driver.ident(path)
    # Only the machine counts; the class is not compared.
    return isinstance(ident, ElfIdent) and ident.machine == architecture(host.uname.machine).machine


def _links_to(tree: Tree, path: str) -> list[RootedPath]:
    """The links beside *path*, of its name up to `.so`, whose full resolution is exactly *path*."""
    directory, _, name = path.rpartition("/")
    names = tree.list(directory or "/")
    links = []
    for other in () if isinstance(names, Missing) else names:
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
    if isinstance(tree.stat(PERSISTENCED), Missing):
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
