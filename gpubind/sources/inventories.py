"""The inventories that a request asks for: one for each vendor."""

from __future__ import annotations

from typing import Optional

from gpubind.host import Host, ListFile
from gpubind.model import Inventory, PassedOver, Request
from gpubind.sources.nvidia import read_inventory


def read_inventories(host: Host, request: Request, listfile: Optional[ListFile] = None) -> list[Inventory]:
    """What *host* has of everything that *request* asks for.

    CDI specs are read only where they are the source: a YAML spec wants a library that costs 15 ms to load.
    """
    if request.source != "cdi":
        return [read_inventory(host, request, listfile)]
    from gpubind.sources import cdi
    from gpubind.sources.cdi_edits import driver_edits, other_inventory
    from gpubind.sources.cdi_stale import stale_findings

    choice = cdi.choose(host, request)
    if isinstance(choice, PassedOver):
        return [read_inventory(host, request, listfile, choice)]
    inventories = []
    if choice.driver:
        inventories.append(read_inventory(host, request, listfile, driver_edits(host, choice)))
    if choice.others:
        inventories.append(other_inventory(host, choice))
    first = inventories[0]
    files = [choice.registry.devices[str(name)][0] for name in choice.names]
    used = [loaded for loaded in choice.registry.specs if loaded in files]
    stale = stale_findings(host, used, first.driver.kernel_version, first.gpus, "error")
    return [first._replace(findings=(*first.findings, *stale)), *inventories[1:]]
