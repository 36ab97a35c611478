"""The GPUs of one vendor that the environment chooses.

| variable                         | whose GPUs       | a number is                  | it chooses                      |
| -------------------------------- | ---------------- | ---------------------------- | ------------------------------- |
| SLURM_STEP_GPUS, SLURM_JOB_GPUS  | both             | that of a device file        | the GPUs of the job             |
| CUDA_VISIBLE_DEVICES             | NVIDIA           | a place in CUDA's order      | some of the job's, in its order |
| ROCR_VISIBLE_DEVICES             | AMD              | a place in KFD's order       | some of the job's, in its order |
| HIP_VISIBLE_DEVICES              | AMD              | a place in what ROCr shows   | some of those that ROCR leaves  |
| CUDA_VISIBLE_DEVICES             | AMD, no NVIDIA   | -                            | nothing: HIP reads it itself    |
| GPU_DEVICE_ORDINAL               | AMD              | a place in what ROCr shows   | nothing: OpenCL reads it itself |
| NVIDIA_VISIBLE_DEVICES           | NVIDIA           | an index                     | which of all these may stay     |
| AMD_VISIBLE_DEVICES              | AMD              | a place in PCI order         | which of all these may stay     |
| HABANA_VISIBLE_DEVICES           | Gaudi            | that of a device file        | the accelerators                |
| ZE_AFFINITY_MASK                 | Intel            | a GPU, or a tile             | some of them, where certain     |

`LIST_RULES` of `gpubind.formats.driver.gpu_names` contains the names that each variable supports. gpubind reads a
variable as its vendor's library does. Where the meaning is uncertain, all GPUs stay and the variable is passed through:
the library in the container then decides as it would on the host. Where the scheduler's and the vendor's variable name
different GPUs, the container gets those that both name.

Sources: srun(1), sbatch(1): SLURM_STEP_GPUS and SLURM_JOB_GPUS are never relative to a cgroup; HIP documentation, "GPU
isolation techniques"; nvidia-container-toolkit `internal/config/image/devices.go`, `cuda_image.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Optional, Union

from gpubind.formats.driver import gpu_names
from gpubind.frozen import NamedTuple
from gpubind.model import VENDOR_ROWS, Finding, Gpu, Inventory, Severity, finding, sorted_by_pci, with_count
from gpubind.model.layouts import ALL_GPU_NODES
from gpubind.planner.gpus.choice import (
    ChosenGpu,
    GpuChoice,
    each_gpu_once,
    find_gpus,
    find_mig_device,
    gpus_with_mig,
    intersect,
    mig_device,
    same_model,
    usable_gpus,
)

_FIRST_RENDER_NODE = 128
"""Slurm's numbers of AMD GPUs below this one are indexes; gres.conf may list render nodes instead."""

Doubt = Literal["order", "uuid"]
"""Why a name is ambiguous: numbers in an unknown order, or a UUID that a GPU has not reported yet."""
Meaning = Union[ChosenGpu, Doubt, Literal["unknown", "mig", "other"]]
"""A GPU, or why a name means none; `mig` is a MIG device that no file names, `other` is no GPU."""

# The cases of findings, by the reader of the variable.
_NONE_CASES = {"cuda": "cuda-none", "rocr": "rocr-none", "slurm": "slurm-none"}
_JOB_CASES = {"cuda": "cuda-job", "rocr": "rocr-job"}
_HIDDEN_CASES = {"cuda": "cuda-hidden", "rocr": "rocr-hidden", "nvidia": "nvidia-hidden", "amd": "amd-hidden"}


