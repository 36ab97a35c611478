"""Findings about the choice of GPUs, most of them about variables that list GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.formats.gpu_variables import NVIDIA_VISIBLE_DEVICES, SLURM_GPUS
from gpubind.gpus.choice import BY, Choice, divided, usable
from gpubind.gpus.lists import GpuList, Read
from gpubind.model import Finding, Inventory


def none_visible(names: GpuList, why: str = "") -> Finding:
    """The finding that *names* leaves no GPU: by itself, or because of *why*."""
    library = "ROCr" if names.vendor == "amd" else "CUDA"
    effect = "hipErrorNoDevice" if names.vendor == "amd" else "CUDA answers 100 (CUDA_ERROR_NO_DEVICE)"
    value = f"{names.variable} is `{names.value}`"
    return Finding(
        code="visible-devices-none",
        severity="warning",
        vendor=names.vendor,
        subject=names.variable,
        what=f"{value}: {library} will see no GPU" if not why else f"{value}, and {why}: no GPU is left",
        where=names.where,
        why=f"the container gets no GPU either; {effect}: no capable device is detected",
        hint="ask the scheduler for a GPU (`--gpus`, `--gres=gpu:1`), take the variable away, or choose with --gpus",
        command=f"unset {names.variable}",
    )


def doubts(names: GpuList, read: Read) -> tuple[Finding, ...]:
    """What is to be said of a list as it was read: names that are no GPU's, or that cannot be told."""
    unknown = (unknown_name(names, read),) if read.unknown else ()
    unsure = {None: (), "order": (order_unknown(names),), "uuid": (_uuid_unknown(names),)}[read.doubt]
    unresolved = (mig_unresolved(read.unresolved, names.where),) if read.unresolved is not None else ()
    repeated = (_cut(names, read),) if read.repeated is not None else ()
    return (*unknown, *unsure, *unresolved, *repeated)


def unknown_name(names: GpuList, read: Read) -> Finding:
    """The finding about the first unknown name in a list, which ends there, or goes on without it."""
    token = read.unknown[0]
    known = ", ".join(f"{gpu.index}" + (f" ({gpu.uuid})" if gpu.uuid else "") for gpu in usable(names.inventory))
    count = len(read.chosen) + bool(read.unresolved)
    is_fatal = False
    if names.variable in SLURM_GPUS:
        effect = "the others are taken" if read.chosen else "it is not heeded"
        why = "Slurm's numbers are those of device files; a variable from another node, or by hand, does not fit here"
    elif names.variable == NVIDIA_VISIBLE_DEVICES:
        effect = "it is not heeded"
        why = f"nvidia-container-cli would say `device error: {token}: unknown device`"
    else:
        is_fatal = count == 0
        seen = f"only {count} device{'s' if count > 1 else ''}" if count else "no GPU"
        effect = f"{'ROCr' if names.vendor == 'amd' else 'CUDA'} will see {seen}"
        error = "" if names.vendor == "amd" else "; an empty one gives CUDA_ERROR_NO_DEVICE (100)"
        why = f"its list ends at the first name that it does not know{error}"
    return Finding(
        code="visible-devices-unknown",
        severity="error" if is_fatal else "note" if names.variable == NVIDIA_VISIBLE_DEVICES else "warning",
        vendor=names.vendor,
        subject=names.variable,
        what=f"{names.variable} names `{token[:80]}`, which this host has not: {effect}",
        where=names.where,
        why=why,
        hint=f"name one of this host's: {known}",
        command="nvidia-smi -L" if names.vendor == "nvidia" else "ls /sys/class/kfd/kfd/topology/nodes",
    )


def _cut(names: GpuList, read: Read) -> Finding:
    seen = ", ".join(str(chosen.gpu.index) for chosen in read.chosen)
    return Finding(
        code="rocr-visible-cut",
        severity="warning",
        vendor=names.vendor,
        subject=names.variable,
        what=f"{names.variable} ends at `{read.repeated}`: ROCm will see only GPU{'s' if ',' in seen else ''} {seen}",
        where=names.where,
        why="it names a GPU twice",
        hint="name each GPU once",
        command="rocminfo | grep -E 'Uuid|Marketing'",
    )


