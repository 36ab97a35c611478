"""AMD's inventory of a host: what a ROCm program links or opens, all that those libraries need, devices and data.

The list claims the roots: what programs link, and what is opened by name at run time. The rest follows from DT_NEEDED,
as the host's loader resolves it. ROCm is not tied to one kernel driver: no version has to match.
"""

from __future__ import annotations

import re
from typing import Optional

from gpubind.arch import architecture
from gpubind.errors import NothingToBindError
from gpubind.formats.ldcache import LdCache
from gpubind.host import Host, ListFile
from gpubind.model import Decision, Driver, Finding, HostFile, Inventory, Request, RootedPath, SourceUsed
from gpubind.sources import liblist
from gpubind.sources.amd.closure import closure_files
from gpubind.sources.amd.devices import KFD, MODULE, TOPOLOGY, AmdDevices, has_kernel_side, read_devices
from gpubind.sources.amd.rocm import LIBRARY_DIRECTORIES, ROCM_PATH, Rocm, choose_rocm, release_of
from gpubind.sources.layouts import BINARY_DIRECTORIES, library_directories
from gpubind.sources.locate import locate
from gpubind.sources.nodes import driver_kind
from gpubind.sources.search import Search, existing_directories, read_cache

LIST_NAME = "rocmliblist.conf"
OWN = re.compile(r"lib(amd|hsa|roc|hip)")
"""Names of ROCm's own libraries: libdrm and libnuma alone are no ROCm."""


def read_inventory(host: Host, request: Request, listfile: Optional[ListFile] = None) -> Inventory:
    """Everything of ROCm on *host* that *request* may want, and AMD's devices.

    *listfile* overrides the list file in force. Errors: `NothingToBindError` when there is neither a ROCm library nor a
    device; `FormatError` for a malformed list file.
    """
    listfile = listfile or host.liblist(LIST_NAME)
    lists = liblist.read_lists(listfile, LIST_NAME)
    cache, findings, decisions = read_cache(host.driver, "amd")
    rocm = choose_rocm(host, cache)
    search = _search(host, request, cache, rocm)
    claims = liblist.claims(lists.in_force, "liblist", "amd", userspace=True)
    if not listfile.shipped:
        claims += liblist.claims(lists.shipped, "completion", "amd", outside=True, userspace=True)
    located = locate(search, lists.shipped, claims)
    devices = read_devices(host)
    # What a list that is the law names is wanted, whatever it is called.
    has_rocm = not listfile.shipped or any(OWN.match(name) for file in located.libraries for name in file.names)
    has_rocm = has_rocm and bool(located.libraries)
    if not has_rocm and not devices.nodes:
        raise _nothing_to_bind(search)
    decisions += [*located.decisions, *devices.decisions]
    files = (*located.libraries, *located.files)
    if has_rocm:
        needed, needed_decisions = closure_files(search, request, files, rocm)
        files, decisions = (*files, *needed), [*decisions, *needed_decisions]
    else:
        decisions += [_not_rocm(file) for file in files if file.kind != "file"]
        files = tuple(file for file in files if file.kind == "file")
    decisions += [_other_rocm(rocm, other) for other in rocm.others]
    findings += [*_driver_findings(host, devices), *devices.findings]
    if rocm.refused is not None:
        findings.append(_rocm_path(host, rocm))
    return Inventory(
        driver=Driver(
            vendor="amd",
            version=release_of(host.driver, rocm),
            version_assumed=False,
            kernel_version=_kernel(host),
            kind=driver_kind(host),
            cuda_max=None,
            root=host.driver.root,
        ),
        source=SourceUsed("liblist", listfile.label),
        searched=search.searched,
        files=files,
        devices=devices.nodes,
        gpus=devices.gpus,
        decisions=tuple(decisions),
        findings=tuple(findings),
    )


