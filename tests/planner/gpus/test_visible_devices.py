"""NVIDIA_VISIBLE_DEVICES: what NVIDIA's own programs choose by a value, of eight GPUs; a row a rule, with its source.

Where those would start no container, or one without a driver, gpubind's answer is its own: the variable takes nothing.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import pytest

from gpubind.planner.gpus.selection import select
from tests.planner.gpus.hosts import HOSTS
from tests.support.driver import uuid

WORDS = "nvidia-container-toolkit, internal/config/image/devices.go, NewVisibleDevices"
SPLIT = "nvidia-container-toolkit, internal/config/image/cuda_image.go: trimmed, empty names dropped"
SELECT = "libnvidia-container, src/cli/common.c, select_devices"
GPU = "libnvidia-container, src/cli/common.c, select_gpu_device"
PCI = "libnvidia-container, src/cli/common.c, matches_pci_format"
OURS = "libnvidia-container stops with `unknown device`; gpubind goes by what it knows, and says so"
NOT_HEEDED = "no container with GPUs there; gpubind was asked for one"
EVERY = tuple(range(8))


class Case(NamedTuple):
    """A value, and the indexes of the GPUs that are chosen by it."""

    source: str
    value: str
    chosen: tuple[int, ...]
    finding: Optional[str] = None


CASES = {
    # Words.
    "all": Case(WORDS, "all", EVERY),
    "none": Case(WORDS, "none", (), "visible-devices-none"),
    "void": Case(NOT_HEEDED, "void", EVERY),
    "nothing": Case(NOT_HEEDED, "", EVERY),
    "all after a name": Case(WORDS, "0,all", EVERY),
    "all before a name": Case(WORDS, "all,0", EVERY),
    "none after a name": Case(WORDS, "0,none", (), "visible-devices-none"),
    "none before a name": Case(WORDS, "none,0", (), "visible-devices-none"),
    "none before all": Case(WORDS, "all,none", (), "visible-devices-none"),
    "void after a name": Case(WORDS, "0,void", EVERY),
    "void before none": Case(WORDS, "none,void", EVERY),
    # Lists.
    "blanks": Case(SPLIT, " 1 , 2 ", (1, 2)),
    "an empty place": Case(SPLIT, ",1,,2,", (1, 2)),
    "commas alone": Case(NOT_HEEDED, ",,", EVERY),
    "twice": Case(SELECT, "1,1", (1,)),
    # Names.
    "an index": Case(GPU, "3", (3,)),
    "an index with zeros": Case(GPU, "03", (3,)),
    "a UUID": Case(GPU, uuid(6), (6,)),
    "a UUID in another case": Case(GPU, uuid(6).lower(), (6,)),
    "a PCI address": Case(PCI, "00000000:03:00.0", (2,)),
    "a PCI address with a short domain": Case(PCI, "0000:03:00.0", (2,)),
    "a name that nobody knows": Case(OURS, "gpu0", EVERY, "visible-devices-unknown"),
    "an index too high": Case(OURS, "8", EVERY, "visible-devices-unknown"),
    "one of two": Case(OURS, "gpu0,1", (1,), "visible-devices-unknown"),
    "a CDI device": Case(
        "nvidia-container-toolkit in its CDI mode; gpubind has --cdi-device", "nvidia.com/gpu=0", EVERY
    ),
    "a directory": Case("k8s-device-plugin, volume mounts", "/var/run/nvidia-container-devices", EVERY),
}


@pytest.mark.parametrize("name", CASES)
def test_a_value_chooses_what_nvidias_own_programs_choose(name: str) -> None:
    case = CASES[name]
    (made,) = select(HOSTS["eight"], None, {"NVIDIA_VISIBLE_DEVICES": case.value}, isolated=True)
    assert tuple(gpu.index for gpu in made.inventory.gpus if gpu.chosen) == case.chosen
    assert [finding.code for finding in made.inventory.findings] == ([case.finding] if case.finding else [])
