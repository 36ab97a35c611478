"""Find what an image requires of a host, without a host. Entry: `read_needs`.

A program that is linked with a driver library does not start without it. A program that opens one by name (dlopen) may
work without it. gpubind inspects the files of the program, or else the frameworks and the libraries that usually open a
driver (data/needs.json).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from posixpath import basename, dirname
from typing import Any, Literal, Optional

from gpubind.errors import FormatError, HostReadError
from gpubind.files import Tree, glob_or_note
from gpubind.files.facts import NAMED_LIBRARIES
from gpubind.formats.driver.gpu_names import CAPS_VARIABLE
from gpubind.formats.driver.names import driver_section, rocm_section
from gpubind.formats.driver.require import first_sufficient_driver, requirements_of
from gpubind.formats.elf.elf import ElfFacts, is_glibc_file, split_library_path
from gpubind.frozen import NamedTuple
from gpubind.image.cuda import (
    directories_for,
    framework_libraries,
    frameworks_in,
    glob_below,
    needed_cuda,
    wheel_directories,
)
from gpubind.image.environment import DEFAULT_PATH
from gpubind.image.facts import Image
from gpubind.image.gpucode import gpu_code_of_program, read_gpu_code, with_code
from gpubind.image.synapse import read_synapse
from gpubind.loader.container import Container
from gpubind.loader.python import is_python
from gpubind.loader.search import newest_version
from gpubind.model import CAPABILITIES, Capability, ImageCuda, ImageFacts, Missing, Vendor
from gpubind.model.cuda import cuda_of_isa, first_native_driver, minor_compatible_driver, version_key
from gpubind.model.data import table
from gpubind.model.gpucode import CodeFile, main_files_by_owner, merge_gpu_code
from gpubind.model.plain import to_json_value
from gpubind.model.rocm import is_rocms, release_with

FILES_LIMIT = 512
"""Limit of inspected files of an image."""
_SITE = "site:"
_SYCLS = re.compile(r"lib(?:sycl|ze_loader|DPCTL\w*|imf|intlc|irng|mkl_sycl\w*|svml)\.so")
"""Libraries of Intel's compiler and of the SYCL runtime."""
NEEDED_BY_CODE: tuple[tuple[Vendor, Callable[[str], object]], ...] = (("amd", is_rocms), ("intel", _SYCLS.match))
"""For each vendor, a function that is true for the name of a library that code for the vendor's GPUs needs."""
LEVEL_ZERO, OPENCL, SYNAPSE = "Level Zero", "OpenCL on Intel's GPUs", "SynapseAI"
"""The interfaces to Intel's GPUs and to Gaudi accelerators."""
_VERSION = re.compile(r"\.so\.([0-9]+(?:\.[0-9]+){1,3})$")
Strength = Literal["linked", "opened"]


class DriverLibrary(NamedTuple):
    """A driver library that files of the image use."""

    name: str
    """`libnvcuvid.so.1`; for a vendor-neutral library, its own name: `libEGL.so.1`."""
    vendor: Literal["nvidia", "amd", "any"]
    """`any` for a vendor-neutral library, which opens that of the host's driver."""
    capability: Capability
    use: Strength
    """`linked`: its users do not start without it; `opened`: they open it by name, and may work without it."""
    versions: tuple[str, ...]
    """The symbol versions that it must define."""
    by: tuple[str, ...]
    """The files that use it."""


class Requirement(NamedTuple):
    """A NVIDIA_REQUIRE_* variable of the image."""

    name: str
    text: str
    driver: Optional[str]
    """The driver that meets it, as do all newer ones, with a GPU of any brand; None if none is known."""
    fault: Optional[str]
    """Why it cannot be parsed."""


class Fabric(NamedTuple):
    """A library for RDMA, or for communication between GPUs and nodes."""

    name: str
    version: Optional[str]
    path: str
    """The file; for a missing library, the file that opens it by name."""
    host: str
    """The parts of the host that it uses."""
    is_there: bool = True
    """Whether the image has it."""