class GpuList:
    """A *variable* of the caller's *environ* that lists GPUs, for those of *inventory*."""

    def __init__(self, variable: str, inventory: Inventory, environ: Mapping[str, str]) -> None:
        self.variable = variable
        self.inventory = inventory
        self.environ = environ
        self.gpus = usable_gpus(inventory)
        self.vendor = inventory.driver.vendor
        self.rule = gpu_names.LIST_RULES[variable]
        self.value = environ[variable]
        self.names = gpu_names.split_visible(self.value)
        if variable == gpu_names.AMD_VISIBLE_DEVICES:
            self.gpus = sorted_by_pci(self.gpus)
            names = gpu_names.split_amd_visible(self.value)
            self.names = tuple(partition for name in names for partition in self._partitions(name))
        self.hides_all = gpu_names.hides_all(self.names)
        """Whether the vendor's library shows no GPU at all."""
        self.is_numbers = all(map(gpu_names.is_index, self.names))
        self.has_uuid = any(map(gpu_names.is_uuid, self.names))
        self.library = VENDOR_ROWS[self.vendor].variable_reader
        """The vendor's library that reads variables, and the prefix of cases of findings."""
        self.where = f"the environment: {variable}={self.value[:200]}"

    def _partitions(self, name: str) -> tuple[str, ...]:
        """Return the places of GPUs with the UUID *name* if there are several (partitions of one GPU), else *name*."""
        places = tuple(str(place) for place, gpu in enumerate(self.gpus) if gpu.uuid == name)
        return places if len(places) > 1 else (name,)

    @property
    def reader(self) -> str:
        """The reader of the variable: Slurm, the vendor's container toolkit (named for the vendor), or the library."""
        if self.variable in gpu_names.SLURM_GPUS:
            return "slurm"
        return self.vendor if self.variable == gpu_names.TOOLKIT_VARIABLES[self.vendor] else self.library

    @property
    def forwarded(self) -> tuple[tuple[str, str], ...]:
        """The variables to pass through: this one, and the one on which its numbers depend."""
        names = (self.rule.depends_on, self.variable)
        return tuple((name, self.environ[name]) for name in names if name in self.environ)

    @property
    def counts_by_index(self) -> bool:
        """Whether a number is the place of a GPU in the order of indexes.

        CUDA counts the fastest GPU first, unless CUDA_DEVICE_ORDER is set; of GPUs in MIG mode, it counts one MIG
        device.
        """
        if self.variable != gpu_names.CUDA_VISIBLE_DEVICES:
            return True
        is_known = same_model(self.gpus) or self.environ.get(gpu_names.CUDA_DEVICE_ORDER) == gpu_names.PCI_ORDER
        return is_known and not gpus_with_mig(self.inventory)

    @property
    def counts_all(self) -> bool:
        """Whether a number means the GPU with that index, because no cgroup hides another GPU."""
        return self.counts_by_index and not self.inventory.hides_gpus

    def finding(
        self, code: str, case: Optional[str] = None, severity: Optional[Severity] = None, **facts: object
    ) -> Finding:
        """Return a finding about the variable."""
        return finding(
            code, subject=self.variable, case=case, severity=severity, vendor=self.vendor, where=self.where, **facts
        )


def choose_by_variables(
    inventory: Inventory, inventories: Sequence[Inventory], environ: Mapping[str, str]
) -> GpuChoice:
    """Return the GPUs of *inventory*, one of the *inventories* of this host, that *environ* chooses."""
    if not usable_gpus(inventory):
        return _pass_through_all(inventory, environ)
    if not VENDOR_ROWS[inventory.driver.vendor].variable_reader:
        from gpubind.planner.gpus.intel import all_gpus_passed_through  # few hosts have such GPUs

        return all_gpus_passed_through(inventory, environ)
    every = (gpu for other in inventories if other is not inventory for gpu in usable_gpus(other))
    others = [gpu for gpu in every if VENDOR_ROWS[gpu.vendor].variable_reader]
    lists = {name: GpuList(name, inventory, environ) for name in gpu_names.LIST_RULES if name in environ}
    cuda, rocr = lists.get(gpu_names.CUDA_VISIBLE_DEVICES), lists.get(gpu_names.ROCR_VISIBLE_DEVICES)
    slurm = next((lists[name] for name in gpu_names.SLURM_GPUS if name in lists and lists[name].value.strip()), None)
    job = GpuChoice() if slurm is None else _slurm_gpus(slurm, others, both_vendors_set=bool(cuda and rocr))
    if inventory.driver.vendor == "amd":
        hip = lists.get(gpu_names.HIP_VISIBLE_DEVICES)
        if rocr is None and hip is not None and job.gpus is not None and not inventory.hides_gpus:
            choice = _limit_to_job(hip, job)  # ROCr shows all GPUs, and HIP counts these
        else:
            choice = _limit_by_hip(_limit_to_job(rocr, job), hip)
        # Without NVIDIA's GPUs, CUDA_VISIBLE_DEVICES is HIP's other name.
        choice = choice._replace(already_set=any((rocr, hip, None if others else cuda)))
        return _limit_by_toolkit(choice, lists.get(gpu_names.AMD_VISIBLE_DEVICES))
    if cuda is not None and cuda.value.strip().startswith("MIG-") and gpus_with_mig(inventory):
        job = GpuChoice()  # where Slurm allocates MIG devices, it counts these
    return _limit_by_toolkit(_limit_to_job(cuda, job), lists.get(gpu_names.NVIDIA_VISIBLE_DEVICES))


