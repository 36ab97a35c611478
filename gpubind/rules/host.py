"""Rules that need the host alone."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.model import Finding, Plan
from gpubind.rules.preflight import Preflight


def uvm_missing(preflight: Preflight) -> Iterator[Finding]:
    """CUDA without /dev/nvidia-uvm answers 999: the module is loaded only when something asks for it."""
    plan = preflight.plan
    targets = {node.target for node in plan.devices}
    compute = "compute" in plan.request.caps or "video" in plan.request.caps
    if _linux_gpu(plan) and compute and "/dev/nvidia-uvm" not in targets:
        yield Finding(
            "uvm-missing",
            "error",
            "nvidia",
            "/dev/nvidia-uvm",
            "the node of the unified memory driver is missing",
            "/dev/nvidia-uvm",
            "cuInit will answer 999 (CUDA_ERROR_UNKNOWN); a container cannot load the module itself",
            "load it on the host, as root; nvidia-persistenced or a start-up script keeps it",
            "nvidia-modprobe -u -c=0",
        )


def control_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """Nothing of the driver works without /dev/nvidiactl."""
    plan = preflight.plan
    targets = {node.target for node in plan.devices}
    if _linux_gpu(plan) and "/dev/nvidiactl" not in targets:
        yield Finding(
            "control-node-missing",
            "error",
            "nvidia",
            "/dev/nvidiactl",
            "the driver's control node is missing",
            "/dev/nvidiactl",
            "NVML will say `Driver Not Loaded`, CUDA will answer 100 (CUDA_ERROR_NO_DEVICE)",
            "make the nodes on the host, as root",
            "nvidia-modprobe -c=0",
        )


def _linux_gpu(plan: Plan) -> bool:
    """Whether a loaded Linux driver serves GPUs here; without one, other findings say more."""
    return any(
        planned.driver.vendor == "nvidia" and planned.driver.kind == "linux" and planned.driver.kernel_version
        for planned in plan.drivers
    )
