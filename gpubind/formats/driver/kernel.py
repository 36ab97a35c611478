"""Texts of /proc and /sys: the driver's version, its GPUs and parameters, the kernel's device numbers, KFD's nodes.

Also access control lists of files, in the kernel's extended attribute, and libdrm's names of AMD's GPUs.

Sources: NVIDIA open-gpu-kernel-modules `kernel-open/nvidia/nv-procfs.c`; proc(5) for /proc/devices; Linux
`drivers/gpu/drm/amd/amdkfd/kfd_topology.c` (`node_show`), which writes /sys/class/kfd/kfd/topology/nodes.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Optional

from gpubind.errors import Format
from gpubind.frozen import NamedTuple

if TYPE_CHECKING:
    from gpubind.model.capability import Modules

PROC_CAPABILITIES = "/proc/driver/nvidia/capabilities"
MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"
"""The capabilities of GPU instances and compute instances, each with the minor number of its node."""

DRIVER_VERSION = r"[0-9]{3,5}\.[0-9]{1,5}(?:\.[0-9]{1,5}){0,2}"
"""The pattern of a version of NVIDIA's driver. Branches have three digits."""
_VERSION_LINE = rf"(?m)^NVRM version:.{{0,200}}?\s({DRIVER_VERSION})(?:\s|$)"
_NO_VERSION = Format("bad-procfs", "no driver version")
_DEVICES = Format("bad-procfs", "malformed /proc/devices")
_KFD = Format("bad-kfd", "malformed KFD properties")
_PROPERTY = r"([A-Za-z0-9_]+) ([0-9]{1,20})"
ACL_ATTRIBUTE = "system.posix_acl_access"
_ACL_HEAD = b"\2\0\0\0"
"""The version of the format."""
_ACL_ENTRY = struct.Struct("<HHI")
_ACL_TAGS = {0x01: "user", 0x02: "user", 0x04: "group", 0x08: "group", 0x10: "mask", 0x20: "other"}
_NAMED_TAGS = (0x02, 0x08)
"""The tags of entries that have the number of one user or group."""
_PCI = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


class GpuInformation(NamedTuple):
    """The fields of `/proc/driver/nvidia/gpus/<address>/information`. A missing line is None."""

    model: Optional[str]
    uuid: Optional[str]
    """The UUID, `GPU-...`; None until the driver has initialised the GPU, because the driver shows question marks
    before.
    """
    pci: Optional[str]
    """`0000:01:00.0`, lower case."""
    minor: Optional[int]
    excluded: bool


def parse_driver_version(text: str) -> str:
    """Return the version in `/proc/driver/nvidia/version`, of the proprietary or the open kernel module.

    Errors: `FormatError` (code `bad-procfs`) if no line has it.
    """
    match = re.search(_VERSION_LINE, text)
    if match is None:
        raise _NO_VERSION.damaged("no `NVRM version:` line with a version", "line 1")
    return match.group(1)


def parse_modules(text: str) -> Optional[Modules]:
    """Return the kind of kernel modules in `/proc/driver/nvidia/version`; None if no line names it."""
    line = re.search(r"(?m)^NVRM version: .{0,200}?\b(Open )?Kernel Module\b", text)
    return None if line is None else "open" if line.group(1) else "proprietary"


def parse_module_version(text: str) -> str:
    """Return the version in `/sys/module/nvidia/version`, which contains only the number."""
    version = text.strip()
    if not re.fullmatch(DRIVER_VERSION, version):
        raise _NO_VERSION.damaged(f"`{version[:40]}` is not a version", "line 1")
    return version


