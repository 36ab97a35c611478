"""The compute capability of an NVIDIA GPU by its PCI device ID: data/nvidia_gpus.json, which names its sources."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Optional

from gpubind.model.data import read_data
from gpubind.model.gpucode import arch_of_capability, arch_order


@lru_cache(maxsize=1)
def _table() -> dict[str, str]:
    rows = json.loads(read_data("model/data/nvidia_gpus.json"))["chips"]
    return {device: row["capability"] for row in rows for device in row["devices"].split()}


def compute_capability(device: str) -> Optional[str]:
    """Return the compute capability of the PCI device ID *device*: `0x2330` -> `9.0`; None if it is not known."""
    return _table().get(device.strip().lower().removeprefix("0x"))


@lru_cache(maxsize=1)
def known_architectures() -> tuple[str, ...]:
    """Return the architectures of NVIDIA's GPUs in the table, the oldest first: `sm_50`."""
    found = {arch_of_capability(capability) for capability in _table().values()}
    return tuple(sorted((arch for arch in found if arch is not None), key=arch_order))
