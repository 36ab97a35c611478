"""The NVIDIA inventory of a host.

Steps: the version of the kernel module; a source that claims files by name; completion with the claims of the driver
itself; the device nodes; the files, which the locator finds. Everything considered gets a Decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Optional, Union

from gpubind.errors import FormatError, NothingToBindError
from gpubind.formats.driver.liblist import library_stem
from gpubind.formats.driver.names import HOST_ONLY, driver_version_of
from gpubind.formats.elf.elf import split_library_path
from gpubind.formats.elf.ldcache import LdCache
from gpubind.host import Host, ListFile
from gpubind.host.base import LIBRARY_PATH, trust_finding
from gpubind.inventory.claims import Claim, SourceResult
from gpubind.inventory.liblist import NameTable, read_tables
from gpubind.inventory.libraries import Libraries, unmatched_claims
from gpubind.inventory.locate import LocatedFiles, locate
from gpubind.inventory.nodes import NVIDIA_MODULE, NVIDIA_PCI_CLASS, driver_kind, inventory_fields, pci_devices
from gpubind.inventory.nvidia import container_cli
from gpubind.inventory.nvidia import devices as nvidia
from gpubind.inventory.nvidia.devices import KernelModule
from gpubind.inventory.search import Accepted, Candidate, Search, existing_directories, os_release_id, read_cache
from gpubind.model import Decision, Driver, HostFile, Inventory, PassedOver, Request, SourceUsed, architecture
from gpubind.model.cuda import cuda_max
from gpubind.model.files import ABSENT, Missing, RootedPath
from gpubind.model.findings import active_cases, finding, with_count
from gpubind.model.host import DriverKind, Finding, Verdict
from gpubind.model.layouts import CONTAINER_LIBRARIES, DXG, WSL_DRIVERS, WSL_LIBRARIES, library_directories

if TYPE_CHECKING:
    from gpubind.inventory.nvidia.tegra import TegraBoard
    from gpubind.inventory.nvidia.windows import WslDriver

LIST_NAME = "nvliblist.conf"
FILE_LIST = "/usr/share/nvidia/files.d/sandboxutils-filelist.json"
NOUVEAU = "/sys/module/nouveau"
_LIBCUDA_STEM, LIBCUDA = "libcuda.so", "libcuda.so.1"
_WINDOWS_LIBRARIES = ("libdxcore.so", "libd3d12.so", "libd3d12core.so")
"""Libraries of WSL for GPUs of any vendor."""
_OTHER_DRIVER_RULES = ("cuda-compat", "other-driver-version")
"""Rules that reject a library because another library is the driver's."""
_CdiResult = Union[SourceResult, PassedOver, None]
"""The result of the CDI specs; None if they were not read."""


def read_inventory(
    host: Host, request: Request, listfile: Optional[ListFile] = None, cdi: _CdiResult = None
) -> Inventory:
    """Return everything of NVIDIA's driver on *host* that *request* may need, for all capabilities.

    *listfile* overrides the list file in force. Errors: `NothingToBindError` without any driver library and device;
    `FormatError` for a malformed list file.
    """
    listfile = listfile or host.liblist(LIST_NAME)
    in_force, shipped = read_tables(listfile, LIST_NAME)
    kernel = nvidia.read_kernel_module(host)
    cache, findings, decisions = read_cache(host.driver, "nvidia")
    kind = driver_kind(host, kernel.version)
    windows = _windows(host) if kind == "wsl" else None
    search, of_modules = _search_with_modules(host, request, cache, kernel, windows)
    serving = _choose_source(host, request, listfile, in_force, search.version, cdi)
    listed, file_list_findings = _read_file_list(host)
    board = _board(host, search) if kind == "tegra" else None
    driver_claims = (*listed, *_unversioned_libraries(search), *(board.files if board else ()))
    claims = (*serving.claims, *_completion(serving, shipped, search.version, request.completion, driver_claims))
    everything = nvidia.read_devices(host, board)
    devices = everything if serving.nodes is None else nvidia.restrict_to_source(everything, serving)
    nodes = [node.target for node in devices.nodes]
    existing_files = devices.sockets if windows is None else (*devices.sockets, *windows.files)
    located = locate(search, shipped, claims, existing_files, (*decisions, *devices.decisions), nodes)
    if not any(node != DXG for node in nodes) and not any(map(_is_driver_library, located.libraries)):
        raise _nothing_to_bind_error(host, kernel, search, of_modules)
    decisions += [*located.decisions, *unmatched_claims(listed, located.found_libraries)]
    decisions += [*devices.decisions, *located.listed_decisions, *serving.decisions]
    decisions += map(_passed_over_decision, serving.passed_over)
    findings += _source_failed_findings(serving, request, listfile.label, host.driver.root)
    findings += [*of_modules, *serving.findings, *file_list_findings]
    if windows is not None:
        decisions += windows.decisions
        findings += windows.missing_part_findings(nodes, has_libcuda(located.found_libraries.files))
    driver = _driver(host, kernel, search.version, kind)
    findings += _driver_findings(host, driver, kernel, search, located, in_force.label)
    inventory = Inventory(
        driver=driver,
        source=SourceUsed(serving.name, serving.detail, serving.passed_over),
        searched=search.searched,
        libcuda_directories=search.libcuda_directories,
        files=(*located.libraries, *located.files),
        **inventory_fields(devices, everything),
        decisions=tuple(decisions),
        findings=(*findings, *devices.findings),
        env=serving.env,
    )
    return _with_mig(host, request, inventory)


