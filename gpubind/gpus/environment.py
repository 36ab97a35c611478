"""What the environment chooses: Slurm's numbers, then the vendors' own variables.

A variable is read as its vendor's library would read it. Where that cannot be done for certain, everything stays and
the variable is handed on: the library in the container then decides as it would have on the host. So it is where the
scheduler's variable and the vendor's name different GPUs: the container gets what both name.

Sources: CUDA Programming Guide, "CUDA Environment Variables"; srun(1), sbatch(1): SLURM_STEP_GPUS and SLURM_JOB_GPUS
are never relative to a cgroup; ROCr `core/util/flag.h`, HIP documentation, "GPU isolation techniques".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional, Union

from gpubind.formats.gpu_ids import parse_gpu_id, split_visible
from gpubind.model import Finding, Gpu, Inventory, Severity
from gpubind.gpus.choice import (
    CUDA,
    CUDA_ORDER,
    HIP,
    NVIDIA,
    PCI_ORDER,
    ROCR,
    SLURM,
    Choice,
    Chosen,
    alike,
    divided,
    is_uuid,
    merged,
    mig_named,
    mig_unresolved,
    named,
    part_of,
    usable,
)
from gpubind.gpus.lists import Names, Read, read_names
from gpubind.gpus.findings import list_ends, none_visible, order_unknown, slurm_ambiguous, unknown_name, uuid_unknown

_HIDE_ALL = ("", "-1", "NoDevFiles")
"""Slurm says NoDevFiles in a job that asked for no GPU."""
_RENDER_BASE = 128
"""The first render node's number: what Slurm calls an AMD GPU by, if its gres.conf names those nodes."""


def visible(inventory: Inventory, others: Sequence[Gpu], environ: Mapping[str, str]) -> Choice:
    """What *environ* chooses of the GPUs of *inventory*; *others* are those of other vendors on this host."""
    if not usable(inventory):
        return Choice()
    job = _job(inventory, others, environ)
    if inventory.driver.vendor == "amd":
        # Without NVIDIA's GPUs, CUDA_VISIBLE_DEVICES is HIP's other name.
        own = (ROCR, HIP) if others else (ROCR, HIP, CUDA)
        return _amds(inventory, job, environ)._replace(own=any(name in environ for name in own))
    names = _names(CUDA, inventory, environ)
    if names is not None and names.value.strip().startswith("MIG-") and divided(inventory):
        job = Choice()  # Slurm counts MIG devices, not GPUs, where it hands out those
    return _narrowed(_first(names, job), _names(NVIDIA, inventory, environ))


def _names(variable: str, inventory: Inventory, environ: Mapping[str, str]) -> Optional[Names]:
    value = environ.get(variable)
    if value is None:
        return None
    if variable != CUDA:
        return Names(variable, value, True, inventory)
    beside = ((CUDA_ORDER, environ[CUDA_ORDER]),) if CUDA_ORDER in environ else ()
    return Names(variable, value, _is_cudas_order_known(inventory, environ), inventory, beside)


def _is_cudas_order_known(inventory: Inventory, environ: Mapping[str, str]) -> bool:
    """CUDA counts the fastest GPU first, unless it is told to count by PCI address; of divided ones, only one part."""
    return not divided(inventory) and (alike(usable(inventory)) or environ.get(CUDA_ORDER) == PCI_ORDER)


