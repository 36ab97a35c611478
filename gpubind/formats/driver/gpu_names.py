"""Names of GPUs, and the variables that list them: `--gpus`, CUDA_VISIBLE_DEVICES, SLURM_JOB_GPUS and others.

Sources: CUDA Programming Guide, "CUDA Environment Variables" (indexes, UUIDs and their beginnings, MIG devices);
libnvidia-container `src/cli/common.c` (PCI addresses, `G:M`); ROCr `core/util/flag.h` (`GPU-<hex>`); srun(1),
sbatch(1); amd-ctk `internal/gpu-tracker/gpu-tracker.go` (parseGPUsList).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, Optional, Union

from gpubind.errors import UsageError
from gpubind.formats.driver.kernel import normalize_pci
from gpubind.frozen import NamedTuple

SLURM_GPUS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""The list of a step takes precedence over that of its job."""
CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
CUDA_DEVICE_ORDER = "CUDA_DEVICE_ORDER"
ROCR_VISIBLE_DEVICES = "ROCR_VISIBLE_DEVICES"
HIP_VISIBLE_DEVICES = "HIP_VISIBLE_DEVICES"
GPU_DEVICE_ORDINAL = "GPU_DEVICE_ORDINAL"
"""The variable that AMD's OpenCL reads instead of HIP_VISIBLE_DEVICES. Slurm sets it. It does not choose device
nodes.
"""
NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
CAPS_VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"
AMD_VISIBLE_DEVICES = "AMD_VISIBLE_DEVICES"

LIBRARY_VARIABLES = (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES)
"""Variables that libraries in a container read."""
TOOLKIT_VARIABLES = {"nvidia": NVIDIA_VISIBLE_DEVICES, "amd": AMD_VISIBLE_DEVICES}
"""For each vendor, the variable that its tools outside containers read."""
ZE_AFFINITY_MASK, ZE_HIERARCHY = "ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY"
HABANA_VISIBLE_DEVICES = "HABANA_VISIBLE_DEVICES"
ZE_PCI_ORDER = "ZE_ENABLE_PCI_ID_DEVICE_ORDER"
ZE_VARIABLES = (ZE_AFFINITY_MASK, ZE_HIERARCHY, ZE_PCI_ORDER)
"""The meaning of the numbers in ZE_AFFINITY_MASK depends on the other two."""
INTEL_VARIABLES = (
    *(*ZE_VARIABLES, "ONEAPI_DEVICE_SELECTOR", "SYCL_DEVICE_FILTER"),
    *(HABANA_VISIBLE_DEVICES, "HABANA_VISIBLE_MODULES"),
)
"""The variables for Intel's GPUs that a container gets. The mask and HABANA_VISIBLE_DEVICES may choose device nodes."""
GPU_VARIABLES = (*SLURM_GPUS, *LIBRARY_VARIABLES, GPU_DEVICE_ORDINAL, *TOOLKIT_VARIABLES.values(), *INTEL_VARIABLES)
"""The variables that list GPUs, in the order in which they are read."""

PCI_ORDER = "PCI_BUS_ID"
"""The value of CUDA_DEVICE_ORDER with which CUDA numbers GPUs by PCI address."""
_HIDE_ALL = ("", "-1", "NoDevFiles")
"""Names that hide all GPUs if one of them begins a list. Slurm sets NoDevFiles in a job without GPUs."""

LENGTH_LIMIT = 1 << 14
SPELLINGS = (
    "all, none, or a list of: an index, GPU-<uuid> or a beginning of it, a PCI address, minor:N, G:gi/ci, "
    "MIG-GPU-<uuid>/gi/ci, MIG-<uuid>, G:M, renderDN"
)

Spelling = Literal["index", "uuid", "pci", "minor", "render", "mig-instance", "mig-gpu", "mig-uuid", "mig-index"]

_NUMBER = r"([0-9]{1,9})"
_UUID = r"(GPU-[0-9a-f][0-9a-f-]{0,63})"
_FORMS: tuple[tuple[Spelling, str], ...] = (
    ("index", _NUMBER),
    ("uuid", _UUID),
    ("minor", rf"minor:{_NUMBER}"),
    ("render", r"(?:/dev/dri/)?(renderD[0-9]{1,9})"),
    ("mig-instance", rf"{_NUMBER}:{_NUMBER}/{_NUMBER}"),
    ("mig-gpu", rf"MIG-{_UUID}/{_NUMBER}/{_NUMBER}"),
    ("mig-uuid", r"(MIG-[0-9a-f][0-9a-f-]{0,63})"),
    ("mig-index", rf"{_NUMBER}:{_NUMBER}"),
)
_RANGE_LIMIT = 1024
_AMD_RANGE = re.compile(r"([0-9]{1,4})-([0-9]{1,4})", re.ASCII)
_AMD_ID = re.compile(r"0x([0-9a-f]{1,16})|([0-9a-f]{9,16})", re.ASCII | re.IGNORECASE)
_SHORT_PCI = r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_ANY_CASE = re.IGNORECASE | re.ASCII


class GpuId(NamedTuple):
    """One name of a GPU, or of a MIG device."""

    text: str
    """As the user wrote it, for messages."""
    spelling: Spelling
    value: str
    """What identifies the GPU: digits without leading zeros, a UUID in lower case, a full PCI address, or a node's
    path.
    """
    gi: Optional[int] = None
    """For a `mig-instance` or `mig-gpu`, the GPU instance; for a `mig-index`, the index of the MIG device."""
    ci: Optional[int] = None


def parse_gpu_id(text: str) -> Optional[GpuId]:
    """Return the parsed name *text*; None if its form is unknown."""
    pci = normalize_pci(f"0000:{text}" if re.fullmatch(_SHORT_PCI, text, _ANY_CASE) else text)
    if pci is not None:
        return GpuId(text, "pci", pci)
    for spelling, pattern in _FORMS:
        match = re.fullmatch(pattern, text, _ANY_CASE)
        if match is not None:
            first, *digits = match.groups()
            numbers = [int(number) for number in digits]
            value = str(int(first)) if first.isdigit() else first.lower()
            if spelling == "render":
                value = f"/dev/dri/renderD{int(first[len('renderD') :])}"
            return GpuId(text, spelling, value, *numbers)
    return None


def parse_gpus_option(text: str) -> Union[Literal["all", "none"], tuple[GpuId, ...]]:
    """Return the value of `--gpus`. Errors: `UsageError` (code `bad-gpus`) with the item that names no GPU."""
    if len(text) > LENGTH_LIMIT:
        raise UsageError("bad-gpus", f"--gpus has {len(text)} characters", hint=f"known: {SPELLINGS}")
    keyword = text.strip().lower()
    if keyword == "all":
        return "all"
    if keyword == "none":
        return "none"
    gpu_ids = []
    for item in text.split(","):
        gpu_id = parse_gpu_id(item.strip())
        if gpu_id is None:
            message = f"--gpus: `{item.strip()[:80]}` names no GPU" if item.strip() else "--gpus: an item is empty"
            raise UsageError("bad-gpus", message, hint=f"known: {SPELLINGS}")
        gpu_ids.append(gpu_id)
    return tuple(gpu_ids)


def split_visible(value: str) -> tuple[str, ...]:
    """Return the names in a variable such as CUDA_VISIBLE_DEVICES; a comma at its end adds no name."""
    return tuple(token.strip() for token in value[:LENGTH_LIMIT].strip().rstrip(",").split(","))


def split_nvidia_visible(value: str) -> tuple[str, ...]:
    """Return the names in NVIDIA_VISIBLE_DEVICES as NVIDIA's toolkit parses them. Empty elements are ignored.

    With `void` anywhere in it, the list is empty. Otherwise the first `all` or `none` in it stands for the whole list.
    """
    names = [name for name in (part.strip() for part in value.split(",")) if name]
    if "void" in names:
        return ()
    alone = next((name for name in names if name in ("all", "none")), None)
    return tuple(names) if alone is None else (alone,)


