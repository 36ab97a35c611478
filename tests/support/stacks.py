"""Machines on which real stacks are checked: tests/data/stacks.json has the stacks, `make stacks` builds them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, Optional

from gpubind.host.recorded import RecordedHost
from tests.support.amd import amd_host, kernel, opt, system
from tests.support.trees import Spec


class AmdMachine(NamedTuple):
    """A machine with one of AMD's GPUs."""

    arch: str
    version: int
    """As KFD writes *arch*."""
    amdgpu: Optional[str] = "6.8.5"
    """The version of AMD's package of amdgpu; None for the kernel's own driver."""
    parts: int = 1


AMD = {
    "MI100": AmdMachine("gfx908", 90008),
    "MI250X": AmdMachine("gfx90a", 90010, "6.3.6"),
    "MI300X": AmdMachine("gfx942", 90402),
    "MI300X in CPX": AmdMachine("gfx942", 90402, parts=8),
    "MI355X": AmdMachine("gfx950", 90500, "6.14.14"),
    "W7900": AmdMachine("gfx1100", 110000, "6.12.12"),
    "RX 9070": AmdMachine("gfx1201", 120001, None),
    "Strix Halo": AmdMachine("gfx1151", 110501, None),
    "Phoenix": AmdMachine("gfx1103", 110003, None),
    "Raven": AmdMachine("gfx902", 90002, None),
    "MI60": AmdMachine("gfx906", 90006),
    "RX 6700": AmdMachine("gfx1031", 100301, None),
}


@cache
def amd_machine(name: str, rocm: Optional[str] = None) -> RecordedHost:
    """The machine *name* of `AMD`, with AMD's packages of the release *rocm*, or without ROCm."""
    machine = AMD[name]
    own: Spec = opt(rocm) if rocm else system()
    return amd_host(own, kernel(1, machine.amdgpu, bmc=False, gfx=machine.version, parts=machine.parts))
