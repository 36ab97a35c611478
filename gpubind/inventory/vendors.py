"""The inventories that a request gets, and the order of sources.

A vendor that the request does not name is read if the host has it. NVIDIA's files come from one source:

1. With `--source cdi`: the CDI specs. If they have no device of NVIDIA's, the next that the list below allows.
2. `nvidia-container-cli list`, by name, or with `auto` where the list in force is the shipped one.
3. With `--source driver`: the files that carry the driver's version. Else the list file.
4. With `auto`: the CDI specs, where none of these finds libcuda.

CDI is read here, the others in `nvidia.inventory`, which completes the files of any source. The source of
AMD's and Intel's is the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from gpubind.errors import HostReadError, NothingToBindError
from gpubind.frozen import NamedTuple
from gpubind.host import Host, ListFile
from gpubind.inventory.nodes import AMD_MODULE, INTEL_MODULES
from gpubind.inventory.nvidia import inventory as nvidia
from gpubind.model import VENDORS, Finding, Inventory, PassedOver, Request, Vendor, finding


class Surveyed(NamedTuple):
    """The inventories of a host."""

    inventories: tuple[Inventory, ...]
    findings: tuple[Finding, ...]
    """About each vendor that was asked for by name and is not there, while another is."""


def read_inventories(host: Host, request: Request, listfile: Optional[ListFile] = None) -> Surveyed:
    """Return the inventory of each vendor that *request* names, or, if it names none, of each that this host has.

    Beside another vendor's, what is there without having been bought for computing is ignored: AMD's user space without
    its kernel driver, which many distributions ship, and the graphics of Intel's processors.
    Errors: those of the vendors; `NothingToBindError` only if no vendor has anything.
    """
    named = bool(request.vendors)
    asked: Iterable[Vendor] = request.vendors or sorted(VENDORS, key=lambda vendor: not _may_be_first(host, vendor))
    if request.cdi_devices and not named:
        asked = ["nvidia"]  # the devices name their vendors
    inventories: list[Inventory] = []
    errors: list[tuple[Vendor, NothingToBindError]] = []
    for vendor in asked:
        if inventories and not named and not _counts(host, vendor):
            continue
        try:
            if vendor == "amd":
                from gpubind.inventory.amd import inventory as amd  # most hosts have no GPU of AMD's

                inventories.append(amd.read_inventory(host, request, listfile))
            elif vendor == "intel":
                from gpubind.inventory.intel import inventory as intel  # nor one of Intel's that is asked for

                inventories.append(intel.read_inventory(host, request, listfile))
            elif request.source == "cdi":
                inventories += _named_by_cdi(host, request, listfile)
            else:
                inventory = nvidia.read_inventory(host, request, listfile)
                is_final = request.source != "auto" or listfile or nvidia.has_libcuda(inventory.files)
                inventories.append(inventory if is_final else _completed_by_cdi(host, request, inventory))
        except NothingToBindError as error:
            errors.append((vendor, error))
    if not inventories:
        raise errors[0][1] if len(errors) == 1 else _none_at_all([error for _, error in errors])
    findings = [nothing_to_bind(error, vendor) for vendor, error in errors if named]
    return Surveyed(tuple(inventories), tuple(findings))


def _may_be_first(host: Host, vendor: Vendor) -> bool:
    return vendor != "amd" or host.dev.has(AMD_MODULE)


def _counts(host: Host, vendor: Vendor) -> bool:
    """Return whether *vendor*'s devices are there for computing, where another vendor's are, too."""
    if vendor == "intel" and any(host.lenient.dev.has(module) for module in INTEL_MODULES):
        from gpubind.inventory.intel.devices import counts_beside_others

        return counts_beside_others(host)
    return vendor == "amd" and host.dev.has(AMD_MODULE)


def nothing_to_bind(error: NothingToBindError, vendor: Optional[Vendor] = None) -> Finding:
    """Return the finding that a host has no driver and no device."""
    where, what, why, hint = error.where, error.what, error.why, error.hint
    return finding(error.code, subject="host", vendor=vendor, where=where, what=what, why=why, hint=hint)


def _none_at_all(errors: list[NothingToBindError]) -> NothingToBindError:
    what, why, hint = ("; ".join(texts) for texts in zip(*((e.what, e.why, e.hint) for e in errors)))
    where = ", ".join(dict.fromkeys(place for error in errors for place in error.where.split(", ")))
    return NothingToBindError(errors[0].code, what, where=where, why=why, hint=hint)


def _named_by_cdi(host: Host, request: Request, listfile: Optional[ListFile]) -> list[Inventory]:
    """Return the inventories of the CDI devices that *request* means; if no spec serves, that of another source.

    Errors: those of `choose`; `HostReadError` (code `stale-cdi-device`) if no library of a named device is left.
    """
    from gpubind.inventory.cdi.devices import driver_claims, other_inventory
    from gpubind.inventory.cdi.specs import REFRESH, choose, stale_findings

    choice = choose(host, request)
    if isinstance(choice, PassedOver):
        return [nvidia.read_inventory(host, request, listfile, choice)]
    inventories = []
    if choice.driver:
        serving = driver_claims(host, choice)
        if isinstance(serving, PassedOver) and request.cdi_devices:
            # Another source would provide the driver, but with every GPU.
            what = f"nothing is left of what `{choice.driver_names[0]}` brings"
            raise HostReadError("stale-cdi-device", what, where=choice.driver[0].at, why=serving.why, hint=REFRESH)
        inventories.append(nvidia.read_inventory(host, request, listfile, serving))
    if choice.others:
        inventories.append(other_inventory(host, choice))
    first = inventories[0]
    files = [choice.registry.devices[str(name)][0] for name in choice.names]
    used = [loaded for loaded in choice.registry.specs if loaded in files]
    stale = stale_findings(host, used, first.driver.kernel_version, first.gpus, "error")
    return [first._replace(findings=(*first.findings, *stale)), *inventories[1:]]


def _completed_by_cdi(host: Host, request: Request, inventory: Inventory) -> Inventory:
    """Return *inventory*, which lacks libcuda, or the one of the CDI specs if they have it.

    A list that a user or a site gives takes precedence.
    """
    from gpubind.inventory.cdi.devices import driver_claims
    from gpubind.inventory.cdi.specs import choose

    if not host.liblist(nvidia.LIST_NAME).shipped:
        return inventory
    choice = choose(host.lenient, request)
    serving = None if isinstance(choice, PassedOver) or not choice.driver else driver_claims(host, choice)
    if serving is None or isinstance(serving, PassedOver):
        return inventory
    found = nvidia.read_inventory(host, request, None, serving)
    if not nvidia.has_libcuda(found.files):
        return inventory
    before = inventory.source
    passed = PassedOver(before.served, "no-libcuda", "it finds no libcuda.so.1 of this driver")
    return found._replace(source=found.source._replace(passed_over=(*before.passed_over, passed)))