def _with_mig(host: Host, request: Request, inventory: Inventory) -> Inventory:
    nodes = nvidia.read_mig_nodes(host, inventory.gpus)
    names = container_cli.find_mig_names(host, request, nodes, use_cli=inventory.source.served == container_cli.SOURCE)
    return inventory._replace(mig_nodes=nodes, mig_names=names)


def _driver(host: Host, kernel: KernelModule, version: Optional[str], kind: DriverKind) -> Driver:
    # Jetson's branches differ: 540.4 supports CUDA 12.6, which needs 560 elsewhere.
    cuda = None if kind == "tegra" else cuda_max(version)
    return Driver("nvidia", version, kernel.version is None, kernel.version, kind, cuda, host.driver.root)


def _passed_over_decision(passed: PassedOver) -> Decision:
    verdict: Verdict = "absent" if passed.code == "absent" else "rejected"
    detail = f"{passed.code}: {passed.why}"
    return Decision("nvidia", passed.source, verdict, "passed-over", "name", detail=detail)


def _source_failed_findings(serving: SourceResult, request: Request, label: str, root: str) -> Iterator[Finding]:
    for passed in serving.passed_over:
        if request.source == passed.source or passed.code == "unreadable":
            yield container_cli.source_failed_finding(passed, label, root)


def _is_driver_library(file: HostFile) -> bool:
    # Vendor-neutral loaders and, in WSL, Direct3D exist without NVIDIA's driver.
    return file.group is None and file.soname not in _WINDOWS_LIBRARIES


def _windows(host: Host) -> WslDriver:
    from gpubind.inventory.nvidia.windows import read_windows  # few hosts are in Windows

    return read_windows(host)


def _choose_source(
    host: Host, request: Request, listfile: ListFile, in_force: NameTable, version: Optional[str], cdi: _CdiResult
) -> SourceResult:
    """Return the source that serves, with the sources that were queried before and do not serve.

    A list of a user or site is exclusive: then `auto` queries no other source.
    """
    answer = cdi
    if cdi is None and request.source == "auto" and listfile.shipped and host.driver is not host.dev:
        # The program would load NVML from that root, which another user may have written: only if requested by name.
        why = "not asked unless by name: the driver root holds no devices, and the program would run its libraries"
        answer = PassedOver(container_cli.SOURCE, "other-root", why)
    elif cdi is None and (request.source == container_cli.SOURCE or (request.source == "auto" and listfile.shipped)):
        answer = container_cli.list_files(host)
    if isinstance(answer, SourceResult):
        return answer
    passed_over = () if answer is None else (answer,)
    if request.source == "driver":
        return SourceResult("driver", f"files that carry {version}", (), passed_over=passed_over)
    claims = in_force.claims("liblist")
    return SourceResult("liblist", listfile.label, claims, passed_over=passed_over, exclusive=not listfile.shipped)


