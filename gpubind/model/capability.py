"""NVIDIA's GPUs by their PCI device ID: the chip, its compute capability and the drivers that support it.

The table is data/nvidia_gpus.json, which names its sources.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, Optional

from gpubind.frozen import NamedTuple
from gpubind.model.cuda import branch_of
from gpubind.model.data import table
from gpubind.model.gpucode import arch_of_capability, arch_sort_key

Modules = Literal["open", "proprietary"]
"""The kinds of NVIDIA kernel modules."""
Refusal = Literal["driver-too-new", "driver-too-old", "needs-open", "needs-proprietary"]
"""Why a driver does not support a chip."""

_GENERATIONS = {
    "GF": "Fermi",
    "GK": "Kepler",
    "GM": "Maxwell",
    "GP": "Pascal",
    "GV": "Volta",
    "TU": "Turing",
    "GA": "Ampere",
    "AD": "Ada",
    "GH": "Hopper",
    "GB": "Blackwell",
}
"""The generations of chips, by the first two letters of a chip's name."""


class Chip(NamedTuple):
    """A GPU chip."""

    name: str
    """`GK210`."""
    capability: str
    first: Optional[int] = None
    """The first driver branch that supports it; None: all branches that gpubind knows."""
    doubtful: Optional[int] = None
    """The first branch whose modules know the chip, if NVIDIA lists it only from `first` on."""
    last: Optional[int] = None
    """The last branch that supports it; None: the newest branch."""
    modules: Optional[Modules] = None
    """The only kind of kernel modules that supports it; None: both kinds."""

    @property
    def title(self) -> str:
        """The chip and its generation, for messages: `GK210, Kepler`."""
        return f"{self.name}, {_GENERATIONS[self.name[:2]]}"

    def refusal(self, version: str, modules: Optional[Modules] = None) -> Optional[Refusal]:
        """Return why driver *version* with these *modules* does not support this chip; None if no reason is known."""
        branch = branch_of(version)
        if self.last is not None and branch > self.last:
            return "driver-too-new"
        if self.first is not None and branch < (self.doubtful or self.first):
            return "driver-too-old"
        if self.modules is None or modules in (None, self.modules):
            return None
        return "needs-open" if self.modules == "open" else "needs-proprietary"


@lru_cache(maxsize=1)
def _chips() -> dict[str, Chip]:
    return {
        device: Chip(row["chip"], **{name: value for name, value in row.items() if name not in ("chip", "devices")})
        for row in table("nvidia_gpus")["chips"]
        for device in row["devices"].split()
    }


def chip_of(device: str) -> Optional[Chip]:
    """Return the chip of the PCI device ID *device*, `0x2330`; None if it is not known."""
    return _chips().get(device.strip().lower().removeprefix("0x"))


def compute_capability(device: str) -> Optional[str]:
    """Return the compute capability of the PCI device ID *device*: `0x2330` -> `9.0`; None if it is not known."""
    chip = chip_of(device)
    return None if chip is None else chip.capability


@lru_cache(maxsize=1)
def nvidia_architectures() -> tuple[str, ...]:
    """Return the architectures of NVIDIA's GPUs in the table, the oldest first: `sm_50`."""
    architectures = {arch_of_capability(chip.capability) for chip in _chips().values()}
    return tuple(sorted((arch for arch in architectures if arch is not None), key=arch_sort_key))
