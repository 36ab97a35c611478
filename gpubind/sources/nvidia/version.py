"""The version of NVIDIA's driver: which one is loaded, and which versions of CUDA it serves (data/cuda.json)."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import NamedTuple, Optional

from gpubind.data import read_data
from gpubind.errors import FormatError
from gpubind.formats.procfs import parse_driver_version, parse_module_version
from gpubind.host import Host
from gpubind.model import Missing


class Kernel(NamedTuple):
    """What the kernel side says."""

    version: Optional[str]
    where: str
    why: Optional[str]
    """Why there is no version."""


def read_kernel(host: Host) -> Kernel:
    """V, as the loaded kernel module says it: /sys/module/nvidia/version, else /proc/driver/nvidia/version."""
    why = "no NVIDIA kernel module is loaded"
    for path, parse in (
        ("/sys/module/nvidia/version", parse_module_version),
        ("/proc/driver/nvidia/version", parse_driver_version),
    ):
        text = host.dev.read_text(path)
        if isinstance(text, Missing):
            if text.why != "absent":
                why = f"{path}: {text}"
            continue
        try:
            return Kernel(parse(text), path, None)
        except FormatError as error:
            why = f"{path}: {error.why}"
    return Kernel(None, "/sys/module/nvidia, /proc/driver/nvidia", why)


class Versions(NamedTuple):
    """The versions of CUDA, and the drivers that serve them."""

    first_driver: dict[str, str]
    """CUDA version -> the first driver of it, ascending."""
    minor_compatible: dict[str, str]
    """CUDA major version -> the oldest driver on which every toolkit of that major version runs."""


@lru_cache(maxsize=1)
def _versions() -> Versions:
    table = json.loads(read_data("data/cuda.json"))
    return Versions(table["first_driver"], table["minor_compatible"])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def cuda_max(version: Optional[str]) -> Optional[str]:
    """The newest CUDA version that driver *version* serves natively: `550.163.01` -> `12.4`; None if it is unknown."""
    if version is None:
        return None
    served = [cuda for cuda, first in _versions().first_driver.items() if _numbers(version) >= _numbers(first)]
    return served[-1] if served else None


def minor_floor(cuda: str) -> Optional[str]:
    """The oldest driver on which every toolkit of the major version of *cuda* runs: `12.4` -> `525.60.13`."""
    return _versions().minor_compatible.get(cuda.partition(".")[0])


def minor_compatible(driver: str, cuda: str) -> bool:
    """Whether a toolkit of version *cuda* runs on *driver* by minor-version compatibility."""
    floor = minor_floor(cuda)
    return floor is not None and _numbers(driver) >= _numbers(floor)


def minimum_driver(cuda: str) -> Optional[str]:
    """The first driver that serves CUDA version *cuda*: `12.4` -> `550.54.14`; None if it is not in the table."""
    return _versions().first_driver.get(cuda)
