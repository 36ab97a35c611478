"""Intel's compute runtime (NEO): the GPUs and kernel drivers that it supports, according to constants in its libraries.

`.rodata` of `libze_intel_gpu.so.1` and `libigdrcl.so` contains the short name of each supported platform (`tgllp`,
`bmg`), the release (`26.27.039122`), and the names of the classes for the kernel drivers. Source: intel/compute-runtime
`shared/source/helpers/hw_info.cpp` (hardwarePrefix), `shared/source/os_interface/linux`; compared with Debian's
22.43.24595 and 26.27.39122.
"""

from __future__ import annotations

import re
from typing import Optional

from gpubind.frozen import NamedTuple

_LEAST_NAMES = 4
"""If fewer names of platforms are found in a library, it spells them in another way, and nothing is known about it."""
_TEXT = re.compile(rb"\0([a-z][a-z0-9-]{2,15})(?=\0)")
_RELEASE = re.compile(rb"\0([0-9]{2}\.[0-9]{2})\.[0-9]{4,6}(?=\0)")
_IN_NAME = re.compile(r"libze_intel_gpu\.so\.1\.[0-9]{1,3}\.([0-9]{5,6})(?:\.[0-9]+)?")
_HELPER, _HELPER_OF_XE = b"IoctlHelper", b"IoctlHelperXe"


class ComputeRuntime(NamedTuple):
    """A library of the compute runtime."""

    release: Optional[str]
    """`22.43`; None if unknown."""
    lacks: tuple[str, ...]
    """The requested platforms that it certainly does not support."""
    lacks_xe: bool
    """Whether it certainly does not support the kernel driver xe."""


def parse_runtime(constants: bytes, platforms: tuple[str, ...]) -> Optional[ComputeRuntime]:
    """Return the facts about a library with these *constants*; None if it has too few names of *platforms*."""
    texts = {match.group(1).decode() for match in _TEXT.finditer(constants)}
    supported = {name for name in platforms if any(_names(text, name) for text in texts)}
    if len(supported) < _LEAST_NAMES:
        return None
    release = _RELEASE.search(constants)
    return ComputeRuntime(
        release.group(1).decode() if release else None,
        tuple(name for name in platforms if name not in supported),
        _HELPER in constants and _HELPER_OF_XE not in constants,
    )


def build_of(name: str) -> Optional[int]:
    """Return the build in the file name *name*: `libze_intel_gpu.so.1.3.24595` -> 24595; None without one."""
    match = _IN_NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def _names(text: str, platform: str) -> bool:
    """Return whether *text* may stand for *platform*: the link editor stores texts with the same end only once."""
    return text == platform or text.startswith(f"{platform}-") or text.endswith(platform)
