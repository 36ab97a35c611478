"""gpus: the GPUs of a host, and those that a job would get."""

from __future__ import annotations

from typing import Optional

from gpubind.documents.gpus import ListedGpu, list_gpus
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.inventory.asked import with_gpus_of_smi
from gpubind.inventory.vendors import read_inventories
from gpubind.model import Finding
from gpubind.model.layouts import ALL_GPU_NODES
from gpubind.planner.gpus.selection import select
from gpubind.planner.plan import findings_that_matter
from gpubind.planner.planning import PlanQuery


class Gpus(NamedTuple):
    """The GPUs of a host."""

    listed: tuple[ListedGpu, ...]
    all_gpus_node: Optional[str]
    """The device node of all GPUs, if no file distinguishes them."""
    findings: tuple[Finding, ...]


def gpus(host: Host, query: PlanQuery) -> Gpus:
    """Return the GPUs of *host*, with those that *query* requests marked as chosen.

    Errors: `NothingToBindError`, `HostReadError`; `UsageError` for a GPU that does not exist.
    """
    request = query.validated_request()
    host_inventories = read_inventories(host, request)
    selections = select(host_inventories.inventories, request.gpus, host.environ, isolated=True)
    inventories = with_gpus_of_smi(host, host_inventories.inventories)
    if inventories != host_inventories.inventories:
        selections = select(inventories, None, host.environ, isolated=True)
    about_gpus = (each for selection in selections for each in findings_that_matter(selection.inventory, request))
    shared = (node.target for inventory in inventories for node in inventory.devices if node.target in ALL_GPU_NODES)
    return Gpus(list_gpus(inventories, selections), next(shared, None), (*host_inventories.findings, *about_gpus))
