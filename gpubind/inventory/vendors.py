"""The inventories that a request asks for: one a vendor. A vendor that nobody named counts if the host has it."""

from __future__ import annotations

from typing import NamedTuple, Optional

from gpubind.errors import NothingToBindError
from gpubind.host import Host, ListFile
from gpubind.inventory.nvidia import inventory as nvidia
from gpubind.inventory.nvidia.findings import has_libcuda
from gpubind.model import Finding, Inventory, Request, Vendor
from gpubind.model.findings import finding

AMD_MODULE = "/sys/module/amdgpu"


class Surveyed(NamedTuple):
    """What was found, vendor by vendor."""

    inventories: tuple[Inventory, ...]
    findings: tuple[Finding, ...]
    """About a vendor that was asked for by name and is not there, while another is."""


def read_inventories(host: Host, request: Request, listfile: Optional[ListFile] = None) -> Surveyed:
    """Return the inventory of each vendor that *request* names, or, if it names none, of each that this host has.

    AMD's user space alone, without its kernel driver, counts as found only where NVIDIA has nothing: it comes with
    many a distribution. Errors: those of the vendors; `NothingToBindError` only if no vendor has anything.
    """
    named = bool(request.vendors)
    wanted: tuple[Vendor, ...] = request.vendors or ("nvidia", "amd")
    inventories: list[Inventory] = []
    errors: list[tuple[Vendor, NothingToBindError]] = []
    if request.cdi_devices and not named:
        wanted = ("nvidia",)  # the devices say of whom they are
    for vendor in wanted:
        if not named and vendor == "amd" and inventories and not host.dev.has(AMD_MODULE):
            continue
        try:
            inventories += _read(vendor, host, request, listfile)
        except NothingToBindError as error:
            errors.append((vendor, error))
    if not inventories:
        raise errors[0][1] if len(errors) == 1 else _none_at_all([error for _, error in errors])
    findings = [nothing_to_bind(error, vendor) for vendor, error in errors if named]
    return Surveyed(tuple(inventories), tuple(findings))


def _none_at_all(errors: list[NothingToBindError]) -> NothingToBindError:
    """The error that a host has nothing of any vendor, of what is said of each."""
    what, why, hint = ("; ".join(said) for said in zip(*((e.what, e.why, e.hint) for e in errors)))
    where = ", ".join(dict.fromkeys(place for error in errors for place in error.where.split(", ")))
    return NothingToBindError(errors[0].code, what, where=where, why=why, hint=hint)


def nothing_to_bind(error: NothingToBindError, vendor: Optional[Vendor] = None) -> Finding:
    """The finding about a host that has no driver and no device."""
    where, what, why, hint = error.where, error.what, error.why, error.hint
    return finding(error.code, subject="host", vendor=vendor, where=where, what=what, why=why, hint=hint)


def _read(vendor: Vendor, host: Host, request: Request, listfile: Optional[ListFile]) -> list[Inventory]:
    """Return the inventory of *vendor*; CDI specs may know of devices of other vendors, too."""
    if vendor == "amd":
        from gpubind.inventory.amd import inventory as amd

        return [amd.read_inventory(host, request, listfile)]
    if request.source == "cdi":
        from gpubind.inventory.cdi.inventories import read_cdi

        return read_cdi(host, request, listfile)
    inventory = nvidia.read_inventory(host, request, listfile)
    if request.source != "auto" or listfile or has_libcuda(inventory.files):
        return [inventory]
    from gpubind.inventory.cdi.inventories import found_by_cdi  # asked where nobody else finds libcuda

    return [found_by_cdi(host, request, inventory)]
