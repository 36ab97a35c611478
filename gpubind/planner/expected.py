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
from gpubind.model import CAPABILITIES, VENDOR_ROWS, VENDORS, Capability, Plan, Vendor
from gpubind.model.requirements import Expectation

_NON_DRIVER_RULES = ("host-only", "vendor-neutral")
"""Rules about files that stay on the host, or that any desktop installs."""


def make_expectation(plan: Plan, origin: str = "") -> Expectation:
    """Return the facts of the host of *plan*. Excluded GPUs are not counted."""
    on_host = [d for d in plan.decisions if d.verdict in ("taken", "left-out") and d.rule not in _NON_DRIVER_RULES]
    of_libraries = [d for d in on_host if ".so" in d.subject and "/" not in d.subject]
    libraries = {(d.vendor, basename(d.path or d.subject)) for d in of_libraries}
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


def _capability(vendor: Vendor, name: str) -> Optional[Capability]:
    """Return the capability of *name* in the shipped list of its vendor, so that the host's own list does not
    matter.
    """
    if vendor == "other":
        return None
    table = read_table(shipped_liblist(VENDOR_ROWS[vendor].list_name))
    return capability_of(table.section(name, ""), driver_version_of(name))
