"""What the environment chooses: Slurm's numbers, then the vendors' own variables.

A variable is read as its vendor's library would read it. Where that cannot be done for certain, everything stays and
the variable is handed on: the library in the container then decides as it would have on the host. So it is where the
scheduler's variable and the vendor's name different GPUs: the container gets what both name.

Sources: srun(1), sbatch(1): SLURM_STEP_GPUS and SLURM_JOB_GPUS are never relative to a cgroup; HIP documentation, "GPU
isolation techniques".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from gpubind.formats.gpu_variables import (
    CUDA_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES,
    NVIDIA_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
    SLURM_GPUS,
)
from gpubind.gpus.choice import Choice, Chosen, divided, in_both, merged, usable
from gpubind.gpus.findings import doubts, none_visible, order_unknown, slurm_ambiguous, unknown_name
from gpubind.gpus.lists import RULES, GpuList, is_number, read_list
from gpubind.model import Finding, Gpu, Inventory


def chosen_by_environment(inventory: Inventory, inventories: Sequence[Inventory], environ: Mapping[str, str]) -> Choice:
    """What *environ* chooses of the GPUs of *inventory*, one of the *inventories* of this host."""
    if not usable(inventory):
        return Choice()
    others = [gpu for other in inventories if other is not inventory for gpu in usable(other)]
    lists = {name: GpuList(name, inventory, environ) for name in RULES if name in environ}
    job = _slurms(lists, others)
    if inventory.driver.vendor == "amd":
        # Without NVIDIA's GPUs, CUDA_VISIBLE_DEVICES is HIP's other name.
        own = (
            (ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES)
            if others
            else (ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES)
        )
        return _amds(lists, job)._replace(own=any(name in environ for name in own))
    cuda = lists.get(CUDA_VISIBLE_DEVICES)
    if cuda is not None and cuda.value.strip().startswith("MIG-") and divided(inventory):
        job = Choice()  # Slurm counts MIG devices, not GPUs, where it hands out those
    return _narrowed(_first(cuda, job), lists.get(NVIDIA_VISIBLE_DEVICES))


def _slurms(lists: Mapping[str, GpuList], others: Sequence[Gpu]) -> Choice:
    """The GPUs that Slurm has given: numbers of device files."""
    names = next((lists[name] for name in SLURM_GPUS if name in lists and lists[name].value.strip()), None)
    if names is None:
        return Choice()
    gpus = usable(names.inventory)
    # In a cgroup the kernel shows the job's AMD GPUs alone, and has moved their indexes up.
    is_moved = names.vendor == "amd" and names.inventory.confined
    read = read_list(names, gpus, certain=not others and not is_moved)
    left = [name for name in read.unknown if not (is_moved and is_number(name) and len(name) < 3)]
    theirs, by_place = read_list(names, others, certain=False), read_list(names, gpus, certain=True)
    unknown = tuple(name for name in left if name in theirs.unknown)
    either = [name for name in left if name not in unknown and name not in by_place.unknown]
    findings: tuple[Finding, ...] = ()
    # Nothing is open where a render node's number is there, or both vendors' own variables say what is theirs.
    if either and not read.chosen and not (CUDA_VISIBLE_DEVICES in lists and ROCR_VISIBLE_DEVICES in lists):
        findings = (slurm_ambiguous(names, either[0]),)
    if unknown and (read.chosen or not others):
        findings = (*findings, unknown_name(names, read._replace(unknown=unknown)))
    return Choice(names.variable, merged(read.chosen) or None, findings=findings)


def _amds(lists: Mapping[str, GpuList], job: Choice) -> Choice:
    """What is chosen of AMD's GPUs: by ROCr's variable in the job, then by HIP's in what those leave."""
    rocr, hip = lists.get(ROCR_VISIBLE_DEVICES), lists.get(HIP_VISIBLE_DEVICES)
    if rocr is None and hip is not None and job.gpus is not None and not hip.inventory.confined:
        return _first(hip, job)  # ROCr shows all of the host's, and in those HIP counts
    return _composed(_first(rocr, job), hip)


def _first(names: Optional[GpuList], job: Choice) -> Choice:
    """The job's GPUs, in the order that a vendor's variable gives them, and only those that it names; or its own."""
    if names is None:
        return job
    if job.gpus is None or names.hides_all:
        choice = _listed(names, usable(names.inventory), certain=names.is_certain)
    elif names.inventory.confined:
        choice = _in_cgroup(names, job, job.gpus)
    else:
        choice = _in_the_open(names, job, job.gpus)
    return choice._replace(own=True, uuids=names.has_uuid, findings=(*job.findings, *choice.findings))


def _listed(names: GpuList, gpus: Sequence[Gpu], *, certain: bool) -> Choice:
    """What a vendor's variable says of *gpus*, all that its library would show without it."""
    if names.hides_all:
        return Choice(names.variable, (), findings=(none_visible(names),))
    read = read_list(names, gpus, certain=certain)
    chosen = (*read.chosen, *map(Chosen, divided(names.inventory))) if read.unresolved else read.chosen
    is_told = read.chosen and read.unresolved is None
    handed_on = () if is_told else names.as_it_is
    return Choice(names.variable, merged(chosen) or None, handed_on, findings=doubts(names, read))


