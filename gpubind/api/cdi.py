"""cdi: the CDI devices of a host."""

from __future__ import annotations

from contextlib import suppress

from gpubind.errors import NothingToBindError
from gpubind.host import Host
from gpubind.inventory.cdi.listing import CdiListing, list_cdi
from gpubind.inventory.vendors import read_inventories
from gpubind.model import Inventory
from gpubind.planner.planning import PlanQuery


def cdi(host: Host, query: PlanQuery) -> CdiListing:
    """Return the CDI devices in the directories of *query*, compared with the driver and the GPUs of *host*.

    Errors: `HostReadError`, `NotRecordedError`.
    """
    request = query.validated_request()
    for directory in request.cdi_directories:
        host.dev.list(directory)  # raises if a record does not cover the directory
    inventories: tuple[Inventory, ...] = ()
    with suppress(NothingToBindError):
        inventories = read_inventories(host, request).inventories
    version = next(
        (inventory.driver.kernel_version for inventory in inventories if inventory.driver.vendor == "nvidia"), None
    )
    gpus = tuple(gpu for inventory in inventories for gpu in inventory.gpus)
    return list_cdi(host.lenient, request.cdi_directories, version, gpus)
