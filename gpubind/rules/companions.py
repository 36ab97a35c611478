"""Rules about what the driver opens by name at run time: no header says so, and no loader checks it beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename
from typing import NamedTuple, Optional

from gpubind.model import Finding, Severity
from gpubind.rules.looking import nvidia_driver
from gpubind.rules.preflight import Preflight


class Companion(NamedTuple):
    """A file that a library of the driver opens when it needs it."""

    root: str
    """The library, by the start of its name."""
    name: str
    """The companion, by the start of its name."""
    since: int
    """The first driver branch that has it."""
    until: Optional[int]
    """The last one; None if it is still there."""
    severity: Severity
    consequence: str


COMPANIONS = (
    Companion(
        "libcuda.so.1",
        "libnvidia-ptxjitcompiler.so.1",
        361,
        None,
        "error",
        "CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221): PTX JIT compiler library not found",
    ),
    Companion(
        "libcuda.so.1",
        "libnvidia-gpucomp.so.",
        545,
        None,
        "warning",
        "OpenCL, OptiX and graphics compile nothing: CL_BUILD_PROGRAM_FAILURE (-11)",
    ),
    Companion(
        "libcuda.so.1",
        "libnvidia-nvvm.so.4",
        470,
        None,
        "warning",
        "link-time optimisation and OpenCL fail: CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221)",
    ),
    Companion(
        "libcuda.so.1",
        "libnvidia-nvvm70.so.4",
        580,
        None,
        "warning",
        "PTX of older toolkits does not compile: PTX JIT compiler library not found",
    ),
    Companion(
        "libcuda.so.1", "libnvidia-tileiras.so.", 595, None, "warning", "CUDA Tile programs (cuTile) do not compile"
    ),
    Companion(
        "libcuda.so.1", "libnvidia-fatbinaryloader.so.", 361, 440, "error", "cannot open shared object file: libcuda"
    ),
    Companion(
        "libnvidia-opencl.so.1",
        "libnvidia-compiler.so.",
        361,
        530,
        "warning",
        "OpenCL programs do not build: CL_COMPILER_NOT_AVAILABLE (-3)",
    ),
    Companion(
        "libnvoptix.so.1",
        "libnvidia-rtcore.so.",
        410,
        None,
        "warning",
        "OptiX does not start: OPTIX_ERROR_LIBRARY_NOT_FOUND (7804)",
    ),
    Companion(
        "libnvoptix.so.1",
        "nvoptix.bin",
        535,
        None,
        "warning",
        "the OptiX denoiser fails: OPTIX_ERROR_FILE_IO_ERROR (7050)",
    ),
    Companion(
        "libEGL_nvidia.so.0", "libnvidia-eglcore.so.", 361, None, "warning", "eglInitialize fails: EGL_NOT_INITIALIZED"
    ),
    Companion(
        "libGLX_nvidia.so.0",
        "libnvidia-glvkspirv.so.",
        390,
        None,
        "warning",
        "Vulkan and OpenGL take no SPIR-V: VK_ERROR_INITIALIZATION_FAILED",
    ),
    Companion(
        "libnvidia-egl-gbm.so.1",
        "libnvidia-allocator.so.1",
        495,
        None,
        "warning",
        "GBM gives no buffers",
    ),
)
"""Source: names seen as strings in the driver's libraries, and the driver README, "Installed Components"."""


def companion_missing(preflight: Preflight) -> Iterator[Finding]:
    """A library is in the plan, and what it opens by name is not."""
    names = sorted({basename(mount.target) for mount in preflight.plan.mounts})
    driver = nvidia_driver(preflight.plan)
    if driver is None or driver.version is None:
        return
    branch = int(driver.version.partition(".")[0])
    for companion in COMPANIONS:
        due = companion.since <= branch <= (companion.until or branch)
        if due and companion.root in names and not any(name.startswith(companion.name) for name in names):
            told = companion.name + (driver.version if companion.name.endswith(".so.") else "")
            yield Finding(
                "companion-missing",
                companion.severity,
                "nvidia",
                told,
                f"{told} is not in the plan; {companion.root} opens it by name when it needs it",
                None,
                companion.consequence,
                "ask `gpubind explain` why it is not; install the driver's package that has it, or add it to the list",
                f"gpubind explain {told}",
            )
