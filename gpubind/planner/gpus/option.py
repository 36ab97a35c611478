"""The GPUs that `--gpus` names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gpubind.errors import UsageError
from gpubind.formats.driver.gpu_names import (
    CUDA_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
    GpuId,
    is_uuid,
    parse_gpus_option,
)
from gpubind.frozen import NamedTuple
from gpubind.model import Gpu, Inventory, finding
from gpubind.model.layouts import ALL_GPU_NODES
from gpubind.planner.gpus import choice


class _NamedGpu(NamedTuple):
    item: GpuId
    number: int
    """The place of the GPUs' inventory among all inventories."""
    chosen: tuple[choice.ChosenGpu, ...]
    unresolved: bool = False
    """Whether it names one of the MIG devices of `chosen` by a name that no file contains."""

    @property
    def uuids(self) -> tuple[Optional[str], ...]:
        """The UUIDs; for a MIG device that no file names, the caller's."""
        if self.unresolved and self.item.spelling == "mig-uuid":
            return (self.item.text,)
        return tuple(uuid for chosen_gpu in self.chosen for uuid in choice.uuids_of(chosen_gpu))


def choose_by_option(text: str, inventories: Sequence[Inventory]) -> tuple[choice.GpuChoice, ...]:
    """Return the choice of *text* in each inventory. A vendor none of whose GPUs is named gets no GPU.

    Errors: `UsageError` (`bad-gpus`, `unknown-gpu`, `ambiguous-gpu`, `inseparable-gpus`).
    """
    items = parse_gpus_option(text)
    if items == "all":
        return tuple(choice.GpuChoice(choice.OPTION, is_all=True) for _ in inventories)
    if items == "none":
        return tuple(choice.GpuChoice(choice.OPTION, ()) for _ in inventories)
    shared = [node for inventory in inventories for node in inventory.devices if node.target in ALL_GPU_NODES]
    if shared:
        message = f"--gpus: `{text}` cannot be chosen: {shared[0].target} is all GPUs of this host"
        variable = ROCR_VISIBLE_DEVICES if shared[0].vendor == "amd" else CUDA_VISIBLE_DEVICES
        hint = f"`--gpus all`, with {variable} in the container for the GPUs that programs are to use"
        raise UsageError("inseparable-gpus", message, hint=hint)
    named = [_find(item, inventories) for item in items]
    return tuple(_choice(text, [each for each in named if each.number == n]) for n in range(len(inventories)))


def _choice(text: str, named_gpus: Sequence[_NamedGpu]) -> choice.GpuChoice:
    uuids = [uuid for named_gpu in named_gpus for uuid in named_gpu.uuids]
    unresolved = [named_gpu.item for named_gpu in named_gpus if named_gpu.unresolved]
    has_all = any(item.spelling == "mig-uuid" for item in unresolved) and None not in uuids
    value = ",".join(dict.fromkeys(uuid or "" for uuid in uuids))
    return choice.GpuChoice(
        source=choice.OPTION,
        gpus=choice.each_gpu_once(chosen for named_gpu in named_gpus for chosen in named_gpu.chosen),
        passed_through=((CUDA_VISIBLE_DEVICES, value),) if has_all else (),
        by_uuid=any(is_uuid(named_gpu.item.text) for named_gpu in named_gpus),
        findings=tuple(finding("mig-unresolved", subject=m.text, where=f"{choice.OPTION} {text}") for m in unresolved),
    )


