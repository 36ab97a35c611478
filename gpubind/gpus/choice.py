"""What was chosen of a vendor's GPUs, and how a name finds one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional

from gpubind.model import Finding, Gpu, Inventory, MigDevice

if TYPE_CHECKING:
    from gpubind.formats.gpu_ids import GpuId

BY = "--gpus"
"""What chooses where the environment does not."""
CUDA = "CUDA_VISIBLE_DEVICES"
CUDA_ORDER = "CUDA_DEVICE_ORDER"
PCI_ORDER = "PCI_BUS_ID"
NVIDIA = "NVIDIA_VISIBLE_DEVICES"
ROCR = "ROCR_VISIBLE_DEVICES"
HIP = "HIP_VISIBLE_DEVICES"
SLURM = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")


class Chosen(NamedTuple):
    """A GPU, or parts of it."""

    gpu: Gpu
    parts: tuple[MigDevice, ...] = ()
    """Empty: the whole GPU, with all its parts if it is divided."""


class Choice(NamedTuple):
    """What was chosen of one vendor's GPUs."""

    by: str = ""
    """`--gpus`, or the variable."""
    gpus: Optional[tuple[Chosen, ...]] = None
    """In the order in which programs are to count them; None: nothing was chosen, and all stay."""
    variables: tuple[tuple[str, str], ...] = ()
    """What is handed on as it is, instead of what `gpus` would give."""
    everything: bool = False
    """All were asked for by name, whatever the environment says."""
    own: bool = False
    """Whether the caller's own variables say exactly this, as the vendor's library reads them on the host."""
    uuids: bool = False
    """Whether the caller named them by UUID."""
    findings: tuple[Finding, ...] = ()


def usable(inventory: Inventory) -> tuple[Gpu, ...]:
    """The GPUs that are not excluded, in the order of their indexes."""
    gpus = [gpu for gpu in inventory.gpus if gpu.index is not None]
    return tuple(sorted(gpus, key=lambda gpu: gpu.index or 0))


def alike(gpus: Sequence[Gpu]) -> bool:
    """Whether CUDA counts *gpus* by PCI address whatever `CUDA_DEVICE_ORDER` says: none of them is faster."""
    return len(gpus) < 2 or (gpus[0].model is not None and all(gpu.model == gpus[0].model for gpu in gpus))


def is_uuid(name: str) -> bool:
    """Whether *name* is a UUID, or a name made of one."""
    return name.upper().startswith(("GPU-", "MIG-"))


def named(gpu_id: GpuId, gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Those of *gpus* that *gpu_id* may mean: several for a beginning of more than one UUID, none if it is unknown."""
    value = gpu_id.value
    if gpu_id.spelling in ("index", "part", "mig-index") and value.isdigit():
        return tuple(gpu for gpu in gpus if gpu.index == int(value))
    if gpu_id.spelling == "minor":
        return tuple(gpu for gpu in gpus if gpu.minor == int(value))
    if gpu_id.spelling == "pci":
        return tuple(gpu for gpu in gpus if gpu.pci == value)
    if gpu_id.spelling == "render":
        return tuple(gpu for gpu in gpus if gpu.render == value)
    if gpu_id.spelling in ("uuid", "part"):
        found = tuple(gpu for gpu in gpus if gpu.uuid and gpu.uuid.lower().startswith(value))
        whole = tuple(gpu for gpu in found if gpu.uuid and gpu.uuid.lower() == value)
        return whole or found
    return ()


def part_of(gpu: Gpu, gi: Optional[int], ci: Optional[int]) -> Optional[MigDevice]:
    """The part of *gpu* with these numbers."""
    return next((device for device in gpu.mig if (device.gi, device.ci) == (gi, ci)), None)


def mig_named(name: str, inventory: Inventory) -> Optional[Chosen]:
    """What `MIG-<uuid>` or `G:M` means, if the driver's own program could be asked."""
    for known in inventory.mig_names:
        if known.name == name:
            gpu = next((gpu for gpu in usable(inventory) if gpu.minor == known.minor), None)
            part = part_of(gpu, known.gi, known.ci) if gpu else None
            return Chosen(gpu, (part,)) if gpu and part else None
    return None


def divided(inventory: Inventory) -> tuple[Gpu, ...]:
    """The GPUs that are divided (MIG)."""
    return tuple(gpu for gpu in usable(inventory) if gpu.mig)


def merged(chosen: Iterable[Chosen]) -> tuple[Chosen, ...]:
    """*chosen* with each GPU once, where it came first: parts of one GPU go together, the whole of it has them all."""
    found: dict[tuple[str, Optional[int]], Chosen] = {}
    for one in chosen:
        key = (one.gpu.vendor, one.gpu.index)
        there = found.get(key)
        if there is None:
            found[key] = one
        elif there.parts:
            parts = tuple(dict.fromkeys((*there.parts, *one.parts))) if one.parts else ()
            found[key] = Chosen(one.gpu, parts)
    return tuple(found.values())


def names_of(chosen: Chosen) -> tuple[Optional[str], ...]:
    """How CUDA and ROCr name it wherever it is: UUIDs; None where the driver has not told one yet.

    A divided GPU has no name for all of it: its parts are named. Source: CUDA Programming Guide, "CUDA Environment
    Variables": `MIG-<GPU UUID>/<GPU instance>/<compute instance>`.
    """
    uuid = chosen.gpu.uuid
    parts = chosen.parts or chosen.gpu.mig
    if not parts:
        return (uuid,)
    return tuple(uuid and f"MIG-{uuid}/{part.gi}/{part.ci}" for part in parts)


def mig_unresolved(name: str, by: str) -> Finding:
    """The finding about a MIG device whose name is in no file."""
    return Finding(
        "mig-unresolved",
        "warning",
        "nvidia",
        name,
        f"`{name}` names a MIG device by what no file tells: the nodes of all MIG devices stay",
        by,
        "the UUIDs of MIG devices, and their order on a GPU, are known to the driver's libraries alone",
        "name it by its GPU, GPU instance and compute instance (0:1/0, MIG-GPU-<uuid>/1/0), or install "
        "nvidia-container-cli, which gpubind asks",
        "nvidia-smi -L; ls /proc/driver/nvidia/capabilities/gpu*/mig/gi*",
    )
