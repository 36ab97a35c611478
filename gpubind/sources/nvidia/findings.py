"""What is wrong with a driver, told from what its files were found to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Optional

from gpubind.errors import NothingToBindError
from gpubind.formats.liblist import library_stem
from gpubind.host import Host
from gpubind.layouts import library_directories
from gpubind.model import Decision, DriverKind, Finding, HostFile, Missing
from gpubind.sources.liblist import driver_version_of
from gpubind.sources.libraries import Libraries
from gpubind.sources.nvidia.version import Kernel
from gpubind.sources.search import Search
from gpubind.tree.ldcache import LD_CACHE_PATH


def driver_findings(
    host: Host, kernel: Kernel, kind: DriverKind, version: Optional[str], found: Libraries, label: str
) -> list[Finding]:
    """The findings about versions and libraries; *version* is V, *label* the list in force."""
    return [
        *_not_loaded(kernel, kind, version),
        *_other_versions(kernel, version, found),
        *_no_libcuda(host, found),
        *_not_in_list(found, label),
    ]


def _not_loaded(kernel: Kernel, kind: DriverKind, version: Optional[str]) -> Iterator[Finding]:
    if kernel.version is None and kind == "linux":
        assumed = f" The plan assumes {version}, the version of the file behind libcuda" if version else ""
        yield Finding(
            code="driver-not-loaded",
            severity="error",
            vendor="nvidia",
            subject="nvidia",
            what="no NVIDIA kernel module is loaded on this host",
            where=kernel.where,
            why=f"{kernel.why}; programs will say CUDA_ERROR_NO_DEVICE (100) or `Driver Not Loaded`.{assumed}",
            hint="load it, as root; on a login node without a GPU this is expected",
            command="modprobe nvidia && nvidia-modprobe -u -c=0",
        )


def _other_versions(kernel: Kernel, version: Optional[str], found: Libraries) -> Iterator[Finding]:
    """A second driver beside the right one is a warning; only a wrong one is an error."""
    others: dict[str, list[str]] = {}
    for decision in _of_other_versions(found):
        carried = driver_version_of(decision.path or "")
        if carried and decision.path:
            others.setdefault(carried, []).append(decision.path)
    mismatch = kernel.version is not None and not has_libcuda(found.files)
    for other, paths in sorted(others.items()):
        yield Finding(
            code="driver-mismatch" if mismatch else "other-driver-version",
            severity="error" if mismatch else "warning",
            vendor="nvidia",
            subject=other,
            what=f"the kernel module is {version}, the libraries on this host are {other}"
            if mismatch
            else f"{len(set(paths))} files of another driver version, {other}, are here; {version} is taken",
            where=f"{kernel.where}; {sorted(paths)[0]}",
            why="programs would say `Driver/library version mismatch`",
            hint="reboot, or reload the kernel module: the driver was updated since"
            if mismatch
            else "remove the version that is not used, and run `ldconfig` as root",
        )


def _of_other_versions(found: Libraries) -> list[Decision]:
    return [decision for decision in found.decisions if decision.rule == "other-driver-version"]


def _no_libcuda(host: Host, found: Libraries) -> Iterator[Finding]:
    if not has_libcuda(found.files) and not _of_other_versions(found) and "libcuda.so.1" not in found.outside:
        stubs = {d.path: None for d in found.decisions if d.rule == "stub" and d.subject == "libcuda.so.1" and d.path}
        looked = LD_CACHE_PATH + ", " + ", ".join(library_directories(host.uname.machine)[:3]) + ", ..."
        yield Finding(
            code="no-libcuda",
            severity="error",
            vendor="nvidia",
            subject="libcuda.so.1",
            what="there are NVIDIA devices but no libcuda.so.1 of this driver",
            where=", ".join(f"{path} (a stub)" for path in stubs) if stubs else looked,
            why="what has its name is a stub, for linking programs only: CUDA_ERROR_STUB_LIBRARY (34)"
            if stubs
            else "programs will say `libcuda.so.1: cannot open shared object file`",
            hint="install the driver's user-space libraries, or name their place with --root or --library-path",
        )


def _not_in_list(found: Libraries, label: str) -> Iterator[Finding]:
    if found.outside:
        yield Finding(
            code="not-in-list",
            severity="error" if "libcuda.so.1" in found.outside else "warning",
            vendor="nvidia",
            subject=label,
            what=f"the driver has {len(found.outside)} libraries that the list in force does not name",
            where=", ".join(found.outside),
            why="what needs them will fail in the container",
            hint="add these lines to the list",
            command="\n".join(sorted({library_stem(name) for name in found.outside})),
        )


def has_libcuda(files: Iterable[HostFile]) -> bool:
    """Whether there is a libcuda among *files*."""
    return any("libcuda.so.1" in file.names for file in files)


def manifest_findings(decisions: list[Decision]) -> list[Finding]:
    """A finding for each manifest that was turned down."""
    what = "a manifest of the driver is malformed, and is not bound"
    hint = "install the driver's package again, or remove the file if nothing owns it"
    return [
        Finding(
            code="bad-icd",
            severity="warning",
            vendor="nvidia",
            subject=decision.subject,
            what=what,
            where=decision.path,
            why=decision.detail,
            hint=hint,
        )
        for decision in decisions
        if decision.rule == "bad-icd"
    ]


def nothing_to_bind(host: Host, kernel: Kernel, search: Search) -> NothingToBindError:
    """The error that says where was looked, and whether another driver owns the GPU."""
    entries = "no usable ld.so.cache" if search.cache is None else f"ld.so.cache ({len(search.cache)} entries)"
    nouveau = not isinstance(host.dev.lstat("/sys/module/nouveau"), Missing)
    why = "the open-source driver nouveau owns the GPU" if nouveau else kernel.why or "no file matches"
    known = library_directories(host.uname.machine)
    listings = ((directory, host.driver.list(directory)) for directory in known)
    hidden = [d for d, names in listings if isinstance(names, Missing) and names.why != "absent"]
    if hidden:
        why += f"; {', '.join(hidden)} cannot be read"
    return NothingToBindError(
        "nothing-to-bind",
        "no NVIDIA driver library and no NVIDIA device on this host",
        where=", ".join((entries, *search.directories, "/dev/nvidia*", kernel.where)),
        why=why,
        hint="on a GPU node: install the driver, or name its place with --root; to plan for another host: --host",
    )
