"""How people name GPUs: `--gpus`, CUDA_VISIBLE_DEVICES and its kin.

Sources: CUDA Programming Guide, "CUDA Environment Variables" (indexes, UUIDs and their beginnings, MIG devices);
libnvidia-container `src/cli/common.c` (PCI addresses, `G:M`); ROCr `core/util/flag.h` (`GPU-<hex>`).
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, Optional, Union

from gpubind.errors import UsageError
from gpubind.formats.driver.procfs import normal_pci

LENGTH_LIMIT = 1 << 14
SPELLINGS = (
    "all, none, or a list of: an index, GPU-<uuid> or a beginning of it, a PCI address, minor:N, G:gi/ci, "
    "MIG-GPU-<uuid>/gi/ci, MIG-<uuid>, G:M, renderDN"
)

Spelling = Literal["index", "uuid", "pci", "minor", "render", "mig-instance", "mig-gpu", "mig-uuid", "mig-index"]

_NUMBER = r"([0-9]{1,9})"
_UUID = r"(GPU-[0-9a-f][0-9a-f-]{0,63})"
_FORMS: tuple[tuple[Spelling, re.Pattern[str]], ...] = tuple(
    (spelling, re.compile(pattern, re.IGNORECASE | re.ASCII))  # type: ignore[misc]
    for spelling, pattern in (
        ("index", _NUMBER),
        ("uuid", _UUID),
        ("minor", rf"minor:{_NUMBER}"),
        ("render", r"(?:/dev/dri/)?(renderD[0-9]{1,9})"),
        ("mig-instance", rf"{_NUMBER}:{_NUMBER}/{_NUMBER}"),
        ("mig-gpu", rf"MIG-{_UUID}/{_NUMBER}/{_NUMBER}"),
        ("mig-uuid", r"(MIG-[0-9a-f][0-9a-f-]{0,63})"),
        ("mig-index", rf"{_NUMBER}:{_NUMBER}"),
    )
)
_SHORT_PCI = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE | re.ASCII)


class GpuId(NamedTuple):
    """One name of a GPU, or of a MIG device."""

    text: str
    """As it was given, for messages."""
    spelling: Spelling
    value: str
    """The GPU in it: digits without leading zeros, a UUID in lower case, a full PCI address, a node's path."""
    gi: Optional[int] = None
    """Of a `mig-instance` or `mig-gpu`: the GPU instance; of a `mig-index`: which MIG device of the GPU."""
    ci: Optional[int] = None


def parse_gpu_id(text: str) -> Optional[GpuId]:
    """Return the one name *text*; None if it is of no known form."""
    pci = normal_pci(f"0000:{text}" if _SHORT_PCI.fullmatch(text) else text)
    if pci is not None:
        return GpuId(text, "pci", pci)
    for spelling, pattern in _FORMS:
        match = pattern.fullmatch(text)
        if match is not None:
            first, *rest = match.groups()
            numbers = [int(number) for number in rest]
            value = str(int(first)) if first.isdigit() else first.lower()
            if spelling == "render":
                value = f"/dev/dri/renderD{int(first[len('renderD') :])}"
            return GpuId(text, spelling, value, *numbers)
    return None


def parse_gpus(text: str) -> Union[Literal["all", "none"], tuple[GpuId, ...]]:
    """Return the value of `--gpus`. Errors: `UsageError` (code `bad-gpus`) with the item that is none."""
    if len(text) > LENGTH_LIMIT:
        raise UsageError("bad-gpus", f"--gpus has {len(text)} characters", hint=f"known: {SPELLINGS}")
    word = text.strip().lower()
    if word == "all":
        return "all"
    if word == "none":
        return "none"
    found = []
    for item in text.split(","):
        gpu_id = parse_gpu_id(item.strip())
        if gpu_id is None:
            what = f"--gpus: `{item.strip()[:80]}` names no GPU" if item.strip() else "--gpus: an item is empty"
            raise UsageError("bad-gpus", what, hint=f"known: {SPELLINGS}")
        found.append(gpu_id)
    return tuple(found)


def split_visible(value: str) -> tuple[str, ...]:
    """Return the names in a variable such as CUDA_VISIBLE_DEVICES; a comma at its end names nothing."""
    return tuple(token.strip() for token in value[:LENGTH_LIMIT].strip().rstrip(",").split(","))
