"""A typical host: a branch of NVIDIA's driver and GPUs, made from tables.

`driver:535,gpu:a100x4` is a machine with Debian 13, the newest known driver of branch 535 and four A100. The base of
the system and the ELF facts of driver files are those of the bundled record of driver 550; data/typical.json has the
files of each branch and the GPU models. Nothing of a real machine is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from posixpath import basename, dirname
from typing import Optional

from gpubind.errors import UsageError, suggest_known
from gpubind.files import Tree
from gpubind.formats.elf.elf import ElfFacts, ElfIdent, NotElf, VersionNeed
from gpubind.formats.elf.ldcache import LdCacheEntry, dump_ldcache, parse_ldcache
from gpubind.frozen import NamedTuple
from gpubind.host.base import TYPICAL_EXAMPLE
from gpubind.host.record import Record, RecordedDirectory, RecordedEntry, RecordedRoot, parse_record
from gpubind.host.recorded import RecordedHost, RecordedTree
from gpubind.model import ABSENT, Missing, Stat
from gpubind.model.capability import Modules, chip_of
from gpubind.model.cuda import branch_of, cuda_max, version_key
from gpubind.model.data import read_data, table

_GPU_LIMIT = 16
"""Machines with more GPUs exist, but no typical one."""

_TEMPLATE = "debian13-nvidia550"
_TEMPLATE_VERSION = "550.163.01"
_LIBRARIES = "/usr/lib/x86_64-linux-gnu"
_CACHE = "/etc/ld.so.cache"
_CACHE_FLAGS = 0x0303  # an ELF library of glibc for x86-64
_OF_A_DRIVER = re.compile(
    r"nvidia|^lib(cuda|cudadebugger|nvcuvid|nvoptix)\.so|^_?nv(optix|ngx)"
    r"|rocm|^lib(amd_comgr|amd_smi|amdhip|amdocl|hsa)|^(kfd|card|renderD)"
)
"""Names of the template's drivers, their nodes and the links to them."""
_PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_PROC_GPUS, _PCI_DEVICES = "/proc/driver/nvidia/gpus", "/sys/bus/pci/devices"
_NODES = ("nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools")
_EGL_PLATFORMS = "/usr/share/egl/egl_external_platform.d"
_PLACED = {
    "09_nvidia_wayland2.json": (_EGL_PLATFORMS, "libnvidia-egl-wayland2.so.1"),
    "10_nvidia.json": ("/usr/share/glvnd/egl_vendor.d", "libEGL_nvidia.so.0"),
    "10_nvidia_wayland.json": (_EGL_PLATFORMS, "libnvidia-egl-wayland.so.1"),
    "15_nvidia_gbm.json": (_EGL_PLATFORMS, "libnvidia-egl-gbm.so.1"),
    "20_nvidia_xcb.json": (_EGL_PLATFORMS, "libnvidia-egl-xcb.so.1"),
    "20_nvidia_xlib.json": (_EGL_PLATFORMS, "libnvidia-egl-xlib.so.1"),
    "99_nvidia_wayland2.json": (_EGL_PLATFORMS, "libnvidia-egl-wayland2.so.1"),
    "nvidia_icd.json": ("/usr/share/vulkan/icd.d", "libGLX_nvidia.so.0"),
    "nvidia_layers.json": ("/usr/share/vulkan/implicit_layer.d", "libGLX_nvidia.so.0"),
}
"""The directories of manifests, and the libraries that they name."""
_OWN_NAME = re.compile(
    r"libnvidia-(cbl|compiler|compiler-next|eglcore|fatbinaryloader|glcore|glsi|glvkspirv|gpucomp|gtk[23]|pkcs11"
    r"|pkcs11-openssl3|present|rtcore|tileiras|tls|vulkan-producer|wayland-client)\.so"
)
"""Libraries whose soname has the driver's version."""
_ARGUMENT = re.compile(r"(driver|gpu):(.+)")
_COUNTED = re.compile(r"(.+)x([0-9]{1,2})")
_DIRECTORY = Stat("dir", 0o755, 0, 0, 0)
_LINK = Stat("link", 0o777, 0, 0, 0)
_SHARED_OBJECT = ElfIdent(64, "little", 62, 3)


