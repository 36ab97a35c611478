"""The KFD topology: the nodes of AMD's compute driver in /sys/class/kfd/kfd/topology/nodes.

Source: Linux `drivers/gpu/drm/amd/amdkfd/kfd_topology.c` (node_show, `properties`: one `name value` a line).
"""

from __future__ import annotations

import re
from typing import Optional

from gpubind.errors import Format

_FORMAT = Format("bad-kfd", "malformed KFD properties")
_LINE = re.compile(r"([A-Za-z0-9_]+) ([0-9]{1,20})")


def parse_properties(text: str) -> dict[str, int]:
    """Return the `properties` of a node: name -> number; the first of a name takes precedence.

    Errors: `FormatError` (code `bad-kfd`) with the line.
    """
    found: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise _FORMAT.damaged(f"not a name and a number: {line[:60]!r}", f"line {number}")
        found.setdefault(match.group(1), int(match.group(2)))
    return found


def pci_of(properties: dict[str, int]) -> Optional[str]:
    """Return the address `0000:c1:00.0` of `domain` and `location_id`; None where the kernel gives neither.

    Above its 16 bits `location_id` holds the number of a partition.
    """
    location = properties.get("location_id", 0)
    domain = properties.get("domain", 0)
    if not location and not domain:
        return None
    return f"{domain & 0xFFFFFFFF:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7:x}"


def uuid_of(properties: dict[str, int]) -> Optional[str]:
    """Return `unique_id` as ROCr and rocminfo spell it, `GPU-<16 hex digits>`; None for chips without one."""
    unique = properties.get("unique_id", 0)
    return f"GPU-{unique:016x}" if 0 < unique < 1 << 64 else None


def gfx_of(properties: dict[str, int]) -> Optional[str]:
    """Return the compiler's name of the chip: 90402 -> `gfx942`, 90010 -> `gfx90a`; None if it is not known."""
    version = properties.get("gfx_target_version", 0)
    if not version:
        return None
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
