"""A policy: what the hosts have on which an image is to run. What is None or empty is not compared."""

from __future__ import annotations

from typing import Optional

from gpubind.frozen import NamedTuple


class Policy(NamedTuple):
    """The least of what every host has that it is about."""

    origin: str = ""
    """The file that says so."""
    driver: Optional[str] = None
    """The oldest driver of NVIDIA; `525` stands for the newest release of that branch."""
    cuda: Optional[str] = None
    """The oldest CUDA that a driver serves itself."""
    rocm: Optional[str] = None
    """The oldest ROCm release."""
    glibc: Optional[str] = None
    """The oldest glibc, for programs of an image that has none."""
    gpus: tuple[str, ...] = ()
    """The architectures of the GPUs: `sm_90`, `gfx90a`, `bmg`."""
    arch: tuple[str, ...] = ()
    """The architectures of the machines: `x86_64`."""
    capabilities: Optional[tuple[str, ...]] = None
    """Those of the driver that containers get."""
    brings_driver: bool = True
    """Whether an image may have libraries of a driver in it."""


KEYS = tuple(name.replace("_", "-") for name in Policy._fields[1:])
"""Those of a file."""