def _find(item: GpuId, inventories: Sequence[Inventory]) -> _NamedGpu:
    if item.spelling == "mig-uuid":
        return _mig_by_uuid(item, inventories)
    is_mig = item.spelling in ("mig-instance", "mig-gpu", "mig-index")
    matches = [
        (number, gpu)
        for number, inventory in enumerate(inventories)
        for gpu in choice.find_gpus(item, choice.usable_gpus(inventory))
        if not is_mig or gpu.vendor == "nvidia"
    ]
    with_gpus = [inventory for inventory in inventories if choice.usable_gpus(inventory)]
    if item.spelling == "index" and matches and len(with_gpus) > 1:
        why = "there are GPUs of two vendors here, and both count from 0"
        hint = _available_gpus(inventories)
        raise UsageError("ambiguous-gpu", f"--gpus: `{item.text}` may be either's", why=why, hint=hint)
    if len(matches) > 1 and not _are_partitions([gpu for _, gpu in matches]):
        why = "it fits " + ", ".join(str(gpu.uuid or gpu.pci) for _, gpu in matches)
        hint = "write more of it, or name the PCI address"
        raise UsageError("ambiguous-gpu", f"--gpus: `{item.text}` names {len(matches)} GPUs", why=why, hint=hint)
    if not matches:
        raise _unknown_gpu(item, inventories)
    number, gpu = matches[0]
    if not is_mig:
        return _NamedGpu(item, number, tuple(choice.ChosenGpu(gpu) for _, gpu in matches))
    chosen_gpu = _find_mig(gpu, item, inventories[number])
    if chosen_gpu is None:
        raise _unknown_gpu(item, inventories, gpu)
    return _NamedGpu(item, number, (chosen_gpu,), unresolved=not chosen_gpu.mig)


def _are_partitions(gpus: Sequence[Gpu]) -> bool:
    """Return whether *gpus* are partitions of one AMD GPU (CPX, DPX), which share a PCI address."""
    return gpus[0].vendor == "amd" and gpus[0].pci is not None and len({gpu.pci for gpu in gpus}) == 1


def _find_mig(gpu: Gpu, item: GpuId, inventory: Inventory) -> Optional[choice.ChosenGpu]:
    """Return the MIG device of *gpu*; the whole GPU, if *item* is a place among several."""
    if item.spelling != "mig-index":
        return choice.mig_device(gpu, item.gi, item.ci)
    chosen_gpu = choice.find_mig_device(item.text, inventory)
    if chosen_gpu is None and (item.gi or 0) < len(gpu.mig):
        # A single MIG device is the first one; files do not show the order of several.
        return choice.ChosenGpu(gpu, gpu.mig if len(gpu.mig) == 1 else ())
    return chosen_gpu


def _mig_by_uuid(item: GpuId, inventories: Sequence[Inventory]) -> _NamedGpu:
    for number, inventory in enumerate(inventories):
        chosen_gpu = choice.find_mig_device(item.text, inventory)
        if chosen_gpu is not None:
            return _NamedGpu(item, number, (chosen_gpu,))
        gpus = choice.gpus_with_mig(inventory)
        if gpus:
            return _NamedGpu(item, number, tuple(map(choice.ChosenGpu, gpus)), unresolved=True)
    raise _unknown_gpu(item, inventories)


def _unknown_gpu(item: GpuId, inventories: Sequence[Inventory], gpu: Optional[Gpu] = None) -> UsageError:
    every = [host_gpu for inventory in inventories for host_gpu in inventory.gpus]
    if gpu is not None:
        parts = ", ".join(f"{device.gi}/{device.ci}" for device in gpu.mig)
        why = f"that GPU has the MIG devices {parts}" if parts else "that GPU is not divided (MIG)"
    elif item.spelling == "mig-uuid":
        why = "no GPU here is divided (MIG)"
    elif any(host_gpu.index is None for host_gpu in choice.find_gpus(item, every)):
        why = "it is excluded from use (NVreg_ExcludedGpus)"
    elif item.spelling == "uuid" and any(host_gpu.uuid is None for host_gpu in every):
        why = "the driver has not told every UUID yet: until its first use, name a GPU by its PCI address"
    elif item.spelling == "index" and every:
        indexes = ",".join(str(host_gpu.index) for host_gpu in every if host_gpu.index is not None)
        why = f"a number is an index that begins with 0, not a count; all GPUs are `--gpus {indexes}`"
    else:
        why = ""
    hint = _available_gpus(inventories)
    return UsageError("unknown-gpu", f"--gpus: this host has no `{item.text}`", why=why, hint=hint)


def _available_gpus(inventories: Sequence[Inventory]) -> str:
    lines = []
    for inventory in inventories:
        for gpu in choice.usable_gpus(inventory):
            names = [gpu.uuid, gpu.pci, None if gpu.vendor == "nvidia" else gpu.render]
            lines.append(f"{gpu.index} ({', '.join(name for name in names if name)})")
            lines += [f"{gpu.index}:{device.gi}/{device.ci}" for device in gpu.mig]
    return "there are: " + ", ".join(lines) if lines else "there is no GPU that could be named"
