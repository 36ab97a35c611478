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

from gpubind.formats.driver.gpu_lists import is_number
from gpubind.model import Finding, Gpu, Inventory
from gpubind.planner.gpus.choice import Choice, Chosen, each_gpu_once, in_both, mig_enabled, usable
from gpubind.planner.gpus.findings import doubts, none_visible, order_unknown, slurm_ambiguous, unknown_name
from gpubind.planner.gpus.lists import GpuList, GpuLists, lists_of, read_list


def chosen_by_environment(inventory: Inventory, inventories: Sequence[Inventory], environ: Mapping[str, str]) -> Choice:
    """Return what *environ* chooses of the GPUs of *inventory*, one of the *inventories* of this host."""
    if not usable(inventory):
        return Choice()
    others = [gpu for other in inventories if other is not inventory for gpu in usable(other)]
    lists = lists_of(inventory, environ)
    job = _given_by_slurm(lists, others)
    if inventory.driver.vendor == "amd":
        # Without NVIDIA's GPUs, CUDA_VISIBLE_DEVICES is HIP's other name.
        own = (lists.rocr, lists.hip, None if others else lists.cuda)
        return _chosen_of_amd(lists, job)._replace(already_set=any(own))
    if lists.cuda is not None and lists.cuda.value.strip().startswith("MIG-") and mig_enabled(inventory):
        job = Choice()  # Slurm counts MIG devices, not GPUs, where it hands out those
    return _at_most(_within_job(lists.cuda, job), lists.nvidia)


def _given_by_slurm(lists: GpuLists, others: Sequence[Gpu]) -> Choice:
    """The GPUs that Slurm has given: numbers of device files."""
    names = lists.slurm
    if names is None:
        return Choice()
    gpus = names.gpus
    # In a cgroup the kernel shows the job's AMD GPUs alone, and has moved their indexes up.
    is_moved = names.vendor == "amd" and names.inventory.confined
    read = read_list(names, gpus, certain=not others and not is_moved)
    left = [name for name in read.unknown if not (is_moved and is_number(name) and len(name) < 3)]
    theirs, by_place = read_list(names, others, certain=False), read_list(names, gpus, certain=True)
    unknown = tuple(name for name in left if name in theirs.unknown)
    either = [name for name in left if name not in unknown and name not in by_place.unknown]
    findings: tuple[Finding, ...] = ()
    # Nothing is open where a render node's number is there, or both vendors' own variables say what is theirs.
    if either and not read.chosen and not (lists.cuda and lists.rocr):
        findings = (slurm_ambiguous(names, either[0]),)
    if unknown and (read.chosen or not others):
        findings = (*findings, unknown_name(names, read._replace(unknown=unknown)))
    return Choice(names.variable, each_gpu_once(read.chosen) or None, findings=findings)


def _chosen_of_amd(lists: GpuLists, job: Choice) -> Choice:
    """Return what is chosen of AMD's GPUs: by ROCr's variable in the job, then by HIP's in what those leave."""
    if lists.rocr is None and lists.hip is not None and job.gpus is not None and not lists.hip.inventory.confined:
        return _within_job(lists.hip, job)  # ROCr shows all of the host's, and in those HIP counts
    return _hip_within(_within_job(lists.rocr, job), lists.hip)


def _within_job(names: Optional[GpuList], job: Choice) -> Choice:
    """Return the GPUs of *job* that a vendor's variable names, in its order; without the variable all of the job's, and
    without a job all that it names.
    """
    if names is None:
        return job
    if job.gpus is None or names.hides_all:
        choice = _listed(names, names.gpus, certain=names.counts_all)
    elif names.inventory.confined:
        choice = _in_cgroup(names, job, job.gpus)
    else:
        choice = _without_cgroup(names, job, job.gpus)
    return choice._replace(already_set=True, by_uuid=names.has_uuid, findings=(*job.findings, *choice.findings))


def _listed(names: GpuList, gpus: Sequence[Gpu], *, certain: bool) -> Choice:
    """Return what a vendor's variable says of *gpus*, all that its library would show without it."""
    if names.hides_all:
        return Choice(names.variable, (), findings=(none_visible(names),))
    read = read_list(names, gpus, certain=certain)
    chosen = (*read.chosen, *map(Chosen, mig_enabled(names.inventory))) if read.unresolved else read.chosen
    forwarded = () if read.chosen and read.unresolved is None else names.forwarded
    return Choice(names.variable, each_gpu_once(chosen) or None, forwarded, findings=doubts(names, read))


