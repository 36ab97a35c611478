"""Survey a host for a record: a fixed survey, not a trace of one plan.

Every record has listings, links and small texts of each place where a driver, its devices or a site's configuration
may be, so that it also answers later versions of gpubind. `gpubind/recording.py` adds what planning asks in addition.
"""

from __future__ import annotations

import re

from gpubind.files import Tree
from gpubind.files.ldconfig import LD_CACHE_PATH, read_ldcache, read_ldsoconf
from gpubind.formats.driver.nvidia_cli import list_argv
from gpubind.formats.elf.glibc import CONVERTERS, PROGRAMS, is_member
from gpubind.formats.elf.ldcache import LdCache
from gpubind.host.base import MPS_PIPE_DIRECTORY, ROCM_PATH, Host
from gpubind.host.surveyed import CPUINFO, GROUPS, SurveyedHost, SurveyedTree
from gpubind.model import Missing, layouts
from gpubind.model.arch import WITH_DRIVERS

RUN_TIMEOUT_S = 30.0
DEPTH_LIMIT = 8

ROCM_NAME = re.compile(r"lib(amd|hsa|roc|hip|drm|numa|pci|OpenCL|cltrace).*\.so|rocminfo$")
"""Names of libraries and programs that are recorded with all that they need."""
DEPENDENCIES_LIMIT = 500

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
"""Directories of which every name is recorded with facts: sockets, pid files, the driver's file list."""
_TEXTS = (CPUINFO, GROUPS, LD_CACHE_PATH)


BELOW_LIBRARIES = (*layouts.SUBDIRECTORIES, "nvidia/wine", "libglvnd")
"""Below each directory of libraries; the first is that directory itself."""
BELOW_ROCM = (".info", *layouts.ROCM_LIBRARIES, "lib/llvm/lib", "llvm/lib", "bin", "etc/OpenCL/vendors")
PROGRAM_DIRECTORIES = (*layouts.BINARY_DIRECTORIES, "/opt/rocm/bin")
_MULTIARCH_BASES = ("/usr/lib", "/lib", "/run/nvidia/driver/usr/lib")


def library_places(tree: Tree, machine: str) -> tuple[str, ...]:
    """Return the directories of libraries of all architectures: those of the search, and Debian's by their names.

    *machine* is the host's architecture, which may be an unknown one.
    """
    places = [f"/opt/rocm/{name}" for name in layouts.ROCM_LIBRARIES]
    for arch in (*WITH_DRIVERS, machine):
        places += [*layouts.library_directories(arch), *layouts.amdgpu_directories(arch)]
    for base in _MULTIARCH_BASES:
        triplets = [name for name in tree.names(base) if "-linux-gnu" in name]
        places += [f"{base}/{name}{sub}" for name in triplets for sub in ("", "/nvidia", "/nvidia/current")]
    places += [f"{place}/nvidia/xorg" for place in places if place.rpartition("/")[2].endswith("-linux-gnu")]
    return tuple(dict.fromkeys(places))


_MANIFESTS = ("egl", "glvnd", "vulkan", "vulkansc")
_PACKAGED = ("firmware/nvidia", "modprobe.d", "systemd/system", "udev/rules.d")
_SERVICES = ("cdi", "nvidia-fabricmanager", "nvidia-persistenced")
WHOLE_DIRECTORIES = (
    "/dev/nvidia-caps",
    "/dev/nvidia-caps-imex-channels",
    "/dev/dri",
    "/dev/infiniband",
    "/etc/OpenCL",
    "/etc/cdi",
    "/etc/nvidia",
    "/etc/nvidia-container-runtime/host-files-for-container.d",
    "/etc/modprobe.d",
    "/etc/init.d",
    "/etc/ld.so.conf.d",
    "/etc/X11/xorg.conf.d",
    "/opt/amdgpu/share/libdrm",
    "/proc/driver/nvidia",
    "/proc/driver/nvidia-caps",
    "/proc/driver/nvidia-nvswitch",
    "/sys/class/drm",
    "/sys/class/kfd/kfd/topology/nodes",
    "/sys/module/nvidia_drm/parameters",
    "/tmp/nvidia-mps",
    "/usr/lib/nvidia",
    "/usr/lib/systemd/system-sleep",
    "/usr/lib/wsl/drivers",
    "/usr/lib/xorg/modules",
    "/usr/lib64/xorg/modules",
    "/usr/share/X11/xorg.conf.d",
    "/usr/share/dbus-1/system.d",
    "/usr/share/initramfs-tools/hooks",
    "/usr/share/libdrm",
    "/usr/share/nvidia",
    "/.singularity.d/libs",
    *(f"{base}/{name}" for base in ("/etc", "/usr/share", "/usr/local/share") for name in _MANIFESTS),
    *(f"{base}/{name}" for base in ("/lib", "/usr/lib") for name in _PACKAGED),
    *(f"{base}/{name}" for base in ("/run", "/var/run") for name in _SERVICES),
)
"""Directories with all below them; names without a relation to GPUs are recorded without facts."""

SINGLE_PATHS = (
    *(f"/etc/apptainer/{name}.conf" for name in ("apptainer", "nvliblist", "rocmliblist")),
    *(f"/etc/singularity/{name}.conf" for name in ("singularity", "nvliblist", "rocmliblist")),
    "/dev/dxg",
    "/dev/gdrdrv",
    "/dev/kfd",
    "/dev/nvidiactl",
    "/etc/cufile.json",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/nv_tegra_release",
    "/etc/nvidia-imex/nodes_config.cfg",
    "/etc/os-release",
    "/proc/cpuinfo",
    "/proc/devices",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/user/max_user_namespaces",
    "/run/udev",
    *(f"{prefix}/bin/bwrap" for prefix in ("/usr", "/usr/local")),
    *(
        f"{prefix}/{name}/bin/starter-suid"
        for prefix in layouts.STARTER_PREFIXES
        for name in ("apptainer", "singularity")
    ),
    *(
        f"/sys/module/{module}{fact}"
        for module in ("nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_fs", "amdgpu", "nouveau")
        for fact in ("", "/version", "/initstate")
    ),
)


