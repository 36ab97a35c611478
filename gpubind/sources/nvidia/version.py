"""The version of NVIDIA's driver: which one is loaded."""

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
