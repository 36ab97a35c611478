"""Findings about a driver, by its files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Optional

from gpubind.errors import NothingToBindError
from gpubind.files.ldconfig import LD_CACHE_PATH
from gpubind.formats.driver.liblist import library_stem
from gpubind.formats.driver.names import driver_version_of
from gpubind.host import Host
from gpubind.inventory.libraries import Libraries
from gpubind.inventory.nodes import NVIDIAS_DISPLAYS, pci_displays
from gpubind.inventory.nvidia.devices import Kernel
from gpubind.inventory.search import Search
from gpubind.model import Decision, Driver, Finding, HostFile, Missing, RootedPath
from gpubind.model.answers import ABSENT
from gpubind.model.findings import counted, finding
from gpubind.model.layouts import library_directories

LIBCUDA = "libcuda.so.1"
_ANOTHERS = ("cuda-compat", "other-driver-version")
"""Why a library is passed over that is a library all the same, but another one."""


def driver_findings(
    host: Host, driver: Driver, kernel: Kernel, found: Libraries, decisions: list[Decision], label: str
) -> list[Finding]:
    """Return the findings about manifests, versions and libraries; *label* is the list in force."""
    return [
        *(finding("bad-icd", subject=d.subject, where=d.path, why=d.detail) for d in decisions if d.rule == "bad-icd"),
        *_not_loaded(host, driver, kernel),
        *_other_versions(driver, kernel, found),
        *_no_libcuda(host, found),
        *_not_in_list(found, label),
    ]


def _not_loaded(host: Host, driver: Driver, kernel: Kernel) -> Iterator[Finding]:
    if driver.kernel_version is None and driver.kind == "linux":
        from gpubind.formats.driver.mknod import load_command  # only where it is to be loaded

        yield finding(
            "driver-not-loaded",
            case="nvidia-assumed" if driver.version else "nvidia",
            subject="nvidia",
            where=kernel.where,
            why=kernel.why,
            version=driver.version,
            load=load_command(len(pci_displays(host, *NVIDIAS_DISPLAYS))),
        )


def _other_versions(driver: Driver, kernel: Kernel, found: Libraries) -> Iterator[Finding]:
    """Yield a finding for each other driver: a warning if the right one is there, too, else an error."""
    others: dict[str, set[str]] = {}
    for path in (decision.path for decision in found.decisions if decision.rule == "other-driver-version"):
        carried = driver_version_of(path or "")
        if carried and path:
            others.setdefault(carried, set()).add(path)
    mismatch = driver.kernel_version is not None and not has_libcuda(found.files)
    for other, paths in sorted(others.items()):
        code = "driver-mismatch" if mismatch else "other-driver-version"
        where = f"{kernel.where}; {min(paths)}"
        yield finding(code, subject=other, where=where, version=driver.version, count=len(paths))


def _no_libcuda(host: Host, found: Libraries) -> Iterator[Finding]:
    is_other = any(decision.rule == "other-driver-version" for decision in found.decisions)
    if has_libcuda(found.files) or is_other or LIBCUDA in found.outside:
        return
    refused = unusable(host, found.decisions, LIBCUDA)
    searched = ", ".join((LD_CACHE_PATH, *library_directories(host.uname.machine)[:3], "..."))
    yield finding("no-libcuda", subject=LIBCUDA, **(refused or {"case": "absent", "where": searched}))


def unusable(host: Host, decisions: Iterable[Decision], soname: str) -> Optional[dict[str, Any]]:
    """Return the case and the facts of a finding that library *soname* exists and cannot be used; else None.

    A stub is reported as one. Of several files the first is reported: the loader finds it first, too.
    """
    refused = [d for d in decisions if d.subject == soname and d.verdict == "rejected" and d.path]
    stubs = [d.path for d in refused if d.rule == "stub"]
    if stubs:
        return {"case": "stub", "where": ", ".join(f"{path} (a stub)" for path in dict.fromkeys(stubs))}
    tree = host.driver.lenient
    # A file that only an old cache names does not exist.
    broken = next((d for d in refused if d.rule not in _ANOTHERS and tree.lstat(d.path or "") != ABSENT), None)
    if broken is None:
        return None
    from shlex import quote  # few hosts have such a file

    path = RootedPath(broken.path or "")
    stat, ident = tree.stat(path), tree.ident(path)
    is_closed = isinstance(ident, Missing) and ident.why == "forbidden"
    return {
        "case": ("hidden" if isinstance(stat, Missing) else "closed") if is_closed else "damaged",
        "where": path if isinstance(stat, Missing) else f"{path} (mode {stat.mode:04o}, {counted(stat.size, 'byte')})",
        "fault": broken.detail,
        "file": quote(tree.real(path)),
    }


def _not_in_list(found: Libraries, label: str) -> Iterator[Finding]:
    if found.outside:
        yield finding(
            "not-in-list",
            severity="error" if LIBCUDA in found.outside else "warning",
            subject=label,
            where=", ".join(found.outside),
            count=len(found.outside),
            lines="\n".join(sorted({library_stem(name) for name in found.outside})),
        )


def has_libcuda(files: Iterable[HostFile]) -> bool:
    """Return whether there is a libcuda among *files*."""
    return any(LIBCUDA in file.names for file in files)


def nothing_to_bind(host: Host, kernel: Kernel, search: Search) -> NothingToBindError:
    """Return the error that names the places searched, and whether another driver owns the GPU."""
    nouveau = host.dev.has("/sys/module/nouveau")
    why = "the open-source driver nouveau owns the GPU" if nouveau else kernel.why or "no file matches"
    known = library_directories(host.uname.machine)
    listings = ((directory, host.driver.list(directory)) for directory in known)
    hidden = [d for d, names in listings if isinstance(names, Missing) and names.why != "absent"]
    if hidden:
        why += f"; {', '.join(hidden)} cannot be read"
    return NothingToBindError(
        "nothing-to-bind",
        "no NVIDIA driver library and no NVIDIA device on this host",
        where=", ".join((*search.places, "/dev/nvidia*", kernel.where)),
        why=why,
        hint="on a login node: a job (`srun --gpus=1`), or --host; on a GPU node: install the driver, or give --root",
    )