def _job(inventory: Inventory, others: Sequence[Gpu], environ: Mapping[str, str]) -> Choice:
    """The GPUs that Slurm has given: numbers of device files."""
    variable = next((name for name in SLURM if environ.get(name, "").strip()), None)
    if variable is None:
        return Choice()
    chosen, unknown, either = [], [], []
    # In a cgroup the kernel shows the job's AMD GPUs alone, and has moved their indexes up.
    is_moved = inventory.driver.vendor == "amd" and inventory.confined
    for token in split_visible(environ[variable]):
        gpu = _slurms(token, usable(inventory), alone=not others and not is_moved)
        if gpu is not None:
            chosen.append(Chosen(gpu))
        elif is_moved and token.isascii() and token.isdigit() and len(token) < 3:
            continue
        elif _slurms(token, others, alone=False) is None:
            unknown.append(token)
        elif _slurms(token, usable(inventory), alone=True) is not None:
            either.append(token)
    names = Names(variable, environ[variable], True, inventory)
    findings: tuple[Finding, ...] = ()
    # Nothing is open where a render node's number is there, or both vendors' own variables say what is theirs.
    if either and not chosen and not (CUDA in environ and ROCR in environ):
        findings = (slurm_ambiguous(names, either[0]),)
    if unknown and (chosen or not others):
        why = "Slurm's numbers are those of device files; a variable from another node, or by hand, does not fit here"
        effect = "the others are taken" if chosen else "it is not heeded"
        findings = (
            *findings,
            unknown_name(names, unknown[0], "warning", effect, why),
        )
    return Choice(variable, merged(chosen) if chosen else None, findings=findings)


def _slurms(token: str, gpus: Sequence[Gpu], *, alone: bool) -> Optional[Gpu]:
    """The GPU whose device file has the number *token*; AMD's may go by their index where no other vendor's are."""
    if not (token.isascii() and token.isdigit() and len(token) < 10):
        return None
    number = int(token)
    for gpu in gpus:
        if gpu.vendor == "nvidia" and gpu.minor == number:
            return gpu
        if gpu.vendor == "amd" and gpu.render == f"/dev/dri/renderD{number}":
            return gpu
    if alone and number < _RENDER_BASE:
        return next((gpu for gpu in gpus if gpu.vendor == "amd" and gpu.index == number), None)
    return None


def _first(names: Optional[Names], job: Choice) -> Choice:
    """The job's GPUs, in the order that a vendor's variable gives them, and only those that it names; or its own."""
    if names is None:
        return job
    if split_visible(names.value)[0] in _HIDE_ALL:
        return Choice(names.variable, (), findings=(*job.findings, none_visible(names)), own=True)
    if job.gpus is None:
        return _read_choice(names, job.findings)
    return _in_cgroup(names, job, job.gpus) if names.inventory.confined else _in_the_open(names, job, job.gpus)


def _in_cgroup(names: Names, job: Choice, gpus: Sequence[Chosen]) -> Choice:
    """The choice in a job whose cgroup hides the other GPUs: there numbers count the job's."""
    mine = [chosen.gpu for chosen in gpus]
    job = job._replace(own=True, uuids=_has_uuid(names))
    numbers = _numbers(names)
    if numbers is None:
        read = read_names(names._replace(ordered=False), usable(names.inventory))
        both = tuple(chosen for chosen in read.chosen if chosen.gpu in mine)
        return job._replace(gpus=both or job.gpus) if read.unsure is None and read.unresolved is None else job
    readings = _readings(numbers, mine, names)
    if len(readings) == 1:
        return job._replace(gpus=merged(map(Chosen, readings[0])))
    # As many as the job has: Slurm's own value. In the cgroup's count it stays, in whatever order CUDA counts there.
    if len(numbers) >= len(mine):
        is_count = max(numbers) < len(mine)
        return job._replace(variables=(*names.beside, (names.variable, names.value))) if is_count else job
    return _handed_on(names, (*job.findings, order_unknown(names, f"{job.by} names {len(mine)} GPUs")))


def _in_the_open(names: Names, job: Choice, gpus: Sequence[Chosen]) -> Choice:
    """The choice in a job that hides no GPU from this process: the vendor's library counts all of the host's.

    Numbers that may be meant within the job, or that name others' GPUs, are handed on, and all nodes stay.
    """
    mine = sorted((chosen.gpu for chosen in gpus), key=lambda gpu: gpu.index or 0)
    read = read_names(names, usable(names.inventory))
    numbers = _numbers(names)
    is_outside = any(chosen.gpu not in mine for chosen in read.chosen)
    if read.unsure or read.unresolved or not read.chosen or (numbers is None and is_outside):
        return _read_choice(names, job.findings)
    if numbers is not None:
        within = [mine[number] for number in numbers] if max(numbers) < len(mine) else None
        if is_outside or within not in (None, [chosen.gpu for chosen in read.chosen]):
            return _handed_on(names, (*job.findings, order_unknown(names, f"{job.by} names {len(mine)} GPUs")))
    findings = (*job.findings, *_list_end(names, read))
    return job._replace(gpus=merged(read.chosen), findings=findings, own=True, uuids=_has_uuid(names))


