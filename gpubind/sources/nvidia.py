"""The NVIDIA inventory of a host, by the order of truth.

The kernel module's version first; then a source that names the files; then the files themselves; then completion from
the driver itself; then the device nodes. Everything considered gets a Decision.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from gpubind.errors import FormatError, NothingToBindError
from gpubind.formats.elf import COMPAT32
from gpubind.formats.filelist import parse_filelist
from gpubind.formats.ldcache import LdCache, parse_ldcache
from gpubind.formats.liblist import ListEntry, library_stem, parse_liblist
from gpubind.formats.procfs import parse_driver_version, parse_module_version
from gpubind.host import Host, ListFile
from gpubind.host.base import shipped_liblist
from gpubind.model import (
    Decision,
    Driver,
    DriverKind,
    Finding,
    HostFile,
    Inventory,
    Missing,
    PassedOver,
    Request,
    Severity,
    SourceUsed,
)
from gpubind.sources import nvidia_container_cli
from gpubind.sources.cuda import cuda_max
from gpubind.sources.devices import read_devices
from gpubind.sources.files import Answer, find_binary, find_files, host_only, library_candidates
from gpubind.sources.layouts import library_directories
from gpubind.sources.libraries import Found, Named, Namer, find_libraries, with_aliases
from gpubind.sources.search import LD_CACHE, LD_CACHE_PATH, Accepted, Candidate, Search, existing_directories
from gpubind.sources.table import NameTable, driver_version_of

LIST_NAME = "nvliblist.conf"
FILE_LIST = "/usr/share/nvidia/files.d/sandboxutils-filelist.json"
LD_CACHE_LIMIT = 64 << 20
LIBCUDA = "libcuda.so"


class Kernel(NamedTuple):
    """What the kernel side says."""

    version: Optional[str]
    where: str
    why: Optional[str]
    """Why there is no version."""


def read_inventory(host: Host, request: Request, listfile: Optional[ListFile] = None) -> Inventory:
    """Everything of NVIDIA's driver on *host* that *request* may want, whatever the capability.

    *listfile* overrides the list file in force. Errors: `NothingToBindError` when there is neither a driver library
    nor a device; `FormatError` for a malformed list file.
    """
    listfile = listfile or host.liblist(LIST_NAME)
    shipped = shipped_liblist(LIST_NAME)
    table = NameTable(parse_liblist(shipped.data, shipped.label))
    listed = table if listfile.shipped else NameTable(parse_liblist(listfile.data, listfile.label))
    printed, passed_over = _ask_the_program(host, request, listfile)
    source = "driver" if request.source == "driver" else "liblist"
    if printed is not None:
        source = nvidia_container_cli.SOURCE

    kernel = read_kernel(host)
    kind = driver_kind(host)
    cache, findings, decisions = read_ldcache(host)
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
    extra, answers = _programs_and_files(host, namer, version)
    if printed is not None:
        names, more = nvidia_container_cli.library_names(search, namer.stems(), printed)
        namer = namer._replace(printed=names)
        extra += more
    found = find_libraries(search, namer, "compat32" in request.caps, extra)
    libraries = with_aliases(found.files)
    files = [answer for answer in answers if isinstance(answer, HostFile)]
    decisions += [answer for answer in answers if isinstance(answer, Decision)]
    devices = read_devices(host)
    if not libraries and not devices.nodes:
        raise _nothing(host, kernel, search, cache)

    decisions += found.decisions
    decisions += _unmatched(namer, found)
    if not namer.lawful and request.completion:
        decisions += host_only(host.driver, [file.path for file in (*libraries, *files)])
    decisions += devices.decisions
    files = [*_unique(files), *devices.sockets]
    if printed is not None:
        files = nvidia_container_cli.confirmed(host, printed, files)
        rest = nvidia_container_cli.unknown(host, printed, files, devices.nodes, decisions, table)
        files += [answer for answer in rest if isinstance(answer, HostFile)]
        decisions += [*printed.decisions, *(answer for answer in rest if isinstance(answer, Decision))]
    for passed in passed_over:
        decisions.append(nvidia_container_cli.decision_about(passed))
        if request.source == passed.source:
            findings.append(nvidia_container_cli.finding_about(passed, listfile.label, host.driver.root))
    findings += file_list_findings + _manifest_findings(decisions) + _findings(host, kernel, version, found, namer)
    details = {"liblist": listfile.label, "driver": f"files that carry {version}"}
    if printed is not None:
        details[source] = printed.command
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
    )


def _ask_the_program(
    host: Host, request: Request, listfile: ListFile
) -> tuple[Optional[nvidia_container_cli.Printed], tuple[PassedOver, ...]]:
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


def read_kernel(host: Host) -> Kernel:
    """V, as the loaded kernel module says it: /sys/module/nvidia/version, else /proc/driver/nvidia/version."""
    why = "no NVIDIA kernel module is loaded"
    for path, parse in (
        ("/sys/module/nvidia/version", parse_module_version),
        ("/proc/driver/nvidia/version", parse_driver_version),
    ):
        text = host.dev.read_text(path)
        if isinstance(text, Missing):
            if text.why != "absent":
                why = f"{path}: {text}"
            continue
        try:
            return Kernel(parse(text), path, None)
        except FormatError as error:
            why = f"{path}: {error.why}"
    return Kernel(None, "/sys/module/nvidia, /proc/driver/nvidia", why)


def driver_kind(host: Host) -> DriverKind:
    """`wsl` where /dev/dxg stands for the driver, `tegra` on Jetson, else `linux`."""
    if not isinstance(host.dev.lstat("/dev/dxg"), Missing):
        return "wsl"
    if not isinstance(host.dev.lstat("/etc/nv_tegra_release"), Missing):
        return "tegra"
    return "linux"


def read_ldcache(host: Host) -> tuple[Optional[LdCache], list[Finding], list[Decision]]:
    """The ld cache of the driver root; None, with the reason told, where there is no usable one."""
    data = host.driver.read(LD_CACHE_PATH, LD_CACHE_LIMIT)
    where = host.driver.root.rstrip("/") + LD_CACHE_PATH
    if isinstance(data, Missing):
        code, why = "no-ldcache", str(data)
    else:
        try:
            return parse_ldcache(data), [], []
        except FormatError as error:
            code, why = error.code, f"{error.where}: {error.why}" if error.where else error.why
    what = "there is no usable ld cache; the known driver directories are searched instead"
    hint = "run `ldconfig` as root, or name the driver's directory with --library-path"
    decision = Decision("nvidia", LD_CACHE_PATH, "rejected", code, "search", None, None, LD_CACHE_PATH, None, None, why)
    severity: Severity = "note" if code == "no-ldcache" else "warning"
    return None, [Finding(code, severity, "nvidia", LD_CACHE_PATH, what, where, why, hint)], [decision]


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
        what = "the driver's own file list cannot be read"
        return frozenset(), [Finding(error.code, "warning", "nvidia", FILE_LIST, what, error.where, error.why)]
    return frozenset(name for name in names if ".so" in name), []


def _entries(namer: Namer) -> list[tuple[ListEntry, Named]]:
    """The list entries in force, each with who names it: the list's own, or the shipped ones as completion."""
    if namer.source == "liblist":
        table, by = namer.listed, "liblist"
    elif namer.completion:
        table, by = namer.table, "completion"
    else:
        return []
    entries = []
    for entry in table.liblist.entries:
        section = entry.section or namer.table.section(entry.text.rpartition("/")[2], entry.text)
        entries.append((entry, Named(by, table.liblist.at(entry), section)))
    return entries


def _programs_and_files(
    host: Host, namer: Namer, version: Optional[str]
) -> tuple[list[tuple[Candidate, Named]], list[Answer]]:
    """What the entries without a library name stand for; absolute library entries become candidates."""
    candidates: list[tuple[Candidate, Named]] = []
    answers: list[Answer] = []
    for entry, named in _entries(namer):
        if entry.kind == "binary":
            answers.append(find_binary(host, entry, named, host.uname.machine))
        elif entry.kind == "file":
            answers += find_files(host.driver, entry, named, version)
        elif entry.kind == "library-path":
            libraries = library_candidates(host.driver, entry)
            candidates += [(candidate, named) for candidate in libraries]
            if not libraries:
                answers += find_files(host.driver, entry, named, version)
    return candidates, answers


def _unmatched(namer: Namer, found: Found) -> list[Decision]:
    """An `absent` Decision for each library entry that no name on this host matches."""
    seen = {decision.subject for decision in found.decisions} | {name for file in found.files for name in file.names}
    seen |= {file.path.rpartition("/")[2] for file in found.files}
    by_stem: dict[str, list[str]] = {}
    for name in seen:
        if ".so" in name:
            by_stem.setdefault(library_stem(name), []).append(name)
    detail = "neither in the ld cache nor in a driver directory"
    decisions = []
    for entry, named in _entries(namer):
        if entry.kind == "library":
            names = by_stem.get(library_stem(entry.text), ())
            if not any(name.startswith(entry.text) for name in names):
                decisions.append(_absent(entry.text, named.by, named.at, detail))
    return decisions + [_absent(name, "driver", FILE_LIST, detail) for name in sorted(namer.driver_files - seen)]


def _absent(subject: str, by: str, at: str, detail: str) -> Decision:
    return Decision("nvidia", subject, "absent", "no-match", "search", by, at, None, None, None, detail)


def _unique(files: list[HostFile]) -> list[HostFile]:
    """*files* without a second entry that names the same target or program."""
    return list({(file.target or file.names[0]): file for file in reversed(files)}.values())[::-1]


def _findings(host: Host, kernel: Kernel, version: Optional[str], found: Found, namer: Namer) -> list[Finding]:
    findings: list[Finding] = []
    if kernel.version is None and driver_kind(host) == "linux":
        findings.append(
            Finding(
                "driver-not-loaded",
                "error",
                "nvidia",
                "nvidia",
                "no NVIDIA kernel module is loaded on this host",
                kernel.where,
                f"{kernel.why}; programs will say CUDA_ERROR_NO_DEVICE (100) or `Driver Not Loaded`. "
                + (f"The plan assumes {version}, the version of the file behind libcuda" if version else ""),
                "load it, as root; on a login node without a GPU this is expected",
                "modprobe nvidia && nvidia-modprobe -u -c=0",
            )
        )
    has_libcuda = any("libcuda.so.1" in file.names for file in found.files)
    others: dict[str, list[str]] = {}
    for decision in found.other_versions:
        carried = driver_version_of(decision.path or "")
        if carried and decision.path:
            others.setdefault(carried, []).append(decision.path)
    for other, paths in sorted(others.items()):
        mismatch = not has_libcuda and kernel.version is not None
        findings.append(
            Finding(
                "driver-mismatch" if mismatch else "other-driver-version",
                "error" if mismatch else "warning",
                "nvidia",
                other,
                f"the kernel module is {version}, the libraries on this host are {other}"
                if mismatch
                else f"{len(set(paths))} files of another driver version, {other}, are here; {version} is taken",
                f"{kernel.where}; {sorted(paths)[0]}",
                "programs would say `Driver/library version mismatch`",
                "reboot, or reload the kernel module, after a driver update; remove the version that is not used",
            )
        )
    if not has_libcuda and not others:
        findings.append(
            Finding(
                "no-libcuda",
                "error",
                "nvidia",
                "libcuda.so.1",
                "there are NVIDIA devices but no libcuda.so.1 of this driver",
                LD_CACHE_PATH + ", " + ", ".join(library_directories(host.uname.machine)[:3]) + ", ...",
                "programs will say `libcuda.so.1: cannot open shared object file`",
                "install the driver's user-space libraries, or name their place with --root or --library-path",
            )
        )
    if found.outside:
        findings.append(
            Finding(
                "not-in-list",
                "warning",
                "nvidia",
                namer.listed.liblist.label,
                f"the driver has {len(found.outside)} libraries that the list in force does not name",
                ", ".join(found.outside),
                "what needs them will fail in the container",
                "add these lines to the list",
                "\n".join(sorted({library_stem(name) for name in found.outside})),
            )
        )
    return findings


def _manifest_findings(decisions: list[Decision]) -> list[Finding]:
    what = "a manifest of the driver is malformed, and is not bound"
    return [
        Finding("bad-icd", "warning", "nvidia", decision.subject, what, decision.path, decision.detail)
        for decision in decisions
        if decision.rule == "bad-icd"
    ]


def _nothing(host: Host, kernel: Kernel, search: Search, cache: Optional[LdCache]) -> NothingToBindError:
    entries = "no usable ld.so.cache" if cache is None else f"ld.so.cache ({len(cache)} entries)"
    nouveau = not isinstance(host.dev.lstat("/sys/module/nouveau"), Missing)
    why = "the open-source driver nouveau owns the GPU" if nouveau else kernel.why or "no file matches"
    return NothingToBindError(
        "nothing-to-bind",
        "no NVIDIA driver library and no NVIDIA device on this host",
        where=", ".join((entries, *search.directories, "/dev/nvidia*", kernel.where)),
        why=why,
        hint="on a GPU node: install the driver, or name its place with --root; to plan for another host: --host",
    )