def _pass_through_all(inventory: Inventory, environ: Mapping[str, str]) -> GpuChoice:
    """Pass the variable through if one node gives access to all GPUs: the library in the container chooses."""
    is_amds = inventory.driver.vendor == "amd"
    name = gpu_names.ROCR_VISIBLE_DEVICES if is_amds else gpu_names.CUDA_VISIBLE_DEVICES
    if name not in environ or not any(node.target in ALL_GPU_NODES for node in inventory.devices):
        return GpuChoice()
    names = GpuList(name, inventory, environ)
    if names.hides_all:
        return _listed(names, (), certain=False)
    return GpuChoice(name, None, names.forwarded, already_set=True)


def _slurm_gpus(names: GpuList, others: Sequence[Gpu], *, both_vendors_set: bool) -> GpuChoice:
    """Return the GPUs of the job. Slurm's variable *names* has the numbers of device files."""
    gpus = names.gpus
    # In a cgroup the kernel shows only the job's AMD GPUs, and renumbers them from 0.
    is_moved = names.vendor == "amd" and names.inventory.hides_gpus
    read = read_list(names, gpus, certain=not others and not is_moved)
    low = [n for n in read.unknown if is_moved and gpu_names.is_index(n) and int(n) < _FIRST_RENDER_NODE]
    unmatched = [name for name in read.unknown if name not in low]
    of_others, by_place = read_list(names, others, certain=False), read_list(names, gpus, certain=True)
    unknown = tuple(name for name in unmatched if name in of_others.unknown)
    either = [name for name in unmatched if name not in unknown and name not in by_place.unknown]
    findings: tuple[Finding, ...] = ()
    # There is no doubt if a render node's number was found, or if both vendors' own variables are set.
    if either and not read.chosen and not both_vendors_set:
        findings = (names.finding("slurm-gpu-ambiguous", name=either[0]),)
    if unknown and (read.chosen or not others):
        findings = (*findings, _unknown_name(names, read._replace(unknown=unknown), gpus))
    return GpuChoice(names.variable, each_gpu_once(read.chosen) or None, findings=findings)


def _limit_to_job(names: Optional[GpuList], job: GpuChoice) -> GpuChoice:
    """Return the GPUs of *job* that a vendor's variable names, in the variable's order.

    Without the variable, return all of *job*; without a job, all that the variable names.
    """
    if names is None:
        return job
    if job.gpus is None or names.hides_all:
        choice = _listed(names, names.gpus, certain=names.counts_all)
    elif names.inventory.hides_gpus:
        choice = _choice_in_cgroup(names, job, job.gpus)
    else:
        choice = _choice_without_cgroup(names, job, job.gpus)
    return choice._replace(already_set=True, by_uuid=names.has_uuid, findings=(*job.findings, *choice.findings))


