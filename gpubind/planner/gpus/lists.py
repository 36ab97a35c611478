"""The variables that list GPUs: what each says of the GPUs of a host, as its own library or program reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Optional, Union

from gpubind.formats.driver.gpu_ids import GpuId, split_visible
from gpubind.formats.driver.gpu_lists import HIDE_ALL, PCI_ORDER, RULES, ListRule, is_number, is_uuid, parse_listed
from gpubind.formats.driver.gpu_variables import (
    CUDA_DEVICE_ORDER,
    CUDA_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES,
    NVIDIA_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
    SLURM_GPUS,
)
from gpubind.model import Gpu, Inventory, Vendor
from gpubind.planner.gpus.choice import (
    Chosen,
    gpus_named,
    mig_device,
    mig_device_named,
    mig_enabled,
    same_model,
    usable,
)

_RENDER_BASE = 128
"""The first render node's number: what Slurm calls an AMD GPU by, if its gres.conf names those nodes."""

Doubt = Literal["order", "uuid"]
"""Why a name may mean this GPU or that: numbers in an unknown order, a UUID that a GPU has not told yet."""
Meaning = Union[Chosen, Doubt, Literal["unknown", "mig", "other"]]
"""What one name means: a GPU; or why it cannot be told; `mig` is a MIG device that no file tells, `other` no GPU's."""


class GpuList(NamedTuple):
    """A variable that lists GPUs, for those of one vendor."""

    variable: str
    inventory: Inventory
    environ: Mapping[str, str]
    """The caller's; it has the variable."""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return usable(self.inventory)

    @property
    def rule(self) -> ListRule:
        return RULES[self.variable]

    @property
    def value(self) -> str:
        return self.environ[self.variable]

    @property
    def names(self) -> tuple[str, ...]:
        return split_visible(self.value)

    @property
    def hides_all(self) -> bool:
        """Whether the vendor's library shows no GPU by it."""
        return self.names[0] in HIDE_ALL

    @property
    def is_numbers(self) -> bool:
        return all(map(is_number, self.names))

    @property
    def has_uuid(self) -> bool:
        return any(map(is_uuid, self.names))

    @property
    def vendor(self) -> Vendor:
        return self.inventory.driver.vendor

    @property
    def where(self) -> str:
        return f"the environment: {self.variable}={self.value[:200]}"

    @property
    def forwarded(self) -> tuple[tuple[str, str], ...]:
        """The variables that say the same in a container: this one, and what its numbers depend on."""
        names = (self.rule.depends_on, self.variable)
        return tuple((name, self.environ[name]) for name in names if name in self.environ)

    @property
    def counts_by_index(self) -> bool:
        """Whether a number is the place of a GPU in the order of indexes.

        CUDA counts the fastest GPU first, unless it is told to count by PCI address; of GPUs in MIG mode, it counts
        one MIG device.
        """
        if self.variable != CUDA_VISIBLE_DEVICES:
            return True
        is_known = same_model(self.gpus) or self.environ.get(CUDA_DEVICE_ORDER) == PCI_ORDER
        return is_known and not mig_enabled(self.inventory)

    @property
    def counts_all(self) -> bool:
        """Whether a number means the GPU with that index, and not one of those that a cgroup has left."""
        return self.counts_by_index and not self.inventory.confined


class GpuLists(NamedTuple):
    """The variables of an environment that list GPUs; None for one that is not set."""

    slurm: Optional[GpuList]
    """The first of Slurm's two that is not empty."""
    cuda: Optional[GpuList]
    rocr: Optional[GpuList]
    hip: Optional[GpuList]
    nvidia: Optional[GpuList]


