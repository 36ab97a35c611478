"""AMD's kernel driver and the ROCm of an image: AMD tests each driver with some releases of ROCm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import basename, dirname
from typing import Optional

from gpubind.model import Finding, Missing, finding
from gpubind.model.rocm import bounds_of_kernel, is_outside, release_of_kernel
from gpubind.rules.preflight import Preflight

HIP = "libamdhip64.so."
"""The beginning of the name of HIP's library."""
_IN_NAME = re.compile(r"libamdhip64\.so\.([0-9]{1,3}(?:\.[0-9]{1,3})?)")


def hip_in(preflight: Preflight) -> Iterator[str]:
    """Yield the image's paths of HIP's library: in the directories of its loader and of its HSA runtime."""
    tree, runtime = preflight.image.tree, preflight.image.facts.rocm_runtime
    for place in (*preflight.image.loader.directories, *([dirname(runtime)] if runtime else ())):
        yield from (f"{place}/{name}" for name in tree.names(place) if name.startswith(HIP))


def rocm_untested(preflight: Preflight) -> Iterator[Finding]:
    """Yield a ROCm of the image that AMD does not test with this amdgpu; a note if amdgpu is the kernel's own."""
    kernel = next(
        (planned.driver.kernel_version for planned in preflight.plan.drivers if planned.driver.vendor == "amd"), None
    )
    release = _release(preflight)
    if kernel is None or release is None or not any(gpu.vendor == "amd" and gpu.chosen for gpu in preflight.plan.gpus):
        return
    if kernel.startswith("Linux "):
        yield finding("rocm-untested", subject=release, case="in-tree", severity="note", kernel=kernel)
        return
    of_kernel = release_of_kernel(kernel)
    if of_kernel is None:
        return
    oldest, newest = bounds_of_kernel(of_kernel)
    if is_outside(release, oldest, newest):
        tested = f"ROCm {oldest} to {newest}" if newest else f"ROCm {oldest} and later"
        yield finding("rocm-untested", subject=release, kernel=kernel, of_kernel=of_kernel, tested=tested)


def _release(preflight: Preflight) -> Optional[str]:
    """Return the release of the image's ROCm, `6.2.4`; else its major version, `7`, by the name of HIP's library."""
    facts = preflight.image.facts
    if facts.rocm is not None and re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}", facts.rocm):
        return facts.rocm
    resolved_paths = (preflight.image.tree.resolve(path) for path in hip_in(preflight))
    names = (_IN_NAME.match(basename(path)) for path in resolved_paths if not isinstance(path, Missing))
    return max((match.group(1) for match in names if match), key=len, default=None)