class IntelRuntime(NamedTuple):
    """An interface by which programs use Intel's GPUs."""

    name: str
    """`Level Zero`."""
    by: str
    """A file that uses it, else the driver."""
    driver: Optional[str]
    """The image's driver for Intel's GPUs; None if it has none."""
    release: Optional[str] = None
    """The release of SynapseAI, which the host's kernel driver must match."""


class ImageNeeds(NamedTuple):
    """The requirements of an image on a host."""

    facts: ImageFacts
    program: Optional[str]
    cuda: tuple[ImageCuda, ...]
    """The CUDA of the image and of its GPU code, the newest first."""
    driver: Optional[str]
    """The oldest NVIDIA driver for its newest CUDA, by minor-version compatibility unless the code is only PTX."""
    native: Optional[str]
    """The first driver that serves its newest CUDA without minor-version compatibility."""
    ptx: Optional[str]
    """The first driver that compiles its newest PTX, for GPUs newer than the code; None without PTX."""
    only_ptx: tuple[str, ...]
    """Frameworks and programs without machine code."""
    requires: tuple[Requirement, ...]
    gpu_code: tuple[CodeFile, ...]
    glibc: Optional[str]
    """The newest GLIBC version that inspected files need, `2.34`."""
    libstdcxx: Optional[str]
    """The newest GLIBCXX version that inspected files need, `3.4.30`."""
    libraries: tuple[DriverLibrary, ...]
    missing: tuple[str, ...]
    """Missing libraries that the program needs, without those of a driver."""
    lacking: tuple[tuple[str, str], ...]
    """Missing libraries that libraries of frameworks need, each with the first library that needs it."""
    rocm: Optional[tuple[str, str, str]]
    """The major release of ROCm that a file is linked with, ROCm's library that shows it, and the file."""
    intel: tuple[IntelRuntime, ...]
    fabric: tuple[Fabric, ...]
    unread: tuple[tuple[str, str], ...]
    """Each path that was not inspected, and why."""

    @property
    def capabilities(self) -> tuple[tuple[Capability, bool, str], ...]:
        """Return each used capability of the driver, whether its use is certain, and the evidence."""
        evidence: dict[Capability, tuple[bool, str]] = {}
        facts = self.facts
        if self.cuda or any(code.gpu_code.modules for code in self.gpu_code):
            evidence["compute"] = True, f"CUDA {self.cuda[0].version}" if self.cuda else "GPU code"
        requested = facts.env.get(CAPS_VARIABLE, "")
        for capability in CAPABILITIES:
            if capability in requested.split(","):
                evidence.setdefault(capability, (True, CAPS_VARIABLE))
        for sure in ("linked", "opened"):
            for library in self.libraries:
                if library.use == sure and library.vendor != "amd":
                    evidence.setdefault(library.capability, (sure == "linked", library.name))
        return tuple((capability, *evidence[capability]) for capability in CAPABILITIES if capability in evidence)

    @property
    def because_of_ptx(self) -> str:
        """Return why no older driver suffices: `, as PyTorch has only PTX`; empty for other reasons."""
        verb = "has" if len(self.only_ptx) == 1 else "have"
        return f", as {', '.join(self.only_ptx)} {verb} only PTX" if self.only_ptx else ""

    @property
    def is_for_gpus(self) -> bool:
        """Return whether the image uses a GPU."""
        toolkit = self.cuda or self.facts.rocm or self.facts.rocm_runtime or self.rocm
        return bool(toolkit or self.gpu_code or self.libraries or self.requires or self.intel)

    def to_dict(self) -> dict[str, Any]:
        """Return the members of the document `gpubind.needs/1`."""
        facts = self.facts
        return {
            "image": facts.to_dict(),
            "program": self.program,
            "cuda": to_json_value(self.cuda),
            "driver": {"oldest": self.driver, "native": self.native, "ptx": self.ptx, "only_ptx": list(self.only_ptx)},
            "requires": to_json_value(self.requires),
            "gpu_code": [code_file.to_dict() for code_file in self.gpu_code],
            "glibc": self.glibc,
            "libstdcxx": self.libstdcxx,
            "capabilities": [{"name": name, "sure": sure, "by": by} for name, sure, by in self.capabilities],
            "libraries": to_json_value(self.libraries),
            "missing": list(self.missing),
            "lacking": [{"name": name, "by": by} for name, by in self.lacking],
            "rocm": dict(zip(("release", "library", "by"), self.rocm)) if self.rocm else None,
            "intel": to_json_value(self.intel),
            "fabric": to_json_value(self.fabric),
            "unread": [{"path": path, "why": why} for path, why in self.unread],
        }