def _listed(names: GpuList, gpus: Sequence[Gpu], *, certain: bool) -> GpuChoice:
    """Return those of *gpus* that a vendor's variable chooses; without it, the library would show all *gpus*."""
    if names.hides_all:
        return GpuChoice(names.variable, (), findings=(_none_visible(names),))
    read = read_list(names, gpus, certain=certain)
    chosen = (*read.chosen, *map(ChosenGpu, gpus_with_mig(names.inventory))) if read.unresolved else read.chosen
    forwarded = () if read.chosen and read.unresolved is None else names.forwarded
    findings = _list_findings(names, read, gpus)
    return GpuChoice(names.variable, each_gpu_once(chosen) or None, forwarded, findings=findings)


def _choice_in_cgroup(names: GpuList, job: GpuChoice, gpus: Sequence[ChosenGpu]) -> GpuChoice:
    """Return the choice in a job whose cgroup hides other GPUs, so that numbers count the job's GPUs."""
    job = job._replace(findings=())
    mine = _sorted_by_index(gpus)
    if not names.is_numbers:
        read = read_list(names, names.gpus, certain=False)
        in_job = tuple(chosen for chosen in read.chosen if chosen.gpu in mine)
        return job._replace(gpus=in_job or job.gpus) if read.ambiguity is None and read.unresolved is None else job
    within = read_list(names, mine, certain=True)
    on_host = read_list(names, names.gpus, certain=True)
    readings = dict.fromkeys(
        read.chosen
        for read in (within, on_host)
        if names.counts_by_index and not read.unknown and all(chosen.gpu in mine for chosen in read.chosen)
    )
    if len(readings) == 1:
        return job._replace(gpus=each_gpu_once(*readings))
    # A list as long as the job is Slurm's own value, and valid in any order in which CUDA counts the job's GPUs.
    if len(names.names) >= len(mine):
        return job if within.unknown else job._replace(passed_through=names.forwarded)
    return _pass_through(names, job)


def _choice_without_cgroup(names: GpuList, job: GpuChoice, gpus: Sequence[ChosenGpu]) -> GpuChoice:
    """Return the choice in a job that hides no GPU from this process, so that numbers count all GPUs of the host.

    If numbers may count the job's GPUs, or name GPUs of other jobs, they are passed through, and all nodes stay.
    """
    choice = _listed(names, names.gpus, certain=names.counts_all)
    if choice.gpus is None or choice.passed_through:
        return choice
    mine = _sorted_by_index(gpus)
    is_outside = any(chosen.gpu not in mine for chosen in choice.gpus)
    if not names.is_numbers:
        return choice if is_outside else choice._replace(source=job.source)
    within = read_list(names, mine, certain=True)
    if is_outside or (not within.unknown and each_gpu_once(within.chosen) != choice.gpus):
        return _pass_through(names, job)
    return choice._replace(source=job.source)


def _limit_by_hip(choice: GpuChoice, names: Optional[GpuList]) -> GpuChoice:
    """Return the part of *choice* that HIP_VISIBLE_DEVICES keeps; its numbers count the chosen GPUs from 0."""
    if names is None:
        return choice
    if choice.passed_through:
        return choice._replace(passed_through=(*choice.passed_through, (names.variable, names.value)))
    if choice.gpus is None:
        within = _listed(names, names.gpus, certain=names.counts_all)
    elif choice.gpus:  # ROCR or the job chose these
        within = _listed(names, [chosen.gpu for chosen in choice.gpus], certain=True)
    else:
        return choice
    return within._replace(by_uuid=choice.by_uuid, findings=(*choice.findings, *within.findings))