def _numbers(names: Names) -> Optional[list[int]]:
    """The list in *names*, if it is one of numbers alone."""
    tokens = split_visible(names.value)
    if all(token.isascii() and token.isdigit() and len(token) < 10 for token in tokens):
        return [int(token) for token in tokens]
    return None


def _has_uuid(names: Names) -> bool:
    return any(is_uuid(token) for token in split_visible(names.value))


def _list_end(names: Names, read: Read) -> tuple[Finding, ...]:
    if read.unknown is None:
        return ()
    severity: Severity = "warning" if read.chosen or read.unresolved else "error"
    return (list_ends(names, read.unknown, len(read.chosen) + bool(read.unresolved), severity),)


def _readings(numbers: Sequence[int], mine: Sequence[Gpu], names: Names) -> list[tuple[Gpu, ...]]:
    """What a vendor's numbers can mean in a job: places among its GPUs (in its cgroup), or indexes of the host."""
    if not names.ordered:
        return []
    ranked = sorted(mine, key=lambda gpu: gpu.index or 0)
    gpus = usable(names.inventory)
    readings = []
    if all(number < len(ranked) for number in numbers):
        readings.append(tuple(ranked[number] for number in numbers))
    if all(number < len(gpus) and gpus[number] in mine for number in numbers):
        readings.append(tuple(gpus[number] for number in numbers))
    return list(dict.fromkeys(readings))


def _read_choice(names: Names, findings: tuple[Finding, ...] = ()) -> Choice:
    """What the vendor's variable says where no scheduler has said anything."""
    read = read_names(names, usable(names.inventory))
    findings = (*findings, *_list_end(names, read))
    if read.unsure == "order":
        return _handed_on(names, (*findings, order_unknown(names, "")))
    if read.unsure == "uuid":
        return _handed_on(names, (*findings, uuid_unknown(names)))
    if read.unresolved is not None:
        everything = merged((*read.chosen, *map(Chosen, divided(names.inventory))))
        finding = mig_unresolved(read.unresolved, names.where)
        return _handed_on(names, (*findings, finding))._replace(gpus=everything)
    if not read.chosen:
        return _handed_on(names, findings)
    return Choice(names.variable, merged(read.chosen), findings=findings, own=True, uuids=_has_uuid(names))


def _amds(inventory: Inventory, job: Choice, environ: Mapping[str, str]) -> Choice:
    """What is chosen of AMD's GPUs: by ROCr's variable in the job, then by HIP's in what those leave."""
    rocr, hip = _names(ROCR, inventory, environ), _names(HIP, inventory, environ)
    if rocr is None and hip is not None and job.gpus is not None and not inventory.confined:
        return _first(hip, job)  # ROCr shows all of the host's, and in those HIP counts
    return _composed(_first(rocr, job), inventory, environ)


def _composed(choice: Choice, inventory: Inventory, environ: Mapping[str, str]) -> Choice:
    """HIP_VISIBLE_DEVICES counts in what ROCr shows: in the chosen GPUs, from 0 again."""
    names = _names(HIP, inventory, environ)
    if names is None:
        return choice
    if choice.variables:
        return choice._replace(variables=(*choice.variables, (HIP, names.value)))
    if choice.gpus == ():
        return choice
    if split_visible(names.value)[0] in _HIDE_ALL:
        return Choice(HIP, (), findings=(*choice.findings, none_visible(names)))
    if choice.gpus is not None:
        names = names._replace(inventory=inventory._replace(confined=False))  # ROCR or the job said which there are
    shown = usable(inventory) if choice.gpus is None else tuple(chosen.gpu for chosen in choice.gpus)
    read = read_names(names, shown)
    findings = (*choice.findings, *_list_end(names, read))
    if read.unsure is not None or not read.chosen:
        finding = {"order": (order_unknown(names, ""),), "uuid": (uuid_unknown(names),), None: ()}[read.unsure]
        # ROCR stays as it is beside it: the two are read together.
        rocr = ((ROCR, environ[ROCR]),) if ROCR in environ else ()
        return choice._replace(gpus=None, variables=(*rocr, (HIP, names.value)), findings=(*findings, *finding))
    return Choice(HIP, merged(read.chosen), findings=findings, uuids=choice.uuids)


