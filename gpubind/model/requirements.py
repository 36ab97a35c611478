"""What a site requires of a node (an expectation), and of the hosts for an image (a policy). Empty: not compared."""

from __future__ import annotations

import re
from typing import Annotated, Optional

from gpubind.frozen import NamedTuple
from gpubind.model.arch import DRIVER_ARCHITECTURES
from gpubind.model.host import Capability

_DRIVER = re.compile(r"[0-9][0-9A-Za-z.+~_-]{0,60}")
_PARTITION = re.compile(r"[A-Z]PX(/NPS[0-9])?|NPS[0-9]")
_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}")
Version = Annotated[str, _VERSION, "a version"]


class Expectation(NamedTuple):
    """What a node is to have: a few facts of a good one, without anything that names a machine or a GPU."""

    source_file: str = ""
    """The file that says so."""
    drivers: tuple[Annotated[str, _DRIVER, "a version"], ...] = ()
    """Versions; `550` stands for every version of that branch."""
    gpus: tuple[tuple[str, int], ...] = ()
    """Models, each with the number of its GPUs; the model is empty for GPUs of any."""
    capabilities: tuple[Capability, ...] = ()
    """Those of which there are libraries."""
    libraries: tuple[str, ...] = ()
    """Libraries of the driver, without versions: `libcuda.so`."""
    partitions: tuple[Annotated[str, _PARTITION, "a mode, such as SPX/NPS1"], ...] = ()
    """The modes in which AMD's GPUs may be divided, `CPX/NPS4`; `CPX` stands for every mode of their memory."""


class Policy(NamedTuple):
    """The least that every host has on which an image is to run."""

    source_file: str = ""
    """The file that says so."""
    driver: Optional[Version] = None
    """The oldest driver of NVIDIA; `525` stands for the newest release of that branch."""
    cuda: Optional[Version] = None
    """The oldest CUDA that a driver serves itself."""
    rocm: Optional[Version] = None
    """The oldest ROCm release."""
    glibc: Optional[Version] = None
    """The oldest glibc, for programs of an image that has none."""
    gpus: tuple[str, ...] = ()
    """The architectures of the GPUs: `sm_90`, `gfx90a`, `bmg`."""
    arch: tuple[Annotated[str, DRIVER_ARCHITECTURES], ...] = ()
    """The architectures of the machines: `x86_64`."""
    capabilities: Optional[tuple[Capability, ...]] = None
    """Those of the driver that containers get."""
    brings_driver: bool = True
    """Whether an image may have libraries of a driver in it."""
