"""The GPUs that were chosen of a vendor's, and the GPUs that a name means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from gpubind.formats.driver.gpu_names import GpuId
from gpubind.frozen import NamedTuple
from gpubind.model import Finding, Gpu, Inventory, MigDevice

OPTION = "--gpus"


class ChosenGpu(NamedTuple):
    """A GPU, or MIG devices of it."""

    gpu: Gpu
    mig: tuple[MigDevice, ...] = ()
    """Empty: the whole GPU, with all its MIG devices if it has any."""


class GpuChoice(NamedTuple):
    """The GPUs that were chosen of one vendor's."""

    source: str = ""
    """`--gpus`, or the variable."""
    gpus: Optional[tuple[ChosenGpu, ...]] = None
    """In the order in which programs are to count them; None: nothing was chosen, and all stay."""
    passed_through: tuple[tuple[str, str], ...] = ()
    """Variables that the container gets with the caller's own values, in place of those that name `gpus`."""
    is_all: bool = False
    """Whether all were asked for by name; the environment is ignored then."""
    already_set: bool = False
    """Whether the caller's own variables choose exactly this, as the vendor's library reads them on the host."""
    by_uuid: bool = False
    """Whether the caller named them by UUID."""
    findings: tuple[Finding, ...] = ()


def usable_gpus(inventory: Inventory) -> tuple[Gpu, ...]:
    """Return the GPUs that are not excluded, in the order of their indexes."""
    gpus = [gpu for gpu in inventory.gpus if gpu.index is not None]
    return tuple(sorted(gpus, key=lambda gpu: gpu.index or 0))


def gpus_with_mig(inventory: Inventory) -> tuple[Gpu, ...]:
    """Return the GPUs in MIG mode that have MIG devices."""
    return tuple(gpu for gpu in usable_gpus(inventory) if gpu.mig)


def same_model(gpus: Sequence[Gpu]) -> bool:
    """Return whether *gpus* are known to be of one model: then CUDA counts them by PCI address in any case."""
    return len(gpus) < 2 or (gpus[0].model is not None and all(gpu.model == gpus[0].model for gpu in gpus))


def find_gpus(gpu_id: GpuId, gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return those of *gpus* that *gpu_id* may mean: several if their UUIDs begin so, none if it is unknown."""
    value = gpu_id.value
    if gpu_id.spelling in ("index", "mig-instance", "mig-index"):
        return tuple(gpu for gpu in gpus if gpu.index == int(value))
    if gpu_id.spelling in ("uuid", "mig-gpu"):
        return tuple(gpu for gpu in gpus if gpu.uuid and gpu.uuid.lower().startswith(value))
    if gpu_id.spelling == "minor":
        return tuple(gpu for gpu in gpus if gpu.minor == int(value))
    return tuple(gpu for gpu in gpus if value in (gpu.pci, gpu.render))


def mig_device(gpu: Gpu, gi: Optional[int], ci: Optional[int]) -> Optional[ChosenGpu]:
    """Return the MIG device of *gpu* with these numbers."""
    return next((ChosenGpu(gpu, (device,)) for device in gpu.mig if (device.gi, device.ci) == (gi, ci)), None)


def find_mig_device(name: str, inventory: Inventory) -> Optional[ChosenGpu]:
    """Return what `MIG-<uuid>` or `G:M` means, if the driver's own program could be asked."""
    mig_name = next((mig_name for mig_name in inventory.mig_names if mig_name.name == name), None)
    gpu = next((gpu for gpu in usable_gpus(inventory) if mig_name and gpu.minor == mig_name.minor), None)
    return mig_device(gpu, mig_name.gi, mig_name.ci) if mig_name and gpu else None


def each_gpu_once(chosen: Iterable[ChosenGpu]) -> tuple[ChosenGpu, ...]:
    """Return *chosen* with each GPU once, at its first place: its MIG devices go together, the whole has them all."""
    by_gpu: dict[tuple[str, Optional[int]], ChosenGpu] = {}
    for chosen_gpu in chosen:
        first = by_gpu.setdefault((chosen_gpu.gpu.vendor, chosen_gpu.gpu.index), chosen_gpu)
        if first.mig:
            mig = tuple(dict.fromkeys((*first.mig, *chosen_gpu.mig))) if chosen_gpu.mig else ()
            by_gpu[chosen_gpu.gpu.vendor, chosen_gpu.gpu.index] = ChosenGpu(chosen_gpu.gpu, mig)
    return tuple(by_gpu.values())


def intersect(chosen: ChosenGpu, others: Iterable[ChosenGpu]) -> Optional[ChosenGpu]:
    """Return what of *chosen* is in *others*, too, where each GPU is once."""
    same_gpu = next((same_gpu for same_gpu in others if same_gpu.gpu == chosen.gpu), None)
    if same_gpu is None or not (chosen.mig and same_gpu.mig):
        return chosen if same_gpu and chosen.mig else same_gpu
    mig = tuple(device for device in chosen.mig if device in same_gpu.mig)
    return ChosenGpu(chosen.gpu, mig) if mig else None


def uuids_of(chosen: ChosenGpu) -> tuple[Optional[str], ...]:
    """Return the UUIDs by which CUDA and ROCr know *chosen* anywhere; None where the driver has not reported one yet.

    A GPU in MIG mode has no name for all of it: its MIG devices are named. Source: CUDA Programming Guide, "CUDA
    Environment Variables": `MIG-<GPU UUID>/<GPU instance>/<compute instance>`.
    """
    uuid = chosen.gpu.uuid
    mig = chosen.mig or chosen.gpu.mig
    return tuple(uuid and f"MIG-{uuid}/{device.gi}/{device.ci}" for device in mig) if mig else (uuid,)