class _Gpu(NamedTuple):
    device: str
    """PCI device ID, `20b0`."""
    title: str
    number: int


class _TypicalTree(RecordedTree):
    @cached_property
    def lenient(self) -> Tree:
        return self

    def _unrecorded(self, path: str) -> Missing:
        return ABSENT


class TypicalHost(RecordedHost):
    """The host that *text* describes. A path that is not among its files is absent."""

    _tree = _TypicalTree

    def __init__(self, text: str, environ: Optional[Mapping[str, str]] = None) -> None:
        record = _typical_record(text)
        super().__init__(record, text, environ)
        self.typical = record.description


def _typical_record(text: str) -> Record:
    """Return the record of the typical host *text*.

    Errors: `UsageError` (code `bad-typical-host`) for an unknown branch or model, or more than `_GPU_LIMIT` GPUs.
    """
    version, gpus = _parse(text)
    template = parse_record(read_data(f"model/data/hosts/{_TEMPLATE}.json"))
    directories = _Directories(template, version)
    directories.place_driver()
    directories.place_gpus(gpus)
    description = ", ".join((f"driver {version}", *(f"{gpu.number} x {gpu.title}" for gpu in gpus)))
    root = RecordedRoot(template.driver.root, directories.finish())
    return template._replace(driver=root, euid=1000, groups=(1000,), description=description)


def _parse(text: str) -> tuple[str, tuple[_Gpu, ...]]:
    version, gpus = "", []
    for argument in text.split(","):
        match = _ARGUMENT.fullmatch(argument)
        if match is None or (match[1] == "driver" and version):
            raise _wrong(text, f"`{argument}` is neither the driver nor a GPU", f"write it as `{TYPICAL_EXAMPLE}`")
        if match[1] == "driver":
            version = _version(text, match[2])
        else:
            gpus.append(_gpu(text, match[2]))
    if not version or not gpus:
        raise _wrong(text, "a typical host has a driver and at least one GPU", f"write it as `{TYPICAL_EXAMPLE}`")
    if sum(gpu.number for gpu in gpus) > _GPU_LIMIT:
        raise _wrong(text, f"a typical host has at most {_GPU_LIMIT} GPUs", "reduce the numbers after `x`")
    return version, tuple(gpus)


def _version(text: str, value: str) -> str:
    """Return the driver version *value*; if it is a branch, the newest known version of the branch."""
    branch, dot, _ = value.partition(".")
    lists = table("typical")["lists"]
    if branch not in lists or not re.fullmatch(r"[0-9]{3}(\.[0-9]{1,4}){0,2}", value):
        raise _wrong(text, f"the driver `{value}` is unknown", f"name one of the branches {', '.join(lists)}")
    versions = re.findall(rf"\b{branch}(?:\.[0-9]+)+\b", " ".join(lists[branch]))
    newest = max(versions, key=version_key)
    if dot and cuda_max(value) != cuda_max(newest):
        hint = f"name the whole release, as in `driver:{newest}`"
        raise _wrong(text, f"branch {branch} has no release `{value}`", hint)
    return value if dot else newest


def _gpu(text: str, value: str) -> _Gpu:
    models = table("typical")["models"]
    name, count = value.lower(), 1
    counted = _COUNTED.fullmatch(name)
    if name not in models and counted is not None:
        name, count = counted[1], int(counted[2])
    if name not in models or not count:
        raise _wrong(text, f"the GPU `{value}` is unknown", suggest_known(models, name))
    device, title = models[name]
    return _Gpu(device, title, count)


def _wrong(text: str, why: str, hint: str) -> UsageError:
    return UsageError("bad-typical-host", f"there is no typical host `{text}`", why=why, hint=hint)


