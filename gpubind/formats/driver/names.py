"""Facts about libraries and programs, by their names.

The table is data/names.json: a row for each name, the files that libraries of the driver open by name at run time, the
files that stay on the host, and the places of those in an extracted .run directory.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Optional

from gpubind.formats.driver.kernel import DRIVER_VERSION
from gpubind.formats.driver.liblist import VENDOR_NEUTRAL, ListEntry, parse_liblist
from gpubind.frozen import NamedTuple
from gpubind.model import Capability, Severity
from gpubind.model.data import read_data


class NameFacts(NamedTuple):
    """Facts about some names, in addition to the section of the list that they stand in."""

    start: str
    """How they begin."""
    soname: Optional[str] = None
    alias: Optional[str] = None
    """The name by which programs open it, whether or not the host has the link.

    Source: libnvidia-container `src/nvc_mount.c`; NVIDIA driver README, chapter "Installed Components" (GBM).
    """
    required: bool = False
    """Whether the driver is of no use without it; every other mount may be left out where a target cannot be made."""
    shared: Optional[Capability] = None
    """Another capability that is linked with it, or opens it, too.

    Source: DT_NEEDED of libnvidia-glcore and libnvidia-eglcore since 545; `nvidia-drm_gbm.so` is the allocator.
    """
    minor: bool = False
    """Whether most jobs do not need it, even if its capability was asked for by name: window systems, screen capture,
    debuggers, services of the host."""
    is_unused: bool = False
    """Whether no job uses it in a container (services of the host, and what only they open): then no finding reports
    that it does not load."""
    use: str = ""
    """Its purpose. Set only for libraries that few jobs need, so that users do not fix what they do not use."""
    is_sought: bool = False
    """Whether an image that has a library with its soname contains a driver."""
    has_stub: bool = False
    """Whether the CUDA toolkit has a stub of it, for linking."""
    is_neutral: bool = False
    """Whether it is a loader that all vendors share, which an image may have by its soname."""
    packages: str = ""
    """The names of its packages in Debian's and Red Hat's distributions, if the driver needs it of others."""


class Companion(NamedTuple):
    """A file that a library of the driver opens when it needs it: no header names it, and no loader checks it.

    Source: names seen as strings in the driver's libraries, and the driver README, "Installed Components".
    """

    library: str
    name: str
    """The companion, by the start of its name; the case of the finding about its absence."""
    since: int
    """The first driver branch that has it."""
    until: Optional[int] = None
    """The last one; None if it is still there."""
    severity: Severity = "warning"


class HostOnly(NamedTuple):
    """Files of the driver that have no business in a container."""

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
"""Where the vendor's installer puts the data files that an extracted .run directory holds at its top."""
_VERSION_AT_END = re.compile(rf"(?:\.so\.|-)({DRIVER_VERSION})(?:-rc)?$")
_STARTS = tuple(name.start for name in NAMES)
_UNKNOWN = NameFacts("")


def name_facts(name: str) -> NameFacts:
    """Return the facts about *name*, a library's or a program's; the defaults for one that the table lacks."""
    if not name.startswith(_STARTS):
        return _UNKNOWN
    return next(facts for facts in NAMES if name.startswith(facts.start))


def driver_section(name: str) -> Optional[str]:
    """Return the section in which the shipped list has *name*, a library or a program of NVIDIA's driver; else None."""
    for entry in _of_driver():
        if name == entry.text or (entry.kind == "library" and name.startswith(entry.text)):
            return entry.section
    return None


def driver_libraries() -> tuple[str, ...]:
    """Return how the names of the libraries of NVIDIA's driver begin: `libcuda.so`."""
    return tuple(entry.text for entry in _of_driver() if entry.kind == "library")


def rocm_section(name: str) -> Optional[str]:
    """Return the section in which the shipped list has *name*, a library of ROCm's user space; None for any other."""
    if not name.startswith(("libamd", "libhip", "libhsa", "libroc")):
        return None  # libdrm and libnuma are not AMD's
    return next((entry.section for entry in _of_rocm() if name.startswith(entry.text)), None)


@lru_cache(maxsize=1)
def _of_rocm() -> tuple[ListEntry, ...]:
    name = "etc/rocmliblist.conf"
    return tuple(entry for entry in parse_liblist(read_data(name), name).entries if entry.kind == "library")


@lru_cache(maxsize=1)
def _of_driver() -> tuple[ListEntry, ...]:
    name = "etc/nvliblist.conf"
    return tuple(entry for entry in parse_liblist(read_data(name), name).entries if entry.section != VENDOR_NEUTRAL)


def driver_version_of(name: str) -> Optional[str]:
    """Return the driver version that a file name carries: `libcuda.so.550.163.01` -> `550.163.01`.

    None for other versions: `libnvidia-egl-gbm.so.1.1.2`.
    """
    match = _VERSION_AT_END.search(name)
    return match.group(1) if match else None
