"""ROCm: the release that has a library. The table is data/rocm.json, which names its sources."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Optional

from gpubind.model.data import read_data

_LIBRARY = re.compile(r"lib(?:amd|hip|hsa|roc|rccl|MIOpen|migraphx)[A-Za-z0-9_-]*\.so")


def is_rocms(name: str) -> bool:
    """Return whether *name* is that of one of ROCm's libraries: `librccl.so.1`."""
    return _LIBRARY.match(name) is not None


def release_with(names: Iterable[str]) -> Optional[str]:
    """Return the major release of ROCm that has the first library of *names* that tells: `libamdhip64.so.7` -> `7`."""
    releases = {name: release for release, known in _table()["sonames"].items() for name in known}
    return next((releases[name] for name in names if name in releases), None)


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(read_data("model/data/rocm.json"))
    return table