class _NeedsCollector:
    def __init__(self, image: Image, tree: Optional[Tree] = None) -> None:
        self.tree: Tree = image.tree if tree is None else tree
        self._find = image.loader.find if image.environment is None else lambda _: None
        self._has_rocm = image.facts.rocm_runtime is not None
        self._has_cuda = bool(image.facts.every_cuda)
        self._uses: dict[tuple[str, Strength], dict[str, None]] = {}
        self._versions: dict[str, dict[str, None]] = {}
        self.needs: list[str] = []
        self.nccl: dict[str, str] = {}
        self.opened: dict[str, str] = {}
        """For each name of a library, the first file that contains the name."""
        self.unread: dict[str, str] = {}
        self._seen: set[str] = set()
        self._rocms: dict[str, str] = {}
        """For each ROCm library, by name, the first file that is linked with it."""

    def inspect(self, path: str) -> None:
        real_path = self.tree.resolve(path)
        if isinstance(real_path, Missing) or real_path in self._seen:
            return
        if len(self._seen) == FILES_LIMIT:
            self.unread.setdefault("/", f"more than {FILES_LIMIT} files may use a driver")
            return
        self._seen.add(real_path)
        elf = self.tree.elf(real_path)
        if not isinstance(elf, Missing):
            self._add_linked(path, elf)
        elif elf.why == "forbidden" or (elf.why == "unreadable" and "not an ELF file" not in elf.detail):
            self.unread[path] = elf.detail or elf.why
        named_libraries = self.tree.fact(real_path, NAMED_LIBRARIES)
        if isinstance(named_libraries, Missing):
            if not isinstance(elf, Missing):
                self.unread[path] = named_libraries.detail or named_libraries.why
            return
        if named_libraries.unread:
            self.unread[path] = named_libraries.unread
        if named_libraries.nccl:
            self.nccl[real_path] = named_libraries.nccl
        for name in named_libraries.names:
            self.opened.setdefault(name, path)
            self.add_use(name, "opened", path)

    def _add_linked(self, path: str, elf: ElfFacts) -> None:
        for name in elf.needed:
            self.add_use(name, "linked", path)
            if is_rocms(name):
                self._rocms.setdefault(name, path)
        for need in elf.version_needs:
            self._versions.setdefault(need.library, {}).update(dict.fromkeys(need.versions))
            if not is_glibc_file(elf.soname or ""):
                self.needs += need.versions

    def add_use(self, name: str, use: Strength, path: str) -> None:
        """Record that the file *path* uses the driver library *name*, unless *name* is that of *path* itself.

        HIP and AMD's OpenCL open libGL for programs that share buffers with it, which does not show that the image
        uses it.
        """
        about = _vendor_and_capability(name)
        is_for_sharing = about is not None and about[0] == "any" and use == "opened" and is_rocms(basename(path))
        if about is not None and not is_for_sharing and not basename(path).startswith(name):
            self._uses.setdefault((name, use), {})[path] = None

    @property
    def libraries(self) -> Iterator[DriverLibrary]:
        """Yield the used driver libraries; those of ROCm only if the image does not have them.

        An image for CUDA works without ROCm's libraries that it opens by name, as Triton does.
        """
        for (name, use), paths in sorted(self._uses.items()):
            about = _vendor_and_capability(name)
            if about is None or (use == "opened" and (name, "linked") in self._uses):
                continue
            vendor, capability = about
            has_own = self._has_rocm or (self._has_cuda and use == "opened")
            if vendor == "amd" and (has_own or self._find(name)):
                continue
            strength: Strength = "opened" if vendor == "any" else use  # it may find another vendor's
            versions = tuple(sorted(self._versions.get(name, ())))
            yield DriverLibrary(name, vendor, capability, strength, versions, tuple(sorted(paths)))

    @property
    def rocm(self) -> Optional[tuple[str, str, str]]:
        """Return the newest ROCm release that a file is linked with, its library, and the file. libamdhip64 is
        preferred.
        """
        releases = ((release, name, path) for name, path in self._rocms.items() if (release := release_with([name])))
        return max(releases, key=lambda row: (version_key(row[0]), row[1].startswith("libamdhip64")), default=None)


def _vendor_and_capability(name: str) -> Optional[tuple[Literal["nvidia", "amd", "any"], Capability]]:
    dispatchers: Mapping[str, Capability] = table("needs")["dispatchers"]
    shared = dispatchers.get(_stem(name))
    if shared is not None:
        return "any", shared
    for vendor, section in (("nvidia", driver_section(name)), ("amd", rocm_section(name))):
        if section in CAPABILITIES:
            return vendor, section  # type: ignore[return-value]
    return None


def read_needs(image: Image, program: Optional[str] = None) -> ImageNeeds:
    """Return what *image*, or *program* in it, requires of a host: a path, or a name in the image's PATH.

    Errors: `HostReadError` (code `program-not-found`) for a program that is missing or does not run.
    """
    facts = image.facts
    collector, places = _NeedsCollector(image), _LibraryPaths(image)
    code: tuple[CodeFile, ...] = ()
    missing: tuple[str, ...] = ()
    is_for_all = program is None
    if program is not None:
        closure, missing, is_for_all = _linked_files(image, program)
        for path in closure:
            collector.inspect(path)
        code = gpu_code_of_program(closure, image.tree)
    if is_for_all:
        code = (*code, *read_gpu_code(image))
        _inspect_image(collector, places)
    for file in code:
        if isinstance(image.tree.list(file.path), Missing):
            collector.inspect(file.path)
    fabric = tuple(_find_fabric(collector, places)) if is_for_all else ()
    intel = tuple(_find_intel(collector, places, code)) if is_for_all else ()
    cuda = with_code(image.tree, facts.every_cuda, code)
    native, oldest = _drivers_of_cuda(needed_cuda(cuda))
    only_ptx = _only_ptx(code)
    compiles = _driver_of_ptx(
        file for name, files in main_files_by_owner(code).items() if name in only_ptx for file in files
    )
    unread = {code_file.path: code_file.gpu_code.unread for code_file in code if code_file.gpu_code.unread}
    return ImageNeeds(
        facts=facts,
        program=program,
        cuda=cuda,
        driver=max(filter(None, (oldest, compiles)), key=version_key, default=None),
        native=native,
        ptx=_driver_of_ptx(code),
        only_ptx=only_ptx,
        requires=tuple(_requirements(facts.env)),
        gpu_code=code,
        glibc=newest_version(collector.needs, "GLIBC"),
        libstdcxx=newest_version(collector.needs, "GLIBCXX"),
        libraries=tuple(collector.libraries),
        missing=missing,
        lacking=tuple(_missing_libraries(image, places.packages, code)) if is_for_all else (),
        rocm=collector.rocm,
        intel=intel,
        fabric=fabric,
        unread=tuple(sorted({**image.tree.unseen, **collector.unread, **unread}.items())),
    )


def find_driver_libraries(image: Image, tree: Tree, program: str, linked: Iterable[str]) -> tuple[DriverLibrary, ...]:
    """Return the driver libraries that the file *program* uses in *tree*, a container of *image*.

    Those of *linked* that usually open a driver are inspected as well.
    """
    collector = _NeedsCollector(image, tree)
    collector.inspect(program)
    patterns = tuple(basename(pattern) for pattern in table("needs")["openers"])
    for path in linked:
        if any(fnmatchcase(basename(path), pattern) for pattern in patterns):
            collector.inspect(path)
    return tuple(collector.libraries)


def opened_by(name: str) -> tuple[str, ...]:
    """Return the soname of *name*, and the NVIDIA libraries that it opens if it is vendor-neutral."""
    return tuple(table("needs")["opens"].get(_stem(name), (name,)))