def lists_of(inventory: Inventory, environ: Mapping[str, str]) -> GpuLists:
    """Return what *environ* has, for the GPUs of *inventory*."""
    lists = {name: GpuList(name, inventory, environ) for name in RULES if name in environ}
    slurm = next((lists[name] for name in SLURM_GPUS if name in lists and lists[name].value.strip()), None)
    return GpuLists(
        slurm=slurm,
        cuda=lists.get(CUDA_VISIBLE_DEVICES),
        rocr=lists.get(ROCR_VISIBLE_DEVICES),
        hip=lists.get(HIP_VISIBLE_DEVICES),
        nvidia=lists.get(NVIDIA_VISIBLE_DEVICES),
    )


class Read(NamedTuple):
    """What a list says."""

    chosen: tuple[Chosen, ...]
    unknown: tuple[str, ...] = ()
    """Names that are no GPU's: one at most, where the list ends at it."""
    doubt: Optional[Doubt] = None
    """Set: what is meant cannot be told, and nothing is chosen."""
    unresolved: Optional[str] = None
    """A MIG device that no file tells."""
    repeated: Optional[str] = None
    """The name at which the list ends, because it has named its GPU before."""


def read_list(names: GpuList, gpus: Sequence[Gpu], *, certain: bool) -> Read:
    """Return the GPUs that *names* lists, of *gpus*. *certain*: whether a number is a place in those."""
    chosen: list[Chosen] = []
    unknown: list[str] = []
    unresolved = None
    for name in names.names:
        found = _meaning(name, names, gpus, certain)
        if isinstance(found, Chosen):
            if names.rule.ends_at_repeated and found in chosen:
                return Read(tuple(chosen), repeated=name)
            chosen.append(found)
        elif found == "order" or found == "uuid":
            return Read((), tuple(unknown), found)
        elif found == "mig":
            unresolved = unresolved or name
        elif found == "unknown":
            unknown.append(name)
            if names.rule.ends_at_unknown:
                break
    return Read(tuple(chosen), tuple(unknown), None, unresolved)


def _meaning(name: str, names: GpuList, gpus: Sequence[Gpu], certain: bool) -> Meaning:
    gpu_id = parse_listed(name, names.rule)
    if gpu_id is None or gpu_id == "other":
        return gpu_id or "unknown"
    if gpu_id.spelling == "index":
        return _numbered(int(gpu_id.value), names.rule, gpus, certain)
    if gpu_id.spelling in ("mig-uuid", "mig-index"):
        # A place on a GPU without MIG devices is not judged.
        nothing: Meaning = "unknown" if gpu_id.spelling == "mig-uuid" else "other"
        return mig_device_named(name, names.inventory) or ("mig" if mig_enabled(names.inventory) else nothing)
    return _by_name(gpu_id, gpus)


def _numbered(number: int, rule: ListRule, gpus: Sequence[Gpu], certain: bool) -> Meaning:
    if rule.device_files:
        gpu = _by_device_file(number, gpus, index=certain)
        return Chosen(gpu) if gpu else "unknown"
    if number >= len(gpus):
        return "unknown"
    return Chosen(gpus[number]) if certain else "order"


def _by_device_file(number: int, gpus: Sequence[Gpu], *, index: bool) -> Optional[Gpu]:
    """The GPU whose device file has *number*. With *index*, AMD's may go by their index: gres.conf may count them."""
    for gpu in gpus:
        is_its = gpu.minor == number if gpu.vendor == "nvidia" else gpu.render == f"/dev/dri/renderD{number}"
        if is_its or (index and number < _RENDER_BASE and gpu.vendor == "amd" and gpu.index == number):
            return gpu
    return None


def _by_name(gpu_id: GpuId, gpus: Sequence[Gpu]) -> Meaning:
    matches = gpus_named(gpu_id, gpus)
    is_whole = len(matches) == 1 and (matches[0].uuid or "").lower() == gpu_id.value
    if gpu_id.spelling != "pci" and not is_whole and any(gpu.uuid is None for gpu in gpus):
        return "uuid"
    if len(matches) != 1:
        return "unknown"
    return Chosen(matches[0]) if gpu_id.ci is None else mig_device(matches[0], gpu_id.gi, gpu_id.ci) or "unknown"
