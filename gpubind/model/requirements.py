"""A site's requirements for a node (an expectation), and for the hosts of an image (a policy). Empty fields are
ignored.
"""

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
    """The facts that a node must have; none names a machine or a GPU."""

    source_file: str = ""
    """The file with these requirements."""
    drivers: tuple[Annotated[str, _DRIVER, "a version"], ...] = ()
    """Versions; `550` matches every version of that branch."""
    gpus: tuple[tuple[str, int], ...] = ()
    """Models, each with its number of GPUs; an empty model includes GPUs of any model."""
    capabilities: tuple[Capability, ...] = ()
    """Capabilities whose libraries must exist."""
    libraries: tuple[str, ...] = ()
    """Libraries of the driver, without versions: `libcuda.so`."""
    partitions: tuple[Annotated[str, _PARTITION, "a mode, such as SPX/NPS1"], ...] = ()
    """The allowed partition modes of AMD GPUs, `CPX/NPS4`; `CPX` matches every memory mode."""

    @property
    def origin(self) -> str:
        """Return `source_file`, of which this is the old name."""
        from warnings import warn

        warn("Expectation.origin is Expectation.source_file now", DeprecationWarning, stacklevel=2)
        return self.source_file


class Policy(NamedTuple):
    """The minimum for every host on which an image must run."""

    source_file: str = ""
    """The file with these requirements."""
    driver: Optional[Version] = None
    """The oldest NVIDIA driver; `525` means the newest release of that branch."""
    cuda: Optional[Version] = None
    """The oldest CUDA that a driver serves natively."""
    rocm: Optional[Version] = None
    """The oldest ROCm release."""
    glibc: Optional[Version] = None
    """The oldest glibc, for programs of an image without one."""
    gpus: tuple[str, ...] = ()
    """The architectures of the GPUs: `sm_90`, `gfx90a`, `bmg`."""
    arch: tuple[Annotated[str, DRIVER_ARCHITECTURES], ...] = ()
    """The architectures of the machines: `x86_64`."""
    capabilities: Optional[tuple[Capability, ...]] = None
    """The driver capabilities that containers get."""
    brings_driver: bool = True
    """Whether an image may contain driver libraries."""