class _Directories:
    """The directories of the template, without its driver and GPUs. Those of the typical host are added to them."""

    def __init__(self, template: Record, version: str) -> None:
        self._version = version
        branch = branch_of(version)
        spans = {name: [*map(int, re.findall("[0-9]+", span))] for name, span in table("typical")["files"].items()}
        self._has = {name.replace("V", version): span[0] <= branch <= span[-1] for name, span in spans.items()}
        """The driver's files, each with whether the branch has it. A gap is one of the lists, not of the branches."""
        self._listed = template.driver.directories
        self._entries: dict[str, dict[str, RecordedEntry]] = {}
        self._sonames: dict[str, str] = {}
        """The path of each soname in the ld cache."""
        self._facts: dict[str, RecordedEntry] = {}
        """The template's driver files, by name, with the version of the typical host."""
        self._links: set[str] = set()
        """The names of the template's links to driver files."""
        for path, directory in self._listed.items():
            for name, entry in directory.entries.items():
                if _OF_A_DRIVER.search(name) or _OF_A_DRIVER.search(entry.link or ""):
                    if entry.link is not None:
                        self._links.add(name)
                    elif path.startswith(("/usr", "/dev")) and entry.stat != ABSENT:
                        self._facts.setdefault(self._rename(name), self._renamed(entry))
                elif not _OF_A_DRIVER.search(path):
                    self._entries.setdefault(path, {})[name] = entry

    def finish(self) -> dict[str, RecordedDirectory]:
        """Add the ld cache, and return the directories of a record."""
        data = self._entries["/etc"]["ld.so.cache"].body
        kept = [
            entry
            for entry in parse_ldcache(data if isinstance(data, bytes) else b"")
            if not _OF_A_DRIVER.search(basename(entry.path))
        ]
        ours = [LdCacheEntry(name, path, _CACHE_FLAGS, "") for name, path in sorted(self._sonames.items())]
        self._add(_CACHE, _file(dump_ldcache([*ours, *kept])))
        return {
            path: RecordedDirectory(entries, self._listed[path].others if path in self._listed else (), True)
            for path, entries in self._entries.items()
        }

    def place_driver(self) -> None:
        """Add the files of the driver's branch, its programs and its nodes."""
        for name in (name for name, has in self._has.items() if has):
            self._place(name)
        for program in _PROGRAMS:
            self._add(f"/usr/bin/{program}", self._facts[program])
        for node in _NODES:
            self._add(f"/dev/{node}", self._facts[node])
        self._add("/run/nvidia-persistenced/socket", RecordedEntry(Stat("socket", 0o666, 0, 0, 0)))

    def place_gpus(self, gpus: tuple[_Gpu, ...]) -> None:
        """Add the nodes of GPUs, and the files in /proc and /sys about them.

        A GPU that the driver does not support is only on the PCI bus.
        """
        each = [(gpu, chip_of(gpu.device)) for gpu in gpus for _ in range(gpu.number)]
        modules: Modules = "open" if any(chip and chip.modules == "open" for _, chip in each) else "proprietary"
        title = "Open Kernel Module for x86_64" if modules == "open" else "x86_64 Kernel Module"
        self._add_text("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {title}  {self._version}\n")
        self._add_text("/proc/driver/nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileMode: 438\n")
        minor = 0
        for index, (gpu, chip) in enumerate(each):
            address = f"0000:{index + 1:02x}:00.0"
            facts = {"vendor": "0x10de", "device": f"0x{gpu.device}", "class": "0x030200"}
            for name, value in facts.items():
                self._add_text(f"{_PCI_DEVICES}/{address}/{name}", f"{value}\n")
            if chip is None or chip.refusal(self._version, modules) is None:
                self._add_gpu(address, gpu.title, minor)
                minor += 1

    def _add_gpu(self, address: str, title: str, minor: int) -> None:
        uuid = f"GPU-{minor:08x}-0000-0000-0000-000000000000"
        information = {"Model": title, "GPU UUID": uuid, "Bus Location": address, "Device Minor": minor}
        text = "".join(f"{name}: \t {value}\n" for name, value in information.items())
        self._add_text(f"{_PROC_GPUS}/{address}/information", text)
        self._add(f"/dev/nvidia{minor}", _node(195, minor))
        for name, drm_minor in ((f"card{minor}", minor), (f"renderD{128 + minor}", 128 + minor)):
            self._add(f"/dev/dri/{name}", _node(226, drm_minor))
            self._add(f"{_PCI_DEVICES}/{address}/drm/{name}", RecordedEntry(_DIRECTORY))

    def _place(self, name: str) -> None:
        if name in _PLACED:
            directory, library = _PLACED[name]
            self._add_text(
                f"{directory}/{name}", f'{{"file_format_version": "1.0.0", "ICD": {{"library_path": "{library}"}}}}'
            )
        elif name == "nvidia-drm_gbm.so":
            self._add(f"{_LIBRARIES}/gbm/{name}", _link(f"../libnvidia-allocator.so.{self._version}"))
        elif name == "nvidia.icd":
            self._add_text(f"/etc/OpenCL/vendors/{name}", "libnvidia-opencl.so.1\n")
        elif name == "nvoptix.bin":
            self._add(f"/usr/share/nvidia/{name}", self._facts[name])
        elif name.startswith("lib") and _OF_A_DRIVER.search(name) and not name.startswith("libglx"):
            self._place_library(name)

    def _place_library(self, name: str) -> None:
        stem = name.partition(".X")[0]
        if stem != name:
            name = next((known for known in self._facts if known.startswith(f"{stem}.")), f"{stem}.1")
        entry = self._facts.get(name) or _library(name)
        directory = f"{_LIBRARIES}/vdpau" if "vdpau" in name else _LIBRARIES
        self._add(f"{directory}/{name}", entry)
        soname = entry.elf.soname if isinstance(entry.elf, ElfFacts) else None
        if soname is None:
            return
        if directory == _LIBRARIES:
            self._sonames[soname] = f"{directory}/{soname}"
        if soname != name:
            self._add(f"{directory}/{soname}", _link(name))
        unversioned = f"{name.partition('.so')[0]}.so"
        if unversioned in self._links:  # of those libraries whose package has this link
            self._add(f"{directory}/{unversioned}", _link(soname))

    def _add(self, path: str, entry: RecordedEntry) -> None:
        directory, name = dirname(path), basename(path)
        if directory != "/" and name not in self._entries.setdefault(directory, {}):
            self._add(directory, RecordedEntry(_DIRECTORY))
        self._entries[directory][name] = entry

    def _add_text(self, path: str, text: str) -> None:
        self._add(path, _file(text.encode()))

    def _rename(self, text: str) -> str:
        return text.replace(_TEMPLATE_VERSION, self._version)

    def _renamed(self, entry: RecordedEntry) -> RecordedEntry:
        elf = entry.elf
        if not isinstance(elf, ElfFacts):
            return entry
        needed = tuple(name for name in map(self._rename, elf.needed) if self._has.get(name, True))
        return entry._replace(
            elf=elf._replace(
                soname=elf.soname and self._rename(elf.soname),
                needed=needed,
                version_needs=tuple(need._replace(library=self._rename(need.library)) for need in elf.version_needs),
                cuda_note=None,
            )
        )


def _link(target: str) -> RecordedEntry:
    return RecordedEntry(_LINK, link=target)


def _file(body: bytes) -> RecordedEntry:
    return RecordedEntry(Stat("file", 0o644, 0, 0, len(body)), body=body, ident=NotElf("not-elf", "text"))


def _node(major: int, minor: int) -> RecordedEntry:
    return RecordedEntry(Stat("char", 0o666, 0, 0, 0, major, minor))


def _library(name: str) -> RecordedEntry:
    """Return a library of a branch whose files the template does not have."""
    stem, _, version = name.partition(".so.")
    major = version.partition(".")[0]
    soname = name if _OWN_NAME.match(name) else f"{stem}.so.{major if len(major) == 1 else 1}"
    elf = ElfFacts(_SHARED_OBJECT, soname, ("libc.so.6",), version_needs=(VersionNeed("libc.so.6", ("GLIBC_2.2.5",)),))
    return RecordedEntry(Stat("file", 0o644, 0, 0, 1 << 20), ident=_SHARED_OBJECT, elf=elf)
