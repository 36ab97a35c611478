"""--gpus: what the caller names is chosen, or an error says why it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gpubind.errors import UsageError
from gpubind.formats.gpu_ids import GpuId, parse_gpus
from gpubind.model import Gpu, Inventory
from gpubind.gpus.choice import (
    BY,
    CUDA,
    Choice,
    Chosen,
    divided,
    is_uuid,
    merged,
    mig_named,
    mig_unresolved,
    named,
    names_of,
    part_of,
    usable,
)


class _Found(NamedTuple):
    """What one item of the list names."""

    number: int
    """Of the inventory that it is about."""
    chosen: tuple[Chosen, ...]
    names: tuple[Optional[str], ...]
    """How CUDA knows it."""
    item: GpuId
    unresolved: bool = False


def asked(text: str, inventories: Sequence[Inventory]) -> tuple[Choice, ...]:
    """What *text* chooses of each inventory. The list is the whole choice: a vendor that it does not name has none.

    Errors: `UsageError` (`bad-gpus`, `unknown-gpu`, `ambiguous-gpu`).
    """
    items = parse_gpus(text)
    if items == "all":
        return tuple(Choice(BY, everything=True) for _ in inventories)
    if items == "none":
        return tuple(Choice(BY, ()) for _ in inventories)
    found = [_find(item, inventories) for item in items]
    choices = []
    for number in range(len(inventories)):
        ours = [one for one in found if one.number == number]
        names = [name for one in ours for name in one.names]
        unresolved = [one for one in ours if one.unresolved]
        # CUDA itself knows MIG devices by their UUIDs.
        by_uuid = any(one.item.spelling == "mig-uuid" for one in unresolved) and None not in names
        spelled = ((CUDA, ",".join(dict.fromkeys(name or "" for name in names))),) if by_uuid else ()
        findings = tuple(mig_unresolved(one.item.text, f"{BY} {text}") for one in unresolved)
        chosen = merged(c for one in ours for c in one.chosen)
        uuids = any(is_uuid(one.item.text) for one in ours)
        choices.append(Choice(BY, chosen, spelled, findings=findings, uuids=uuids))
    return tuple(choices)


def _find(item: GpuId, inventories: Sequence[Inventory]) -> _Found:
    if item.spelling == "mig-uuid":
        return _mig_by_uuid(item, inventories)
    parts_only = item.spelling in ("part", "mig-index")
    matches = [
        (number, gpu)
        for number, inventory in enumerate(inventories)
        for gpu in named(item, usable(inventory))
        if not parts_only or gpu.vendor == "nvidia"
    ]
    if item.spelling == "index" and matches and sum(1 for inventory in inventories if usable(inventory)) > 1:
        why = "there are GPUs of two vendors here, and both count from 0"
        raise UsageError("ambiguous-gpu", f"--gpus: `{item.text}` may be either's", why=why, hint=_known(inventories))
    if len(matches) > 1:
        why = "it fits " + ", ".join(str(gpu.uuid or gpu.pci) for _, gpu in matches)
        hint = "write more of it, or name the PCI address"
        raise UsageError("ambiguous-gpu", f"--gpus: `{item.text}` names {len(matches)} GPUs", why=why, hint=hint)
    if not matches:
        raise _unknown(item, inventories)
    number, gpu = matches[0]
    if not parts_only:
        return _Found(number, (Chosen(gpu),), names_of(Chosen(gpu)), item)
    if item.spelling == "part":
        part = part_of(gpu, item.gi, item.ci)
        one = Chosen(gpu, (part,)) if part else None
    else:
        one = mig_named(item.text, inventories[number])
        if one is None and gpu.mig and (item.gi or 0) < len(gpu.mig):
            # The only part of a GPU is its first; of several, files do not tell the order.
            one = Chosen(gpu, gpu.mig if len(gpu.mig) == 1 else ())
    if one is None:
        raise _unknown(item, inventories, gpu)
    return _Found(number, (one,), names_of(one), item, unresolved=not one.parts)


def _mig_by_uuid(item: GpuId, inventories: Sequence[Inventory]) -> _Found:
    for number, inventory in enumerate(inventories):
        known = mig_named(item.text, inventory)
        if known is not None:
            return _Found(number, (known,), names_of(known), item)
        gpus = divided(inventory)
        if gpus:
            return _Found(number, tuple(map(Chosen, gpus)), (item.text,), item, unresolved=True)
    raise _unknown(item, inventories)


def _unknown(item: GpuId, inventories: Sequence[Inventory], gpu: Optional[Gpu] = None) -> UsageError:
    every = [one for inventory in inventories for one in inventory.gpus]
    excluded = [one for one in named(item, every) if one.index is None]
    if gpu is not None:
        parts = ", ".join(f"{part.gi}/{part.ci}" for part in gpu.mig)
        why = f"that GPU has the parts {parts}" if parts else "that GPU is not divided (MIG)"
    elif excluded:
        why = "it is excluded from use (NVreg_ExcludedGpus)"
    elif item.spelling == "mig-uuid":
        why = "no GPU here is divided (MIG)"
    elif item.spelling == "uuid" and any(one.uuid is None for one in every):
        why = "the driver has not told every UUID yet: until its first use, name a GPU by its PCI address"
    else:
        why = ""
    return UsageError("unknown-gpu", f"--gpus: this host has no `{item.text}`", why=why, hint=_known(inventories))


def _known(inventories: Sequence[Inventory]) -> str:
    """The GPUs that there are, by every name that is sure."""
    lines = []
    for inventory in inventories:
        for gpu in usable(inventory):
            names = [gpu.uuid, gpu.pci, gpu.render if gpu.vendor == "amd" else None]
            lines.append(f"{gpu.index} ({', '.join(name for name in names if name)})")
            lines += [f"{gpu.index}:{part.gi}/{part.ci}" for part in gpu.mig]
    return "there are: " + ", ".join(lines) if lines else "there is no GPU that could be named"
