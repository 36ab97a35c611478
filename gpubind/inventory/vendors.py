"""The inventories for a request. Each vendor's reader is in its row (`VENDOR_ROWS`).

A request without vendors gets those of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Optional

from gpubind.errors import NothingToBindError
from gpubind.frozen import NamedTuple
from gpubind.host import Host, ListFile
from gpubind.model import VENDORS, Finding, Inventory, Request, Vendor, finding
from gpubind.model.vendors import VENDOR_ROWS


class HostInventories(NamedTuple):
    """The inventories of a host."""

    inventories: tuple[Inventory, ...]
    findings: tuple[Finding, ...]
    """A finding for each requested vendor that is missing while another exists."""


def read_inventories(host: Host, request: Request, listfile: Optional[ListFile] = None) -> HostInventories:
    """Return the inventory of each vendor that *request* names, or, if it names none, of each vendor on this host.

    If another vendor exists, devices and files that are not for computing are ignored: AMD's user space without its
    kernel driver, which many distributions ship, and the graphics of Intel's processors.
    Errors: those of the vendors; `NothingToBindError` only if no vendor has anything.
    """
    is_explicit = bool(request.vendors)
    vendors: Iterable[Vendor] = request.vendors or sorted(
        VENDORS, key=lambda vendor: VENDOR_ROWS[vendor].waits and not _is_used_beside(host, vendor)
    )
    if request.cdi_devices and not is_explicit:
        vendors = ["nvidia"]  # the devices name their vendors
    inventories: list[Inventory] = []
    errors: list[tuple[Vendor, NothingToBindError]] = []
    for vendor in vendors:
        if inventories and not is_explicit and not _is_used_beside(host, vendor):
            continue
        try:
            result = _load_function(VENDOR_ROWS[vendor].inventory)(host, request, listfile)
            inventories += [result] if isinstance(result, Inventory) else result
        except NothingToBindError as error:
            errors.append((vendor, error))
    if not inventories:
        raise errors[0][1] if len(errors) == 1 else _merge_errors([error for _, error in errors])
    findings = [nothing_to_bind_finding(error, vendor) for vendor, error in errors if is_explicit]
    return HostInventories(tuple(inventories), tuple(findings))


def _is_used_beside(host: Host, vendor: Vendor) -> bool:
    """Return whether *vendor*'s devices are for computing, and so used in addition to those of another vendor."""
    row = VENDOR_ROWS[vendor]
    is_loaded = any(host.lenient.dev.has(module) for module in row.modules)
    return is_loaded and (not row.used_beside or bool(_load_function(row.used_beside)(host)))


def _load_function(name: str) -> Callable[..., Any]:
    # Most hosts have the GPUs of one vendor: no other vendor's code is loaded.
    module, _, function = name.partition(":")
    loaded_function: Callable[..., Any] = getattr(import_module(module), function)
    return loaded_function


def nothing_to_bind_finding(error: NothingToBindError, vendor: Optional[Vendor] = None) -> Finding:
    """Return *error*, that a host has no driver and no device, as a finding."""
    where, what, why, hint = error.where, error.what, error.why, error.hint
    return finding(error.code, subject="host", vendor=vendor, where=where, what=what, why=why, hint=hint)


def _merge_errors(errors: list[NothingToBindError]) -> NothingToBindError:
    what, why, hint = ("; ".join(texts) for texts in zip(*((e.what, e.why, e.hint) for e in errors)))
    where = ", ".join(dict.fromkeys(place for error in errors for place in error.where.split(", ")))
    return NothingToBindError(errors[0].code, what, where=where, why=why, hint=hint)
