"""The facts of a plan's host with which other nodes are compared.

They do not depend on options or variables that choose: libraries and GPUs that a request leaves out are on the host
nevertheless. A library file is one library, whatever names it has.
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
"""Rules about files that stay on the host, or that any desktop installs."""


def make_expectation(plan: Plan, origin: str = "") -> Expectation:
    """Return the facts of the host of *plan*. Excluded GPUs are not counted."""
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
    is_library = ".so" in decision.subject and "/" not in decision.subject
    return is_library and decision.verdict in ("taken", "left-out") and decision.rule not in _NON_DRIVER_RULES


def _capability(vendor: Vendor, name: str) -> Optional[Capability]:
    """Look up *name* in the shipped list of its vendor, so that the host's own list does not matter."""
    if vendor == "other":
        return None
    table = read_table(shipped_liblist(VENDOR_ROWS[vendor].list_name))
    return capability_of(table.section(name, ""), driver_version_of(name))
