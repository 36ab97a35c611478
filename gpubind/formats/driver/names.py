"""Facts about libraries and programs, by their names.

The table is data/names.json: a row for each name, the files that libraries of the driver open at run time, the files
that stay on the host, and the installed paths of the data files of an extracted .run directory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Optional

from gpubind.formats.driver.kernel import DRIVER_VERSION
from gpubind.formats.driver.liblist import VENDOR_NEUTRAL, ListEntry, parse_liblist
from gpubind.frozen import NamedTuple
from gpubind.model import Capability, Severity
from gpubind.model.data import read_data


class NameFacts(NamedTuple):
    """Facts about names, in addition to their section of the list."""

    start: str
    """The start of the names."""
    soname: Optional[str] = None
    alias: Optional[str] = None
    """The name by which programs open it, whether or not the host has the link.

    Source: libnvidia-container `src/nvc_mount.c`; NVIDIA driver README, chapter "Installed Components" (GBM).
    """
    required: bool = False
    """Whether the driver needs it; any other mount may be left out if its target cannot be created."""
    shared: Optional[Capability] = None
    """Another capability whose libraries are linked with this library, or open it.

    Source: DT_NEEDED of libnvidia-glcore and libnvidia-eglcore since 545; `nvidia-drm_gbm.so` is the allocator.
    """
    minor: bool = False
    """Whether most jobs do not need it, even if the user named its capability: window systems, screen capture,
    debuggers, services of the host."""
    is_unused: bool = False
    """Whether no job uses it in a container: services of the host, and files that only they open. No finding reports
    that such a library does not load."""
    use: str = ""
    """Its purpose, if few jobs need it: users can then ignore a finding about it."""
    is_sought: bool = False
    """Whether an image that has a library with its soname contains a driver."""
    has_stub: bool = False
    """Whether the CUDA toolkit has a stub of it, for linking."""
    is_neutral: bool = False
    """Whether it is a loader that all vendors share; an image may have it by its soname."""
    packages: str = ""
    """The names of its packages in Debian's and Red Hat's distributions, if the driver does not provide it."""


class Companion(NamedTuple):
    """A file that a library of the driver opens at run time: no header names it, and no loader checks it.

    Source: names seen as strings in the driver's libraries, and the driver README, "Installed Components".
    """

    library: str
    name: str
    """The start of the companion's name; the case of the finding about its absence."""
    since: int
    """The first driver branch that has it."""
    until: Optional[int] = None
    """The last branch that has it; None if the newest has it."""
    severity: Severity = "warning"


class HostOnly(NamedTuple):
    """Files of the driver that a container does not need."""

    pattern: str
    why: str


_TABLE = json.loads(read_data("model/data/names.json"))
NAMES = tuple(NameFacts(**row) for row in _TABLE["names"])
COMPANIONS = tuple(Companion(**row) for row in _TABLE["companions"])
REQUIRED = tuple(name.soname for name in NAMES if name.required)
ALIASES = tuple((name.alias, name.soname) for name in NAMES if name.alias and name.soname)
DRIVER_SONAMES = tuple(name.soname for name in NAMES if name.is_sought and name.soname)
VENDOR_NEUTRAL_SONAMES = tuple(name.soname for name in NAMES if name.is_neutral and name.soname)
STUB_PREFIXES = tuple(name.start for name in NAMES if name.has_stub)
HOST_ONLY = tuple(HostOnly(**row) for row in _TABLE["host_only"])
RUN_DIRECTORY: dict[str, str] = _TABLE["run_directory"]
"""The directories into which the installer copies the data files at the top of an extracted .run directory."""
_VERSION_AT_END = re.compile(rf"(?:\.so\.|-)({DRIVER_VERSION})(?:-rc)?$")
_STARTS = tuple(name.start for name in NAMES)
_UNKNOWN = NameFacts("")


def name_facts(name: str) -> NameFacts:
    """Return the facts about *name*, a library or program; the defaults if the table lacks it."""
    if not name.startswith(_STARTS):
        return _UNKNOWN
    return next(facts for facts in NAMES if name.startswith(facts.start))


def driver_section(name: str) -> Optional[str]:
    """Return the section of *name* in the shipped list, a library or program of NVIDIA's driver; else None."""
    for entry in _driver_entries():
        if name == entry.text or (entry.kind == "library" and name.startswith(entry.text)):
            return entry.section
    return None


def driver_libraries() -> tuple[str, ...]:
    """Return the prefixes of the library names of NVIDIA's driver: `libcuda.so`."""
    return tuple(entry.text for entry in _driver_entries() if entry.kind == "library")


def rocm_section(name: str) -> Optional[str]:
    """Return the section of *name* in the shipped list, a library of ROCm's user space; else None."""
    if not name.startswith(("libamd", "libhip", "libhsa", "libroc")):
        return None  # libdrm and libnuma are not AMD's
    libraries = (entry for entry in _entries("etc/rocmliblist.conf") if entry.kind == "library")
    return next((entry.section for entry in libraries if name.startswith(entry.text)), None)


def _driver_entries() -> Iterator[ListEntry]:
    return (entry for entry in _entries("etc/nvliblist.conf") if entry.section != VENDOR_NEUTRAL)


@cache
def _entries(name: str) -> tuple[ListEntry, ...]:
    return parse_liblist(read_data(name), name).entries


def driver_version_of(name: str) -> Optional[str]:
    """Return the driver version in a file name: `libcuda.so.550.163.01` -> `550.163.01`.

    None for other versions: `libnvidia-egl-gbm.so.1.1.2`.
    """
    match = _VERSION_AT_END.search(name)
    return match.group(1) if match else None