def parse_gpu_information(text: str) -> GpuInformation:
    fields = parse_fields(text)
    uuid = fields.get("GPU UUID")
    pci = fields.get("Bus Location", "")
    return GpuInformation(
        model=fields.get("Model"),
        uuid=uuid if uuid and "?" not in uuid else None,
        pci=pci.lower() if _PCI.fullmatch(pci) else None,
        minor=parse_number(fields.get("Device Minor", "")),
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
            digits, _, name = line.partition(" ")
            major = parse_number(digits)
            if major is None or not name.strip():
                raise _DEVICES.damaged(repr(line[:60]), f"line {number}")
            devices.append((name.strip(), major))
    return tuple(devices)


def parse_groups(text: str) -> dict[int, str]:
    """Return the names in /etc/group by number. The first name takes precedence; malformed lines are ignored."""
    names: dict[int, str] = {}
    for line in text.split("\n"):
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isascii() and fields[2].isdigit() and len(fields[2]) < 11:
            names.setdefault(int(fields[2]), fields[0])
    return names


def parse_mig_minors(text: str) -> dict[str, int]:
    """Return the minor number of each capability in `mig-minors`, with lines `gpu0/gi1/ci0/access 13`."""
    pairs = (line.strip().partition(" ") for line in text.split("\n"))
    return {name: number for name, _, digits in pairs if (number := parse_number(digits)) is not None}


def parse_number(digits: str) -> Optional[int]:
    """Return a major or minor number; None for anything else."""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None


def normalize_pci(address: str) -> Optional[str]:
    """Return *address* in lower case with a four-digit domain (`0000:01:00.0`); None for anything else."""
    match = _PCI.fullmatch(address)
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def parse_fields(text: str) -> dict[str, str]:
    """Return the names and values of lines `name: value`, as in `/proc/driver/nvidia/params`.

    The first value of a name takes precedence.
    """
    fields: dict[str, str] = {}
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields


def parse_properties(text: str) -> dict[str, int]:
    """Return the `properties` of a KFD node, by name. The first value of a name takes precedence.

    Errors: `FormatError` (code `bad-kfd`) with the line.
    """
    properties: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        match = re.fullmatch(_PROPERTY, line.strip())
        if match is None:
            raise _KFD.damaged(f"not a name and a number: {line[:60]!r}", f"line {number}")
        properties.setdefault(match.group(1), int(match.group(2)))
    return properties


def pci_of(properties: dict[str, int]) -> Optional[str]:
    """Return the PCI address, `0000:c1:00.0`, in `domain` and `location_id`; None if the kernel reports neither.

    The bits of `location_id` above the lower 16 are the number of a partition.
    """
    location = properties.get("location_id", 0)
    domain = properties.get("domain", 0)
    if not location and not domain:
        return None
    return f"{domain & 0xFFFFFFFF:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7:x}"


def uuid_of(properties: dict[str, int]) -> Optional[str]:
    """Return `unique_id` in the form that ROCr and rocminfo use, `GPU-<16 hex digits>`; None for chips without one."""
    unique = properties.get("unique_id", 0)
    return f"GPU-{unique:016x}" if 0 < unique < 1 << 64 else None


def gfx_of(properties: dict[str, int]) -> Optional[str]:
    """Return the compiler's name for the chip, as 90402 -> `gfx942` and 90010 -> `gfx90a`; None if it is unknown."""
    version = properties.get("gfx_target_version", 0)
    if not version:
        return None
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def parse_acl(data: bytes) -> str:
    """Return the list in *data* as `Stat.acl`: `user::rw-,user:1000:rw-,group::---,mask::rw-,other::---`.

    Empty for data of another version, which no current kernel writes. Source: Linux
    `include/uapi/linux/posix_acl_xattr.h`, `posix_acl.h`.
    """
    head, listed = data[: len(_ACL_HEAD)], data[len(_ACL_HEAD) :]
    if head != _ACL_HEAD or len(listed) % _ACL_ENTRY.size:
        return ""
    entries = []
    for tag, bits, number in _ACL_ENTRY.iter_unpack(listed):
        rights = "".join(letter if bits & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
        entries.append(f"{_ACL_TAGS.get(tag, '')}:{number if tag in _NAMED_TAGS else ''}:{rights}")
    return ",".join(entries)


def amdgpu_name(text: str, device: int, revision: int) -> Optional[str]:
    """Return the name of a GPU with these PCI IDs in *text*, libdrm's `amdgpu.ids`; None if it is missing.

    A line of it: `74A1, 00, AMD Instinct MI300X`. Source: libdrm `amdgpu/amdgpu_asic_id.c`.
    """
    match = re.search(rf"(?mi)^0*{device:x},[ \t]*0*{revision:x},[ \t]*(\S[^\n]{{0,99}})$", text)
    return match[1].strip() if match else None