def look_around(host: SurveyedHost) -> None:
    """Ask *host* for all that every record has; a record itself for what it has of that."""
    trees = (host.lenient.driver,) if host.dev is host.driver else (host.lenient.driver, host.lenient.dev)
    for tree in trees:
        assert isinstance(tree, SurveyedTree)
        _Survey(tree).look(host)
    host.run(list_argv(host.driver.root), RUN_TIMEOUT_S)


class _Survey:
    """The survey of one tree."""

    def __init__(self, tree: SurveyedTree) -> None:
        self.tree = tree
        self.listed: dict[str, tuple[str, ...]] = {}

    def look(self, host: Host) -> None:
        for path in SINGLE_PATHS:
            self.tree.look_at(path, text=path in _TEXTS)
        configured = read_ldsoconf(self.tree)
        for path in configured.files:
            self.list(path.rpartition("/")[0] or "/")
            self.tree.look_at(path, text=True)
        cached = self._cached_directories()
        libraries = (*library_places(self.tree, host.uname.machine), *cached, *configured.directories)
        for directory in dict.fromkeys(libraries):
            for sub in BELOW_LIBRARIES:
                self.list(f"{directory.rstrip('/')}/{sub}".rstrip("/") or "/", all_facts=directory != "/" or sub != "")
        on_path = [path for path in host.variable("PATH").split(":") if path.startswith("/")]
        for directory in dict.fromkeys((*PROGRAM_DIRECTORIES, *on_path)):
            self.list(directory)
        self.list("/dev")
        self.list("/dev/char")
        self.list("/etc/apparmor.d")
        self._pci_devices()
        for directory in WHOLE_DIRECTORIES:
            self.walk(directory)
        mps = host.variable(MPS_PIPE_DIRECTORY)
        if mps.startswith("/"):
            self.walk(mps)
        for name in self.tree.names("/sys/class/drm"):
            if re.fullmatch(r"renderD[0-9]+", name):  # which card belongs to it
                self.list(f"/sys/class/drm/{name}/device/drm", all_facts=True)
        releases = [f"/opt/{name}" for name in self.list("/opt") if name.startswith("rocm")]
        asked = host.variable(ROCM_PATH)
        for directory in (*releases, *((asked,) if asked.startswith("/") else ())):
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

    def _pci_devices(self) -> None:
        """Record display controllers (class 0x03) and accelerators (0x12) with kernel driver and DRM nodes."""
        for name in self.list("/sys/bus/pci/devices"):
            base = f"/sys/bus/pci/devices/{name}"
            if (self.tree.text(f"{base}/class") or "").startswith(("0x03", "0x12")):
                for fact in ("class", "vendor", "device"):
                    self.tree.look_at(f"{base}/{fact}", text=True)
                self.tree.look_at(f"{base}/driver")
                self.list(f"{base}/drm", all_facts=True)
            else:
                self.tree.look_at(f"{base}/drm")

    def _dependencies(self) -> None:
        """Record ELF facts of all that ROCm's libraries need, in each directory where it may be found."""
        cache = read_ldcache(self.tree)
        todo = [f"{path.rstrip('/')}/{name}" for path in sorted(self.listed) for name in self.listed[path]]
        todo = [path for path in todo if ROCM_NAME.match(path.rpartition("/")[2])]
        asked: set[str] = set()
        for path in todo:  # grows on the way
            elf = self.tree.elf(path)
            for soname in () if isinstance(elf, Missing) else elf.needed:
                if soname in asked or "/" in soname or len(asked) > DEPENDENCIES_LIMIT:
                    continue
                asked.add(soname)
                places = [f"{there.rstrip('/')}/{soname}" for there, names in self.listed.items() if soname in names]
                if isinstance(cache, LdCache):
                    places += [entry.path for entry in cache.named(soname) if entry.path[:1] == "/"]
                for place in dict.fromkeys(places):
                    self.tree.look_at(place, elf=True)
                    todo.append(place)

    def _glibc(self) -> None:
        """Record ELF facts of the C library, its programs and converters, which a container may use."""
        for directory, names in sorted(self.listed.items()):
            for name in names:
                if is_member(name):
                    self.tree.look_at(f"{directory.rstrip('/')}/{name}", elf=True)
                elif name == CONVERTERS or (name in PROGRAMS and directory.endswith("bin")):
                    self.tree.look_at(f"{directory.rstrip('/')}/{name}")

    def walk(self, directory: str, depth: int = 0) -> None:
        """Record *directory* and everything below it."""
        for name in self.list(directory, all_facts=directory.startswith(_ALL_FACTS)):
            path = f"{directory}/{name}"
            found = self.tree.lstat(path)
            if not isinstance(found, Missing) and found.kind == "dir" and depth < DEPTH_LIMIT:
                self.walk(path, depth + 1)

    def list(self, directory: str, all_facts: bool = False) -> tuple[str, ...]:
        """Record the names in *directory*, with facts of some or of all, and return them."""
        real = self.tree.resolve(directory)
        names = self.tree.names(directory)
        if not isinstance(real, Missing) and names:
            self.listed[real] = names
        for name in names if all_facts else ():
            self.tree.look_at(f"{directory.rstrip('/')}/{name}")
        return names
