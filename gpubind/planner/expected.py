"""The facts of a plan's host that other nodes are compared with.

They depend on no option and no variable that chooses among what is there: a library that a request leaves out is on the
host all the same, and a GPU that is not chosen is one of its GPUs. A library is known by its file, which has a name for
each of its uses.
"""

from __future__ import annotations

from collections import Counter
from posixpath import basename
from typing import Optional

from gpubind.formats.driver.liblist import library_stem
from gpubind.formats.driver.names import driver_version_of
from gpubind.host.base import shipped_liblist
from gpubind.inventory.liblist import capability_of, read_table
from gpubind.model import CAPABILITIES, VENDOR_ROWS, VENDORS, Capability, Decision, Plan, Vendor
from gpubind.model.requirements import Expectation

_NON_DRIVER_RULES = ("host-only", "vendor-neutral")
"""Rules about files that stay on a host, or come with any desktop."""


def make_expectation(plan: Plan, origin: str = "") -> Expectation:
    """Return what a host has, by its *plan*. Excluded GPUs are not counted."""
    libraries = {
        (decision.vendor, basename(decision.path or decision.subject))
        for decision in plan.decisions
        if _is_host_library(decision)
    }
    capabilities = {_capability(*library) for library in libraries}
    models = Counter(gpu.model or "" for gpu in plan.gpus if gpu.index is not None)
    versions = (planned.driver.version for planned in plan.drivers if planned.driver.vendor in VENDORS)
    return Expectation(
        source_file=origin,
        drivers=tuple(version for version in versions if version),
        gpus=tuple(sorted(models.items())),
        capabilities=tuple(name for name in CAPABILITIES if name in capabilities),
        libraries=tuple(sorted({library_stem(name) for _, name in libraries})),
        partitions=tuple(sorted({gpu.partition for gpu in plan.gpus if gpu.partition})),
    )


def _is_host_library(decision: Decision) -> bool:
    """Return whether it is about a name of a library of the driver, which a container gets or might get."""
    is_library = ".so" in decision.subject and "/" not in decision.subject
    return is_library and decision.verdict in ("taken", "left-out") and decision.rule not in _NON_DRIVER_RULES


def _capability(vendor: Vendor, name: str) -> Optional[Capability]:
    """Return the capability of the library file *name*, by the shipped list of its vendor."""
    if vendor == "other":
        return None
    table = read_table(shipped_liblist(VENDOR_ROWS[vendor].list_name))
    return capability_of(table.section(name, ""), driver_version_of(name))
