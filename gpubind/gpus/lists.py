"""A variable that lists GPUs, read as the vendor's library reads it.

Sources: CUDA Programming Guide, "CUDA Environment Variables"; ROCr `core/util/flag.h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Optional

from gpubind.formats.gpu_ids import parse_gpu_id, split_visible
from gpubind.model import Gpu, Inventory, Vendor
from gpubind.gpus.choice import Chosen, divided, mig_named, named, part_of


class Names(NamedTuple):
    """A variable that lists GPUs, and how its numbers count."""

    variable: str
    value: str
    ordered: bool
    """Whether the library counts GPUs as their indexes do."""
    inventory: Inventory
    beside: tuple[tuple[str, str], ...] = ()
    """Variables without which its numbers mean something else."""

    @property
    def certain(self) -> bool:
        """Whether a number means the GPU with that index, and not one of those that a cgroup has left."""
        return self.ordered and not self.inventory.confined

    @property
    def vendor(self) -> Vendor:
        return self.inventory.driver.vendor

    @property
    def where(self) -> str:
        return f"the environment: {self.variable}={self.value[:200]}"


class Read(NamedTuple):
    """A list, read up to its first name that is unknown."""

    chosen: tuple[Chosen, ...]
    unknown: Optional[str] = None
    unsure: Optional[Literal["order", "uuid"]] = None
    """Why a name may mean this GPU or that."""
    unresolved: Optional[str] = None
    """A MIG device that no file tells."""


def read_names(names: Names, gpus: Sequence[Gpu]) -> Read:
    """The list in *names*, whose numbers are places in *gpus*. It ends at the first name that is none."""
    chosen: list[Chosen] = []
    unresolved = None
    for token in split_visible(names.value):
        gpu_id = parse_gpu_id(token)
        spelling = gpu_id.spelling if gpu_id else ""
        found: Optional[Chosen] = None
        if gpu_id is not None and spelling == "index":
            number = int(gpu_id.value)
            if number >= len(gpus):
                return Read(tuple(chosen), token, None, unresolved)
            if not names.certain:
                return Read((), None, "order")
            found = Chosen(gpus[number])
        elif gpu_id is not None and spelling in ("uuid", "part") and token.startswith(("GPU-", "MIG-GPU-")):
            matches = named(gpu_id, gpus)
            whole = len(matches) == 1 and (matches[0].uuid or "").lower() == gpu_id.value
            if not whole and any(gpu.uuid is None for gpu in gpus):
                return Read((), None, "uuid")
            if len(matches) == 1:
                part = part_of(matches[0], gpu_id.gi, gpu_id.ci)
                if spelling == "uuid" or part is not None:
                    found = Chosen(matches[0], (part,) if part else ())
        elif gpu_id is not None and spelling == "mig-uuid" and token.startswith("MIG-"):
            found = mig_named(token, names.inventory)
            if found is None and divided(names.inventory):
                unresolved = unresolved or token
                continue
        if found is None:
            return Read(tuple(chosen), token, None, unresolved)
        if names.vendor == "amd" and found in chosen:
            break  # ROCr's list ends at a repetition, too
        chosen.append(found)
    return Read(tuple(chosen), None, None, unresolved)