def _stem(name: str) -> str:
    """Return `libEGL.so` of `libEGL.so.1`."""
    return re.sub(r"\.so\..*", ".so", name)


def _linked_files(image: Image, program: str) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Return the files that *program* loads, itself first; missing libraries; and whether it is an interpreter of
    Python.
    """
    from gpubind.loader.execve import Caller, resolve_named

    container = _container(image)
    machine = Caller(image.facts.arch, modes_count=image.facts.kind == "directory")
    chain = resolve_named(container, program, image.facts.env.get("PATH") or DEFAULT_PATH, machine)
    if chain.file is None or chain.stop is not None:
        why = chain.stop.why if chain.stop is not None else ""
        raise HostReadError("program-not-found", "the program does not run in the image", where=program, why=why)
    closure = container.closure(chain.file.path)
    if closure is None:
        return (chain.file.path,), (), is_python(chain.file)
    missing = (failure.name for failure in closure.missing if _vendor_and_capability(failure.name) is None)
    files = tuple(loaded_object.file.path for loaded_object in closure.objects)
    return files, tuple(sorted(set(missing))), is_python(chain.file)


def _missing_libraries(image: Image, places: tuple[str, ...], code: Iterable[CodeFile]) -> Iterator[tuple[str, str]]:
    """Yield each missing library that a framework, or GPU code for AMD or Intel, needs, and the first file that needs
    it.
    """
    tree = image.tree
    if tree.restarts:
        return
    container = _container(image)
    wheels = [wheel for packages in places for wheel in wheel_directories(tree, packages)]
    missing: dict[str, str] = {}

    def missing_of(path: str, directories: Iterable[str]) -> Iterator[str]:
        failures = container.load_with_directories(path, directories).failures
        return (lib.name for lib in failures if lib.kind == "missing" and _vendor_and_capability(lib.name) is None)

    for framework, packages in frameworks_in(tree, places):
        directories = directories_for(framework, packages, wheels)
        for library in framework_libraries(tree, packages, framework):
            for name in missing_of(library, directories):
                missing.setdefault(name, library)
    directories = (*borrowed_directories(places), *wheels)
    for vendor, is_theirs in NEEDED_BY_CODE:
        for path in (file.path for file in code if vendor in file.gpu_code.vendors):
            for name in filter(is_theirs, missing_of(path, directories)):
                missing.setdefault(name, path)
    yield from sorted(missing.items())


def borrowed_directories(places: Iterable[str]) -> Iterator[str]:
    """Yield the directories in which Python packages in *places* find libraries of other packages."""
    for packages in places:
        yield from (f"{packages}/torch/lib", f"{packages}/dpctl", dirname(dirname(packages)))


def _container(image: Image) -> Container:
    return Container(image.loader, image.tree, (), (), image.facts.env.get("LD_LIBRARY_PATH", ""))


def _inspect_image(collector: _NeedsCollector, places: _LibraryPaths) -> None:
    for pattern in table("needs")["openers"]:
        for path in places.paths_of_pattern(pattern):
            collector.inspect(path)
    for framework, directory in frameworks_in(collector.tree, places.packages):
        code = (path for pattern in framework.code for path in glob_below(collector.tree, directory, pattern))
        for path in (*framework_libraries(collector.tree, directory, framework), *code):
            collector.inspect(path)
    for directory in places.packages:
        for module, library in table("needs")["modules"].items():
            if collector.tree.has(f"{directory}/{module}"):
                collector.add_use(library, "opened", f"{directory}/{module}")


class _LibraryPaths:
    def __init__(self, image: Image) -> None:
        elements = split_library_path(image.facts.env.get("LD_LIBRARY_PATH", ""))
        search_path = (element for element in elements if element.startswith("/"))
        self.tree = image.tree
        directories: Iterable[str] = (*search_path, *image.loader.directories)
        if image.environment is not None:
            directories = (f"{prefix}/lib" for prefix in image.environment.prefixes)
        self.libraries = tuple(dict.fromkeys(directories))
        self.packages = image.packages
        self._is_machine = image.facts.kind == "host"

    def paths_of_pattern(self, pattern: str) -> Iterator[str]:
        """Yield the paths that match *pattern*. It is absolute, or below Python's packages (after `site:`), or below
        library directories.
        """
        if pattern.startswith("/"):
            yield from () if self._is_machine else glob_or_note(self.tree, pattern)
            return
        below = self.packages if pattern.startswith(_SITE) else self.libraries
        for directory in below:
            paths = glob_below(self.tree, directory, pattern.removeprefix(_SITE))
            yield from islice(paths, FILES_LIMIT + 1)  # one more than the limit, so that `inspect` reports it


def read_intel(image: Image, code: Iterable[CodeFile]) -> tuple[IntelRuntime, ...]:
    """Return the interfaces by which *image*, with its GPU *code*, may use Intel's GPUs or Gaudi accelerators."""
    return tuple(_find_intel(_NeedsCollector(image), _LibraryPaths(image), code))


