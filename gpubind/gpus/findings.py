"""Findings about the choice of GPUs, most of them about variables that list GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.model import Finding, Inventory, Severity
from gpubind.gpus.choice import BY, Choice, divided, usable
from gpubind.gpus.lists import Names


def none_visible(names: Names, why: str = "") -> Finding:
    library = "ROCr" if names.vendor == "amd" else "CUDA"
    effect = "hipErrorNoDevice" if names.vendor == "amd" else "CUDA answers 100 (CUDA_ERROR_NO_DEVICE)"
    value = f"{names.variable} is `{names.value}`"
    return Finding(
        "visible-devices-none",
        "warning",
        names.vendor,
        names.variable,
        f"{value}: {library} will see no GPU" if not why else f"{value}, and {why}: no GPU is left",
        names.where,
        f"the container gets no GPU either; {effect}: no capable device is detected",
        "ask the scheduler for a GPU (`--gpus`, `--gres=gpu:1`), take the variable away, or choose with --gpus",
        f"unset {names.variable}",
    )


def list_ends(names: Names, token: str, before: int, severity: Severity) -> Finding:
    library = "ROCr" if names.vendor == "amd" else "CUDA"
    seen = f"only {before} device{'s' if before > 1 else ''}" if before else "no GPU"
    error = "" if names.vendor == "amd" else "; an empty one gives CUDA_ERROR_NO_DEVICE (100)"
    why = f"its list ends at the first name that it does not know{error}"
    return unknown_name(names, token, severity, f"{library} will see {seen}", why)


def unknown_name(names: Names, token: str, severity: Severity, effect: str, why: str) -> Finding:
    known = ", ".join(f"{gpu.index}" + (f" ({gpu.uuid})" if gpu.uuid else "") for gpu in usable(names.inventory))
    return Finding(
        "visible-devices-unknown",
        severity,
        names.vendor,
        names.variable,
        f"{names.variable} names `{token[:80]}`, which this host has not: {effect}",
        names.where,
        why,
        f"name one of this host's: {known}",
        "nvidia-smi -L" if names.vendor == "nvidia" else "ls /sys/class/kfd/kfd/topology/nodes",
    )


def order_unknown(names: Names, job: str) -> Finding:
    if job:
        reason = f"{job}; in a cgroup numbers count those, on the host all"
    elif names.inventory.confined:
        reason = "a cgroup, a mode or a /dev of its own hides GPUs from this process, and numbers count what is left"
    elif divided(names.inventory):
        reason = "of divided GPUs (MIG) CUDA lists one part, and numbers do not say which"
    else:
        reason = "CUDA counts the fastest GPU first, and these are of several models"
    return Finding(
        "gpu-order-unknown",
        "warning",
        names.vendor,
        names.variable,
        f"the numbers in {names.variable} may mean other GPUs: all nodes stay, and it is handed on as it is",
        names.where,
        reason,
        "name GPUs by UUID, choose with --gpus, or set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        if names.vendor == "nvidia"
        else "name GPUs by UUID (GPU-<hex>), or choose with --gpus",
        "nvidia-smi -L" if names.vendor == "nvidia" else "rocm-smi --showuniqueid",
    )


def uuid_unknown(names: Names) -> Finding:
    return Finding(
        "gpu-uuid-unknown",
        "note",
        names.vendor,
        names.variable,
        f"{names.variable} names a GPU by UUID, and not every GPU here has told its own: all nodes stay, and it is "
        "handed on as it is",
        names.where,
        "a GPU tells its UUID only after its first use"
        if names.vendor == "nvidia"
        else "some AMD GPUs have no unique_id",
        "use the GPUs once on the host, let nvidia-persistenced keep them ready, or choose with --gpus by PCI address",
    )


def slurm_ambiguous(names: Names, token: str) -> Finding:
    return Finding(
        "slurm-gpu-ambiguous",
        "warning",
        names.vendor,
        names.variable,
        f"{names.variable} names `{token}`, which is taken for NVIDIA's GPU, and may be AMD's",
        names.where,
        f"Slurm's numbers are those of device files: /dev/nvidia{token} has this one; AMD's GPU {token} has it where "
        "gres.conf counts AMD's GPUs from 0. It chooses none of AMD's",
        "choose with --gpus, by UUID or PCI address, or ask for one vendor (--nv, --rocm)",
        "scontrol show job -d $SLURM_JOB_ID | grep GRES",
    )


def forbidden(choice: Choice, inventory: Inventory) -> Iterator[Finding]:
    """Findings about GPUs that the container is to have and that a device cgroup forbids: those that were named, or all
    if there is no other.

    A scheduler's cgroup forbids the GPUs of other jobs: so long as those are not asked for, that is as it should be.
    """
    there = {node.gpu for node in inventory.devices if node.access == "rw" and "/dri/" not in node.target}
    wanted = usable(inventory) if choice.gpus is None else [one.gpu for one in choice.gpus]
    closed = [gpu for gpu in wanted if gpu.index in inventory.hidden and gpu.index in there]
    is_lost = all(gpu.index in inventory.hidden for gpu in wanted)
    by_name = choice.by == BY and choice.gpus is not None
    for gpu in closed if by_name else closed[:1] if is_lost else ():
        node = f"/dev/nvidia{gpu.minor}"
        yield Finding(
            "gpu-forbidden",
            "error" if by_name and is_lost else "warning",
            inventory.driver.vendor,
            node,
            f"this process may not open {node}, " + (f"which {BY} chooses" if by_name else "nor any other GPU"),
            f"open({node}): Operation not permitted (EPERM)",
            "a device cgroup forbids it, and holds in the container, too: CUDA and NVML do not list the GPU; without "
            "another CUDA answers 100 (CUDA_ERROR_NO_DEVICE)",
            "choose a GPU that the job has, or ask the scheduler for one (`--gres=gpu:1`)",
            f"cat /proc/self/cgroup; : < {node}",
        )
