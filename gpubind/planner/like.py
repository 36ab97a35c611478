"""--like: plan as Apptainer's and SingularityCE's own --nv and --rocm bind, mistakes included; see docs/like.md.

This module bypasses the planner, and reads the host itself.

Sources: Apptainer 1.4.5 and its main branch of 2026-08-18 (1.6) `internal/pkg/util/gpu/{paths,nvidia_legacy,rocm}.go`,
`internal/pkg/util/paths/resolve.go`; SingularityCE 4.5 `internal/pkg/util/gpu/paths.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpubind.errors import UsageError, suggest_known
from gpubind.files.ldconfig import LD_CACHE_PATH, matching, read_ldcache
from gpubind.formats.driver.liblist import LibList, ListEntry, library_stem, parse_liblist
from gpubind.formats.elf.elf import ElfIdent
from gpubind.formats.elf.ldcache import LdCache
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.inventory.claims import Claim
from gpubind.inventory.search import ldconfig_command
from gpubind.model import CAPABILITIES, Decision, Driver, EnvVar, Finding, Mount, SourceUsed, Vendor, layouts
from gpubind.model.arch import I386, Architecture, architecture
from gpubind.model.data import table
from gpubind.model.digest import plan_digest
from gpubind.model.files import ContainerPath, HostPath, Missing, RootedPath
from gpubind.model.findings import finding
from gpubind.model.host import READ_ONLY_OPTIONS, FileRole, Verdict
from gpubind.model.plan import Plan, PlannedDriver, Request
from gpubind.model.vendors import VENDOR_ROWS
from gpubind.planner.placement import SINGULARITY_LAYOUT
from gpubind.planner.plan import empty_plan

_PERSISTENCED_SOCKET = "/var/run/nvidia-persistenced/socket"
_LIBRARIES32 = ContainerPath(layouts.APPTAINER_LIBRARIES32)
VENDORS: tuple[Vendor, ...] = ("nvidia", "amd")
"""Vendors for which these programs have a flag."""


class RuntimeFlavour(NamedTuple):
    """The rules by which one release of a program reads its lists."""

    name: str
    program: str
    family: str
    """The directory of its list files below /etc, and the key of its shipped names in data/like.json."""
    matches_class: bool = False
    """Whether it takes, of each name in the ld cache, the first library whose machine and class (32 or 64 bits) fit;
    --compat32 then adds 32-bit libraries. Otherwise it considers only the first library of a name, and takes that if
    its machine fits.
    """

    @property
    def is_apptainers(self) -> bool:
        """Whether both vendors' flags work together (else NVIDIA's takes precedence), libraries of a surrounding
        container come first, and an absolute entry without `.so` is a file at its own path (else a program).
        """
        return self.family == "apptainer"


FLAVOURS = {
    "apptainer": RuntimeFlavour("apptainer-1.4", "Apptainer 1.4", "apptainer"),
    "apptainer-1.4": RuntimeFlavour("apptainer-1.4", "Apptainer 1.4", "apptainer"),
    "apptainer-1.5": RuntimeFlavour("apptainer-1.5", "Apptainer 1.5", "apptainer"),
    "apptainer-1.6": RuntimeFlavour("apptainer-1.6", "Apptainer 1.6", "apptainer", matches_class=True),
    "singularity": RuntimeFlavour("singularity", "SingularityCE 4.5", "singularity"),
}


def parse_flavour(request: Request) -> RuntimeFlavour:
    """Return the requested flavour. Errors: `UsageError` (code `unknown-flavour`)."""
    flavour = FLAVOURS.get(request.like or "")
    if flavour is None:
        hint = suggest_known(FLAVOURS, request.like or "")
        raise UsageError("unknown-flavour", f"unknown flavour `{request.like}`", hint=hint)
    return flavour


def ignored_fields(request: Request) -> Iterator[str]:
    """Yield the set fields that the requested flavour ignores. Errors: as `parse_flavour`."""
    flavour, caps = parse_flavour(request), request.caps or ()
    used_fields = {"vendors", "like"}
    if flavour.matches_class and (set(caps) in ({"compat32"}, {*CAPABILITIES}) or "all" in caps):
        used_fields.add("caps")
    for field, default in Request._field_defaults.items():
        if field not in used_fields and getattr(request, field) != default:
            yield field


def shipped_names(flavour: RuntimeFlavour, vendor: Vendor) -> list[str]:
    """Return the names in the list file that the program of *flavour* ships."""
    data = table("like")
    added = data["added"].get(flavour.name, {})
    names: list[str] = data["names"][flavour.family][vendor] + added.get(vendor, [])
    return names


class _LibraryClass(NamedTuple):
    arch: Architecture
    directory: ContainerPath
    is_additional: bool = False
    """Whether the machine's own libraries come first: then a missing one needs no Decision."""


