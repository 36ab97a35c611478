"""The inventories that CDI devices make: NVIDIA's driver, completed as ever, and one for everything else."""

from __future__ import annotations

from typing import Optional

from gpubind.errors import HostReadError
from gpubind.host import Host, ListFile
from gpubind.inventory.cdi.driver import claims
from gpubind.inventory.cdi.other import other_inventory
from gpubind.inventory.cdi.stale import REFRESH, stale_findings
from gpubind.inventory.cdi_specs import choose
from gpubind.inventory.nvidia.findings import has_libcuda
from gpubind.inventory.nvidia.inventory import LIST_NAME, read_inventory
from gpubind.model import Inventory, PassedOver, Request


def read_cdi(host: Host, request: Request, listfile: Optional[ListFile] = None) -> list[Inventory]:
    """Return what *host* has of the CDI devices that *request* means; what another source has, if no spec serves.

    Errors: those of `choose`; `HostReadError` (code `stale-cdi-device`) if no library of a named device is left.
    """
    choice = choose(host, request)
    if isinstance(choice, PassedOver):
        return [read_inventory(host, request, listfile, choice)]
    inventories = []
    if choice.driver:
        edits = claims(host, choice)
        if isinstance(edits, PassedOver) and request.cdi_devices:
            # Another source would bring the driver, but every GPU with it.
            what = f"nothing is left of what `{choice.driver_names[0]}` brings"
            raise HostReadError("stale-cdi-device", what, where=choice.driver[0].at, why=edits.why, hint=REFRESH)
        inventories.append(read_inventory(host, request, listfile, edits))
    if choice.others:
        inventories.append(other_inventory(host, choice))
    first = inventories[0]
    files = [choice.registry.devices[str(name)][0] for name in choice.names]
    used = [loaded for loaded in choice.registry.specs if loaded in files]
    stale = stale_findings(host, used, first.driver.kernel_version, first.gpus, "error")
    return [first._replace(findings=(*first.findings, *stale)), *inventories[1:]]


def found_by_cdi(host: Host, request: Request, inventory: Inventory) -> Inventory:
    """*inventory*, in which nobody found libcuda; or what CDI specs know of it, if they know better.

    A list that a user or site gives is the law, here as elsewhere.
    """
    if not host.liblist(LIST_NAME).shipped:
        return inventory
    choice = choose(host.lenient, request)
    edits = None if isinstance(choice, PassedOver) or not choice.driver else claims(host, choice)
    if edits is None or isinstance(edits, PassedOver):
        return inventory
    found = read_inventory(host, request, None, edits)
    if not has_libcuda(found.files):
        return inventory
    before = inventory.source
    passed = PassedOver(before.served, "no-libcuda", "it finds no libcuda.so.1 of this driver")
    return found._replace(source=found.source._replace(passed_over=(*before.passed_over, passed)))
