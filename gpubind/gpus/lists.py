"""The variables that list GPUs: how each is read by the library or program that it is meant for.

Sources: CUDA Programming Guide, "CUDA Environment Variables"; ROCr `core/util/flag.h`; libnvidia-container
`src/cli/common.c`; srun(1), sbatch(1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Optional, Union

from gpubind.formats.gpu_ids import GpuId, Spelling, parse_gpu_id, split_visible
from gpubind.formats.gpu_variables import (
    CUDA_DEVICE_ORDER,
    CUDA_VISIBLE_DEVICES,
    HIP_VISIBLE_DEVICES,
    NVIDIA_VISIBLE_DEVICES,
    ROCR_VISIBLE_DEVICES,
    SLURM_GPUS,
)
from gpubind.gpus.choice import Chosen, alike, divided, is_uuid, mig_device, mig_named, named, usable
from gpubind.model import Gpu, Inventory, Vendor

PCI_ORDER = "PCI_BUS_ID"
_HIDE_ALL = ("", "-1", "NoDevFiles")
"""Slurm says NoDevFiles in a job that asked for no GPU."""
_RENDER_BASE = 128
"""The first render node's number: what Slurm calls an AMD GPU by, if its gres.conf names those nodes."""


class Rule(NamedTuple):
    """How a variable is read."""

    spellings: tuple[Spelling, ...]
    """The names that are understood."""
    ends: bool = True
    """Whether the list ends at the first name that is unknown; else the others count all the same."""
    once: bool = False
    """Whether the list ends at a repetition, too."""
    capitals: bool = True
    """Whether `GPU-` and `MIG-` have to be in capitals."""
    nodes: bool = False
    """Whether a number is that of a device file, and not a place."""
    beside: str = ""
    """The variable without which the numbers mean something else."""


RULES: dict[str, Rule] = {
    **dict.fromkeys(SLURM_GPUS, Rule(("index",), ends=False, nodes=True)),
    CUDA_VISIBLE_DEVICES: Rule(("index", "uuid", "mig-gpu", "mig-uuid"), beside=CUDA_DEVICE_ORDER),
    ROCR_VISIBLE_DEVICES: Rule(("index", "uuid"), once=True),
    HIP_VISIBLE_DEVICES: Rule(("index", "uuid"), once=True, beside=ROCR_VISIBLE_DEVICES),
    NVIDIA_VISIBLE_DEVICES: Rule(
        ("index", "uuid", "pci", "mig-gpu", "mig-uuid", "mig-index"), ends=False, capitals=False
    ),
}

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
    def rule(self) -> Rule:
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
        return self.names[0] in _HIDE_ALL

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
    def as_it_is(self) -> tuple[tuple[str, str], ...]:
        """What hands it on: the variable, and what its numbers depend on."""
        return tuple((name, self.environ[name]) for name in (self.rule.beside, self.variable) if name in self.environ)

    @property
    def is_ordered(self) -> bool:
        """Whether a number is the place of a GPU in the order of indexes.

        CUDA counts the fastest GPU first, unless it is told to count by PCI address; of divided ones, it counts one
        MIG device.
        """
        if self.variable != CUDA_VISIBLE_DEVICES:
            return True
        is_known = alike(usable(self.inventory)) or self.environ.get(CUDA_DEVICE_ORDER) == PCI_ORDER
        return is_known and not divided(self.inventory)

    @property
    def is_certain(self) -> bool:
        """Whether a number means the GPU with that index, and not one of those that a cgroup has left."""
        return self.is_ordered and not self.inventory.confined


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
    """The GPUs that *names* lists, of *gpus*. *certain*: whether a number is a place in those."""
    chosen: list[Chosen] = []
    unknown: list[str] = []
    unresolved = None
    for name in names.names:
        found = _meaning(name, names, gpus, certain)
        if isinstance(found, Chosen):
            if names.rule.once and found in chosen:
                return Read(tuple(chosen), repeated=name)
            chosen.append(found)
        elif found == "order" or found == "uuid":
            return Read((), tuple(unknown), found)
        elif found == "mig":
            unresolved = unresolved or name
        elif found == "unknown":
            unknown.append(name)
            if names.rule.ends:
                break
    return Read(tuple(chosen), tuple(unknown), None, unresolved)


def _meaning(name: str, names: GpuList, gpus: Sequence[Gpu], certain: bool) -> Meaning:
    rule = names.rule
    gpu_id = parse_gpu_id(name)
    if gpu_id is None and "/" in name and names.variable == NVIDIA_VISIBLE_DEVICES:
        return "other"  # CDI's `nvidia.com/gpu=0`, or the directory by which Kubernetes' plugin names devices
    if gpu_id is None or gpu_id.spelling not in rule.spellings:
        return "unknown"
    if gpu_id.spelling == "index":
        return _numbered(int(gpu_id.value), rule, gpus, certain)
    if rule.capitals and not name.startswith(("GPU-", "MIG-")):
        return "unknown"
    if gpu_id.spelling in ("mig-uuid", "mig-index"):
        # A place on a GPU that is not divided is not judged.
        nothing: Meaning = "unknown" if gpu_id.spelling == "mig-uuid" else "other"
        return mig_named(name, names.inventory) or ("mig" if divided(names.inventory) else nothing)
    return _by_name(gpu_id, gpus)


def _numbered(number: int, rule: Rule, gpus: Sequence[Gpu], certain: bool) -> Meaning:
    if rule.nodes:
        gpu = _by_node(number, gpus, place=certain)
        return Chosen(gpu) if gpu else "unknown"
    if number >= len(gpus):
        return "unknown"
    return Chosen(gpus[number]) if certain else "order"


def _by_node(number: int, gpus: Sequence[Gpu], *, place: bool) -> Optional[Gpu]:
    """The GPU whose device file has *number*. With *place*, AMD's may go by their index: gres.conf may count them."""
    for gpu in gpus:
        is_its = gpu.minor == number if gpu.vendor == "nvidia" else gpu.render == f"/dev/dri/renderD{number}"
        if is_its or (place and number < _RENDER_BASE and gpu.vendor == "amd" and gpu.index == number):
            return gpu
    return None


def _by_name(gpu_id: GpuId, gpus: Sequence[Gpu]) -> Meaning:
    matches = named(gpu_id, gpus)
    is_whole = len(matches) == 1 and (matches[0].uuid or "").lower() == gpu_id.value
    if gpu_id.spelling != "pci" and not is_whole and any(gpu.uuid is None for gpu in gpus):
        return "uuid"
    if len(matches) != 1:
        return "unknown"
    return Chosen(matches[0]) if gpu_id.ci is None else mig_device(matches[0], gpu_id.gi, gpu_id.ci) or "unknown"


def is_number(name: str) -> bool:
    """Whether *name* is a number, and not a UUID or a word."""
    gpu_id = parse_gpu_id(name)
    return gpu_id is not None and gpu_id.spelling == "index"
