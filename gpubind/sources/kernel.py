"""The kernel side of NVIDIA's driver: which version is loaded, and of what kind it is."""

from __future__ import annotations

from typing import NamedTuple, Optional

from gpubind.errors import FormatError
from gpubind.formats.procfs import parse_driver_version, parse_module_version
from gpubind.host import Host
from gpubind.model import DriverKind, Missing


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


def driver_kind(host: Host) -> DriverKind:
    """`wsl` where /dev/dxg stands for the driver, `tegra` on Jetson, else `linux`."""
    if not isinstance(host.dev.lstat("/dev/dxg"), Missing):
        return "wsl"
    if not isinstance(host.dev.lstat("/etc/nv_tegra_release"), Missing):
        return "tegra"
    return "linux"
