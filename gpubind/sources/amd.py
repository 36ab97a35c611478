"""AMD's inventory of a host: what a ROCm program links or opens, all that those libraries need, devices and data.

The list names the roots: what programs link, and what is opened by name at run time. The rest follows from DT_NEEDED,
as the host's loader resolves it. ROCm is not tied to one kernel driver: no version has to match.
"""

from __future__ import annotations

import re
from typing import Optional

from gpubind.errors import NothingToBindError
from gpubind.formats.elf import ElfIdent
from gpubind.formats.ldcache import LdCache
from gpubind.formats.liblist import parse_liblist
from gpubind.host import Host, ListFile
from gpubind.host.base import shipped_liblist
from gpubind.ldso.closure import Dependency, host_closure
from gpubind.model import (
    CAPABILITIES,
    Capability,
    Decision,
    Driver,
    Finding,
    HostFile,
    Inventory,
    Missing,
    Request,
    RootedPath,
    SourceUsed,
    Stat,
    Verdict,
)
from gpubind.sources.amd_devices import KFD, MODULE, TOPOLOGY, AmdDevices, has_kernel_side, read_devices
from gpubind.sources.files import Answer, programs_and_files
from gpubind.sources.kernel import driver_kind
from gpubind.sources.layouts import BINARY_DIRECTORIES, library_directories, triplet
from gpubind.sources.libraries import Namer, entries_in_force, find_libraries, unmatched
from gpubind.sources.rocm import LIBRARY_DIRECTORIES, ROCM_PATH, Rocm, RocmSearch, choose_rocm, release_of
from gpubind.sources.search import LD_CACHE, Search, existing_directories, read_cache
from gpubind.sources.table import NameTable

LIST_NAME = "rocmliblist.conf"
OWN = re.compile(r"lib(amd|hsa|roc|hip)")
"""Names of ROCm's own libraries: libdrm and libnuma alone are no ROCm."""


def read_inventory(host: Host, request: Request, listfile: Optional[ListFile] = None) -> Inventory:
    """Everything of ROCm on *host* that *request* may want, and AMD's devices.

    *listfile* overrides the list file in force. Errors: `NothingToBindError` when there is neither a ROCm library nor a
    device; `FormatError` for a malformed list file.
    """
    listfile = listfile or host.liblist(LIST_NAME)
    shipped = listfile if listfile.shipped else shipped_liblist(LIST_NAME)
    table = NameTable(parse_liblist(shipped.data, shipped.label))
    listed = table if listfile.shipped else NameTable(parse_liblist(listfile.data, listfile.label))
    cache, findings, decisions = read_cache(host.driver, "amd")
    rocm = choose_rocm(host, cache)
    search = _search(host, request, cache, rocm)
    namer = Namer("liblist", listed, table, not listfile.shipped, request.completion, None, frozenset(), vendor="amd")
    entries = entries_in_force(namer)
    extra, looked = programs_and_files(host, entries, None, (*rocm.directories("bin"), *BINARY_DIRECTORIES))
    answers = [_in_userspace(_without_scripts(host, answer)) for answer in looked]
    chosen = Search(host.driver, search.arch, None, _existing(host, rocm.directories(*LIBRARY_DIRECTORIES)))
    extra += [
        (candidate, named)
        for candidate in chosen.candidates(namer.stems())
        if (named := namer.named(candidate.name)) is not None
    ]
    found = find_libraries(search, namer, compat32=False, extra=extra)
    devices = read_devices(host)
    # What a list that is the law names is wanted, whatever it is called.
    has_rocm = any(namer.lawful or OWN.match(name) for file in found.files for name in file.names)
    if not has_rocm and not devices.nodes:
        raise _nothing_to_bind(search)
    decisions += [*found.decisions, *(answer for answer in answers if isinstance(answer, Decision)), *devices.decisions]
    files = [answer for answer in answers if isinstance(answer, HostFile)]
    if has_rocm:
        libraries = [file for file in found.files if file.arch == search.arch]
        files = _with_closure(host, request, [*libraries, *files], rocm, decisions)
    else:
        decisions += [_not_rocm(file) for file in (*found.files, *files) if file.kind != "file"]
        files = [file for file in files if file.kind == "file"]
    decisions += unmatched(namer, entries, found)
    decisions += [_other_rocm(rocm, other) for other in rocm.others]
    findings += [*_driver_findings(host, devices), *devices.findings]
    if rocm.refused is not None:
        findings.append(_rocm_path(host, rocm))
    return Inventory(
        driver=Driver(
            "amd", release_of(host.driver, rocm), False, _kernel(host), driver_kind(host), None, host.driver.root
        ),
        source=SourceUsed("liblist", listfile.label),
        searched=(*chosen.directories, *((LD_CACHE,) if cache else ()), *search.directories),
        files=tuple(files),
        devices=devices.nodes,
        gpus=devices.gpus,
        decisions=tuple(decisions),
        findings=tuple(findings),
    )


def _search(host: Host, request: Request, cache: Optional[LdCache], rocm: Rocm) -> RocmSearch:
    arch = host.uname.machine
    amdgpu = (f"/opt/amdgpu/lib/{triplet(arch)}", "/opt/amdgpu/lib64")
    places = (*rocm.directories(*LIBRARY_DIRECTORIES), *amdgpu, *library_directories(arch), *request.library_path)
    search = RocmSearch(host.driver, arch, cache, _existing(host, places))
    search.others = rocm.others
    return search


def _existing(host: Host, places: tuple[str, ...]) -> tuple[RootedPath, ...]:
    """Libraries of ROCm are not in subdirectories: those of other drivers are left out again."""
    known = existing_directories(host.driver, places)
    return tuple(path for path in known if not path.endswith(("/vdpau", "/gbm")))


def _without_scripts(host: Host, answer: Answer) -> Answer:
    """ROCm's scripts need modules that lie beside them, and Python."""
    if (
        not isinstance(answer, HostFile)
        or answer.kind != "binary"
        or isinstance(host.driver.ident(answer.path), ElfIdent)
    ):
        return answer
    detail = "a script, which needs the files beside it and an interpreter: it has to come with the image"
    return Decision(
        "amd", answer.names[0], "left-out", "script", "name",
        answer.named_by, answer.named_at, answer.path, answer.found_by, None, detail,
    )  # fmt: skip


def _in_userspace(answer: Answer) -> Answer:
    """Data is the host's in any case; programs and manifests go with the libraries."""
    if isinstance(answer, HostFile) and answer.kind in ("binary", "manifest"):
        return answer._replace(userspace=True)
    return answer


def _with_closure(
    host: Host, request: Request, files: list[HostFile], rocm: Rocm, decisions: list[Decision]
) -> list[HostFile]:
    """*files*, and after them what they need. A name that is there already is not looked for again."""
    loaded = [file for file in files if file.kind in ("library", "binary") and file.family is None]
    names = {name for file in loaded for name in file.names if file.kind == "library"}
    first = rocm.directories(*LIBRARY_DIRECTORIES)
    capabilities = {file.path: file.capability for file in loaded}
    more: dict[str, HostFile] = {}
    for needed in host_closure(host.driver, host.uname.machine, capabilities, first):
        if needed.name in names:
            continue
        if needed.path is None:
            detail = "this host has no such library; the image may have one"
            decisions.append(_about(needed, "absent", "no-match", detail))
            continue
        if any(needed.path.startswith(other + "/") for other in rocm.others):
            decisions.append(_about(needed, "rejected", "other-rocm", "of another ROCm than the one that serves"))
            continue
        before = more.get(needed.path)
        if before is not None:  # one file under two names
            more[needed.path] = before._replace(names=tuple(sorted({*before.names, needed.name})))
            continue
        more[needed.path] = _dependency(host, needed, _capability(needed, capabilities, request))
    ours = [file._replace(userspace=True) if file in loaded else file for file in files]
    return [*ours, *more.values()]