class _Bind(NamedTuple):
    claim: Claim
    """The claim of the list entry that names it."""
    source: RootedPath
    """The path that the program uses, often a link."""
    target: ContainerPath
    kind: FileRole
    found_by: str


def plan_builtin_flags(host: Host, request: Request) -> Plan:
    """Return the plan that the flavour `request.like` itself would make on *host*.

    The plan has no driver version, GPUs or device binds: by default the container has the host's /dev.
    Errors: `UsageError` for an unknown flavour, and for a vendor without a flag; `FormatError` for a malformed list.
    """
    flavour = parse_flavour(request)
    vendors, findings = _vendors(flavour, request)
    lists = [_List(host, flavour, vendor) for vendor in vendors]
    cache = read_ldcache(host.driver)
    arch = architecture(host.uname.machine)
    library_classes = [_LibraryClass(arch, SINGULARITY_LAYOUT.libdir)]
    if flavour.matches_class and "compat32" in (request.caps or ()) and arch.compat32 == I386.name:
        library_classes.append(_LibraryClass(I386, _LIBRARIES32, is_additional=True))
    if isinstance(cache, LdCache):
        for list_file in lists:
            list_file.look_up(cache, library_classes)
    else:
        findings.append(_no_ldcache(flavour, vendors[0], host, str(cache) if isinstance(cache, Missing) else cache.why))
    binds = [bind for list_file in lists for bind in list_file.binds]
    if "nvidia" in vendors and host.dev.has(_PERSISTENCED_SOCKET):
        socket = RootedPath(_PERSISTENCED_SOCKET)
        claim = Claim("path", _PERSISTENCED_SOCKET, "ipc", _PERSISTENCED_SOCKET)
        binds.append(_Bind(claim, socket, ContainerPath(socket), "socket", _PERSISTENCED_SOCKET))
    mounts: dict[ContainerPath, Mount] = {}
    decisions = [decision for list_file in lists for decision in list_file.decisions]
    for bind in binds:
        mount = _mount(host, bind)
        first_mount = mounts.setdefault(mount.target, mount)
        decisions.append(_place_decision(bind, is_taken=first_mount is mount))
        # The program drops exact duplicates, but only within its lists of libraries, of programs and of plain files.
        if (first_mount.source, first_mount.kind) != (mount.source, mount.kind):
            findings.append(_collision(flavour, first_mount, mount))
    findings += [entry_finding for list_file in lists for entry_finding in list_file.fatal_entries()]
    ordered = tuple(sorted(mounts.values(), key=lambda mount: mount.target))
    has_32 = any(target.startswith(f"{_LIBRARIES32}/") for target in mounts)
    libdirs = (SINGULARITY_LAYOUT.libdir, _LIBRARIES32) if has_32 else (SINGULARITY_LAYOUT.libdir,)
    env = tuple(EnvVar("LD_LIBRARY_PATH", "append", directory, ":", flavour.name) for directory in libdirs)
    return empty_plan(SINGULARITY_LAYOUT)._replace(
        request=request._replace(like=flavour.name, vendors=vendors),
        drivers=tuple(list_file.driver for list_file in lists),
        libdir32=_LIBRARIES32 if has_32 else None,
        mounts=ordered,
        env=env,
        decisions=tuple(sorted(decisions, key=lambda d: (d.subject, d.verdict, d.path or "", d.named_at or ""))),
        findings=tuple(findings),
        digest=plan_digest(ordered, (), env),
    )


def _vendors(flavour: RuntimeFlavour, request: Request) -> tuple[tuple[Vendor, ...], list[Finding]]:
    """Return the vendors that *flavour* plans, and a finding if *request* has more. Errors: `UsageError`."""
    for vendor in request.vendors:
        if vendor not in VENDORS:
            message = f"{flavour.program} has no flag for the GPUs of vendor `{vendor}`"
            raise UsageError("like-without-flag", message, hint="leave --like out, or ask for NVIDIA's or AMD's")
    if len(request.vendors) > 1 and not flavour.is_apptainers:
        return VENDORS[:1], [finding("like-one-vendor", subject="--rocm", program=flavour.program)]
    return request.vendors or VENDORS[:1], []