def _in_cgroup(names: GpuList, job: Choice, gpus: Sequence[Chosen]) -> Choice:
    """The choice in a job whose cgroup hides the other GPUs: there numbers count the job's."""
    job = job._replace(findings=())
    mine = _ranked(gpus)
    if not names.is_numbers:
        read = read_list(names, usable(names.inventory), certain=False)
        both = tuple(chosen for chosen in read.chosen if chosen.gpu in mine)
        return job._replace(gpus=both or job.gpus) if read.doubt is None and read.unresolved is None else job
    within = read_list(names, mine, certain=True)
    on_host = read_list(names, usable(names.inventory), certain=True)
    readings = dict.fromkeys(
        read.chosen
        for read in (within, on_host)
        if names.is_ordered and not read.unknown and all(chosen.gpu in mine for chosen in read.chosen)
    )
    if len(readings) == 1:
        return job._replace(gpus=merged(*readings))
    # As many as the job has: Slurm's own value. In the cgroup's count it stays, in whatever order CUDA counts there.
    if len(names.names) >= len(mine):
        return job if within.unknown else job._replace(variables=names.as_it_is)
    return _handed_on(names, job)


def _in_the_open(names: GpuList, job: Choice, gpus: Sequence[Chosen]) -> Choice:
    """The choice in a job that hides no GPU from this process: the vendor's library counts all of the host's.

    Numbers that may be meant within the job, or that name others' GPUs, are handed on, and all nodes stay.
    """
    choice = _listed(names, usable(names.inventory), certain=names.is_certain)
    if choice.gpus is None or choice.variables:
        return choice
    mine = _ranked(gpus)
    is_outside = any(chosen.gpu not in mine for chosen in choice.gpus)
    if not names.is_numbers:
        return choice if is_outside else choice._replace(by=job.by)
    within = read_list(names, mine, certain=True)
    if is_outside or (not within.unknown and merged(within.chosen) != choice.gpus):
        return _handed_on(names, job)
    return choice._replace(by=job.by)


def _composed(choice: Choice, names: Optional[GpuList]) -> Choice:
    """HIP_VISIBLE_DEVICES counts in what ROCr shows: in the chosen GPUs, from 0 again."""
    if names is None:
        return choice
    if choice.variables:
        return choice._replace(variables=(*choice.variables, (HIP_VISIBLE_DEVICES, names.value)))
    if choice.gpus is None:
        made = _listed(names, usable(names.inventory), certain=names.is_certain)
    elif choice.gpus:  # ROCR or the job said which there are
        made = _listed(names, [chosen.gpu for chosen in choice.gpus], certain=True)
    else:
        return choice
    return made._replace(uuids=choice.uuids, findings=(*choice.findings, *made.findings))


def _narrowed(choice: Choice, names: Optional[GpuList]) -> Choice:
    """NVIDIA_VISIBLE_DEVICES says what a container may have at most; it never adds anything.

    Source: nvidia-container-toolkit: `all`, `void` and empty choose nothing there, `none` hides all. One of these
    words decides wherever it stands in a list: `void` before `none`, `none` before `all`.
    """
    if names is None or choice.gpus == ():
        return choice
    words = {token.strip() for token in names.value.split(",")} & {"", "void", "none", "all"}
    if words & {"", "void"} or words == {"all"}:
        return choice
    if words:
        return Choice(NVIDIA_VISIBLE_DEVICES, (), findings=(*choice.findings, none_visible(names)))
    read = read_list(names, usable(names.inventory), certain=names.is_certain)
    choice = choice._replace(findings=(*choice.findings, *doubts(names, read)))
    if read.doubt or read.unresolved or not read.chosen or choice.variables:
        return choice
    allowed = merged(read.chosen)
    if choice.gpus is None:
        return Choice(NVIDIA_VISIBLE_DEVICES, allowed, findings=choice.findings, uuids=names.has_uuid)
    both = tuple(one for chosen in choice.gpus if (one := in_both(chosen, allowed)))
    if not both:
        return Choice(
            NVIDIA_VISIBLE_DEVICES, (), findings=(*choice.findings, none_visible(names, f"{choice.by} names others"))
        )
    return choice._replace(gpus=both, own=choice.own and both == choice.gpus)


def _handed_on(names: GpuList, job: Choice) -> Choice:
    """Everything stays, and the variable goes on as it is: its numbers may count the GPUs of the job, or all."""
    finding = order_unknown(names, f"{job.by} names {len(job.gpus or ())} GPUs")
    return Choice(names.variable, None, names.as_it_is, findings=(finding,))


def _ranked(chosen: Sequence[Chosen]) -> list[Gpu]:
    """The GPUs of a job, in the order in which they are counted where there are no others."""
    return sorted((one.gpu for one in chosen), key=lambda gpu: gpu.index or 0)
