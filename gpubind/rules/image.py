"""Rules that need the image, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from gpubind.image import Image
from gpubind.model import Finding, Plan, Stat

DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")


def driver_in_image(plan: Plan, opened: Optional[Image]) -> Iterator[Finding]:
    """A driver baked into the image: it wins where it is found first, and fails if it is not the kernel module's."""
    assert opened is not None
    planned = {mount.soname: mount for mount in plan.mounts}
    for soname in DRIVER_LIBRARIES:
        path = opened.loader.find(soname)
        found = opened.tree.stat(path) if path else None
        if not isinstance(found, Stat) or found.size == 0:  # empty files are mount points that others left
            continue
        brought = soname in planned
        yield Finding(
            "driver-in-image",
            "warning" if brought else "error",
            "nvidia",
            soname,
            f"the image has a driver library of its own, {path}",
            path,
            "where it comes first, programs say `Driver/library version mismatch`"
            if brought
            else "the plan brings none, so programs will use it: `Driver/library version mismatch`",
            "take the driver out of the image; the host's comes first only through LD_LIBRARY_PATH",
        )
