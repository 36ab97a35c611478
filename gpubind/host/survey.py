"""What `gpubind record` writes down: a fixed survey of a host, not a trace of one plan.

Listings, links and small texts of every place where a driver, its devices or a site's configuration may be, so that a
record answers what later versions of gpubind ask, too. No file bodies but small texts, no user names, no environment
beyond the variables that a plan reads.
"""

from __future__ import annotations

import re
from typing import Optional, Union

from gpubind.formats.elf import ElfIdent
from gpubind.formats.glibc import CONVERTERS, PROGRAMS, is_member
from gpubind.formats.ldcache import LdCache
from gpubind.formats.nvidia_cli import list_argv
from gpubind.formats.record import Record, RecordedDirectory, RecordedEntry, RecordedList, RecordedRoot, RecordedRun
from gpubind.formats.stub import STUBBED
from gpubind.host.base import LIST_FILES, MPS_PIPE_DIRECTORY, ROCM_PATH, Host
from gpubind.host.places import (
    BELOW_LIBRARIES,
    BELOW_ROCM,
    PROGRAM_DIRECTORIES,
    SINGLE_PATHS,
    WHOLE_DIRECTORIES,
    library_places,
)
from gpubind.model import Missing
from gpubind.tree import Tree
from gpubind.tree.ldcache import LD_CACHE_LIMIT, read_ldcache
from gpubind.tree.ldsoconf import read_ldsoconf

RUN_TIMEOUT_S = 30.0
TEXT_LIMIT = 256 << 10
DEPTH_LIMIT = 8
NAMES_LIMIT = 500_000

GPU_NAME = re.compile(
    r"nvidia|cuda|nvcuvid|nvoptix|nvcu|nvrm|nvos|nvsci|nvsoc|nvtegra|nvngx|nv-fabric|^lib(EGL|GL|OpenGL|OpenCL|vdpau)"
    r"|tls_test|gbm|amd|rocm|rocr|hsa|hip|roc|drm|numa|libpci|kfd|comgr|dxcore|mesa|cltrace|mcwamp|hc_am|CXLAct",
    re.IGNORECASE,
)
"""Names of which facts are kept wherever they turn up."""

ROCM_NAME = re.compile(r"lib(amd|hsa|roc|hip|drm|numa|pci|OpenCL|cltrace)|rocminfo$")
"""Of these the facts of all that they need are kept, too."""
DEPENDENCIES_LIMIT = 500

_TEXT_NAME = re.compile(
    r"\.(json|icd|conf|yaml|csv|toml)$"
    r"|^(access|config|devices|gpu_id|information|initstate|mig-minors|modeset|monitor|name|nv_tegra_release"
    r"|os-release|params|properties|registry|version"
    r"|apparmor_restrict_unprivileged_userns|max_user_namespaces|unprivileged_userns_clone)$"
)
_ALL_FACTS = (
    "/etc/cdi",
    "/run/cdi",
    "/var/run/cdi",
    "/proc/",
    "/dev/",
    "/sys/",
    "/run/nvidia-",
    "/var/run/nvidia-",
    "/usr/share/nvidia/files.d",
)
"""Directories in which every name matters, whatever it is: sockets, pid files, the driver's own file list."""
_ELF_NAME = re.compile(r"\.so(\.|$)|^(nvidia|nv-|rocm|amd)")
_HOME = re.compile(r"/root(/|$)|.*/(home|users)(/|$)", re.IGNORECASE)


def survey(host: Host, description: str = "", hostname: Optional[str] = None) -> Record:
    """*host* as a record. *hostname* is kept only if given."""
    driver = _Survey(host.driver)
    dev = driver if host.dev is host.driver else _Survey(host.dev)
    for looked in {id(driver): driver, id(dev): dev}.values():
        looked.look(host)
    runs = []
    for argv in (list_argv(host.driver.root),):
        answer = host.run(argv, RUN_TIMEOUT_S)
        if not isinstance(answer, Missing):
            runs.append(RecordedRun(argv, answer.status, answer.stdout, answer.stderr))
        elif answer.why != "absent":
            runs.append(RecordedRun(argv, missing=answer))
    lists = []
    for name in LIST_FILES:
        file = host.liblist(name)
        if not file.shipped:
            lists.append(RecordedList(name, file.label, file.data.decode("utf-8", "surrogateescape")))
    return Record(
        description=description,
        hostname=hostname,
        driver=RecordedRoot(host.driver.root, driver.recorded()),
        dev=None if dev is driver else RecordedRoot(host.dev.root, dev.recorded()),
        environ={name: kept for name, value in sorted(host.environ.items()) if (kept := _without_homes(value))},
        release=host.uname.release,
        machine=host.uname.machine,
        euid=host.identity.euid,
        groups=host.identity.groups,
        lists=tuple(lists),
        runs=tuple(runs),
    )


def _without_homes(value: str) -> str:
    """*value* without the parts of a search path that lie in somebody's home, and so name them."""
    return ":".join(part for part in value.split(":") if not _HOME.match(part))