def _in_cgroup(names: GpuList, job: Choice, gpus: Sequence[Chosen]) -> Choice:
    """Return the choice in a job whose cgroup hides the other GPUs: there numbers count the job's."""
    job = job._replace(findings=())
    mine = _by_index(gpus)
    if not names.is_numbers:
        read = read_list(names, names.gpus, certain=False)
        both = tuple(chosen for chosen in read.chosen if chosen.gpu in mine)
        return job._replace(gpus=both or job.gpus) if read.doubt is None and read.unresolved is None else job
    within = read_list(names, mine, certain=True)
    on_host = read_list(names, names.gpus, certain=True)
    readings = dict.fromkeys(
        read.chosen
        for read in (within, on_host)
        if names.counts_by_index and not read.unknown and all(chosen.gpu in mine for chosen in read.chosen)
    )
    if len(readings) == 1:
        return job._replace(gpus=each_gpu_once(*readings))
    # As many as the job has: Slurm's own value. In the cgroup's count it stays, in whatever order CUDA counts there.
    if len(names.names) >= len(mine):
        return job if within.unknown else job._replace(forwarded=names.forwarded)
    return _forward(names, job)


def _without_cgroup(names: GpuList, job: Choice, gpus: Sequence[Chosen]) -> Choice:
    """Return the choice in a job that hides no GPU from this process: the vendor's library counts all of the host's.

    Numbers that may be meant within the job, or that name others' GPUs, are handed on, and all nodes stay.
    """
    choice = _listed(names, names.gpus, certain=names.counts_all)
    if choice.gpus is None or choice.forwarded:
        return choice
    mine = _by_index(gpus)
    is_outside = any(chosen.gpu not in mine for chosen in choice.gpus)
    if not names.is_numbers:
        return choice if is_outside else choice._replace(by=job.by)
    within = read_list(names, mine, certain=True)
    if is_outside or (not within.unknown and each_gpu_once(within.chosen) != choice.gpus):
        return _forward(names, job)
    return choice._replace(by=job.by)


def _hip_within(choice: Choice, names: Optional[GpuList]) -> Choice:
    """HIP_VISIBLE_DEVICES counts in what ROCr shows: in the chosen GPUs, from 0 again."""
    if names is None:
        return choice
    if choice.forwarded:
        return choice._replace(forwarded=(*choice.forwarded, (names.variable, names.value)))
    if choice.gpus is None:
        made = _listed(names, names.gpus, certain=names.counts_all)
    elif choice.gpus:  # ROCR or the job said which there are
        made = _listed(names, [chosen.gpu for chosen in choice.gpus], certain=True)
    else:
        return choice
    return made._replace(by_uuid=choice.by_uuid, findings=(*choice.findings, *made.findings))


def _at_most(choice: Choice, names: Optional[GpuList]) -> Choice:
    """NVIDIA_VISIBLE_DEVICES says what a container may have at most; it never adds anything.

    Source: nvidia-container-toolkit `internal/config/image/devices.go`, `cuda_image.go`: `all`, `void` and empty choose
    nothing there, `none` hides all. One of these words decides wherever it stands in a list, `void` before `none`
    before `all`; an empty place in a list is none.
    """
    if names is None or choice.gpus == ():
        return choice
    said = {token.strip() for token in names.value.split(",")} - {""}
    words = said & {"void", "none", "all"}
    if not said or "void" in words or words == {"all"}:
        return choice
    if words:
        return Choice(names.variable, (), findings=(*choice.findings, none_visible(names)))
    read = read_list(names, names.gpus, certain=names.counts_all)
    choice = choice._replace(findings=(*choice.findings, *doubts(names, read)))
    if read.doubt or read.unresolved or not read.chosen or choice.forwarded:
        return choice
    allowed = each_gpu_once(read.chosen)
    if choice.gpus is None:
        return Choice(names.variable, allowed, findings=choice.findings, by_uuid=names.has_uuid)
    both = tuple(one for chosen in choice.gpus if (one := in_both(chosen, allowed)))
    if not both:
        return Choice(names.variable, (), findings=(*choice.findings, none_visible(names, choice)))
    return choice._replace(gpus=both, already_set=choice.already_set and both == choice.gpus)


def _forward(names: GpuList, job: Choice) -> Choice:
    """Everything stays, and the variable goes on as it is: its numbers may count the GPUs of the job, or all."""
    return Choice(names.variable, None, names.forwarded, findings=(order_unknown(names, job),))


def _by_index(chosen: Sequence[Chosen]) -> list[Gpu]:
    """Return the GPUs of a job, in the order in which they are counted where there are no others."""
    return sorted((one.gpu for one in chosen), key=lambda gpu: gpu.index or 0)
