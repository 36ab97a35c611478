"""AMD's inventory of a host: libraries that ROCm programs link or open, their dependencies, devices and data.

The list claims the libraries that programs link, or open by name at run time. Dependencies follow from DT_NEEDED, as
the host's loader resolves it. ROCm is not tied to one kernel driver: no version has to match.

AMD's installers put each release into /opt/rocm-X.Y.Z, and /opt/rocm links to one of them; module systems set
ROCM_PATH. Libraries of two releases are incompatible, so gpubind chooses one release and ignores the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from posixpath import basename, dirname
from typing import Optional, Union

from gpubind.errors import NothingToBindError
from gpubind.files import Tree, glob
from gpubind.formats.elf.ldcache import LdCache
from gpubind.frozen import NamedTuple
from gpubind.host import Host, ListFile
from gpubind.host.base import ROCM_PATH
from gpubind.inventory.amd.devices import KFD, TOPOLOGY, read_devices, read_topology, read_unusable
from gpubind.inventory.claims import Claim
from gpubind.inventory.liblist import read_tables
from gpubind.inventory.locate import locate
from gpubind.inventory.needed import needed_files
from gpubind.inventory.nodes import PCI_DEVICES, Devices, driver_kind, hidden_gpus, hides_some, natural_sort_key
from gpubind.inventory.search import Search, existing_directories, read_cache
from gpubind.model import Decision, Driver, EnvVar, Finding, Inventory, Request, SourceUsed, finding, layouts
from gpubind.model.arch import architecture
from gpubind.model.files import Missing, RootedPath
from gpubind.model.layouts import DXG, ROCM_LIBRARIES
from gpubind.model.vendors import AMD_MODULE

DEFAULT = "/opt/rocm"
RUNTIME = re.compile(r"lib(hsa-runtime64|amdhip64)\.so")
_RELEASE = re.compile(r"[0-9]+(?:\.[0-9]+){1,3}")
LIST_NAME = "rocmliblist.conf"
DXG_LIBRARIES, DXG_VARIABLE = ("librocdxg.so", "libdxcore.so"), "HSA_ENABLE_DXG_DETECTION"
"""The libraries and the variable with which ROCr, since ROCm 7.1, uses GPUs through Windows; containers get the host's.

Source: https://github.com/ROCm/librocdxg, "Container Launch".
"""
_ROCM_NAME = re.compile(r"lib(amd|hsa|roc|hip)")
"""Names of ROCm's own libraries. A host with only libdrm and libnuma has no ROCm."""


class RocmInstallation(NamedTuple):
    """The chosen ROCm."""

    prefix: Optional[RootedPath]
    """Its resolved directory; None for a distribution's packages."""
    why: str
    other_releases: tuple[RootedPath, ...]
    """The directories of other releases."""
    rejection: Optional[str]
    """The reason why ROCM_PATH, although it is set, is not used."""

    def directories(self, *names: str) -> tuple[str, ...]:
        return () if self.prefix is None else tuple(f"{self.prefix}/{name}" for name in names)


def _choose_rocm(host: Host, cache: Optional[LdCache], library_path: Iterable[RootedPath] = ()) -> RocmInstallation:
    """Return the first of these: the ROCm of a directory in *library_path*, ROCM_PATH, the one whose runtime ld.so
    finds first, /opt/rocm, the newest /opt/rocm-*.
    """
    tree, lenient = host.driver, host.driver.lenient  # older records do not cover all patterns
    places = (_release(lenient, path) for pattern in layouts.ROCM_PREFIXES for path in glob(lenient, pattern))
    releases = tuple(dict.fromkeys(path for path in places if isinstance(path, str) and _has_libraries(lenient, path)))

    def chosen(prefix: Optional[RootedPath], why: str) -> RocmInstallation:
        return RocmInstallation(prefix, why, tuple(path for path in releases if path != prefix), rejection)

    rocm_path, rejection = host.variable(ROCM_PATH), None
    for directory in library_path:
        resolved = tree.resolve(directory)
        if isinstance(resolved, Missing) or basename(resolved) not in ROCM_LIBRARIES:
            continue
        if any(map(RUNTIME.match, tree.names(resolved))):
            return chosen(RootedPath(dirname(resolved)), f"--library-path {directory}")
    if rocm_path:
        resolved = _release(tree, rocm_path) if rocm_path.startswith("/") else Missing("absent", "no absolute path")
        if isinstance(resolved, str) and _has_libraries(tree, resolved):
            return chosen(resolved, f"{ROCM_PATH}={rocm_path}")
        no_runtime = "no libhsa-runtime64 and no libamdhip64 in its lib"
        rejection = str(resolved) if isinstance(resolved, Missing) else no_runtime
    for entry in cache.entries_with_prefix(("libhsa-runtime64.so", "libamdhip64.so")) if cache else ():
        resolved = tree.resolve(entry.path) if entry.path.startswith("/") else Missing("absent")
        if isinstance(resolved, str):
            return chosen(next((path for path in releases if resolved.startswith(path + "/")), None), "ld.so.cache")
    default = _release(tree, DEFAULT)
    if default in releases and isinstance(default, str):
        return chosen(default, DEFAULT)
    newest = max(releases, key=natural_sort_key, default=None)
    return chosen(newest, "the newest of /opt/rocm-*" if newest else "none")


