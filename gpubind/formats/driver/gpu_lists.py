"""The values of the variables that list GPUs: which names the library or program that each is meant for understands.

Sources: CUDA Programming Guide, "CUDA Environment Variables"; ROCr `core/util/flag.h`; libnvidia-container
`src/cli/common.c`; srun(1), sbatch(1).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Union

from gpubind.formats.driver import gpu_variables as variables
from gpubind.formats.driver.gpu_ids import GpuId, Spelling, parse_gpu_id

PCI_ORDER = "PCI_BUS_ID"
"""The value of CUDA_DEVICE_ORDER that makes CUDA count by PCI address."""
HIDE_ALL = ("", "-1", "NoDevFiles")
"""Where a list begins with one of these, it names no GPU. Slurm says NoDevFiles in a job that asked for none."""


class ListRule(NamedTuple):
    """How a variable is read."""

    spellings: tuple[Spelling, ...]
    """The names that are understood."""
    ends_at_unknown: bool = True
    """Whether the list ends at the first name that is unknown; else the others count all the same."""
    ends_at_repeated: bool = False
    """Whether the list ends at a GPU that it has named before, too."""
    capitals: bool = True
    """Whether `GPU-` and `MIG-` have to be in capitals."""
    device_files: bool = False
    """Whether a number is that of a device file, and not an index."""
    cdi_names: bool = False
    """Whether the names of other devices may be among them: CDI's, the directories of Kubernetes' plugin, or none."""
    depends_on: str = ""
    """The variable without which the numbers mean something else."""


RULES: dict[str, ListRule] = {
    **dict.fromkeys(variables.SLURM_GPUS, ListRule(("index",), ends_at_unknown=False, device_files=True)),
    variables.CUDA_VISIBLE_DEVICES: ListRule(
        ("index", "uuid", "mig-gpu", "mig-uuid"), depends_on=variables.CUDA_DEVICE_ORDER
    ),
    variables.ROCR_VISIBLE_DEVICES: ListRule(("index", "uuid"), ends_at_repeated=True),
    variables.HIP_VISIBLE_DEVICES: ListRule(
        ("index", "uuid"), ends_at_repeated=True, depends_on=variables.ROCR_VISIBLE_DEVICES
    ),
    variables.NVIDIA_VISIBLE_DEVICES: ListRule(
        ("index", "uuid", "pci", "mig-gpu", "mig-uuid", "mig-index"),
        ends_at_unknown=False,
        capitals=False,
        cdi_names=True,
    ),
}


def parse_listed(name: str, rule: ListRule) -> Union[GpuId, Literal["other"], None]:
    """One *name* of a list that is read by *rule*; `other` for what is no GPU, None if it is not understood."""
    gpu_id = parse_gpu_id(name)
    if gpu_id is None and rule.cdi_names and (not name or "/" in name):
        return "other"
    if gpu_id is None or gpu_id.spelling not in rule.spellings:
        return None
    if rule.capitals and gpu_id.spelling != "index" and not name.startswith(("GPU-", "MIG-")):
        return None
    return gpu_id


def is_number(name: str) -> bool:
    """Return whether *name* is a number, and not a UUID or a word."""
    gpu_id = parse_gpu_id(name)
    return gpu_id is not None and gpu_id.spelling == "index"


def is_uuid(name: str) -> bool:
    """Return whether *name* is a UUID, or a name made of one."""
    return name.upper().startswith(("GPU-", "MIG-"))