def _capability(
    needed: Dependency, capabilities: dict[RootedPath, Optional[Capability]], request: Request
) -> Optional[Capability]:
    """The capability that a dependency goes with: one of its consumers' that was asked for, if there is one."""
    consumers = [capabilities[root] for root in needed.needed_by]
    if None in consumers:
        return None
    ordered = [capability for capability in CAPABILITIES if capability in consumers]
    return next((capability for capability in ordered if capability in request.caps), ordered[0])


def _dependency(host: Host, needed: Dependency, capability: Optional[Capability]) -> HostFile:
    assert needed.path is not None
    tree = host.driver
    found, elf = tree.stat(needed.path), tree.elf(needed.path)
    return HostFile(
        vendor="amd",
        kind="library",
        path=needed.path,
        names=(needed.name,),
        target=None,
        arch=host.uname.machine,
        soname=needed.name if isinstance(elf, Missing) or elf.soname is None else elf.soname,
        version=None,
        capability=capability,
        size=found.size if isinstance(found, Stat) else 0,
        source=tree.real(needed.path),
        named_by="closure",
        named_at=f"needed by {needed.wanted_by.rpartition('/')[2]}",
        found_by=needed.found_by,
        userspace=True,
    )


def _about(needed: Dependency, verdict: Verdict, rule: str, detail: str) -> Decision:
    at = f"needed by {needed.wanted_by.rpartition('/')[2]}"
    return Decision("amd", needed.name, verdict, rule, "search", "closure", at, needed.path, None, None, detail)


def _not_rocm(file: HostFile) -> Decision:
    subject = file.soname or (file.names[0] if file.names else file.target or file.path)
    detail = "this host has no ROCm that would need it"
    return Decision(
        "amd", subject, "left-out", "no-rocm", "search",
        file.named_by, file.named_at, file.path, file.found_by, None, detail,
    )  # fmt: skip


def _other_rocm(rocm: Rocm, other: RootedPath) -> Decision:
    detail = f"{rocm.prefix or 'what the ld cache has'} serves ({rocm.why}); name another with {ROCM_PATH}"
    return Decision("amd", other, "left-out", "other-rocm", "search", None, None, other, None, None, detail)


def _kernel(host: Host) -> Optional[str]:
    """The version of amdgpu, of which KFD is a part: AMD's own package says one, the kernel's is the kernel's."""
    text = host.dev.read_text(f"{MODULE}/version")
    if isinstance(text, str) and re.fullmatch(r"[\w.+-]{1,64}", text.strip()):
        return text.strip()
    return f"Linux {host.uname.release}" if has_kernel_side(host) else None


def _driver_findings(host: Host, devices: AmdDevices) -> list[Finding]:
    if has_kernel_side(host) or devices.gpus:
        return []
    what = "AMD's kernel driver amdgpu is not loaded"
    why = (
        "programs will say hipErrorNoDevice (100), HSA_STATUS_ERROR_OUT_OF_RESOURCES (0x1008), or that the ROCk module "
    )
    why += "is not loaded"
    hint = "on a GPU node load it, as root; the kernel's log says why it did not load"
    where = f"{MODULE}, {TOPOLOGY}"
    return [Finding("driver-not-loaded", "error", "amd", "amdgpu", what, where, why, hint, "modprobe amdgpu")]


def _rocm_path(host: Host, rocm: Rocm) -> Finding:
    serves = rocm.prefix or "the distribution's, if there is one"
    return Finding(
        "rocm-path",
        "warning",
        "amd",
        ROCM_PATH,
        f"{ROCM_PATH} names no ROCm here; {serves} serves instead",
        f"the environment: {ROCM_PATH}={host.environ.get(ROCM_PATH)}",
        rocm.refused,
        "name the directory of a release, such as /opt/rocm-6.1.2, or unset the variable",
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
