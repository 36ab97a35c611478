"""The chosen GPUs of a vendor, and the GPUs that a name means."""

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
    """The chosen MIG devices; empty for the whole GPU, with all its MIG devices if it has any."""


class GpuChoice(NamedTuple):
    """The chosen GPUs of one vendor."""

    source: str = ""
    """`--gpus`, or the variable that chooses."""
    gpus: Optional[tuple[ChosenGpu, ...]] = None
    """The chosen GPUs, in the order in which programs count them; None if there is no choice, and all stay."""
    passed_through: tuple[tuple[str, str], ...] = ()
    """Variables that keep the caller's values in the container, and replace those that name `gpus`."""
    is_all: bool = False
    """Whether `--gpus all` was given; the environment is then ignored."""
    already_set: bool = False
    """Whether the caller's variables already choose exactly this for the vendor's library on the host."""
    by_uuid: bool = False
    """Whether the caller named the GPUs by UUID."""
    findings: tuple[Finding, ...] = ()


def usable_gpus(inventory: Inventory) -> tuple[Gpu, ...]:
    """Return the GPUs that are not excluded, sorted by index."""
    gpus = [gpu for gpu in inventory.gpus if gpu.index is not None]
    return tuple(sorted(gpus, key=lambda gpu: gpu.index or 0))


def gpus_with_mig(inventory: Inventory) -> tuple[Gpu, ...]:
    """Return the GPUs in MIG mode that have MIG devices."""
    return tuple(gpu for gpu in usable_gpus(inventory) if gpu.mig)


def same_model(gpus: Sequence[Gpu]) -> bool:
    """Return whether *gpus* are known to be of one model, which CUDA always counts by PCI address."""
    return len(gpus) < 2 or (gpus[0].model is not None and all(gpu.model == gpus[0].model for gpu in gpus))


def find_gpus(gpu_id: GpuId, gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Return those of *gpus* that *gpu_id* may mean: several for a common UUID prefix, none if it is unknown."""
    value = gpu_id.value
    if gpu_id.spelling in ("index", "mig-instance", "mig-index"):
        return tuple(gpu for gpu in gpus if gpu.index == int(value))
    if gpu_id.spelling in ("uuid", "mig-gpu"):
        return tuple(gpu for gpu in gpus if gpu.uuid and gpu.uuid.lower().startswith(value))
    if gpu_id.spelling == "minor":
        return tuple(gpu for gpu in gpus if gpu.minor == int(value))
    return tuple(gpu for gpu in gpus if value in (gpu.pci, gpu.render))


def mig_device(gpu: Gpu, gi: Optional[int], ci: Optional[int]) -> Optional[ChosenGpu]:
    """Return the MIG device of *gpu* with GPU instance *gi* and compute instance *ci*."""
    return next((ChosenGpu(gpu, (device,)) for device in gpu.mig if (device.gi, device.ci) == (gi, ci)), None)


def find_mig_device(name: str, inventory: Inventory) -> Optional[ChosenGpu]:
    """Return the MIG device *name*, `MIG-<uuid>` or `G:M`, if the driver's own program reported it."""
    mig_name = next((mig_name for mig_name in inventory.mig_names if mig_name.name == name), None)
    gpu = next((gpu for gpu in usable_gpus(inventory) if mig_name and gpu.minor == mig_name.minor), None)
    return mig_device(gpu, mig_name.gi, mig_name.ci) if mig_name and gpu else None


def each_gpu_once(chosen: Iterable[ChosenGpu]) -> tuple[ChosenGpu, ...]:
    """Merge the items of each GPU at its first place: MIG devices are joined, and a whole GPU contains them all."""
    by_gpu: dict[tuple[str, Optional[int]], ChosenGpu] = {}
    for chosen_gpu in chosen:
        first = by_gpu.setdefault((chosen_gpu.gpu.vendor, chosen_gpu.gpu.index), chosen_gpu)
        if first.mig:
            mig = tuple(dict.fromkeys((*first.mig, *chosen_gpu.mig))) if chosen_gpu.mig else ()
            by_gpu[chosen_gpu.gpu.vendor, chosen_gpu.gpu.index] = ChosenGpu(chosen_gpu.gpu, mig)
    return tuple(by_gpu.values())


def intersect(chosen: ChosenGpu, others: Iterable[ChosenGpu]) -> Optional[ChosenGpu]:
    """Return the part of *chosen* that *others*, which list each GPU once, contain."""
    same_gpu = next((same_gpu for same_gpu in others if same_gpu.gpu == chosen.gpu), None)
    if same_gpu is None or not (chosen.mig and same_gpu.mig):
        return chosen if same_gpu and chosen.mig else same_gpu
    mig = tuple(device for device in chosen.mig if device in same_gpu.mig)
    return ChosenGpu(chosen.gpu, mig) if mig else None


def uuids_of(chosen: ChosenGpu) -> tuple[Optional[str], ...]:
    """Return the UUIDs of *chosen* for CUDA and ROCr; None where the driver has not reported one yet.

    A GPU in MIG mode has no name as a whole, so the result names its MIG devices. Source: CUDA Programming Guide, "CUDA
    Environment Variables": `MIG-<GPU UUID>/<GPU instance>/<compute instance>`.
    """
    uuid = chosen.gpu.uuid
    mig = chosen.mig or chosen.gpu.mig
    return tuple(uuid and f"MIG-{uuid}/{device.gi}/{device.ci}" for device in mig) if mig else (uuid,)