def _limit_by_toolkit(choice: GpuChoice, names: Optional[GpuList]) -> GpuChoice:
    """Return the part of *choice* that NVIDIA_VISIBLE_DEVICES or AMD_VISIBLE_DEVICES allows.

    `all`, `void` and an empty value change nothing; `none` hides all GPUs. Anywhere in a list, `void` precedes `none`,
    `none` precedes `all`, and each of them precedes other names. Empty items are ignored.
    """
    if names is None or choice.gpus == ():
        return choice
    tokens = set(names.names) - {""}
    keywords = tokens & {"void", "none", "all"}
    if not tokens or "void" in keywords or keywords == {"all"}:
        return choice
    if keywords:
        return GpuChoice(names.variable, (), findings=(*choice.findings, _none_visible(names)))
    read = read_list(names, names.gpus, certain=names.counts_all)
    choice = choice._replace(findings=(*choice.findings, *_list_findings(names, read, names.gpus)))
    if read.ambiguity or read.unresolved or not read.chosen or choice.passed_through:
        return choice
    allowed = each_gpu_once(read.chosen)
    if choice.gpus is None:
        return GpuChoice(names.variable, allowed, findings=choice.findings, by_uuid=names.has_uuid)
    common = tuple(common_gpu for chosen in choice.gpus if (common_gpu := intersect(chosen, allowed)))
    if not common:
        return GpuChoice(names.variable, (), findings=(*choice.findings, _none_visible(names, choice)))
    return choice._replace(gpus=common, already_set=choice.already_set and common == choice.gpus)


def _pass_through(names: GpuList, job: GpuChoice) -> GpuChoice:
    """Keep all GPUs, and pass the variable through: its numbers may count the job's GPUs, or all."""
    return GpuChoice(names.variable, None, names.forwarded, findings=(_order_unknown(names, job),))


def _sorted_by_index(chosen: Sequence[ChosenGpu]) -> list[Gpu]:
    """Return the GPUs in the order in which programs count them where there are no others."""
    return sorted((chosen_gpu.gpu for chosen_gpu in chosen), key=lambda gpu: gpu.index or 0)


class ParsedGpuList(NamedTuple):
    """The GPUs that a list names, and its other names."""

    chosen: tuple[ChosenGpu, ...]
    unknown: tuple[str, ...] = ()
    """Names that no GPU has; one at most, if the library stops reading there."""
    ambiguity: Optional[Doubt] = None
    """Why the meaning is uncertain; `chosen` is then empty."""
    unresolved: Optional[str] = None
    """A MIG device that no file names."""
    repeated: Optional[str] = None
    """The name of an already listed GPU, at which the list ends."""


def read_list(names: GpuList, gpus: Sequence[Gpu], *, certain: bool) -> ParsedGpuList:
    """Return those of *gpus* that *names* lists. *certain*: whether a number is a place in *gpus*."""
    chosen: list[ChosenGpu] = []
    unknown: list[str] = []
    unresolved = None
    for name in names.names:
        meaning = _meaning(name, names, gpus, certain)
        if isinstance(meaning, ChosenGpu):
            if names.rule.ends_at_repeated and meaning in chosen:
                return ParsedGpuList(tuple(chosen), repeated=name)
            chosen.append(meaning)
        elif meaning == "order" or meaning == "uuid":
            return ParsedGpuList((), tuple(unknown), meaning)
        elif meaning == "mig":
            unresolved = unresolved or name
        elif meaning == "unknown":
            unknown.append(name)
            if names.rule.ends_at_unknown:
                break
    return ParsedGpuList(tuple(chosen), tuple(unknown), None, unresolved)


def _meaning(name: str, names: GpuList, gpus: Sequence[Gpu], certain: bool) -> Meaning:
    gpu_id = gpu_names.parse_list_item(name, names.rule)
    if gpu_id is None or gpu_id == "other":
        return gpu_id or "unknown"
    if gpu_id.spelling == "index":
        return _gpu_of_number(int(gpu_id.value), names.rule, gpus, certain)
    if gpu_id.spelling in ("mig-uuid", "mig-index"):
        # A MIG place on a host without MIG devices is ignored.
        nothing: Meaning = "unknown" if gpu_id.spelling == "mig-uuid" else "other"
        return find_mig_device(name, names.inventory) or ("mig" if gpus_with_mig(names.inventory) else nothing)
    return _by_name(gpu_id, gpus)


