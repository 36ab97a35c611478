"""The driver's device nodes: is each there, and does it reach the right device?"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from gpubind.formats.procfs import parse_params
from gpubind.model import DeviceNode, Finding, Gpu
from gpubind.rules.looking import gpus_in_use, is_linux_driver, is_wanted, majors, text_of
from gpubind.rules.preflight import Preflight
from gpubind.sources.nvidia.gpus import PROC_GPUS

UVM = "/dev/nvidia-uvm"
CONTROL = "/dev/nvidiactl"
PARAMS = "/proc/driver/nvidia/params"


def control_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """Nothing of the driver works without /dev/nvidiactl."""
    if is_linux_driver(preflight.plan) and CONTROL not in _nodes(preflight):
        yield Finding(
            "control-node-missing",
            "error",
            "nvidia",
            CONTROL,
            "the driver's control node is missing",
            CONTROL,
            "NVML will say `Driver Not Loaded`, CUDA will answer 100 (CUDA_ERROR_NO_DEVICE)",
            "make the nodes on the host, as root",
            "nvidia-modprobe -c=0",
        )


def uvm_missing(preflight: Preflight) -> Iterator[Finding]:
    """CUDA without /dev/nvidia-uvm answers 999: the module is loaded only when something asks for it."""
    plan = preflight.plan
    if is_linux_driver(plan) and is_wanted(plan, "compute") and UVM not in _nodes(preflight):
        yield Finding(
            "uvm-missing",
            "error",
            "nvidia",
            UVM,
            "the node of the unified memory driver is missing",
            UVM,
            "cuInit will answer 999 (CUDA_ERROR_UNKNOWN); a container cannot load the module itself",
            "load it on the host, as root; nvidia-persistenced or a start-up script keeps it",
            "nvidia-modprobe -u -c=0",
        )


def uvm_not_loaded(preflight: Preflight) -> Iterator[Finding]:
    """A node without its driver: opening it gives ENXIO. Left from an earlier boot, or made by hand."""
    plan, numbers = preflight.plan, majors(preflight.host)
    if not is_linux_driver(plan) or not numbers or "nvidia-uvm" in numbers:
        return
    node = _nodes(preflight).get(UVM)
    if node is not None:
        yield Finding(
            "uvm-not-loaded",
            "error",
            "nvidia",
            UVM,
            f"{UVM} is there, but its kernel module is not loaded",
            f"{node.source} (major {node.major}), /proc/devices has no nvidia-uvm",
            "cuInit will answer 999 (CUDA_ERROR_UNKNOWN), although nvidia-smi works",
            "load the module on the host, as root; it may get another major number, and the node is made anew",
            "modprobe nvidia-uvm && nvidia-modprobe -u -c=0",
        )


def gpu_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """A GPU that the driver has, but no process can open: its /dev/nvidiaN is missing, or is another's."""
    plan = preflight.plan
    gpus = [gpu for gpu in gpus_in_use(plan) if gpu.minor is not None]
    nodes = _nodes(preflight)
    without = [gpu for gpu in gpus if not _is_its_node(nodes.get(f"/dev/nvidia{gpu.minor}"), gpu)]
    if not is_linux_driver(plan):
        return
    for gpu in without:
        path = f"/dev/nvidia{gpu.minor}"
        node = nodes.get(path)
        yield Finding(
            "gpu-node-missing",
            "error" if len(without) == len(gpus) else "warning",
            "nvidia",
            path,
            f"the GPU at {gpu.pci} has no device node"
            if node is None
            else f"{path} has minor number {node.minor}, the driver says {gpu.minor}: it is another GPU",
            f"{path}, {PROC_GPUS}/{gpu.pci}/information (Device Minor: {gpu.minor})",
            "CUDA and NVML do not list the GPU; if it is the only one: CUDA_ERROR_NO_DEVICE (100), `No devices were "
            "found`",
            "make the node on the host, as root; inside a container or a job it may be hidden on purpose"
            if node is None
            else "remove the node and let the driver make it anew, as root",
            f"nvidia-modprobe -c={gpu.minor}"
            if node is None
            else f"rm {quote(node.source)} && nvidia-modprobe -c={gpu.minor}",
        )


def _is_its_node(node: object, gpu: Gpu) -> bool:
    return isinstance(node, DeviceNode) and node.minor == gpu.minor


def device_file_mode(preflight: Preflight) -> Iterator[Finding]:
    """The driver itself gives its nodes to somebody else: a chmod lasts until nvidia-modprobe runs again.

    DeviceFileMode is decimal in /proc/driver/nvidia/params (438 is 0666). Source: NVIDIA driver README, chapter
    "Frequently Asked Questions", "How and when are the NVIDIA device files created?".
    """
    params = parse_params(text_of(preflight.host.dev, PARAMS) or "")
    mode, gid = params.get("DeviceFileMode", ""), params.get("DeviceFileGID", "")
    if params.get("ModifyDeviceFiles") == "0" or not (_is_number(mode) and _is_number(gid)):
        return
    for node in preflight.plan.devices:
        is_made_so = node.major == 195 and (node.mode, node.gid) == (int(mode), int(gid))
        if is_made_so and node.access != "rw":
            yield Finding(
                "device-file-mode",
                "note",
                "nvidia",
                PARAMS,
                f"the driver makes its nodes with mode {int(mode):04o} and group {node.group or gid}, which leaves "
                "this user out",
                f"{PARAMS} (DeviceFileMode: {mode}, DeviceFileGID: {gid})",
                "that is why the nodes cannot be opened (EACCES); a chmod of a node is undone by the next "
                "nvidia-modprobe",
                f"become a member of group `{node.group or gid}`, or set NVreg_DeviceFileMode and NVreg_DeviceFileGID "
                "in /etc/modprobe.d and load the driver again",
            )
            return


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _nodes(preflight: Preflight) -> dict[str, DeviceNode]:
    return {node.target: node for node in preflight.plan.devices}