def split_amd_visible(value: str) -> tuple[str, ...]:
    """Return the names in AMD_VISIBLE_DEVICES in the form of `--gpus`: `0-3` is a range, `0x...` a unique_id.

    Empty elements are ignored. If a value has only such elements, the result is one empty name.
    """
    names: list[str] = []
    for name in split_visible(value):
        between, unique = _AMD_RANGE.fullmatch(name), _AMD_ID.fullmatch(name)
        gpu_id = parse_gpu_id(name)
        if between and int(between[1]) <= int(between[2]) <= _RANGE_LIMIT:
            names += map(str, range(int(between[1]), int(between[2]) + 1))
        elif unique:
            names.append(f"GPU-{(unique[1] or unique[2]).lower():0>16}")
        elif gpu_id is not None and gpu_id.spelling == "index":
            names.append(gpu_id.value)
        elif name:
            names.append(name.lower() if name.lower() in ("all", "none") else name)
    return tuple(names) or ("",)


class ListRule(NamedTuple):
    """The syntax of a variable that lists GPUs."""

    spellings: tuple[Spelling, ...]
    """The accepted kinds of names."""
    ends_at_unknown: bool = True
    """Whether the list ends at the first unknown name. If not, an unknown name is skipped."""
    ends_at_repeated: bool = False
    """Whether the list ends at the second name of the same GPU."""
    case_sensitive: bool = True
    """Whether `GPU-` and `MIG-` must be in capitals."""
    device_files: bool = False
    """Whether a number means a device file, not an index."""
    cdi_names: bool = False
    """Whether the list may also name other devices: by CDI names, by directories of Kubernetes' plugin, or by an
    empty name.
    """
    depends_on: str = ""
    """The variable that determines what numbers mean; without it, they mean other GPUs."""


LIST_RULES: dict[str, ListRule] = {
    **dict.fromkeys(SLURM_GPUS, ListRule(("index",), ends_at_unknown=False, device_files=True)),
    CUDA_VISIBLE_DEVICES: ListRule(("index", "uuid", "mig-gpu", "mig-uuid"), depends_on=CUDA_DEVICE_ORDER),
    ROCR_VISIBLE_DEVICES: ListRule(("index", "uuid"), ends_at_repeated=True),
    HIP_VISIBLE_DEVICES: ListRule(("index", "uuid"), ends_at_repeated=True, depends_on=ROCR_VISIBLE_DEVICES),
    NVIDIA_VISIBLE_DEVICES: ListRule(
        ("index", "uuid", "pci", "mig-gpu", "mig-uuid", "mig-index"),
        ends_at_unknown=False,
        case_sensitive=False,
        cdi_names=True,
    ),
    AMD_VISIBLE_DEVICES: ListRule(("index", "uuid"), ends_at_unknown=False),
}


def parse_list_item(name: str, rule: ListRule) -> Union[GpuId, Literal["other"], None]:
    """Return one *name* of a list by *rule*; None if it is not understood.

    `other`: the name is of one of the kinds that `ListRule.cdi_names` describes.
    """
    gpu_id = parse_gpu_id(name)
    if gpu_id is None and rule.cdi_names and (not name or "/" in name):
        return "other"
    if gpu_id is None or gpu_id.spelling not in rule.spellings:
        return None
    if rule.case_sensitive and gpu_id.spelling != "index" and not name.startswith(("GPU-", "MIG-")):
        return None
    return gpu_id


def hides_all(names: Sequence[str]) -> bool:
    """Return whether a vendor's library shows no GPU for the list *names*."""
    return names[0] in _HIDE_ALL


def is_index(name: str) -> bool:
    """Return whether *name* is a number."""
    gpu_id = parse_gpu_id(name)
    return gpu_id is not None and gpu_id.spelling == "index"


def is_uuid(name: str) -> bool:
    """Return whether *name* is a UUID, or derived from one."""
    return name.upper().startswith(("GPU-", "MIG-"))
