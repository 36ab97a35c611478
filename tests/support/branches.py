"""The files of NVIDIA's driver by branch, and what other tools look for (`tests/data/driver_names.json`)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from gpubind.model.data import table

_DATA: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "driver_names.json").read_text())
SOURCES: dict[int, tuple[str, ...]] = {int(branch): tuple(lists) for branch, lists in table("typical")["lists"].items()}
"""The lists that were read of each branch."""
BRANCHES = tuple(SOURCES)
RANGES: dict[str, str] = table("typical")["files"]
"""Files: V stands for the driver's version, X for one of the file's own; and the branches, as the page has them."""
CONTAINER_CLI: tuple[str, ...] = tuple(_DATA["nvidia-container-cli"])
TOOLKIT: tuple[str, ...] = tuple(_DATA["nvidia-ctk"])
"""What these two look for."""


@cache
def branches_of(file: str) -> frozenset[int]:
    """Return the branches that have *file*."""
    ends = [part.partition("-") for part in RANGES[file].split(", ")]
    spans = [(int(first), int(last or first)) for first, _, last in ends]
    return frozenset(branch for branch in BRANCHES for first, last in spans if first <= branch <= last)


def files_of(branch: int) -> tuple[str, ...]:
    """Return the files that *branch* has."""
    return tuple(file for file in RANGES if branch in branches_of(file))
