"""NVIDIA's inventories, and the order of sources. Its files come from one source:

1. With `--source cdi`: the CDI specs; without an NVIDIA device in them, the next source of this list.
2. `nvidia-container-cli list`, if requested by name, or with `auto` where the list in force is the shipped one.
3. With `--source driver`: the files that carry the driver's version. Otherwise the list file.
4. With `auto`: the CDI specs, where none of these finds libcuda.

This module reads CDI; `nvidia.inventory` reads the others, and completes the files of any source.
"""

from __future__ import annotations

from typing import Optional

from gpubind.errors import HostReadError
from gpubind.host import Host, ListFile
from gpubind.inventory.nvidia import inventory as nvidia
from gpubind.model import Inventory, PassedOver, Request


def read(host: Host, request: Request, listfile: Optional[ListFile] = None) -> list[Inventory]:
    """Return NVIDIA's inventory; with `--source cdi` also those of other vendors' CDI devices. Errors: as
    `read_inventory`.
    """
    if request.source == "cdi":
        return _read_from_cdi(host, request, listfile)
    inventory = nvidia.read_inventory(host, request, listfile)
    is_final = request.source != "auto" or listfile or nvidia.has_libcuda(inventory.files)
    return [inventory if is_final else _complete_from_cdi(host, request, inventory)]


def _read_from_cdi(host: Host, request: Request, listfile: Optional[ListFile]) -> list[Inventory]:
    """Return the inventories of the requested CDI devices; if no spec serves, that of another source.

    Errors: those of `choose_devices`; `HostReadError` (`stale-cdi-device`) if no library of a named device is left.
    """
    from gpubind.inventory.cdi.devices import driver_claims, other_inventory
    from gpubind.inventory.cdi.specs import REGENERATE_HINT, choose_devices, stale_findings

    choice = choose_devices(host, request)
    if isinstance(choice, PassedOver):
        return [nvidia.read_inventory(host, request, listfile, choice)]
    inventories = []
    if choice.driver:
        serving = driver_claims(host, choice)
        if isinstance(serving, PassedOver) and request.cdi_devices:
            # Another source would provide the driver, but with every GPU.
            what = f"nothing is left of what `{choice.driver_names[0]}` brings"
            where, why = choice.driver[0].location, serving.why
            raise HostReadError("stale-cdi-device", what, where=where, why=why, hint=REGENERATE_HINT)
        inventories.append(nvidia.read_inventory(host, request, listfile, serving))
    if choice.others:
        inventories.append(other_inventory(host, choice))
    first = inventories[0]
    files = [choice.registry.devices[str(name)][0] for name in choice.names]
    used = [loaded for loaded in choice.registry.specs if loaded in files]
    stale = stale_findings(host, used, first.driver.kernel_version, first.gpus, "error")
    return [first._replace(findings=(*first.findings, *stale)), *inventories[1:]]


def _complete_from_cdi(host: Host, request: Request, inventory: Inventory) -> Inventory:
    """Return the inventory of the CDI specs if they have libcuda, which *inventory* does not have; else *inventory*.

    A list of a user or a site takes precedence.
    """
    from gpubind.inventory.cdi.devices import driver_claims
    from gpubind.inventory.cdi.specs import choose_devices

    if not host.liblist(nvidia.LIST_NAME).shipped:
        return inventory
    choice = choose_devices(host.lenient, request)
    serving = None if isinstance(choice, PassedOver) or not choice.driver else driver_claims(host, choice)
    if serving is None or isinstance(serving, PassedOver):
        return inventory
    cdi_inventory = nvidia.read_inventory(host, request, None, serving)
    if not nvidia.has_libcuda(cdi_inventory.files):
        return inventory
    before = inventory.source
    passed = PassedOver(before.served, "no-libcuda", "it finds no libcuda.so.1 of this driver")
    return cdi_inventory._replace(source=cdi_inventory.source._replace(passed_over=(*before.passed_over, passed)))
