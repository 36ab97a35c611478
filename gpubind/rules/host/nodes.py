"""The driver's device nodes: missing ones, and those of another device."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.formats.driver.procfs import parse_params
from gpubind.inventory.nodes import read_majors
from gpubind.inventory.nvidia.gpus import PROC_GPUS
from gpubind.model import Finding
from gpubind.model.findings import finding
from gpubind.rules.preflight import Preflight

UVM = "/dev/nvidia-uvm"
CONTROL = "/dev/nvidiactl"
PARAMS = "/proc/driver/nvidia/params"


def control_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """Yield a missing /dev/nvidiactl, which every program of the driver opens."""
    if preflight.has_linux_driver and CONTROL not in preflight.nodes:
        yield finding("control-node-missing", subject=CONTROL, where=CONTROL)


def uvm_missing(preflight: Preflight) -> Iterator[Finding]:
    """Yield a missing /dev/nvidia-uvm, without which CUDA returns 999: its module is loaded on demand only."""
    if preflight.has_linux_driver and preflight.wants("compute") and UVM not in preflight.nodes:
        yield finding("uvm-missing", subject=UVM, where=UVM)


def uvm_not_loaded(preflight: Preflight) -> Iterator[Finding]:
    """Yield a node without its driver: opening it gives ENXIO. Left from an earlier boot, or made by hand."""
    numbers, _ = read_majors(preflight.host)
    node = preflight.nodes.get(UVM)
    if preflight.has_linux_driver and numbers and "nvidia-uvm" not in numbers and node is not None:
        where = f"{node.source} (major {node.major}), /proc/devices has no nvidia-uvm"
        yield finding("uvm-not-loaded", subject=UVM, where=where)


def gpu_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """Yield a GPU that no process can open: its /dev/nvidiaN is missing, or of another GPU."""
    if not preflight.has_linux_driver:
        return
    nodes = preflight.nodes
    gpus = [gpu for gpu in preflight.gpus if gpu.minor is not None]
    found = [(gpu, nodes.get(f"/dev/nvidia{gpu.minor}")) for gpu in gpus]
    without = [(gpu, node) for gpu, node in found if node is None or node.minor != gpu.minor]
    for gpu, node in without:
        path = f"/dev/nvidia{gpu.minor}"
        yield finding(
            "gpu-node-missing",
            subject=path,
            case="absent" if node is None else "of-another",
            severity="error" if len(without) == len(gpus) else "warning",
            where=f"{path}, {PROC_GPUS}/{gpu.pci}/information (Device Minor: {gpu.minor})",
            gpu=gpu,
            minor=node.minor if node is not None else None,
        )


def device_file_mode(preflight: Preflight) -> Iterator[Finding]:
    """Yield a driver that gives its nodes to other users: a chmod lasts until nvidia-modprobe runs again.

    DeviceFileMode is decimal in /proc/driver/nvidia/params (438 is 0666). Source: NVIDIA driver README, chapter
    "Frequently Asked Questions", "How and when are the NVIDIA device files created?".
    """
    params = parse_params(preflight.host.dev.text(PARAMS) or "")
    mode, gid = params.get("DeviceFileMode", ""), params.get("DeviceFileGID", "")
    if params.get("ModifyDeviceFiles") == "0" or not (_is_number(mode) and _is_number(gid)):
        return
    for node in preflight.plan.devices:
        is_made_so = node.major == 195 and (node.mode, node.gid) == (int(mode), int(gid))
        if is_made_so and node.access != "rw":
            where = f"{PARAMS} (DeviceFileMode: {mode}, DeviceFileGID: {gid})"
            yield finding("device-file-mode", subject=PARAMS, where=where, mode=int(mode), group=node.group or gid)
            return


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