def read_release(tree: Tree, rocm: RocmInstallation) -> Optional[str]:
    """Return the release that AMD's packages record, `6.1.2`; None for a distribution's packages."""
    texts = (tree.text(path) or "" for path in rocm.directories(".info/version", ".info/version-rocm"))
    return next((match.group() for match in map(_RELEASE.match, texts) if match), None)


def _release(tree: Tree, path: str) -> Union[RootedPath, Missing]:
    """Return the directory of the release to which *path*, or the library directory in it, resolves."""
    prefix = tree.resolve(path)
    library = Missing("absent") if isinstance(prefix, Missing) else tree.resolve(f"{prefix}/{ROCM_LIBRARIES[0]}")
    if isinstance(library, Missing) or not dirname(library).startswith(f"{prefix}/"):
        return prefix
    return RootedPath(dirname(library))


def _has_libraries(tree: Tree, prefix: str) -> bool:
    return any(RUNTIME.match(name) for directory in ROCM_LIBRARIES for name in tree.names(f"{prefix}/{directory}"))


def read_inventory(host: Host, request: Request, listfile: Optional[ListFile] = None) -> Inventory:
    """Return everything of ROCm on *host* that *request* may need, and AMD's devices.

    *listfile* overrides the list file in force. Errors: `NothingToBindError` without any ROCm library and device;
    `FormatError` for a malformed list file.
    """
    listfile = listfile or host.liblist(LIST_NAME)
    in_force, shipped = read_tables(listfile, LIST_NAME)
    cache, findings, decisions = read_cache(host.driver, "amd")
    rocm = _choose_rocm(host, cache, request.library_path)
    search = _search(host, request, cache, rocm)
    claims = in_force.claims("liblist", "amd", group="rocm")
    if not listfile.shipped:
        claims += shipped.claims("completion", "amd", not_in_list=True, group="rocm")
    bridge = _bridge(host, rocm)
    located = locate(search, shipped, (*claims, *bridge))
    devices = read_devices(host, (DXG,) if bridge else ())
    # A list of a user or site may name any library.
    rocm_files = [file for file in located.libraries if not listfile.shipped or any(map(_ROCM_NAME.match, file.names))]
    if not rocm_files and not devices.nodes:
        raise _nothing_to_bind_error(host, search)
    decisions += [*located.decisions, *devices.decisions]
    files = (*located.libraries, *located.files)
    if rocm_files:
        needed, needed_decisions = needed_files(search, request, files, "amd", "rocm")
        files, decisions = (*files, *needed), [*decisions, *needed_decisions]
    else:
        why = "this host has no ROCm that would need it"
        others = [file for file in files if file.kind != "file"]
        decisions += [file.decision(file.name, "left-out", "no-rocm", "search", detail=why) for file in others]
        files = tuple(file for file in files if file.kind == "file")
    detail = f"{rocm.prefix or 'what the ld cache has'} serves ({rocm.why}); name another with {ROCM_PATH}"
    for other in rocm.other_releases:
        decisions.append(Decision("amd", other, "left-out", "other-rocm", "search", path=other, detail=detail))
    release = read_release(host.driver, rocm)
    return Inventory(
        driver=Driver("amd", release, False, _kernel(host), driver_kind(host), None, host.driver.root),
        source=SourceUsed("liblist", listfile.label),
        searched=search.searched,
        files=files,
        devices=devices.nodes,
        gpus=devices.gpus,
        decisions=tuple(decisions),
        findings=(*findings, *_findings(host, devices, rocm)),
        hides_gpus=bool(read_topology(host).hidden) or hides_some(devices),
        hidden_gpu_indexes=hidden_gpus(devices),
        forbidden=devices.forbidden,
        env=(EnvVar(DXG_VARIABLE, "default", "1", None, "rocdxg"),) if bridge else (),
    )