class _List:
    def __init__(self, host: Host, flavour: RuntimeFlavour, vendor: Vendor) -> None:
        self.host = host
        self.tree = host.driver
        self.flavour = flavour
        self.vendor = vendor
        self.liblist = _read_list(host, flavour, vendor)
        self.binds: list[_Bind] = []
        self.decisions: list[Decision] = []

    @property
    def driver(self) -> PlannedDriver:
        driver = Driver(self.vendor, None, False, None, "linux", None, self.tree.root)
        return PlannedDriver(driver, SourceUsed("liblist", self.liblist.label), (LD_CACHE_PATH, "PATH"))

    def look_up(self, cache: LdCache, library_classes: Iterable[_LibraryClass]) -> None:
        """Find the files of the entries. Each name in *cache* belongs to the first entry that matches, once for each
        class.
        """
        for library_class in library_classes:
            self._bind_class(cache, library_class)
        for entry in self.liblist.entries:
            claim, path = self._claim(entry), RootedPath(entry.text)
            if entry.kind in ("library", "library-path"):
                continue
            if entry.kind == "binary" or not self.flavour.is_apptainers:
                self._bind_program(claim)
            elif self.tree.has(path):
                self.binds.append(_Bind(claim, path, ContainerPath(path), "file", path))
            else:
                self.decisions.append(claim.absent("it is not there"))

    def _claim(self, entry: ListEntry) -> Claim:
        return Claim("path", entry.text, entry.text, self.liblist.location(entry), self.vendor)

    def _bind_class(self, cache: LdCache, library_class: _LibraryClass) -> None:
        seen = set(self._nested_libraries(library_class))
        for entry in self.liblist.entries:
            claim, path = self._claim(entry), RootedPath(entry.text)
            if entry.kind == "library":
                self._bind_cached(claim, cache, seen, library_class)
            elif entry.kind == "library-path" and self._fits(path, library_class):
                self._bind_libraries(claim, (path, *self._links_to(path)), path, library_class)
            elif entry.kind == "library-path" and not library_class.is_additional:
                self._reject(claim, path)

    def fatal_entries(self) -> Iterator[Finding]:
        """Yield a finding for each entry that stops the program."""
        for entry in self.liblist.entries:
            case = None
            if entry.kind == "binary" and "/" in entry.text:
                case = "relative"
            elif entry.kind == "file" and self.flavour.is_apptainers:
                file_stat = self.tree.stat(entry.text)
                case = "forbidden" if isinstance(file_stat, Missing) and file_stat.why == "forbidden" else None
            if case is not None:
                subject, at, program = entry.text, self.liblist.location(entry), self.flavour.program
                yield finding("like-entry", subject=subject, case=case, vendor=self.vendor, where=at, program=program)

    def _nested_libraries(self, library_class: _LibraryClass) -> Iterator[str]:
        """Bind the libraries of a surrounding container, and yield their names."""
        around = library_class.directory
        claim = Claim("path", around, "nested", around, self.vendor)
        for name in self.tree.names(around) if self.flavour.is_apptainers else ():
            path = RootedPath(f"{around}/{name}")
            file_stat = self.tree.lstat(path)
            if not isinstance(file_stat, Missing) and file_stat.kind == "file":
                self._bind_libraries(claim, (path,), around, library_class)
                yield name

    def _bind_cached(self, claim: Claim, cache: LdCache, seen: set[str], library_class: _LibraryClass) -> None:
        """Bind the first fitting library of each name in *cache* that is not *seen* and begins with *claim*'s."""
        fresh: dict[str, list[RootedPath]] = {}
        is_named = False
        for cached in matching(cache, (claim.name,)):
            is_named = True
            if cached.name not in seen:
                fresh.setdefault(cached.name, []).append(RootedPath(cached.path))
        seen.update(fresh)
        for paths in fresh.values():
            candidates = paths if self.flavour.matches_class else paths[:1]
            fitting = next((path for path in candidates if self._fits(path, library_class)), None)
            if fitting is not None:
                self._bind_libraries(claim, (fitting,), "ld.so.cache", library_class)
            for path in candidates if fitting is None and not library_class.is_additional else ():
                self._reject(claim, path)
        if not is_named and not library_class.is_additional:
            self.decisions.append(claim.absent("no name in the ld cache starts with it"))

    def _bind_program(self, claim: Claim) -> None:
        """Bind the program that Go's exec.LookPath finds for *claim*: the first executable of that name in PATH, or a
        path.
        """
        path = self.host.variable("PATH").split(":")
        directories = [directory.rstrip("/") for directory in path if directory.startswith("/")]
        candidates = [f"{directory}/{claim.name}" for directory in directories]
        if "/" in claim.name:
            candidates = [claim.name] if claim.name.startswith("/") else []
        for candidate in candidates:
            file_stat = self.tree.stat(candidate)
            if not isinstance(file_stat, Missing) and file_stat.kind == "file" and file_stat.mode & 0o111:
                target = ContainerPath("/usr/bin/" + candidate.rpartition("/")[2])
                self.binds.append(_Bind(claim, RootedPath(candidate), target, "binary", "PATH"))
                return
        self.decisions.append(claim.absent("no such program in PATH"))

    def _bind_libraries(
        self, claim: Claim, paths: Iterable[RootedPath], found_by: str, library_class: _LibraryClass
    ) -> None:
        for path in paths:
            target = ContainerPath(f"{library_class.directory}/{path.rpartition('/')[2]}")
            self.binds.append(_Bind(claim, path, target, "library", found_by))

    def _reject(self, claim: Claim, path: str) -> None:
        self.decisions.append(claim.rejected("wrong-machine", "ignored: not an ELF file of this machine", path))

    def _fits(self, path: str, library_class: _LibraryClass) -> bool:
        ident, arch = self.tree.ident(path), library_class.arch
        if not isinstance(ident, ElfIdent) or ident.machine != arch.elf_machine:
            return False
        return ident.bits == arch.bits or not self.flavour.matches_class

    def _links_to(self, path: str) -> Iterator[RootedPath]:
        """Yield links next to *path* that begin with its name up to `.so` and resolve to exactly *path*."""
        directory, _, name = path.rpartition("/")
        for link_name in self.tree.names(directory or "/"):
            link = f"{directory}/{link_name}"
            file_stat = self.tree.lstat(link)
            is_link = not isinstance(file_stat, Missing) and file_stat.kind == "link"
            if is_link and link_name.startswith(library_stem(name)) and self.tree.resolve(link) == path:
                yield RootedPath(link)