def _narrowed(choice: Choice, names: Optional[Names]) -> Choice:
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
        return Choice(NVIDIA, (), findings=(*choice.findings, none_visible(names)))
    gpus = usable(names.inventory)
    allowed: list[Chosen] = []
    findings = choice.findings
    for token in split_visible(names.value):
        found = _toolkits(token, names, gpus)
        if found is None:
            continue
        if isinstance(found, Finding):
            if found.code not in [finding.code for finding in findings if finding.where == names.where]:
                findings = (*findings, found)
            if found.code == "visible-devices-unknown":
                continue
            return choice._replace(findings=findings)
        allowed.append(found)
    if not allowed or choice.variables:
        return choice._replace(findings=findings)
    if choice.gpus is None:
        return Choice(NVIDIA, merged(allowed), findings=findings, uuids=_has_uuid(names))
    both = tuple(one for chosen in choice.gpus for one in _common(chosen, merged(allowed)))
    if not both:
        return Choice(NVIDIA, (), findings=(*findings, none_visible(names, f"{choice.by} names others")))
    return choice._replace(gpus=both, findings=findings, own=choice.own and both == choice.gpus)


def _common(chosen: Chosen, allowed: Sequence[Chosen]) -> tuple[Chosen, ...]:
    for other in allowed:
        if other.gpu == chosen.gpu:
            if not (chosen.parts and other.parts):
                return (chosen if chosen.parts else other,)
            parts = tuple(part for part in chosen.parts if part in other.parts)
            return (Chosen(chosen.gpu, parts),) if parts else ()
    return ()


def _toolkits(token: str, names: Names, gpus: Sequence[Gpu]) -> Union[Chosen, Finding, None]:
    """What *token* is to NVIDIA's container tools: a choice, a finding, or None for a name of another kind."""
    gpu_id = parse_gpu_id(token)
    spelling = gpu_id.spelling if gpu_id else ""
    why = f"nvidia-container-cli would say `device error: {token}: unknown device`"
    unknown = unknown_name(names, token, "note", "it is not heeded", why)
    if gpu_id is None or (spelling == "part" and not gpu_id.value.startswith("gpu-")):
        # Not CDI's `nvidia.com/gpu=0`, nor the directory by which Kubernetes' plugin names devices.
        return None if "/" in token else unknown
    if spelling in ("mig-uuid", "mig-index"):
        known = mig_named(token, names.inventory)
        if known is not None or divided(names.inventory):
            return known or mig_unresolved(token, names.where)
        return unknown if spelling == "mig-uuid" else None
    if spelling not in ("index", "uuid", "part", "pci"):
        return unknown
    matches = named(gpu_id, gpus)
    if len(matches) == 1:
        if spelling == "index" and names.inventory.confined:
            return order_unknown(names, "")
        part = part_of(matches[0], gpu_id.gi, gpu_id.ci)
        if spelling != "part" or part is not None:
            return Chosen(matches[0], (part,) if part else ())
    is_untold = spelling in ("uuid", "part") and any(gpu.uuid is None for gpu in gpus)
    return None if is_untold or spelling == "pci" else unknown


def _handed_on(names: Names, findings: tuple[Finding, ...]) -> Choice:
    """Everything stays, and the variable goes on as it is."""
    variables = (*names.beside, (names.variable, names.value))
    return Choice(names.variable, None, variables, findings=findings, own=True)
