"""The names of AMD's GPUs, by PCI device ID and revision. KFD's own name is that of a chip, or a placeholder.

gpubind's table takes precedence over the host's `amdgpu.ids`: libdrm has changed names between releases, and equal
nodes must have equal names.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Optional

from gpubind.formats.driver.kernel import amdgpu_name
from gpubind.host import Host
from gpubind.model.data import read_data

_IDS = ("/opt/amdgpu/share/libdrm/amdgpu.ids", "/usr/share/libdrm/amdgpu.ids")
"""The files of AMD's own packages, and of the distribution."""


def find_name(host: Host, device: Optional[int], revision: Optional[int]) -> Optional[str]:
    """Return the name of the GPU with these IDs, `AMD Instinct MI300X`; None if no table has it.

    With an unknown *revision* a device has its name without a revision, or the name that all its revisions have.
    """
    if device is None:
        return None
    by_revision = _table().get(device, {})
    name = by_revision.get(revision)
    if name is None and revision is not None:
        texts = (host.driver.lenient.text(path) or "" for path in _IDS)  # older records do not have it
        name = next(filter(None, (amdgpu_name(text, device, revision) for text in texts)), None)
    names = set(by_revision.values())
    return name or by_revision.get(None) or (names.pop() if len(names) == 1 else None)


@lru_cache(maxsize=1)
def _table() -> dict[int, dict[Optional[int], str]]:
    """Return the names by device and revision; revision None is for all that are not listed."""
    table: dict[int, dict[Optional[int], str]] = {}
    for name, devices in json.loads(read_data("model/data/amd_gpus.json"))["names"].items():
        for entry in devices.split():
            device, _, revisions = entry.partition(":")
            each = [int(text, 16) for text in revisions.split(",")] if revisions else [None]
            table.setdefault(int(device, 16), {}).update(dict.fromkeys(each, name))
    return table
