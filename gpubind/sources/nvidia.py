"""The NVIDIA inventory of a host, by the order of truth.

The kernel module's version first; then a source that names the files; then the files themselves; then completion from
the driver itself; then the device nodes. Everything considered gets a Decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from gpubind.errors import FormatError
from gpubind.formats.elf import COMPAT32
from gpubind.formats.filelist import parse_filelist
from gpubind.formats.liblist import parse_liblist
from gpubind.host import Host, ListFile
from gpubind.host.base import shipped_liblist
from gpubind.model import (
    Decision,
    Driver,
    Finding,
    HostFile,
    Inventory,
    Missing,
    PassedOver,
    Request,
    SourceUsed,
)
from gpubind.sources import nvidia_container_cli
from gpubind.sources import printed as printed_list
from gpubind.sources.cuda import cuda_max
from gpubind.sources.devices import hidden_gpus, is_confined, read_devices
from gpubind.sources.files import host_only, programs_and_files
from gpubind.sources.findings import driver_findings, manifest_findings, nothing_to_bind
from gpubind.sources.kernel import driver_kind, read_kernel
from gpubind.sources.layouts import library_directories
from gpubind.sources.libraries import Namer, entries_in_force, find_libraries, unmatched, with_aliases
from gpubind.sources.mig import find_mig_names, read_mig_nodes
from gpubind.sources.search import LD_CACHE, Accepted, Candidate, Search, existing_directories, read_cache
from gpubind.sources.table import NameTable, driver_version_of

if TYPE_CHECKING:
    from gpubind.sources.cdi_edits import DriverEdits

LIST_NAME = "nvliblist.conf"
FILE_LIST = "/usr/share/nvidia/files.d/sandboxutils-filelist.json"
LIBCUDA = "libcuda.so"


def read_inventory(
    host: Host,
    request: Request,
    listfile: Optional[ListFile] = None,
    cdi: Union[DriverEdits, PassedOver, None] = None,
) -> Inventory:
    """Everything of NVIDIA's driver on *host* that *request* may want, whatever the capability.

    *listfile* overrides the list file in force; *cdi* is what CDI specs name, if they were asked. Errors:
    `NothingToBindError` when there is neither a driver library nor a device; `FormatError` for a malformed list file.
    """
    listfile = listfile or host.liblist(LIST_NAME)
    shipped = listfile if listfile.shipped else shipped_liblist(LIST_NAME)
    table = NameTable(parse_liblist(shipped.data, shipped.label))
    listed = table if listfile.shipped else NameTable(parse_liblist(listfile.data, listfile.label))
    edits = None if isinstance(cdi, PassedOver) else cdi
    printed: Optional[printed_list.Printed] = None
    passed_over: tuple[PassedOver, ...] = ()
    if isinstance(cdi, PassedOver):
        passed_over = (cdi,)
    elif edits is not None:
        printed = edits.printed
    else:
        printed, passed_over = _ask_the_program(host, request, listfile)
    source = "driver" if request.source == "driver" else "liblist"
    if printed is not None:
        source = printed.source

    kernel = read_kernel(host)
    kind = driver_kind(host)
    cache, findings, decisions = read_cache(host.driver, "nvidia")
    arch = host.uname.machine
    places = [*library_directories(arch), *request.library_path]
    if "compat32" in request.caps and arch in COMPAT32:
        places += library_directories(COMPAT32[arch])
    search = Search(host.driver, arch, cache, existing_directories(host.driver, places))
    libcudas = tuple(search.candidates(frozenset((LIBCUDA,))))
    version = kernel.version or _libcuda_version(search, libcudas)
    search = _anchored(search, libcudas, version)

    driver_files, file_list_findings = _read_file_list(host)
    namer = Namer(
        source, listed, table, not listfile.shipped and source == "liblist", request.completion, version, driver_files
    )
    entries = entries_in_force(namer)
    extra, answers = programs_and_files(host, entries, version)
    if printed is not None:
        names, more = printed_list.library_names(search, namer.stems(), printed)
        namer = namer._replace(printed=names, printed_by=(printed.source, printed.at))
        extra += more
    found = find_libraries(search, namer, "compat32" in request.caps, extra)
    libraries = with_aliases(found.files)
    if edits is not None:
        libraries = edits.with_links(libraries)
    files = [answer for answer in answers if isinstance(answer, HostFile)]
    decisions += [answer for answer in answers if isinstance(answer, Decision)]
    devices = read_devices(host)
    hidden = hidden_gpus(host, devices)
    if edits is not None:
        devices = edits.chosen(devices)
        findings += edits.findings
    # Vendor-neutral loaders come with any desktop: they are no driver.
    if not devices.nodes and all(file.family is not None for file in libraries):
        raise nothing_to_bind(host, kernel, search)

    decisions += found.decisions
    decisions += unmatched(namer, entries, found, FILE_LIST)
    if not namer.lawful and request.completion:
        decisions += host_only(host.driver, [file.path for file in (*libraries, *files)])
    decisions += devices.decisions
    files = [*_unique(files), *devices.sockets]
    if printed is not None:
        files = printed_list.confirmed(host, printed, files)
        rest = printed_list.unknown(host, printed, files, devices.nodes, decisions, table)
        files += [answer for answer in rest if isinstance(answer, HostFile)]
        decisions += [*printed.decisions, *(answer for answer in rest if isinstance(answer, Decision))]
    for passed in passed_over:
        decisions.append(nvidia_container_cli.decision_about(passed))
        if request.source == passed.source:
            findings.append(nvidia_container_cli.finding_about(passed, listfile.label, host.driver.root))
    findings += file_list_findings + manifest_findings(decisions)
    findings += driver_findings(host, kernel, kind, version, found, namer)
    details = {"liblist": listfile.label, "driver": f"files that carry {version}"}
    if printed is not None:
        details[source] = printed.command
    guards = read_mig_nodes(host, devices.gpus)
    return Inventory(
        driver=Driver(
            "nvidia", version, kernel.version is None, kernel.version, kind, cuda_max(version), host.driver.root
        ),
        source=SourceUsed(source, details[source], passed_over),
        searched=((LD_CACHE,) if cache else ()) + search.directories,
        files=(*libraries, *files),
        devices=devices.nodes,
        gpus=devices.gpus,
        decisions=tuple(decisions),
        findings=(*findings, *devices.findings),
        mig_nodes=guards,
        mig_names=find_mig_names(host, request, guards, ask=printed is not None and edits is None),
        confined=is_confined(devices, hidden if edits is None else hidden_gpus(host, devices)),
        hidden=hidden,
        env=edits.env if edits else (),
    )


def _ask_the_program(
    host: Host, request: Request, listfile: ListFile
) -> tuple[Optional[printed_list.Printed], tuple[PassedOver, ...]]:
    """What `nvidia-container-cli` names, if it is to be asked and serves; else, if it was asked, why it does not.

    A list that a user or site gives is the law: then `auto` asks nobody else.
    """
    if request.source != nvidia_container_cli.SOURCE and (request.source != "auto" or not listfile.shipped):
        return None, ()
    if request.source == "auto" and host.driver is not host.dev:
        # The program loads NVML from the root that it is given: not unasked, from a tree that may be anybody's.
        why = "not asked unless by name: the driver root holds no devices, and the program would run its libraries"
        return None, (PassedOver(nvidia_container_cli.SOURCE, "other-root", why),)
    answer = nvidia_container_cli.ask(host)
    return (None, (answer,)) if isinstance(answer, PassedOver) else (answer, ())


def _libcuda_version(search: Search, libcudas: tuple[Candidate, ...]) -> Optional[str]:
    """V, assumed from the file behind libcuda, when no kernel module says it."""
    for wanted in ("libcuda.so.1", LIBCUDA, ""):
        for candidate in libcudas:
            accepted = search.judge(candidate)
            if wanted in ("", candidate.name) and isinstance(accepted, Accepted) and accepted.arch == search.arch:
                version = accepted.version or driver_version_of(candidate.name)
                if version:
                    return version
    return None


def _anchored(search: Search, libcudas: tuple[Candidate, ...], version: Optional[str]) -> Search:
    """The search with V known, and the directories that hold libcuda looked in first."""
    anchored = Search(search.tree, search.arch, search.cache, (), version)
    directories: list[str] = []
    for candidate in libcudas:
        judged = anchored.judge(candidate)
        if isinstance(judged, Accepted) and judged.arch == search.arch:
            directories += [candidate.path.rpartition("/")[0] or "/", judged.path.rpartition("/")[0] or "/"]
    first = existing_directories(search.tree, dict.fromkeys(directories))
    anchored.directories = tuple(dict.fromkeys((*first, *search.directories)))
    return anchored


def _read_file_list(host: Host) -> tuple[frozenset[str], list[Finding]]:
    """Library names in the driver's own file list (drivers since 570 on x86-64)."""
    data = host.driver.read(FILE_LIST)
    if isinstance(data, Missing):
        return frozenset(), []
    try:
        names = {f.name.rpartition("/")[2] for f in parse_filelist(data) if f.is_library}
    except FormatError as error:
        what = "the driver's own file list cannot be read; the shipped list serves alone"
        where = f"{FILE_LIST}: {error.place}" if error.place else FILE_LIST
        hint = "install the driver's package again, and report it if the file stays like that"
        return frozenset(), [Finding(error.code, "warning", "nvidia", FILE_LIST, what, where, error.why, hint)]
    return frozenset(name for name in names if ".so" in name), []


def _unique(files: list[HostFile]) -> list[HostFile]:
    """*files* without a second entry that names the same target or program."""
    return list({(file.target or file.names[0]): file for file in reversed(files)}.values())[::-1]