def _board(host: Host, search: Search) -> TegraBoard:
    from gpubind.inventory.nvidia.tegra import read_board  # few hosts are such boards

    return read_board(host, search)


def _read_file_list(host: Host) -> tuple[list[Claim], list[Finding]]:
    """Return the libraries in the driver's own file list (since 570, x86-64), and findings about that list."""
    data = host.driver.read(FILE_LIST)
    if isinstance(data, Missing):
        return [], []
    from gpubind.formats.driver.filelist import parse_filelist  # only newer drivers have one

    try:
        names = {file.name.rpartition("/")[2] for file in parse_filelist(data) if file.is_library}
    except FormatError as error:
        where = f"{FILE_LIST}: {error.place}" if error.place else FILE_LIST
        return [], [finding(error.code, subject=FILE_LIST, where=where, why=error.why)]
    return [Claim("library-name", name, "driver", FILE_LIST) for name in sorted(names) if ".so" in name], []


def _unversioned_libraries(search: Search) -> Iterator[Claim]:
    """Yield claims on libraries whose names have no version: those of Windows, or of a container around this
    process.
    """
    for directory in search.preferred_directories:
        for name in search.tree.names(directory):
            if name.startswith(("libcuda", "libnvidia-")) or directory.startswith(WSL_DRIVERS):
                yield Claim("library-name", name, "driver", directory)


def _completion(
    serving: SourceResult, shipped: NameTable, version: Optional[str], completion: bool, listed: Iterable[Claim]
) -> list[Claim]:
    """Return the claims of the driver itself: *listed* ones, its version in file names, and the shipped list.

    If *completion* is false, or *serving* is exclusive, the files are reported instead of taken.
    """
    source = "driver" if serving.name == "driver" else "completion"
    not_in_list = serving.exclusive or not (completion or source == "driver")
    claims: list[Claim] = []
    if version is not None:
        claims.append(Claim("version", version, source, f"its name carries {version}", not_in_list=not_in_list))
    claims += [claim._replace(source=source, not_in_list=not_in_list) for claim in listed]
    if serving.name != "liblist" or serving.exclusive:
        claims += shipped.claims("completion", not_in_list=serving.exclusive or not completion)
    if completion and not serving.exclusive:
        claims += [Claim("path", pattern, "completion", pattern, host_only_reason=why) for pattern, why in HOST_ONLY]
    return claims


def _search(
    host: Host, request: Request, cache: Optional[LdCache], kernel: KernelModule, windows: Optional[WslDriver]
) -> Search:
    """Return the search for the files of the driver's version, with the directories of libcuda before the known ones.

    For Windows' driver, it accepts only files without a version. That driver's directories come before the ld cache,
    which also contains the libraries of Linux packages.
    """
    machine_arch = architecture(host.uname.machine)
    compat32 = "compat32" in request.capabilities
    is_windows = windows is not None
    of_windows = () if windows is None else (WSL_LIBRARIES, *windows.stores)
    user_directories = existing_directories(host.driver, request.library_path)
    around = existing_directories(host.driver, (*CONTAINER_LIBRARIES, *of_windows))
    known_directories = existing_directories(host.driver.lenient, library_directories(machine_arch.name))
    directories = (*known_directories, *user_directories)
    if compat32 and machine_arch.compat32 is not None:
        directories += existing_directories(host.driver.lenient, library_directories(machine_arch.compat32))
    search = Search(host, cache, directories, compat32=compat32, first=around, is_windows=is_windows)
    libcudas = [
        (candidate, judged)
        for candidate in search.candidates(frozenset((_LIBCUDA_STEM,)))
        if isinstance(judged := search.judge(candidate), Accepted) and judged.arch == machine_arch.name
    ]
    version = kernel.version
    if version is None and not is_windows:  # the version of the file to which libcuda leads
        rank = {LIBCUDA: 0, _LIBCUDA_STEM: 1}
        by_name = sorted(libcudas, key=lambda found: rank.get(found[0].name, 2))
        carried = (accepted.version or driver_version_of(candidate.name) for candidate, accepted in by_name)
        version = next((carried_version for carried_version in carried if carried_version), None)
    near: list[str] = []
    for candidate, judged in libcudas:
        if version is None or judged.version in (None, version):
            near += [candidate.path.rpartition("/")[0] or "/", judged.path.rpartition("/")[0] or "/"]
    beside = existing_directories(host.driver, dict.fromkeys(near), below=("",))
    first = existing_directories(host.driver, beside)
    after = tuple(directory for directory in dict.fromkeys((*first, *directories)) if directory not in around)
    return Search(host, cache, after, version, compat32=compat32, first=around, beside=beside, is_windows=is_windows)


def _search_with_modules(
    host: Host, request: Request, cache: Optional[LdCache], kernel: KernelModule, windows: Optional[WslDriver]
) -> tuple[Search, list[Finding]]:
    """Return the search. If it finds no libcuda of the loaded driver, it is extended by LD_LIBRARY_PATH.

    Environment modules of clusters set that variable. Only directories with that libcuda are added, each with a
    finding.
    """
    search = _search(host, request, cache, kernel, windows)
    module_directories: list[RootedPath] = []
    findings: list[Finding] = []
    parts = split_library_path(host.variable(LIBRARY_PATH)) if kernel.version and not search.libcuda_directories else ()
    for directory in (RootedPath(part) for part in dict.fromkeys(parts) if part.startswith("/")):
        judged = search.judge(Candidate(LIBCUDA, RootedPath(f"{directory}/{LIBCUDA}"), directory))
        if not isinstance(judged, Accepted) or (judged.arch, judged.version) != (search.arch, kernel.version):
            continue
        ignored = host.distrusted(LIBRARY_PATH, directory)
        if ignored is None:
            module_directories.append(directory)
            findings.append(finding("driver-of-module", subject=directory, version=kernel.version))
        else:
            findings.append(trust_finding(ignored))
    if module_directories:
        module_request = request._replace(library_path=(*request.library_path, *module_directories))
        search = _search(host, module_request, cache, kernel, windows)
    return search, findings


def _driver_findings(
    host: Host, driver: Driver, kernel: KernelModule, search: Search, located: LocatedFiles, label: str
) -> list[Finding]:
    libraries, bad_icds = located.found_libraries, (d for d in located.decisions if d.rule == "bad-icd")
    return [
        *(finding("bad-icd", subject=icd.subject, where=icd.path, why=icd.detail) for icd in bad_icds),
        *_not_loaded_findings(host, driver, kernel),
        *_other_versions(driver, kernel, libraries),
        *_no_libcuda(host, search, libraries),
        *_not_in_list(libraries, label),
    ]


def nouveau_finding(host: Host) -> Finding:
    """Return the finding that nouveau is bound to the GPUs of *host*, which excludes NVIDIA's driver."""
    where = ", ".join((NOUVEAU, *pci_devices(host, *NVIDIA_PCI_CLASS)))
    return finding("nouveau", subject="nouveau", where=where)


def _not_loaded_findings(host: Host, driver: Driver, kernel: KernelModule) -> Iterator[Finding]:
    if driver.kernel_version is not None or driver.kind != "linux":
        return
    if host.dev.has(NOUVEAU) and not host.dev.has(NVIDIA_MODULE):
        yield nouveau_finding(host)
    else:
        from gpubind.formats.driver.mknod import load_command  # only where it is to be loaded

        yield finding(
            "driver-not-loaded",
            case="nvidia-assumed" if driver.version else "nvidia",
            subject="nvidia",
            where=kernel.where,
            why=kernel.why,
            version=driver.version,
            load=load_command(len(pci_devices(host, *NVIDIA_PCI_CLASS))),
        )


def _other_versions(driver: Driver, kernel: KernelModule, libraries: Libraries) -> Iterator[Finding]:
    """Yield a finding for each other driver: a warning if the right one also exists, else an error."""
    others: dict[str, set[str]] = {}
    for path in (decision.path for decision in libraries.decisions if decision.rule == "other-driver-version"):
        carried = driver_version_of(path or "")
        if carried and path:
            others.setdefault(carried, set()).add(path)
    mismatch = driver.kernel_version is not None and not has_libcuda(libraries.files)
    for other_version, paths in sorted(others.items()):
        code = "driver-mismatch" if mismatch else "other-driver-version"
        case = "wsl" if driver.kind == "wsl" else None
        where = f"{kernel.where}; {min(paths)}" if case is None else min(paths)
        yield finding(code, subject=other_version, case=case, where=where, version=driver.version, count=len(paths))


