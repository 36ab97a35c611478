"""Texts of /proc: the driver's version, its GPUs and parameters, the kernel's device numbers.

Sources: NVIDIA open-gpu-kernel-modules `kernel-open/nvidia/nv-procfs.c`; proc(5) for /proc/devices.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from gpubind.errors import FormatError

PROC_CAPABILITIES = "/proc/driver/nvidia/capabilities"
MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"
"""The capabilities of GPU instances and compute instances, each with the minor number of its node."""

DRIVER_VERSION = r"[0-9]{3,5}\.[0-9]{1,5}(?:\.[0-9]{1,5}){0,2}"
"""The pattern of a version of NVIDIA's driver: branches have three digits."""
_VERSION_LINE = re.compile(rf"^NVRM version:.{{0,200}}?\s({DRIVER_VERSION})(?:\s|$)", re.MULTILINE)
_VERSION = re.compile(DRIVER_VERSION)
_PCI = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


class GpuInformation(NamedTuple):
    """`/proc/driver/nvidia/gpus/<address>/information`. A line that is missing is None."""

    model: Optional[str]
    uuid: Optional[str]
    """`GPU-...`; None until the driver has initialised the GPU (it then prints question marks)."""
    pci: Optional[str]
    """`0000:01:00.0`, lower case."""
    minor: Optional[int]
    excluded: bool


def parse_driver_version(text: str) -> str:
    """Return the version in `/proc/driver/nvidia/version`, in both wordings (proprietary and open kernel module).

    Errors: `FormatError` (code `bad-procfs`) if no line has it.
    """
    match = _VERSION_LINE.search(text)
    if match is None:
        raise FormatError(
            "bad-procfs", "no driver version", place="line 1", why="no `NVRM version:` line with a version"
        )
    return match.group(1)


def parse_module_version(text: str) -> str:
    """Return the version in `/sys/module/nvidia/version`: nothing but the number."""
    version = text.strip()
    if not _VERSION.fullmatch(version):
        raise FormatError("bad-procfs", "no driver version", place="line 1", why=f"`{version[:40]}` is not a version")
    return version


def parse_gpu_information(text: str) -> GpuInformation:
    """Return the fields that a plan needs."""
    fields = parse_params(text)
    uuid = fields.get("GPU UUID")
    pci = fields.get("Bus Location", "")
    return GpuInformation(
        model=fields.get("Model"),
        uuid=uuid if uuid and "?" not in uuid else None,
        pci=pci.lower() if _PCI.fullmatch(pci) else None,
        minor=parse_minor(fields.get("Device Minor", "")),
        excluded=fields.get("GPU Excluded", "").lower() == "yes",
    )


def parse_devices(text: str) -> tuple[tuple[str, int], ...]:
    """Return the character devices of `/proc/devices`: (name, major), in the order of the file.

    Errors: `FormatError` (code `bad-procfs`) with the line.
    """
    devices: list[tuple[str, int]] = []
    characters = False
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line.endswith("devices:"):
            characters = line.startswith("Character")
        elif line and characters:
            major, _, name = line.partition(" ")
            if not (major.isascii() and major.isdigit() and len(major) < 10 and name.strip()):
                raise FormatError("bad-procfs", "malformed /proc/devices", place=f"line {number}", why=repr(line[:60]))
            devices.append((name.strip(), int(major)))
    return tuple(devices)


def parse_groups(text: str) -> dict[int, str]:
    """Return /etc/group as number -> name. The first name takes precedence; malformed lines are ignored."""
    names: dict[int, str] = {}
    for line in text.split("\n"):
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isascii() and fields[2].isdigit() and len(fields[2]) < 11:
            names.setdefault(int(fields[2]), fields[0])
    return names


def parse_mig_minors(text: str) -> dict[str, int]:
    """Return capability -> minor of its node, by `mig-minors`, which has lines `gpu0/gi1/ci0/access 13`."""
    pairs = (line.strip().partition(" ") for line in text.split("\n"))
    return {name: number for name, _, digits in pairs if (number := parse_minor(digits)) is not None}


def parse_minor(digits: str) -> Optional[int]:
    """Return a minor number; None for anything else."""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None


def normal_pci(address: str) -> Optional[str]:
    """Return *address* with a four-digit domain in lower case (`0000:01:00.0`), None for anything else."""
    match = _PCI.fullmatch(address)
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def parse_params(text: str) -> dict[str, str]:
    """Return the names and values of lines `name: value`, as `/proc/driver/nvidia/params` has them.

    The first value of a name takes precedence.
    """
    fields: dict[str, str] = {}
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields
