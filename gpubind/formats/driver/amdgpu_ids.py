"""libdrm's `amdgpu.ids`: the name of each model of AMD's GPUs, by PCI device ID and revision.

    74A1,	00,	AMD Instinct MI300X

Source: libdrm `amdgpu/amdgpu_asic_id.c`.
"""

from __future__ import annotations

import re
from typing import Optional


def name_in(text: str, device: int, revision: int) -> Optional[str]:
    """Return the name in *text* of a GPU with these IDs; None if it is missing."""
    match = re.search(rf"(?mi)^0*{device:x},[ \t]*0*{revision:x},[ \t]*(\S[^\n]{{0,99}})$", text)
    return match[1].strip() if match else None