def _search(host: Host, request: Request, cache: Optional[LdCache], rocm: Rocm) -> Search:
    """The search in which the ROCm that serves comes first, and other releases do not count."""
    own = rocm.directories(*LIBRARY_DIRECTORIES)
    here = architecture(host.uname.machine)
    amdgpu = (f"/opt/amdgpu/lib/{here.triplet}", "/opt/amdgpu/lib64")
    places = (*own, *amdgpu, *library_directories(here.name), *request.library_path)
    return Search(
        host,
        cache,
        _existing(host, places),
        first=_existing(host, own),
        others=rocm.others,
        programs=(*rocm.directories("bin"), *BINARY_DIRECTORIES),
    )


def _existing(host: Host, places: tuple[str, ...]) -> tuple[RootedPath, ...]:
    """Libraries of ROCm are not in subdirectories: those of other drivers are left out again."""
    known = existing_directories(host.driver, places)
    return tuple(path for path in known if not path.endswith(("/vdpau", "/gbm")))


def _not_rocm(file: HostFile) -> Decision:
    return Decision(
        vendor="amd",
        subject=file.soname or (file.names[0] if file.names else file.target or file.path),
        verdict="left-out",
        rule="no-rocm",
        step="search",
        named_by=file.named_by,
        named_at=file.named_at,
        path=file.path,
        found_by=file.found_by,
        detail="this host has no ROCm that would need it",
    )


def _other_rocm(rocm: Rocm, other: RootedPath) -> Decision:
    detail = f"{rocm.prefix or 'what the ld cache has'} serves ({rocm.why}); name another with {ROCM_PATH}"
    return Decision(
        vendor="amd", subject=other, verdict="left-out", rule="other-rocm", step="search", path=other, detail=detail
    )


def _kernel(host: Host) -> Optional[str]:
    """The version of amdgpu, of which KFD is a part: AMD's own package says one, the kernel's is the kernel's."""
    text = host.dev.read_text(f"{MODULE}/version")
    if isinstance(text, str) and re.fullmatch(r"[\w.+-]{1,64}", text.strip()):
        return text.strip()
    return f"Linux {host.uname.release}" if has_kernel_side(host) else None


def _driver_findings(host: Host, devices: AmdDevices) -> list[Finding]:
    if has_kernel_side(host) or devices.gpus:
        return []
    finding = Finding(
        code="driver-not-loaded",
        severity="error",
        vendor="amd",
        subject="amdgpu",
        what="AMD's kernel driver amdgpu is not loaded",
        where=f"{MODULE}, {TOPOLOGY}",
        why="programs will say hipErrorNoDevice (100), HSA_STATUS_ERROR_OUT_OF_RESOURCES (0x1008), or that the ROCk "
        "module is not loaded",
        hint="on a GPU node load it, as root; the kernel's log says why it did not load",
        command="modprobe amdgpu",
    )
    return [finding]


def _rocm_path(host: Host, rocm: Rocm) -> Finding:
    serves = rocm.prefix or "the distribution's, if there is one"
    return Finding(
        code="rocm-path",
        severity="warning",
        vendor="amd",
        subject=ROCM_PATH,
        what=f"{ROCM_PATH} names no ROCm here; {serves} serves instead",
        where=f"the environment: {ROCM_PATH}={host.environ.get(ROCM_PATH)}",
        why=rocm.refused,
        hint="name the directory of a release, such as /opt/rocm-6.1.2, or unset the variable",
    )


def _nothing_to_bind(search: Search) -> NothingToBindError:
    entries = "no usable ld.so.cache" if search.cache is None else f"ld.so.cache ({len(search.cache)} entries)"
    return NothingToBindError(
        "nothing-to-bind",
        "no ROCm library and no AMD device on this host",
        where=", ".join((entries, *search.directories, KFD, TOPOLOGY)),
        why="no file matches, and amdgpu is not loaded",
        hint="on a GPU node: load amdgpu, or name ROCm's place with ROCM_PATH or --root; for another host: --host",
    )
