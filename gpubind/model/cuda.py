"""CUDA: the drivers that serve each version, and the files that name the version a Python framework needs.

The table is data/cuda.json, which names its sources. `first_driver` maps each CUDA version, ascending, to its first
driver; `minor_compatible` maps each major version to the oldest driver on which all its toolkits run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Optional

from gpubind.frozen import NamedTuple
from gpubind.model.data import table

if TYPE_CHECKING:
    from gpubind.model.image import ImageLibrary


class Framework(NamedTuple):
    """A Python package that uses CUDA. Its paths are relative to the directory of Python's packages."""

    name: str
    """The name that its authors use."""
    libraries: tuple[str, ...] = ()
    """Patterns of its libraries, all of whose dependencies the loader must find."""
    without: str = ""
    """The consequence if its libraries do not load."""
    imports: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Patterns of the libraries that importing a module loads, by module. Without one of them, the import fails."""
    versions: Mapping[str, str] = MappingProxyType({})
    """Files that contain the CUDA version, each with a regular expression whose group is the version."""
    opens: tuple[str, ...] = ()
    """Libraries that it opens by name; with none of them it uses no GPU, whatever it was built for."""
    beside: tuple[str, ...] = ()
    """Directories whose libraries are loaded before its own."""
    code: tuple[str, ...] = ()
    """Patterns of the files with its GPU code; it uses one of them."""
    more_code: tuple[str, ...] = ()
    """Patterns of files for some of its functions, and of directories whose files are named after processors."""
    one_of: Mapping[str, str] = MappingProxyType({})
    """The files with a version in their names, of which it opens the one for PyTorch's version: a regular expression of
    the names, whose groups are the version, and one of torch/version.py."""
    is_addition: bool = False
    """Whether programs use it together with another framework."""
    for_gaudi: bool = False
    """Whether it runs only on Gaudi accelerators."""
    releases: Mapping[str, str] = MappingProxyType({})
    """The first release with code for an architecture, by the architecture's name."""


def _table() -> dict[str, dict[str, Any]]:
    return table("cuda")


@lru_cache(maxsize=1)
def frameworks() -> dict[str, Framework]:
    """Return the frameworks by the name of their directory, or by the prefix of the name of their only module."""
    return {directory: _framework(row) for directory, row in _table()["frameworks"].items()}


@lru_cache(maxsize=1)
def system_frameworks() -> tuple[Framework, ...]:
    """Return the frameworks outside of Python; the patterns of their files are absolute."""
    rows: Any = _table()["elsewhere"]
    return tuple(map(_framework, rows))


def framework_named(name: Optional[str]) -> Optional[Framework]:
    """Return the framework called *name* by its authors; None if it is not in the table."""
    every = (*frameworks().values(), *system_frameworks())
    return next((framework for framework in every if framework.name == name), None)


def is_extension(name: Optional[str]) -> bool:
    """Return whether programs use *name* together with another framework, as they use any package outside the table."""
    framework = framework_named(name)
    return name is not None and (framework is None or framework.is_addition)


def _framework(row: dict[str, Any]) -> Framework:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Framework(**{name: fields[name] for name in Framework._fields if name in fields})


def version_key(version: str) -> tuple[int, ...]:
    """Return the sort key of a dotted version; trailing zeros are ignored."""
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


def supported_cuda(library: ImageLibrary) -> Optional[str]:
    """Return the newest CUDA version that *library* serves, by its note, else by its version; None if unknown."""
    return library.note.cuda if library.note is not None else cuda_max(library.version)


def is_newer(version: str, served: Optional[str]) -> bool:
    """Return whether CUDA *version* is known to be newer than *served*."""
    return served is not None and version_key(version) > version_key(served)


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
    """Return the kernel module branches for which NVIDIA has a compat package with the major version of *cuda*.

    Branches on which the toolkits of that version run without a compat package are not included.
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