def _find_intel(collector: _NeedsCollector, places: _LibraryPaths, code: Iterable[CodeFile]) -> Iterator[IntelRuntime]:
    """Yield the interfaces to Intel's GPUs, and inspect their users. Files with *code* for Intel's GPUs use Level
    Zero.
    """
    of_code = [file.path for file in code if "intel" in file.gpu_code.vendors]
    for row in table("needs")["intel"]:
        drivers = (path for pattern in row["drivers"] for path in places.paths_of_pattern(pattern))
        users = [path for pattern in row["users"] for path in places.paths_of_pattern(pattern)]
        users += of_code if row["name"] == LEVEL_ZERO else ()
        for path in users:
            collector.inspect(path)
        driver = next(drivers, None)
        by = next(iter(users), driver)
        if by is not None:
            synapse = read_synapse(places.tree, places.packages) if row["name"] == SYNAPSE else None
            yield IntelRuntime(row["name"], by, driver, synapse and synapse.release)


def _find_fabric(collector: _NeedsCollector, places: _LibraryPaths) -> Iterator[Fabric]:
    tree = collector.tree
    for row in table("needs")["fabric"]:
        seen: dict[str, str] = {}
        for pattern in row["files"]:
            for path in places.paths_of_pattern(pattern):
                at = tree.resolve(path)
                if not isinstance(at, Missing):
                    seen.setdefault(at, path)
        for real_path, path in list(seen.items())[:FILES_LIMIT]:
            collector.inspect(path)
            match = _VERSION.search(real_path)
            version = collector.nccl.get(real_path) or (match.group(1) if match else None)
            yield Fabric(row["name"], version, path, row["host"])
        opener = next((collector.opened[name] for name in row["files"] if name in collector.opened), None)
        if not seen and opener is not None:
            yield Fabric(row["name"], None, opener, row["host"], is_there=False)


def _drivers_of_cuda(cuda: Optional[str]) -> tuple[Optional[str], Optional[str]]:
    """Return the first driver for CUDA version *cuda* itself, and the oldest driver that runs programs of that
    version.
    """
    native = first_native_driver(cuda) if cuda else None
    return native, (minor_compatible_driver(cuda) or native) if cuda and native else None


def _only_ptx(code: Iterable[CodeFile]) -> tuple[str, ...]:
    by_owner = {name: merge_gpu_code(files) for name, files in main_files_by_owner(code).items() if files[0].is_main}
    return tuple(name for name, merged in by_owner.items() if merged.isas and not merged.code and not merged.unread)


def _driver_of_ptx(code: Iterable[CodeFile]) -> Optional[str]:
    isas = (isa for file in code for isa in file.gpu_code.isas)
    cuda = max(filter(None, map(cuda_of_isa, isas)), key=version_key, default=None)
    return first_native_driver(cuda) if cuda else None


def _requirements(env: Mapping[str, str]) -> Iterator[Requirement]:
    for name, text in requirements_of(env).items():
        try:
            yield Requirement(name, text, first_sufficient_driver(text), None)
        except FormatError as error:
            yield Requirement(name, text, None, f"{error.why} ({error.place})")