def _gpu_of_number(number: int, rule: gpu_names.ListRule, gpus: Sequence[Gpu], certain: bool) -> Meaning:
    """Return the GPU with *number*: a place in *gpus*, if *certain*, or the number of its device file, as *rule* says.

    In place of a device file's number, gres.conf may use AMD's index, which is accepted if *certain*.
    """
    if not rule.device_files:
        return "unknown" if number >= len(gpus) else ChosenGpu(gpus[number]) if certain else "order"
    its = (gpu for gpu in gpus if gpu.minor == number or (certain and gpu.vendor == "amd" and gpu.index == number))
    return next(map(ChosenGpu, its), "unknown")


def _by_name(gpu_id: gpu_names.GpuId, gpus: Sequence[Gpu]) -> Meaning:
    matches = find_gpus(gpu_id, gpus)
    is_whole = len(matches) == 1 and (matches[0].uuid or "").lower() == gpu_id.value
    if gpu_id.spelling != "pci" and not is_whole and any(gpu.uuid is None for gpu in gpus):
        return "uuid"
    if len(matches) != 1:
        return "unknown"
    return ChosenGpu(matches[0]) if gpu_id.ci is None else mig_device(matches[0], gpu_id.gi, gpu_id.ci) or "unknown"


def _none_visible(names: GpuList, others: Optional[GpuChoice] = None) -> Finding:
    value = f"`{names.value}`" if names.value else "empty"
    others_case = "rocr-others-named" if names.library == "rocr" else "others-named"
    case, by = (others_case, others.source) if others else (names.library, "")
    return names.finding("visible-devices-none", case, value=value, by=by)


def _list_findings(names: GpuList, read: ParsedGpuList, gpus: Sequence[Gpu]) -> tuple[Finding, ...]:
    findings = []
    if read.unknown:
        findings.append(_unknown_name(names, read, gpus))
    if read.ambiguity == "order":
        findings.append(_order_unknown(names))
    elif read.ambiguity == "uuid":
        findings.append(names.finding("gpu-uuid-unknown", names.reader))
    if read.unresolved is not None:
        findings.append(finding("mig-unresolved", subject=read.unresolved, where=names.where))
    if read.repeated is not None:
        seen = ", ".join(str(chosen.gpu.index) for chosen in read.chosen)
        seen = f"GPU{'s' if ',' in seen else ''} {seen}"
        findings.append(names.finding("rocr-visible-cut", name=read.repeated, seen=seen))
    return tuple(findings)


def _unknown_name(names: GpuList, read: ParsedGpuList, gpus: Sequence[Gpu]) -> Finding:
    """Return the finding about the first unknown name in a list. HIP numbers *gpus*, which ROCr shows."""
    reader = names.reader
    count = len(read.chosen) + bool(read.unresolved)
    is_fatal = reader == names.library and count == 0
    is_hips = names.variable == gpu_names.HIP_VISIBLE_DEVICES
    case = ("hip" if count else "hip-none") if is_hips else reader if count else _NONE_CASES.get(reader, reader)
    places = enumerate(gpus) if is_hips else ((gpu.index, gpu) for gpu in usable_gpus(names.inventory))
    return names.finding(
        "visible-devices-unknown",
        case,
        severity="error" if is_fatal else "note" if reader == names.vendor else "warning",
        name=read.unknown[0][:80],
        seen=with_count(count, "device"),
        shown=with_count(len(gpus), "GPU"),
        known=", ".join(f"{place}" + (f" ({gpu.uuid})" if gpu.uuid else "") for place, gpu in places),
        program="nvidia-smi -L" if names.vendor == "nvidia" else "ls /sys/class/kfd/kfd/topology/nodes",
    )


def _order_unknown(names: GpuList, job: Optional[GpuChoice] = None) -> Finding:
    if job is not None:
        gpus = with_count(len(job.gpus or ()), "GPU")
        return names.finding("gpu-order-unknown", _JOB_CASES[names.library], by=job.source, gpus=gpus)
    if names.inventory.hides_gpus:
        return names.finding("gpu-order-unknown", _HIDDEN_CASES[names.reader])
    return names.finding("gpu-order-unknown", "cuda-mig" if gpus_with_mig(names.inventory) else "cuda-models")
