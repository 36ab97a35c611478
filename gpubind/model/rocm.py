"""ROCm: the release of a library, and the releases that AMD tests with a kernel driver.

The tables are in data/rocm.json, which names their sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from gpubind.model.data import table

_LIBRARY = re.compile(r"lib(?:amd|hip|hsa|roc|rccl|MIOpen|migraphx)[A-Za-z0-9_-]*\.so")


def is_rocms(name: str) -> bool:
    """Return whether *name* is a ROCm library's: `librccl.so.1`."""
    return _LIBRARY.match(name) is not None


def release_with(names: Iterable[str]) -> Optional[str]:
    """Return the major ROCm release of the first known library in *names*: `libamdhip64.so.7` -> `7`."""
    releases = {name: release for release, sonames in table("rocm")["sonames"].items() for name in sonames}
    return next((releases[name] for name in names if name in releases), None)


def release_of_kernel(version: str) -> Optional[str]:
    """Return the ROCm release of AMD's amdgpu package *version*: `6.8.5` -> `6.2`; None if unknown."""
    release: Optional[str] = table("rocm")["kernel"].get(version)
    return release


def bounds_of_kernel(release: str) -> tuple[Optional[str], Optional[str]]:
    """Return the oldest and newest ROCm that AMD tests with the kernel driver of *release*; None if unknown."""
    oldest, newest = table("rocm")["tested"].get(release, (None, None))
    return oldest, newest


def is_outside(release: str, oldest: Optional[str], newest: Optional[str]) -> bool:
    """Return whether ROCm *release* is older than *oldest* or newer than *newest*. For `7`: whether every 7.x is."""
    version = tuple(map(int, release.split(".")[:2]))
    before, after = (tuple(map(int, (bound or release).split(".")))[: len(version)] for bound in (oldest, newest))
    return not before <= version <= after
