"""An image's own user space for Intel's GPUs: what finds its drivers.

Sources: level-zero `source/loader/linux/driver_discovery_lin.cpp` (the loader opens drivers by name); cl_khr_icd.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.files import Tree, glob
from gpubind.model import COMPUTE_RUNTIME, Finding, finding
from gpubind.rules.preflight import ImagePreflight

LEVEL_ZERO, OPENCL = COMPUTE_RUNTIME.runtime
LOADER, VENDORS = "libze_loader.so.1", "/etc/OpenCL/vendors"


def level_zero_incomplete(preflight: ImagePreflight) -> Iterator[Finding]:
    """Yield a driver in the image for Intel's GPUs without what programs find it by: the loader, or the manifest."""
    if not any(planned.driver.vendor == "intel" for planned in preflight.plan.drivers):
        return
    image = preflight.image
    planned = {mount.target.rpartition("/")[2] for mount in preflight.plan.mounts}
    if image.loader.find(LEVEL_ZERO) and not image.loader.find(LOADER) and LOADER not in planned:
        yield finding("level-zero-incomplete", subject=LOADER, case="loader", driver=LEVEL_ZERO)
    if _has_opencl(image.tree) and not _has_manifest(image.tree) and "intel.icd" not in planned:
        yield finding("level-zero-incomplete", subject=VENDORS, case="manifest", driver=OPENCL)


def _has_opencl(image: Tree) -> bool:
    return any(glob(image, f"{place}/{OPENCL}") for place in COMPUTE_RUNTIME.places)


def _has_manifest(image: Tree) -> bool:
    names = (name for name in image.names(VENDORS) if name.endswith(".icd"))
    return any("igdrcl" in (image.text(f"{VENDORS}/{name}") or "") for name in names)