def _nothing_to_bind_error(host: Host, search: Search) -> NothingToBindError:
    missing = "install ROCm with librocdxg" if host.dev.has(DXG) else "load amdgpu"
    gpus = [f"{address} ({why.replace('-', ' ')})" for address, _, why in read_unusable(host)]
    absence = "amdgpu has no GPU" if host.dev.has(AMD_MODULE) else "amdgpu is not loaded"
    absence += f"; on the PCI bus: {', '.join(gpus)}" if gpus else ""
    return NothingToBindError(
        "nothing-to-bind",
        "no ROCm library and no AMD device on this host",
        where=", ".join((*search.search_summary, KFD, TOPOLOGY)),
        why=f"no file matches, and {absence}",
        hint=f"with AMD's GPUs: {missing}, or name ROCm's place with ROCM_PATH or --root",
    )


def _bridge(host: Host, rocm: RocmInstallation) -> tuple[Claim, ...]:
    """Return the claims on ROCm's libraries for GPUs through Windows (WSL); none elsewhere."""
    places = rocm.directories(*ROCM_LIBRARIES) if host.dev.has(DXG) else ()
    if not any(name.startswith(DXG_LIBRARIES[0]) for place in places for name in host.driver.lenient.names(place)):
        return ()
    return tuple(Claim("library", name, "driver", DXG, "amd") for name in DXG_LIBRARIES)


def _search(host: Host, request: Request, cache: Optional[LdCache], rocm: RocmInstallation) -> Search:
    """Return the search. The chosen ROCm comes first, and candidates of other releases are rejected."""
    arch = architecture(host.uname.machine).name
    preferred = (*rocm.directories(*ROCM_LIBRARIES), *layouts.CONTAINER_LIBRARIES)
    others = (f"{release}/{name}" for release in rocm.other_releases for name in ROCM_LIBRARIES)
    known = (*preferred, *layouts.amdgpu_directories(arch), *layouts.library_directories(arch), *others)
    directories = existing_directories(host.driver.lenient, known, below=("",))
    return Search(
        host,
        cache,
        (*directories, *existing_directories(host.driver, request.library_path, below=("",))),
        first=existing_directories(host.driver, preferred, below=("",)),
        others=rocm.other_releases,
        programs=(*rocm.directories("bin"), *layouts.BINARY_DIRECTORIES),
    )


def _kernel(host: Host) -> Optional[str]:
    """Return the version of amdgpu, which includes KFD: that of AMD's package, else the kernel's."""
    version = host.dev.text(f"{AMD_MODULE}/version") or ""
    if re.fullmatch(r"[\w.+-]{1,64}", version):
        return version
    return f"Linux {host.uname.release}" if host.dev.has(AMD_MODULE) else None


def _findings(host: Host, devices: Devices, rocm: RocmInstallation) -> Iterator[Finding]:
    if not host.dev.has(AMD_MODULE) and not devices.gpus and all(node.target != DXG for node in devices.nodes):
        unusable = (f"{PCI_DEVICES}/{address}" for address, _, _ in read_unusable(host))
        where = ", ".join((AMD_MODULE, TOPOLOGY, *unusable))
        yield finding("driver-not-loaded", case="amd", subject="amdgpu", where=where)
    yield from devices.findings
    if rocm.rejection is not None:
        where = f"the environment: {ROCM_PATH}={host.variable(ROCM_PATH)}"
        serves = rocm.prefix or "the distribution's, if there is one"
        yield finding("rocm-path", subject=ROCM_PATH, where=where, serves=serves, why=rocm.rejection)