def _read_list(host: Host, flavour: RuntimeFlavour, vendor: Vendor) -> LibList:
    path = f"/etc/{flavour.family}/{VENDOR_ROWS[vendor].list_name}"
    data = host.dev.read(path)
    if isinstance(data, Missing):
        return parse_liblist("\n".join(shipped_names(flavour, vendor)).encode(), f"the names of {flavour.program}")
    # These programs read a section line as the name of a program, which does not exist.
    text = b"\n".join(b"" if line.strip().startswith(b"[") else line for line in data.split(b"\n"))
    return parse_liblist(text, path)


def _no_ldcache(flavour: RuntimeFlavour, vendor: Vendor, host: Host, why: str) -> Finding:
    """Return the finding that `ldconfig -p` fails: the program then binds neither libraries, programs nor files."""
    return finding(
        "like-ldcache",
        subject=LD_CACHE_PATH,
        vendor=vendor,
        where=LD_CACHE_PATH,
        program=flavour.program,
        detail=why,
        ldconfig=ldconfig_command(host.driver.root),
    )


def _collision(flavour: RuntimeFlavour, first_mount: Mount, mount: Mount) -> Finding:
    where = f"{first_mount.source}, {mount.source}"
    case, program = "library" if mount.kind == "library" else "other", flavour.program
    return finding("like-collision", subject=mount.target, case=case, vendor=mount.vendor, where=where, program=program)


def _place_decision(bind: _Bind, *, is_taken: bool) -> Decision:
    subject = bind.source.rpartition("/")[2] if bind.kind in ("library", "binary") else bind.source
    verdict: Verdict = "taken" if is_taken else "left-out"
    rule = "liblist" if is_taken else "collision"
    decision = bind.claim.decision(verdict, rule, None, path=bind.source, found_by=bind.found_by, subject=subject)
    return decision._replace(step="place", target=bind.target)


def _mount(host: Host, bind: _Bind) -> Mount:
    tree = host.dev if bind.kind == "socket" else host.driver
    file_stat = tree.stat(bind.source)
    return Mount(
        vendor=bind.claim.vendor,
        source=HostPath(tree.root.rstrip("/") + bind.source),
        content=None,
        target=bind.target,
        kind=bind.kind,
        arch=None,
        soname=None,
        version=None,
        capability=None,
        options=("nosuid", "nodev") if bind.kind == "socket" else READ_ONLY_OPTIONS,
        required=False,
        size=0 if isinstance(file_stat, Missing) else file_stat.size,
        rule="like",
    )
