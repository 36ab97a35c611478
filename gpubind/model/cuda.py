"""CUDA: the drivers that serve each version, and the files in which Python's frameworks keep the version they need.

The table is data/cuda.json, which names its sources. `first_driver` has each CUDA version, ascending, with the first
driver of it; `is_minor_compatible` each major version, with the oldest driver on which all its toolkits run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Optional

from gpubind.frozen import NamedTuple
from gpubind.model.data import read_data


class Framework(NamedTuple):
    """A Python package that uses CUDA. Its paths are relative to the directory of Python's packages."""

    name: str
    """As its authors call it."""
    libraries: tuple[str, ...] = ()
    """Patterns of its libraries, for which the loader must find everything."""
    without: str = ""
    """The consequence if its libraries do not load."""
    imports: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Patterns of the libraries that the import of a module loads, by the module: without one the import fails."""
    versions: Mapping[str, str] = MappingProxyType({})
    """Files that hold the version of CUDA, and the regular expression whose group it is."""
    opens: tuple[str, ...] = ()
    """Libraries that it opens by name; without any of them it uses no GPU, whatever it was built for."""
    beside: tuple[str, ...] = ()
    """Directories with libraries that are loaded before its own."""
    code: tuple[str, ...] = ()
    """Patterns of the files with its GPU code, of which it uses one."""
    more_code: tuple[str, ...] = ()
    """Those of files for some of its functions, and of directories with files named after processors."""
    one_of: Mapping[str, str] = MappingProxyType({})
    """Of its files with versions in their names, it opens the one for PyTorch's version: the regular expression of the
    names, whose groups are the version, and that of torch/version.py."""
    is_addition: bool = False
    """Whether programs use another framework, and this one with it."""
    for_gaudi: bool = False
    """Whether it is for Gaudi accelerators, and does nothing without one."""
    releases: Mapping[str, str] = MappingProxyType({})
    """The release that has code for an architecture, by its name."""


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads(read_data("model/data/cuda.json"))
    return table


@lru_cache(maxsize=1)
def frameworks() -> dict[str, Framework]:
    """Return the frameworks by the name of their directory, or the beginning of the name of their one module."""
    return {directory: _framework(row) for directory, row in _table()["frameworks"].items()}


@lru_cache(maxsize=1)
def system_frameworks() -> tuple[Framework, ...]:
    """Return those outside of Python: the patterns of their files are absolute."""
    rows: Any = _table()["elsewhere"]
    return tuple(map(_framework, rows))


def framework_named(name: Optional[str]) -> Optional[Framework]:
    """Return the framework that its authors call *name*."""
    every = (*frameworks().values(), *system_frameworks())
    return next((framework for framework in every if framework.name == name), None)


def is_extension(name: Optional[str]) -> bool:
    """Return whether programs use *name* together with another framework. A package outside of the table is one."""
    framework = framework_named(name)
    return name is not None and (framework is None or framework.is_addition)


def _framework(row: dict[str, Any]) -> Framework:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Framework(**{name: fields[name] for name in Framework._fields if name in fields})


def version_key(version: str) -> tuple[int, ...]:
    """Return a dotted version for comparison; trailing zeros are ignored."""
    numbers = [int(part) for part in version.split(".") if part]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def cuda_max(version: Optional[str]) -> Optional[str]:
    """Return the newest CUDA version that driver *version* serves natively: `550.163.01` -> `12.4`; None if unknown."""
    if version is None:
        return None
    driver = version_key(version)
    served = [cuda for cuda, first in _table()["first_driver"].items() if driver >= version_key(first)]
    return served[-1] if served else None


def branch_of(driver: str) -> int:
    """Return the branch of a driver: `550.54.14` -> 550."""
    return int(driver.partition(".")[0])


def minor_compatible_driver(cuda: str) -> Optional[str]:
    """Return the oldest driver on which every toolkit of the major version of *cuda* runs: `12.4` -> `525.60.13`."""
    return _table()["minor_compatible"].get(cuda.partition(".")[0])


def is_minor_compatible(driver: str, cuda: str) -> bool:
    """Return whether a toolkit of version *cuda* runs on *driver* by minor-version compatibility."""
    floor = minor_compatible_driver(cuda)
    return floor is not None and version_key(driver) >= version_key(floor)


def compat_branches(cuda: str) -> tuple[int, ...]:
    """Return the branches of the kernel module for which NVIDIA has a compat package with the major version of *cuda*.

    Branches on which its toolkits run by themselves are not among them.
    """
    return tuple(_table()["compat_branches"].get(cuda.partition(".")[0], ()))


def first_native_driver(cuda: str) -> Optional[str]:
    """Return the first driver that serves CUDA version *cuda*: `12.4` -> `550.54.14`; None if it is unknown."""
    return _table()["first_driver"].get(cuda if "." in cuda else f"{cuda}.0")


def cuda_of_isa(isa: str) -> Optional[str]:
    """Return the first CUDA that compiles PTX of version *isa*: `8.5` -> `12.5`; None if it is unknown."""
    return _table()["ptx"].get(isa)


def serves_ptx(cuda: str, isa: str) -> bool:
    """Return whether a driver for *cuda* compiles PTX of version *isa*; True for a version that is not known."""
    required = cuda_of_isa(isa)
    return required is None or version_key(cuda)[:2] >= version_key(required)


def first_drivers() -> tuple[str, ...]:
    """Return the first driver of each CUDA version, ascending."""
    return tuple(_table()["first_driver"].values())
