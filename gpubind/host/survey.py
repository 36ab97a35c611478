"""Survey a host for a record: a fixed survey, not a trace of one plan.

Each record contains listings, links and small texts of all directories where a driver, its devices or a site's
configuration may be, so that it also answers later versions of gpubind. `gpubind/api/record.py` adds the questions of
planning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from gpubind.files import Tree
from gpubind.files.ldconfig import LD_CACHE_PATH, read_ldcache, read_ldsoconf
from gpubind.files.wsl import driver_stores
from gpubind.formats.driver.engines import ENGINE_PROGRAMS as PROGRAMS_OF_ENGINES
from gpubind.formats.driver.engines import version_command
from gpubind.formats.driver.nvidia import COMPUTE_CAPABILITY_QUERY, GPU_QUERY, list_argv
from gpubind.formats.elf.elf import GCONV_DIRECTORY, PROGRAMS, is_glibc_file
from gpubind.formats.elf.ldcache import LdCache
from gpubind.host.base import MPS_PIPE_DIRECTORY, ROCM_PATH, Host
from gpubind.host.surveyed import CPUINFO, GROUPS, SurveyedHost, SurveyedTree
from gpubind.model import Missing, layouts
from gpubind.model.arch import DRIVER_ARCHITECTURES
from gpubind.model.data import read_data

_RUN_TIMEOUT_S = 30.0
DEPTH_LIMIT = 8

_USERSPACE_NAME = re.compile(
    r"lib(amd|hsa|roc|hip|drm|numa|pci|OpenCL|cltrace|ze_|ig|opencl-clang|xpum).*\.so|(rocminfo|xpu-smi)$"
)
"""Names of libraries and programs that are recorded with all their dependencies."""
_DEPENDENCIES_LIMIT = 500

_TEXTS = (CPUINFO, GROUPS, LD_CACHE_PATH)
_OF_DISPLAYS = ("class", "vendor", "device", "revision", "current_compute_partition", "current_memory_partition")
"""The recorded attributes of a PCI device that is a display controller or an accelerator."""

_BELOW_LIBRARIES = (*layouts.SUBDIRECTORIES, "nvidia/wine", "libglvnd", "intel-opencl")
"""The recorded directories below each library directory; the first is that directory itself."""
_BELOW_ROCM = (
    *(".info", *layouts.ROCM_LIBRARIES, "lib/llvm/lib", "lib/rocm_sysdeps/lib", "llvm/lib", "bin"),
    "etc/OpenCL/vendors",
)
PROGRAM_DIRECTORIES = (*layouts.BINARY_DIRECTORIES, "/opt/rocm/bin")
_MULTIARCH_BASES = ("/usr/lib", "/lib", "/run/nvidia/driver/usr/lib")


def _library_places(tree: Tree, machine: str) -> tuple[str, ...]:
    """Return the library directories of all architectures: those that the search uses, and Debian's multiarch
    directories.

    *machine* is the host's architecture, which may be unknown to gpubind.
    """
    places = [*layouts.CONTAINER_LIBRARIES, *(f"/opt/rocm/{name}" for name in layouts.ROCM_LIBRARIES)]
    for arch in (*DRIVER_ARCHITECTURES, machine):
        places += [*layouts.library_directories(arch), *layouts.amdgpu_directories(arch)]
    for base in _MULTIARCH_BASES:
        triplets = [name for name in tree.names(base) if "-linux-gnu" in name]
        places += [f"{base}/{name}{sub}" for name in triplets for sub in ("", "/nvidia", "/nvidia/current")]
    places += [f"{place}/nvidia/xorg" for place in places if place.rpartition("/")[2].endswith("-linux-gnu")]
    return tuple(dict.fromkeys(places))


def _paths(kind: str) -> tuple[str, ...]:
    """Return the paths of that *kind* in data/survey.json: `/{etc,run}/cdi` is two."""
    patterns = json.loads(read_data("model/data/survey.json"))[kind]
    return tuple(path for pattern in patterns for path in _expand_braces(pattern))


def _expand_braces(pattern: str) -> list[str]:
    head, brace, braced = pattern.partition("{")
    if not brace:
        return [pattern]
    choices, _, tail = braced.partition("}")
    return [head + choice + end for choice in choices.split(",") for end in _expand_braces(tail)]


def _data_directories(libraries: tuple[str, ...]) -> Iterator[str]:
    for place in layouts.DRIVER_DATA_PREFIXES:
        for standard, actual in layouts.data_prefix_pairs(place, libraries):
            yield f"{actual}{place[len(standard) :]}".rstrip("/")


def look_around(host: SurveyedHost) -> None:
    """Query *host* for all facts of the fixed survey. A recorded host answers as far as its record contains them."""
    trees = (host.lenient.driver,) if host.dev is host.driver else (host.lenient.driver, host.lenient.dev)
    for tree in trees:
        assert isinstance(tree, SurveyedTree)
        _Survey(tree).run(host)
    in_windows = (GPU_QUERY, COMPUTE_CAPABILITY_QUERY) if host.lenient.dev.has(layouts.DXG) else ()
    for argv in (list_argv(host.driver.root), *in_windows, *map(version_command, PROGRAMS_OF_ENGINES)):
        host.run(argv, _RUN_TIMEOUT_S)


class _Survey:
    def __init__(self, tree: SurveyedTree) -> None:
        self.tree = tree
        self.listed: dict[str, tuple[str, ...]] = {}
        self._all_facts = _paths("facts")
        """Directories whose names are all recorded with facts: sockets, pid files, the driver's file list."""

    def run(self, host: Host) -> None:
        runtimes = (f"{prefix}/{name}" for prefix in layouts.STARTER_PREFIXES for name in ("apptainer", "singularity"))
        helpers = (f"{directory}/bin/starter-suid" for directory in runtimes)
        for path in (*_paths("single"), *helpers):
            self.tree.look_at(path, text=path in _TEXTS)
        configured = read_ldsoconf(self.tree)
        for path in configured.files:
            self.list(path.rpartition("/")[0] or "/")
            self.tree.look_at(path, text=True)
        cache = read_ldcache(self.tree)
        cached_paths = {entry.path.rpartition("/")[0] for entry in cache} if isinstance(cache, LdCache) else ()
        cached = sorted(path for path in cached_paths if path.startswith("/"))
        known_directories = _library_places(self.tree, host.uname.machine)
        libraries = (*known_directories, *cached, *configured.directories)
        for directory in dict.fromkeys(libraries):
            for sub in _BELOW_LIBRARIES:
                self.list(f"{directory.rstrip('/')}/{sub}".rstrip("/") or "/", all_facts=directory != "/" or sub != "")
        on_path = [path for path in host.variable("PATH").split(":") if path.startswith("/")]
        beside = [place for directory in libraries for place in layouts.program_directories_of(directory)]
        for directory in dict.fromkeys((*PROGRAM_DIRECTORIES, *beside, *on_path)):
            self.list(directory)
        for directory in ("/dev", "/dev/char", "/etc/apparmor.d"):
            self.list(directory)
        self._pci_devices()
        for directory in dict.fromkeys((*_paths("whole"), *_data_directories(known_directories))):
            self.walk(directory)  # names unrelated to GPUs are recorded without facts
        mps = host.variable(MPS_PIPE_DIRECTORY)
        if mps.startswith("/"):
            self.walk(mps)
        for name in self.tree.names("/sys/class/drm"):
            if re.fullmatch(r"renderD[0-9]+", name):  # lists the card of the render node
                self.list(f"/sys/class/drm/{name}/device/drm", all_facts=True)
        releases = [f"/opt/{name}" for name in self.list("/opt") if name.startswith("rocm")]
        releases += [f"/opt/rocm/{name}" for name in self.list("/opt/rocm") if name.startswith("core")]
        rocm_path = host.variable(ROCM_PATH)
        for directory in (*releases, *((rocm_path,) if rocm_path.startswith("/") else ())):
            for sub in _BELOW_ROCM:
                self.list(f"{directory}/{sub}", all_facts=True)
        self.list(layouts.WSL_DRIVERS)
        for store in driver_stores(self.tree).in_use:
            self.list(store)
        self._dependencies()
        self._glibc()

    def _pci_devices(self) -> None:
        """Record display controllers (class 0x03) and accelerators (0x12) with kernel driver and DRM nodes."""
        for name in self.list("/sys/bus/pci/devices"):
            base = f"/sys/bus/pci/devices/{name}"
            if (self.tree.text(f"{base}/class") or "").startswith(("0x03", "0x12")):
                for fact in _OF_DISPLAYS:
                    self.tree.look_at(f"{base}/{fact}", text=True)
                for link in ("driver", "physfn"):
                    self.tree.look_at(f"{base}/{link}")
                for kind in ("drm", "accel", "habanalabs", "infiniband_verbs"):
                    self.list(f"{base}/{kind}", all_facts=True)
            else:
                self.tree.look_at(f"{base}/drm")

    def _dependencies(self) -> None:
        """Record ELF facts of all libraries that user spaces need, in each directory that may hold them."""
        cache = read_ldcache(self.tree)
        todo = [f"{path.rstrip('/')}/{name}" for path in sorted(self.listed) for name in self.listed[path]]
        todo = [path for path in todo if _USERSPACE_NAME.match(path.rpartition("/")[2])]
        seen_sonames: set[str] = set()
        for path in todo:  # grows during the loop
            elf = self.tree.elf(path)
            for soname in () if isinstance(elf, Missing) else elf.needed:
                if soname in seen_sonames or "/" in soname or len(seen_sonames) > _DEPENDENCIES_LIMIT:
                    continue
                seen_sonames.add(soname)
                beside = [directory for directory, names in self.listed.items() if soname in names]
                places = [f"{directory.rstrip('/')}/{soname}" for directory in beside]
                if isinstance(cache, LdCache):
                    places += [entry.path for entry in cache.entries_named(soname) if entry.path[:1] == "/"]
                for place in dict.fromkeys(places):
                    self.tree.look_at(place, elf=True)
                    todo.append(place)

    def _glibc(self) -> None:
        """Record ELF facts of the C library, its programs and converters: with --libc host a container uses them."""
        for directory, names in sorted(self.listed.items()):
            for name in names:
                if is_glibc_file(name):
                    self.tree.look_at(f"{directory.rstrip('/')}/{name}", elf=True)
                elif name == GCONV_DIRECTORY or (name in PROGRAMS and directory.endswith("bin")):
                    self.tree.look_at(f"{directory.rstrip('/')}/{name}")

    def walk(self, directory: str, depth: int = 0) -> None:
        """Record *directory* and everything below it."""
        for name in self.list(directory, all_facts=directory.startswith(self._all_facts)):
            path = f"{directory}/{name}"
            stat = self.tree.lstat(path)
            if not isinstance(stat, Missing) and stat.kind == "dir" and depth < DEPTH_LIMIT:
                self.walk(path, depth + 1)

    def list(self, directory: str, all_facts: bool = False) -> tuple[str, ...]:
        """Record the names in *directory*, with facts of some or of all, and return them."""
        resolved = self.tree.resolve(directory)
        names = self.tree.names(directory)
        if not isinstance(resolved, Missing) and names:
            self.listed[resolved] = names
        for name in names if all_facts else ():
            self.tree.look_at(f"{directory.rstrip('/')}/{name}")
        return names
