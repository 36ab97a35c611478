"""Intel's compute runtime (NEO): what the constants of its libraries say about the GPUs and kernel drivers it knows.

`libze_intel_gpu.so.1` and `libigdrcl.so` have in `.rodata` the short name of each platform that they were built for
(`tgllp`, `bmg`), their release (`26.27.039122`), and the names of the classes that talk to a kernel driver.
Source: intel/compute-runtime `shared/source/helpers/hw_info.cpp` (hardwarePrefix), `shared/source/os_interface/linux`;
compared with Debian's 22.43.24595 and 26.27.39122.
"""

from __future__ import annotations

import re
from typing import Optional

from gpubind.frozen import NamedTuple

LIBRARIES = ("libze_intel_gpu.so.1", "libigdrcl.so")
_LEAST_NAMES = 4
"""Names of platforms that a library has at least, if it has any: with fewer, they are spelled in another way."""
_TEXT = re.compile(rb"\0([a-z][a-z0-9-]{2,15})(?=\0)")
_RELEASE = re.compile(rb"\0([0-9]{2}\.[0-9]{2})\.[0-9]{4,6}(?=\0)")
_IN_NAME = re.compile(r"libze_intel_gpu\.so\.1\.[0-9]{1,3}\.([0-9]{5,6})(?:\.[0-9]+)?")
_HELPER, _HELPER_OF_XE = b"IoctlHelper", b"IoctlHelperXe"


class ComputeRuntime(NamedTuple):
    """A library of the compute runtime."""

    release: Optional[str]
    """`22.43`; None if it does not say."""
    lacks: tuple[str, ...]
    """The platforms that it certainly does not know, of those that were asked for."""
    lacks_xe: bool
    """Whether it certainly does not know the kernel driver xe."""


def parse_runtime(constants: bytes, platforms: tuple[str, ...]) -> Optional[ComputeRuntime]:
    """Return what a library with these *constants* lacks of *platforms*; None if that cannot be told of it."""
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
    """Return the build in the *name* of a file: `libze_intel_gpu.so.1.3.24595` -> 24595; None if there is none."""
    match = _IN_NAME.fullmatch(name)
    return int(match.group(1)) if match else None


def _names(text: str, platform: str) -> bool:
    """Return whether *text* may stand for *platform*: it is its name, a part of it (`bmg-g21`), or ends with it, as the
    link editor has one copy of texts with the same end.
    """
    return text == platform or text.startswith(f"{platform}-") or text.endswith(platform)