def order_unknown(names: GpuList, job: str = "") -> Finding:
    """The finding that numbers may mean other GPUs. *job* says what a scheduler has given, where that is why."""
    if job:
        reason = f"{job}; in a cgroup numbers count those, on the host all"
    elif names.inventory.confined:
        reason = "a cgroup, a mode or a /dev of its own hides GPUs from this process, and numbers count what is left"
    elif divided(names.inventory):
        reason = "of divided GPUs (MIG) CUDA lists one part, and numbers do not say which"
    else:
        reason = "CUDA counts the fastest GPU first, and these are of several models"
    is_nvidia = names.vendor == "nvidia"
    return Finding(
        code="gpu-order-unknown",
        severity="warning",
        vendor=names.vendor,
        subject=names.variable,
        what=f"the numbers in {names.variable} may mean other GPUs: {_consequence(names)}",
        where=names.where,
        why=reason,
        hint="name GPUs by UUID, choose with --gpus, or set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        if is_nvidia
        else "name GPUs by UUID (GPU-<hex>), or choose with --gpus",
        command="nvidia-smi -L" if is_nvidia else "rocm-smi --showuniqueid",
    )


def _uuid_unknown(names: GpuList) -> Finding:
    return Finding(
        code="gpu-uuid-unknown",
        severity="note",
        vendor=names.vendor,
        subject=names.variable,
        what=f"{names.variable} names a GPU by UUID, and not every GPU here has told its own: {_consequence(names)}",
        where=names.where,
        why="a GPU tells its UUID only after its first use"
        if names.vendor == "nvidia"
        else "some AMD GPUs have no unique_id",
        hint="use the GPUs once on the host, let nvidia-persistenced keep them ready, or choose with --gpus by PCI "
        "address",
    )


def _consequence(names: GpuList) -> str:
    """What becomes of a list that may mean other GPUs. NVIDIA_VISIBLE_DEVICES is for tools outside of the container."""
    return (
        "it is not heeded"
        if names.variable == NVIDIA_VISIBLE_DEVICES
        else "all nodes stay, and it is handed on as it is"
    )


def mig_unresolved(name: str, by: str) -> Finding:
    """The finding about a MIG device whose name is in no file."""
    return Finding(
        code="mig-unresolved",
        severity="warning",
        vendor="nvidia",
        subject=name,
        what=f"`{name}` names a MIG device by what no file tells: the nodes of all MIG devices stay",
        where=by,
        why="the UUIDs of MIG devices, and their order on a GPU, are known to the driver's libraries alone",
        hint="name it by its GPU, GPU instance and compute instance (0:1/0, MIG-GPU-<uuid>/1/0), or install "
        "nvidia-container-cli, which gpubind asks",
        command="nvidia-smi -L; ls /proc/driver/nvidia/capabilities/gpu*/mig/gi*",
    )


def slurm_ambiguous(names: GpuList, token: str) -> Finding:
    """The finding about a number that may be that of an NVIDIA GPU's node, or the place of an AMD GPU."""
    return Finding(
        code="slurm-gpu-ambiguous",
        severity="warning",
        vendor=names.vendor,
        subject=names.variable,
        what=f"{names.variable} names `{token}`, which is taken for NVIDIA's GPU, and may be AMD's",
        where=names.where,
        why=f"Slurm's numbers are those of device files: /dev/nvidia{token} has this one; AMD's GPU {token} has it "
        "where gres.conf counts AMD's GPUs from 0. It chooses none of AMD's",
        hint="choose with --gpus, by UUID or PCI address, or ask for one vendor (--nv, --rocm)",
        command="scontrol show job -d $SLURM_JOB_ID | grep GRES",
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
            code="gpu-forbidden",
            severity="error" if by_name and is_lost else "warning",
            vendor=inventory.driver.vendor,
            subject=node,
            what=f"this process may not open {node}, " + (f"which {BY} chooses" if by_name else "nor any other GPU"),
            where=f"open({node}): Operation not permitted (EPERM)",
            why="a device cgroup forbids it, and holds in the container, too: CUDA and NVML do not list the GPU; "
            "without another CUDA answers 100 (CUDA_ERROR_NO_DEVICE)",
            hint="choose a GPU that the job has, or ask the scheduler for one (`--gres=gpu:1`)",
            command=f"cat /proc/self/cgroup; : < {node}",
        )
