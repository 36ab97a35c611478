"""The version of NVIDIA's driver: which one is loaded, and which versions of CUDA it serves.

Source: CUDA Toolkit release notes, "CUDA Toolkit and Corresponding Driver Versions" (9.0 to 13.3).
"""

from __future__ import annotations

from typing import NamedTuple, Optional

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


# (first driver of it, CUDA version), ascending.
_CUDA = (
    ((384, 81), "9.0"),
    ((390, 46), "9.1"),
    ((396, 26), "9.2"),
    ((410, 48), "10.0"),
    ((418, 39), "10.1"),
    ((440, 33), "10.2"),
    ((450, 36, 6), "11.0"),
    ((455, 23), "11.1"),
    ((460, 27, 3), "11.2"),
    ((465, 19, 1), "11.3"),
    ((470, 42, 1), "11.4"),
    ((495, 29, 5), "11.5"),
    ((510, 39, 1), "11.6"),
    ((515, 43, 4), "11.7"),
    ((520, 61, 5), "11.8"),
    ((525, 60, 13), "12.0"),
    ((530, 30, 2), "12.1"),
    ((535, 54, 3), "12.2"),
    ((545, 23, 6), "12.3"),
    ((550, 54, 14), "12.4"),
    ((555, 42, 2), "12.5"),
    ((560, 28, 3), "12.6"),
    ((565,), "12.7"),
    ((570, 26), "12.8"),
    ((575, 51, 3), "12.9"),
    ((580, 65, 6), "13.0"),
    ((590, 44, 1), "13.1"),
    ((595, 45, 4), "13.2"),
    ((610, 43, 2), "13.3"),
)


def cuda_max(version: Optional[str]) -> Optional[str]:
    """The newest CUDA version that driver *version* serves natively: `550.163.01` -> `12.4`; None if it is unknown."""
    if version is None:
        return None
    numbers = tuple(int(part) for part in version.split("."))
    return next((cuda for first, cuda in reversed(_CUDA) if numbers >= first), None)


MINOR_COMPATIBLE = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
"""CUDA major version -> the oldest driver on which every toolkit of that major version runs.

Source: CUDA Compatibility guide, "Minor Version Compatibility".
"""


def minor_floor(cuda: str) -> Optional[str]:
    """The oldest driver on which every toolkit of the major version of *cuda* runs: `12.4` -> `525.60.13`."""
    return _printed(MINOR_COMPATIBLE.get(int(cuda.partition(".")[0])))


def minor_compatible(driver: str, cuda: str) -> bool:
    """Whether a toolkit of version *cuda* runs on *driver* by minor-version compatibility."""
    floor = MINOR_COMPATIBLE.get(int(cuda.partition(".")[0]))
    return floor is not None and tuple(int(part) for part in driver.split(".")) >= floor


def minimum_driver(cuda: str) -> Optional[str]:
    """The first driver that serves CUDA version *cuda*: `12.4` -> `550.54.14`; None if it is not in the table."""
    first = next((first for first, known in _CUDA if known == cuda), None)
    return _printed(first)


def _printed(version: Optional[tuple[int, ...]]) -> Optional[str]:
    if version is None:
        return None
    # The last part is printed with two digits in the vendor's names of its drivers.
    return ".".join([str(part) for part in version[:2]] + [f"{part:02}" for part in version[2:]])
