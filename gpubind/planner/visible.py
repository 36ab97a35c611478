"""What the environment chooses: Slurm's numbers, then the vendors' own variables.

A variable is read as its vendor's library would read it. Where that cannot be done for certain, everything stays and
the variable is handed on: the library in the container then decides as it would have on the host.

Sources: CUDA Programming Guide, "CUDA Environment Variables"; srun(1), sbatch(1): SLURM_STEP_GPUS and SLURM_JOB_GPUS
are never relative to a cgroup; ROCr `core/util/flag.h`, HIP documentation, "GPU isolation techniques".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional, Union

from gpubind.formats.gpu_ids import parse_gpu_id, split_visible
from gpubind.model import Finding, Gpu, Inventory, Severity
from gpubind.planner.choice import (
    CUDA,
    CUDA_ORDER,
    HIP,
    NVIDIA,
    PCI_ORDER,
    ROCR,
    SLURM,
    Choice,
    Chosen,
    divided,
    merged,
    mig_named,
    mig_unresolved,
    named,
    part_of,
    usable,
)
from gpubind.planner.names import Names, read_names
from gpubind.planner.remarks import list_ends, none_visible, order_unknown, unknown_name, uuid_unknown

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
        return _composed(_first(_names(ROCR, inventory, environ), job), inventory, environ)
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
    gpus = usable(inventory)
    alike = len(gpus) == 1 or (gpus[0].model is not None and all(gpu.model == gpus[0].model for gpu in gpus))
    return not divided(inventory) and (alike or environ.get(CUDA_ORDER) == PCI_ORDER)


def _job(inventory: Inventory, others: Sequence[Gpu], environ: Mapping[str, str]) -> Choice:
    """The GPUs that Slurm has given: numbers of device files."""
    variable = next((name for name in SLURM if environ.get(name, "").strip()), None)
    if variable is None:
        return Choice()
    chosen, unknown = [], []
    for token in split_visible(environ[variable]):
        gpu = _slurms(token, usable(inventory), alone=not others)
        if gpu is not None:
            chosen.append(Chosen(gpu))
        elif _slurms(token, others, alone=False) is None:
            unknown.append(token)
    findings: tuple[Finding, ...] = ()
    if unknown and (chosen or not others):
        names = Names(variable, environ[variable], True, inventory)
        why = "Slurm's numbers are those of device files; a variable from another node, or by hand, does not fit here"
        effect = "the others are taken" if chosen else "it is not heeded"
        findings = (unknown_name(names, unknown[0], "warning", effect, why),)
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
        return Choice(names.variable, (), findings=(*job.findings, none_visible(names)))
    if job.gpus is None:
        return _read_choice(names, job.findings)
    mine = [chosen.gpu for chosen in job.gpus]
    tokens = split_visible(names.value)
    if not all(token.isascii() and token.isdigit() and len(token) < 10 for token in tokens):
        read = read_names(names._replace(ordered=False), usable(names.inventory))
        both = tuple(chosen for chosen in read.chosen if chosen.gpu in mine)
        return job._replace(gpus=both or job.gpus) if read.unsure is None and read.unresolved is None else job
    readings = _readings([int(token) for token in tokens], mine, names)
    if len(readings) == 1:
        return job._replace(gpus=merged(map(Chosen, readings[0])))
    # As many as the job has: Slurm's own value, whether it counts in the cgroup or on the host.
    if len(tokens) >= len(mine):
        return job
    return _handed_on(names, (*job.findings, order_unknown(names, f"{job.by} names {len(mine)} GPUs")))


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
    gpus = usable(names.inventory)
    read = read_names(names, gpus)
    if read.unknown is not None:
        severity: Severity = "warning" if read.chosen or read.unresolved else "error"
        findings = (*findings, list_ends(names, read.unknown, len(read.chosen) + bool(read.unresolved), severity))
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
    return Choice(names.variable, merged(read.chosen), findings=findings)


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
    findings = choice.findings
    if read.unknown is not None:
        severity: Severity = "warning" if read.chosen else "error"
        findings = (*findings, list_ends(names, read.unknown, len(read.chosen), severity))
    if read.unsure is not None or not read.chosen:
        finding = {"order": (order_unknown(names, ""),), "uuid": (uuid_unknown(names),), None: ()}[read.unsure]
        # ROCR stays as it is beside it: the two are read together.
        rocr = ((ROCR, environ[ROCR]),) if ROCR in environ else ()
        return choice._replace(gpus=None, variables=(*rocr, (HIP, names.value)), findings=(*findings, *finding))
    return Choice(HIP, merged(read.chosen), findings=findings)


def _narrowed(choice: Choice, names: Optional[Names]) -> Choice:
    """NVIDIA_VISIBLE_DEVICES says what a container may have at most; it never adds anything.

    Source: nvidia-container-toolkit: `all`, `void` and empty choose nothing there, `none` hides all.
    """
    if names is None or names.value.strip() in ("", "all", "void") or choice.gpus == ():
        return choice
    if names.value.strip() == "none":
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
        return Choice(NVIDIA, merged(allowed), findings=findings)
    both = tuple(one for chosen in choice.gpus for one in _common(chosen, merged(allowed)))
    if not both:
        return Choice(NVIDIA, (), findings=(*findings, none_visible(names, f"{choice.by} names others")))
    return choice._replace(gpus=both, findings=findings)


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
        is_plain = (token.isascii() and token.isdigit()) or token.startswith(("GPU-", "MIG-"))
        return unknown if is_plain else None
    if spelling in ("mig-uuid", "mig-index"):
        known = mig_named(token, names.inventory)
        if known is not None or divided(names.inventory):
            return known or mig_unresolved(token, names.where)
        return unknown if spelling == "mig-uuid" else None
    if spelling not in ("index", "uuid", "part", "pci"):
        return None
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
    return Choice(names.variable, None, (*names.beside, (names.variable, names.value)), findings=findings)
