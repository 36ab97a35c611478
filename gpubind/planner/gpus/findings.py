"""Findings about the choice of GPUs, most of them about variables that list GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from gpubind.formats.driver.gpu_variables import NVIDIA_VISIBLE_DEVICES, SLURM_GPUS
from gpubind.model import Finding, Inventory, Severity
from gpubind.model.findings import counted, finding
from gpubind.planner.gpus.choice import OPTION, Choice, mig_enabled, usable
from gpubind.planner.gpus.lists import GpuList, Read

# The cases of texts, by who reads the variable.
_NONE = {"cuda": "cuda-none", "rocr": "rocr-none", "slurm": "slurm-none"}
_JOB = {"cuda": "cuda-job", "rocr": "rocr-job"}
_HIDDEN = {"cuda": "cuda-hidden", "rocr": "rocr-hidden", "nvidia": "nvidia-hidden"}


def none_visible(names: GpuList, others: Optional[Choice] = None) -> Finding:
    """Return the finding that *names* leaves no GPU: by itself, or because it names none of *others*."""
    by = others.by if others else ""
    value = f"`{names.value}`" if names.value else "empty"
    return _about(names, "visible-devices-none", "others-named" if others else _library(names), value=value, by=by)


def doubts(names: GpuList, read: Read) -> tuple[Finding, ...]:
    """Return what is to be said of a list as it was read: names that are no GPU's, or that cannot be told."""
    found = []
    if read.unknown:
        found.append(unknown_name(names, read))
    if read.doubt == "order":
        found.append(order_unknown(names))
    elif read.doubt == "uuid":
        found.append(_about(names, "gpu-uuid-unknown", _reader(names)))
    if read.unresolved is not None:
        found.append(mig_unresolved(read.unresolved, names.where))
    if read.repeated is not None:
        seen = ", ".join(str(chosen.gpu.index) for chosen in read.chosen)
        gpus = f"GPU{'s' if ',' in seen else ''} {seen}"
        found.append(_about(names, "rocr-visible-cut", name=read.repeated, seen=gpus))
    return tuple(found)


def unknown_name(names: GpuList, read: Read) -> Finding:
    """Return the finding about the first unknown name in a list, which ends there, or goes on without it."""
    name = read.unknown[0]
    reader = _reader(names)
    count = len(read.chosen) + bool(read.unresolved)
    is_fatal = reader in ("cuda", "rocr") and count == 0
    return _about(
        names,
        "visible-devices-unknown",
        reader if count else _NONE.get(reader, reader),
        severity="error" if is_fatal else "note" if reader == "nvidia" else "warning",
        name=name[:80],
        seen=counted(count, "device"),
        known=", ".join(f"{g.index}" + (f" ({g.uuid})" if g.uuid else "") for g in usable(names.inventory)),
        program="nvidia-smi -L" if names.vendor == "nvidia" else "ls /sys/class/kfd/kfd/topology/nodes",
    )


def order_unknown(names: GpuList, job: Optional[Choice] = None) -> Finding:
    """The finding that numbers may mean other GPUs: because of what a scheduler has given, or whatever else it is."""
    if job is not None:
        gpus = counted(len(job.gpus or ()), "GPU")
        return _about(names, "gpu-order-unknown", _JOB[_library(names)], by=job.by, gpus=gpus)
    if names.inventory.confined:
        return _about(names, "gpu-order-unknown", _HIDDEN[_reader(names)])
    return _about(names, "gpu-order-unknown", "cuda-mig" if mig_enabled(names.inventory) else "cuda-models")


def mig_unresolved(name: str, where: str) -> Finding:
    """The finding about a MIG device whose name is in no file."""
    return finding("mig-unresolved", subject=name, where=where)


def slurm_ambiguous(names: GpuList, number: str) -> Finding:
    """The finding about a number that may be that of an NVIDIA GPU's node, or the place of an AMD GPU."""
    return _about(names, "slurm-gpu-ambiguous", name=number)


def forbidden(choice: Choice, inventory: Inventory) -> Iterator[Finding]:
    """Findings about GPUs that the container is to have and that a device cgroup forbids: those that were named, or all
    if there is no other.

    A scheduler's cgroup forbids the GPUs of other jobs: so long as those are not asked for, that is as it should be.
    """
    there = {node.gpu for node in inventory.devices if node.access == "rw" and "/dri/" not in node.target}
    wanted = usable(inventory) if choice.gpus is None else [one.gpu for one in choice.gpus]
    closed = [gpu for gpu in wanted if gpu.index in inventory.hidden and gpu.index in there]
    is_lost = all(gpu.index in inventory.hidden for gpu in wanted)
    by_name = choice.by == OPTION and choice.gpus is not None
    for gpu in closed if by_name else closed[:1] if is_lost else ():
        node = f"/dev/nvidia{gpu.minor}"
        yield finding(
            "gpu-forbidden",
            subject=node,
            case="named" if by_name else "all",
            severity="error" if by_name and is_lost else "warning",
            vendor=inventory.driver.vendor,
            where=f"open({node}): Operation not permitted (EPERM)",
        )


def _about(
    names: GpuList, code: str, case: Optional[str] = None, severity: Optional[Severity] = None, **facts: object
) -> Finding:
    return finding(
        code, subject=names.variable, case=case, severity=severity, vendor=names.vendor, where=names.where, **facts
    )


def _library(names: GpuList) -> str:
    """Return the library that reads a vendor's variables."""
    return "rocr" if names.vendor == "amd" else "cuda"


def _reader(names: GpuList) -> str:
    """Who reads the variable: Slurm's are Slurm's alone, NVIDIA_VISIBLE_DEVICES is for tools outside the container."""
    if names.variable in SLURM_GPUS:
        return "slurm"
    return "nvidia" if names.variable == NVIDIA_VISIBLE_DEVICES else _library(names)
