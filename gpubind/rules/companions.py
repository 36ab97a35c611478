"""Rules about what the driver opens by name at run time: no header says so, and no loader checks it beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename
from typing import NamedTuple, Optional

from gpubind.findings import finding
from gpubind.model import Finding, Severity
from gpubind.rules.preflight import Preflight


class Companion(NamedTuple):
    """A file that a library of the driver opens when it needs it."""

    library: str
    name: str
    """The companion, by the start of its name; the case of the finding that says what comes of its absence."""
    since: int
    """The first driver branch that has it."""
    until: Optional[int] = None
    """The last one; None if it is still there."""
    severity: Severity = "warning"


COMPANIONS = (
    Companion("libcuda.so.1", "libnvidia-ptxjitcompiler.so.1", 361, severity="error"),
    Companion("libcuda.so.1", "libnvidia-gpucomp.so.", 545),
    Companion("libcuda.so.1", "libnvidia-nvvm.so.4", 470),
    Companion("libcuda.so.1", "libnvidia-nvvm70.so.4", 580),
    Companion("libcuda.so.1", "libnvidia-tileiras.so.", 595),
    Companion("libcuda.so.1", "libnvidia-fatbinaryloader.so.", 361, until=440, severity="error"),
    Companion("libnvidia-opencl.so.1", "libnvidia-compiler.so.", 361, until=530),
    Companion("libnvoptix.so.1", "libnvidia-rtcore.so.", 410),
    Companion("libnvoptix.so.1", "nvoptix.bin", 535),
    Companion("libEGL_nvidia.so.0", "libnvidia-eglcore.so.", 361),
    Companion("libGLX_nvidia.so.0", "libnvidia-glvkspirv.so.", 390),
    Companion("libnvidia-egl-gbm.so.1", "libnvidia-allocator.so.1", 495),
)
"""Source: names seen as strings in the driver's libraries, and the driver README, "Installed Components"."""


def companion_missing(preflight: Preflight) -> Iterator[Finding]:
    """A library is in the plan, and what it opens by name is not."""
    names = {basename(mount.target) for mount in preflight.plan.mounts}
    version = preflight.driver.version if preflight.driver is not None else None
    if version is None:
        return
    branch = int(version.partition(".")[0])
    for companion in COMPANIONS:
        due = companion.since <= branch <= (companion.until or branch)
        if due and companion.library in names and not any(name.startswith(companion.name) for name in names):
            yield finding(
                "companion-missing",
                subject=companion.name + (version if companion.name.endswith(".so.") else ""),
                case=companion.name,
                severity=companion.severity,
                library=companion.library,
            )
