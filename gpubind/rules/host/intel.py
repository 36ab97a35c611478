"""Rules about Intel's devices: those that no program can use, and those whose group a runtime drops."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.model import Finding, finding
from gpubind.rules.preflight import Preflight, lost_groups


def intel_unusable(preflight: Preflight) -> Iterator[Finding]:
    """Report an Intel device without a kernel driver or without a node in /dev, if others can be used."""
    if "intel" not in preflight.vendors:
        return
    from gpubind.inventory.intel.devices import DRIVERS, INTEGRATED, read_devices, read_name  # on few hosts

    for address, reason in read_devices(preflight.host).unusable:
        yield finding(
            "intel-unusable",
            subject=address,
            case=reason,
            name=read_name(preflight.host, address),
            severity="note" if address.startswith(INTEGRATED) else "warning",
            where=f"/sys/bus/pci/devices/{address}, {DRIVERS}, /dev",
        )


def intel_groups(preflight: Preflight) -> Iterator[Finding]:
    """Report a runtime that drops the caller's groups although only a group may use the nodes of Intel's GPUs."""
    yield from lost_groups(preflight, "intel-groups", "intel")