_RUNTIME_CONF = re.compile(r"^(apptainer|singularity)\.conf$")
_DIRECTIVES = re.compile(
    rb"^\s*(mount dev|enable overlay|enable underlay|always use nv|always use rocm|user bind control)\s*="
)


def _directives(body: Union[bytes, Missing]) -> Union[bytes, Missing]:
    """The directives of a runtime's configuration that bear on a plan; others may name users and groups."""
    if isinstance(body, Missing):
        return body
    return b"".join(line + b"\n" for line in body.split(b"\n") if _DIRECTIVES.match(line))


def _without_comments(body: Union[bytes, Missing]) -> Union[bytes, Missing]:
    """A configuration file with its comments emptied: they say nothing to a plan, but perhaps too much to a reader."""
    return body if isinstance(body, Missing) else re.sub(rb"(?m)^([ \t]*#).*$", rb"\1", body)


class _Survey:
    """What has been looked at so far in one tree."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.entries: dict[str, dict[str, RecordedEntry]] = {}
        self.others: dict[str, tuple[str, ...]] = {}
        self.listed: dict[str, object] = {}

    def recorded(self) -> dict[str, RecordedDirectory]:
        """The directories, without names that were both listed and looked at."""
        out = {}
        for path in sorted({*self.entries, *self.listed}):
            entries = self.entries.get(path, {})
            others = tuple(name for name in self.others.get(path, ()) if name not in entries)
            out[path] = RecordedDirectory(entries, others, self.listed.get(path, False))  # type: ignore[arg-type]
        return out

    def look(self, host: Host) -> None:
        """The whole survey."""
        for path in SINGLE_PATHS:
            self.note(path)
        configured = read_ldsoconf(self.tree)
        for path in configured.files:
            self.list(path.rpartition("/")[0] or "/")
            self.note(path, text=True)
        cached = self._cached_directories()
        libraries = (*library_places(self.tree, host.uname.machine), *cached, *configured.directories)
        for directory in dict.fromkeys(libraries):
            for sub in BELOW_LIBRARIES:
                self.list(f"{directory.rstrip('/')}/{sub}".rstrip("/") or "/", all_facts=directory != "/" or sub != "")
        on_path = [d for d in host.environ.get("PATH", "").split(":") if d.startswith("/") and not _HOME.match(d)]
        for directory in dict.fromkeys((*PROGRAM_DIRECTORIES, *on_path)):
            self.list(directory)
        self.list("/dev")
        self.list("/dev/char")
        self.list("/etc/apparmor.d")
        self.list("/sys/bus/pci/devices")
        self._pci_devices()
        for directory in WHOLE_DIRECTORIES:
            self.walk(directory)
        mps = host.environ.get(MPS_PIPE_DIRECTORY, "")
        if mps.startswith("/") and not _HOME.match(mps):
            self.walk(mps)
        self._drm_devices()
        releases = self._matching("/opt", "rocm")
        asked = host.environ.get(ROCM_PATH, "")
        if asked.startswith("/") and not _HOME.match(asked):
            releases.append(asked)
        for directory in releases:
            for sub in BELOW_ROCM:
                self.list(f"{directory}/{sub}", all_facts=True)
        self._dependencies()
        self._glibc()

    def _cached_directories(self) -> list[str]:
        cache = read_ldcache(self.tree)
        if not isinstance(cache, LdCache):
            return []
        paths = {entry.path.rpartition("/")[0] for entry in cache}
        return sorted(path for path in paths if path.startswith("/"))

    def _matching(self, directory: str, prefix: str) -> list[str]:
        names = self.list(directory)
        return [f"{directory}/{name}" for name in names if name.startswith(prefix)]

    def _pci_devices(self) -> None:
        """Display controllers (class 0x03) and accelerators (0x12): vendor, class, the kernel driver that has them, and
        their DRM nodes.
        """
        for name in self.tree.names("/sys/bus/pci/devices"):
            base = f"/sys/bus/pci/devices/{name}"
            if (self.tree.text(f"{base}/class") or "").startswith(("0x03", "0x12")):
                for fact in ("class", "vendor", "device"):
                    self.note(f"{base}/{fact}", text=True)
                self.note(f"{base}/driver")
                self.list(f"{base}/drm", all_facts=True)
            else:
                self.note(f"{base}/drm")

    def _drm_devices(self) -> None:
        """Which card goes with which render node."""
        for name in self.tree.names("/sys/class/drm"):
            if re.fullmatch(r"renderD[0-9]+", name):
                self.list(f"/sys/class/drm/{name}/device/drm", all_facts=True)

    def _dependencies(self) -> None:
        """ELF facts of what ROCm's libraries need, wherever it may be found: a closure is made of them."""
        cache = read_ldcache(self.tree)
        todo = [
            (path, name)
            for path, entries in sorted(self.entries.items())
            for name in sorted(entries)
            if ROCM_NAME.match(name)
        ]
        asked: set[str] = set()
        for directory, name in todo:  # grows on the way
            elf = self.entries[directory][name].elf
            needed = () if elf is None or isinstance(elf, Missing) else elf.needed
            for soname in needed:
                if soname in asked or "/" in soname or len(asked) > DEPENDENCIES_LIMIT:
                    continue
                asked.add(soname)
                places = [f"{listed.rstrip('/')}/{soname}" for listed, names in self.others.items() if soname in names]
                if isinstance(cache, LdCache):
                    places += [entry.path for entry in cache.named(soname) if entry.path[:1] == "/"]
                for place in dict.fromkeys(places):
                    self.note(place, elf=True)
                    real = self.tree.resolve(place)
                    if not isinstance(real, Missing):
                        parent, _, base = real.rpartition("/")
                        todo.append((parent or "/", base))

    def _glibc(self) -> None:
        """ELF facts of the C library, its programs and converters: a container may run on them."""
        for directory, names in sorted(self.others.items()):
            for name in names:
                if is_member(name):
                    self.note(f"{directory.rstrip('/')}/{name}", elf=True)
                elif name == CONVERTERS or (name in PROGRAMS and directory.endswith("bin")):
                    self.note(f"{directory.rstrip('/')}/{name}")

    def walk(self, directory: str, depth: int = 0) -> None:
        """*directory* and everything below it."""
        for name in self.list(directory, all_facts=directory.startswith(_ALL_FACTS)):
            path = f"{directory}/{name}"
            found = self.tree.lstat(path)
            if not isinstance(found, Missing) and found.kind == "dir" and depth < DEPTH_LIMIT:
                self.walk(path, depth + 1)

    def list(self, directory: str, all_facts: bool = False) -> tuple[str, ...]:
        """Write down *directory*: its names, and the facts of those that matter."""
        self.note(directory)
        real = self.tree.resolve(directory)
        if isinstance(real, Missing):
            return ()
        names = self.tree.list(real)
        if isinstance(names, Missing):
            if names.why != "absent":
                self.listed[real] = names
            return ()
        if len(names) > NAMES_LIMIT:
            return ()
        self.listed[real] = True
        self.others[real] = names
        for name in names:
            if all_facts or GPU_NAME.search(name):
                self.note(f"{real.rstrip('/')}/{name}")
        return names

    def note(self, path: str, text: bool = False, elf: bool = False) -> None:
        """Write down *path* and everything on the way to what it leads to."""
        for here in self.tree.steps(path):
            parent, _, name = here.rpartition("/")
            entries = self.entries.setdefault(parent or "/", {})
            if name and (name not in entries or text or (elf and entries[name].elf is None)):
                entries[name] = self._entry(here, name, text, elf)

    def _entry(self, path: str, name: str, text: bool, elf: bool = False) -> RecordedEntry:
        found = self.tree.lstat(path)
        if isinstance(found, Missing):
            return RecordedEntry(found)
        if found.kind == "link":
            target = self.tree.readlink(path)
            return RecordedEntry(found, link=target if isinstance(target, str) else "")
        if found.kind != "file":
            return RecordedEntry(found)
        if path == self.tree.resolve("/etc/group"):
            return RecordedEntry(found, body=self._groups())
        if path == self.tree.resolve("/etc/ld.so.cache"):
            return RecordedEntry(found, body=self.tree.read(path, LD_CACHE_LIMIT))
        if text or _TEXT_NAME.search(name) or path.startswith(("/proc/driver/", "/sys/module/")):
            body = self.tree.read(path, TEXT_LIMIT)
            if _RUNTIME_CONF.match(name):
                return RecordedEntry(found, body=_directives(body))
            return RecordedEntry(found, body=_without_comments(body) if name.endswith(".conf") else body)
        if not _ELF_NAME.search(name) and not found.mode & 0o111:
            return RecordedEntry(found)
        ident = self.tree.ident(path)
        is_gpus = GPU_NAME.search(name) or "nvidia" in path
        facts = self.tree.elf(path) if isinstance(ident, ElfIdent) and (is_gpus or elf) else None
        stub = name.startswith(STUBBED) and self.tree.is_stub(path)
        return RecordedEntry(found, ident=ident, elf=facts, stub=stub)

    def _groups(self) -> bytes:
        """The names of the groups that own device nodes, without their members."""
        gids = set()
        for directory in ("/dev", "/dev/dri", "/dev/nvidia-caps"):
            for name in self.tree.names(directory):
                found = self.tree.stat(f"{directory}/{name}")
                if not isinstance(found, Missing) and (GPU_NAME.search(name) or directory != "/dev" or name == "kfd"):
                    gids.add(str(found.gid))
        lines = [line.split(":") for line in (self.tree.text("/etc/group") or "").split("\n")]
        kept = "".join(f"{line[0]}:x:{line[2]}:\n" for line in lines if len(line) > 2 and line[2] in gids)
        return kept.encode("utf-8", "surrogateescape")
