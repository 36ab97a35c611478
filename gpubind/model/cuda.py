"""What is known of CUDA, from data/cuda.json, which names its sources: the drivers that serve each version, and where
each framework of Python keeps the version that it was built for.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple, Optional

from gpubind.model.data import read_data


class Versions(NamedTuple):
    """The versions of CUDA, and the drivers that serve them."""

    first_driver: dict[str, str]
    """CUDA version -> the first driver of it, ascending."""
    minor_compatible: dict[str, str]
    """CUDA major version -> the oldest driver on which every toolkit of that major version runs."""


class Framework(NamedTuple):
    """A Python package that uses CUDA. Its paths count from the directory that Python has its packages in."""

    name: str
    """As its authors call it."""
    versions: dict[str, str]
    """Files that hold the version of CUDA, and the regular expression whose group it is."""
    opens: tuple[str, ...]
    """Libraries that it opens by name; without any of them it uses no GPU, whatever it was built for."""
    libraries: tuple[str, ...]
    """Patterns of its own libraries, which the loader must find everything for."""
    beside: tuple[str, ...]
    """Directories with libraries that are loaded before its own."""
    without: str
    """What happens if its libraries do not load."""
    is_fatal: bool
    """Whether its import fails then."""


@lru_cache(maxsize=1)
def _table() -> Any:
    return json.loads(read_data("model/data/cuda.json"))


@lru_cache(maxsize=1)
def _versions() -> Versions:
    return Versions(_table()["first_driver"], _table()["minor_compatible"])


@lru_cache(maxsize=1)
def frameworks() -> dict[str, Framework]:
    """Return the frameworks by the name of their directory, or the beginning of the name of their one module."""
    return {
        directory: Framework(
            row["name"],
            row.get("versions", {}),
            tuple(row.get("opens", ())),
            tuple(row["libraries"]),
            tuple(row.get("beside", ())),
            row["without"],
            row.get("is_fatal", False),
        )
        for directory, row in _table()["frameworks"].items()
    }


def version_key(version: str) -> tuple[int, ...]:
    """Return a dotted version for comparison; trailing zeros do not count."""
    numbers = [int(part) for part in version.split(".") if part]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def cuda_max(version: Optional[str]) -> Optional[str]:
    """The newest CUDA version that driver *version* serves natively: `550.163.01` -> `12.4`; None if it is unknown."""
    if version is None:
        return None
    driver = version_key(version)
    served = [cuda for cuda, first in _versions().first_driver.items() if driver >= version_key(first)]
    return served[-1] if served else None


def minor_floor(cuda: str) -> Optional[str]:
    """Return the oldest driver on which every toolkit of the major version of *cuda* runs: `12.4` -> `525.60.13`."""
    return _versions().minor_compatible.get(cuda.partition(".")[0])


def minor_compatible(driver: str, cuda: str) -> bool:
    """Return whether a toolkit of version *cuda* runs on *driver* by minor-version compatibility."""
    floor = minor_floor(cuda)
    return floor is not None and version_key(driver) >= version_key(floor)


def minimum_driver(cuda: str) -> Optional[str]:
    """The first driver that serves CUDA version *cuda*: `12.4` -> `550.54.14`; None if it is not in the table."""
    return _versions().first_driver.get(cuda)
