"""Rules that need the image, too."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.model import Finding
from gpubind.rules.preflight import Preflight


def driver_in_image(preflight: Preflight) -> Iterator[Finding]:
    """A driver baked into the image: it wins where it is found first, and fails if it is not the kernel module's."""
    assert preflight.image is not None
    planned = {mount.soname for mount in preflight.plan.mounts}
    for library in preflight.image.facts.driver:
        brought = library.soname in planned
        yield Finding(
            "driver-in-image",
            "warning" if brought else "error",
            "nvidia",
            library.soname,
            f"the image has a driver library of its own, {library.path}",
            library.path,
            "where it comes first, programs say `Driver/library version mismatch`"
            if brought
            else "the plan brings none, so programs will use it: `Driver/library version mismatch`",
            "take the driver out of the image; the host's comes first only through LD_LIBRARY_PATH",
        )