def _no_libcuda(host: Host, search: Search, libraries: Libraries) -> Iterator[Finding]:
    is_other = any(decision.rule == "other-driver-version" for decision in libraries.decisions)
    if has_libcuda(libraries.files) or is_other or LIBCUDA in libraries.not_in_list:
        return
    refused = unusable_library_facts(host, libraries.decisions, LIBCUDA)
    system = os_release_id(host.driver)
    case = ("absent", *active_cases(*((name, name == system) for name in ("alpine", "guix", "nixos"))))
    places = (*search.search_summary, *((LIBRARY_PATH,) if host.variable(LIBRARY_PATH) else ()))
    absent = {"case": case, "where": ", ".join(places)}
    yield finding("no-libcuda", subject=LIBCUDA, **(refused or absent))


def unusable_library_facts(host: Host, decisions: Iterable[Decision], soname: str) -> Optional[dict[str, Any]]:
    """Return case and facts of the finding that library *soname* exists, but is unusable; else None.

    Stubs have a separate case. Of other files the first is reported, which the loader finds first.
    """
    refused = [d for d in decisions if d.subject == soname and d.verdict == "rejected" and d.path]
    stubs = [d.path for d in refused if d.rule == "stub"]
    if stubs:
        return {"case": "stub", "where": ", ".join(f"{path} (a stub)" for path in dict.fromkeys(stubs))}
    tree = host.driver.lenient
    others = (decision for decision in refused if decision.rule not in _OTHER_DRIVER_RULES)
    # An outdated cache may name files that do not exist.
    broken = next((decision for decision in others if tree.lstat(decision.path or "") != ABSENT), None)
    if broken is None:
        return None
    from shlex import quote  # few hosts have such a file

    path = RootedPath(broken.path or "")
    stat, ident = tree.stat(path), tree.ident(path)
    facts = "" if isinstance(stat, Missing) else f" (mode {stat.mode:04o}, {with_count(stat.size, 'byte')})"
    is_closed = isinstance(ident, Missing) and ident.why == "forbidden"
    return {
        "case": ("hidden" if isinstance(stat, Missing) else "closed") if is_closed else "damaged",
        "where": path + facts,
        "fault": broken.detail,
        "file": quote(tree.real(path)),
    }


def _not_in_list(libraries: Libraries, label: str) -> Iterator[Finding]:
    if libraries.not_in_list:
        yield finding(
            "not-in-list",
            severity="error" if LIBCUDA in libraries.not_in_list else "warning",
            subject=label,
            where=", ".join(libraries.not_in_list),
            count=len(libraries.not_in_list),
            lines=", ".join(sorted({library_stem(name) for name in libraries.not_in_list})),
        )


def has_libcuda(files: Iterable[HostFile]) -> bool:
    """Return whether *files* contain libcuda."""
    return any(LIBCUDA in file.names for file in files)


def _nothing_to_bind_error(
    host: Host, kernel: KernelModule, search: Search, ignored: Iterable[Finding] = ()
) -> NothingToBindError:
    why, hint = kernel.why or "no file matches", "on a GPU node: install the driver, or give --root"
    if host.dev.has(DXG):
        why, hint = f"{DXG} is there, and no driver of NVIDIA's in Windows", "install NVIDIA's driver in Windows"
    if host.dev.has(NOUVEAU):
        why = "the open-source driver nouveau owns the GPU"
        hint = "with this GPU: `gpubind explain nouveau`"
    directories = library_directories(host.uname.machine)
    listings = ((directory, host.driver.lenient.list(directory)) for directory in directories)
    hidden = [d for d, names in listings if isinstance(names, Missing) and names.why not in ("absent", "unrecorded")]
    if hidden:
        why += f"; {', '.join(hidden)} cannot be read"
    why = "; ".join((why, *(ignored_finding.what for ignored_finding in ignored)))
    return NothingToBindError(
        "nothing-to-bind",
        "no NVIDIA driver library and no NVIDIA device on this host",
        where=", ".join((*search.search_summary, "/dev/nvidia*", kernel.where)),
        why=why,
        hint=f"on a login node: a job (`srun --gpus=1`), or --host; {hint}",
    )
