"""GPUs on the PCI bus that no program can use though the vendor's driver is loaded. For Intel's, see `intel`."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.inventory.nodes import NVIDIA_PCI_CLASS, PCI_DEVICES, devices_without_driver, pci_driver
from gpubind.inventory.nvidia.devices import PROC_GPUS
from gpubind.model import Finding, Severity, finding
from gpubind.rules.host.driver import gpu_unsupported
from gpubind.rules.preflight import Preflight


def gpu_unserved(preflight: Preflight) -> Iterator[Finding]:
    """Yield each GPU that the vendor's driver has not taken, and each AMD GPU that KFD does not list."""
    yield from _nvidias(preflight)
    if "amd" in preflight.vendors:
        yield from _amds(preflight)


def _nvidias(preflight: Preflight) -> Iterator[Finding]:
    """If the driver has no GPU at all, another rule reports it."""
    if not preflight.has_linux_driver or not preflight.gpus:
        return
    reported = {address for unsupported in gpu_unsupported(preflight) for address in unsupported.subject.split(", ")}
    for address in devices_without_driver(preflight.host, *NVIDIA_PCI_CLASS):
        if address not in reported and not preflight.host.dev.has(f"{PROC_GPUS}/{address}"):
            where = f"{PCI_DEVICES}/{address}, {PROC_GPUS}"
            yield finding("gpu-unserved", subject=address, vendor="nvidia", severity="warning", where=where, name="GPU")


def _amds(preflight: Preflight) -> Iterator[Finding]:
    """Yield an error for the only GPU that a job could get, a note for a GPU that another driver has, else a warning.

    KFD lists all GPUs that are made for computing, but not all graphics cards.
    """
    from gpubind.inventory.amd.devices import TOPOLOGY, read_unusable  # most hosts have no GPU of AMD's

    others = preflight.plan.gpus
    for address, name, why in read_unusable(preflight.host):
        usual: Severity = "note" if why == "other-driver" else "warning"
        beside = [gpu.model or "" for gpu in others if gpu.pci != address]
        is_supported = name is not None and ("Instinct" in name or any(model.startswith(name) for model in beside))
        if why == "not-in-kfd" and beside and not is_supported:
            usual = "note"
        yield finding(
            "gpu-unserved",
            subject=address,
            vendor="amd",
            case=("amd", why),
            severity=usual if others else "error",
            where=f"{PCI_DEVICES}/{address}, {TOPOLOGY}",
            name=name or "GPU",
            driver=pci_driver(preflight.host, address),
        )
