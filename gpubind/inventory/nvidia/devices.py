"""NVIDIA's kernel driver in /proc, /sys and /dev: its version, its GPUs and their MIG devices, its nodes and sockets.

Sources: MIG User Guide, "Device Nodes and Capabilities"; libnvidia-container `src/nvc_info.c`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Optional

from gpubind.errors import FormatError
from gpubind.files import glob
from gpubind.formats.driver import kernel
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.host.base import MPS_PIPE_DIRECTORY
from gpubind.inventory.claims import Claim, Outcome, SourceResult, partition_outcomes
from gpubind.inventory.nodes import DRM, Devices, ExpectedNode, drm_nodes, natural_sort_key, read_nodes, render_node
from gpubind.model import READ_ONLY_OPTIONS, Capability, Finding, Gpu, HostFile, MigDevice, MigNode, finding
from gpubind.model.files import ContainerPath, Missing, ResolvedFile
from gpubind.model.layouts import DXG

if TYPE_CHECKING:
    from gpubind.inventory.nvidia.tegra import TegraBoard

PROC_GPUS = "/proc/driver/nvidia/gpus"
GPU_NODE = re.compile(r"nvidia([0-9]+)")
"""The name of a GPU's node in /dev, with its minor number."""
_CAPABILITY_DIRECTORIES = ("nvidia-caps", "nvidia-caps-imex-channels")
# Names of /dev/nvidia*, the drivers (in /proc/devices) whose major number they may have, and the capability.
# Source: libnvidia-container src/nvc_info.c; open-gpu-kernel-modules nvidia-modprobe-utils.h.
_NODES: tuple[tuple[str, tuple[str, ...], Optional[Capability]], ...] = (
    (r"nvidia[0-9]+|nvidiactl", ("nvidia", "nvidia-frontend", "nvidiactl"), None),
    (r"nvidia-modeset", ("nvidia-modeset", "nvidia", "nvidia-frontend"), "graphics"),
    (r"nvidia-uvm(-tools)?", ("nvidia-uvm",), "compute"),
    (r"nvidia-caps/nvidia-cap[0-9]+", ("nvidia-caps",), "compute"),
    (r"nvidia-caps-imex-channels/channel[0-9]+", ("nvidia-caps-imex-channels",), "compute"),
    (r"nvidia-nvswitch(ctl|[0-9]+)", ("nvidia-nvswitch",), "utility"),
    (r"nvidia-nvlink", ("nvidia-nvlink",), "utility"),
    (r"nvidia-fs[0-9]*", ("nvidia-fs",), "compute"),
)
_FIXED_MINORS = {"nvidiactl": 255, "nvidia-modeset": 254, "nvidia-uvm": 0, "nvidia-uvm-tools": 1}
"""The nodes with fixed minor numbers. Source: as above."""
_SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
# Sources: nvidia-container-toolkit `internal/modifier/gated.go`, `internal/discover/gds.go`, `gdrcopy.go`, `mofed.go`.
GPUDIRECT_NODES: dict[str, dict[str, str]] = {
    "NVIDIA_GDRCOPY": {"/dev/gdrdrv": "gdrdrv"},
    "NVIDIA_MOFED": {"/dev/infiniband/uverbs*": "infiniband_verbs", "/dev/infiniband/rdma_cm": "misc"},
}
"""Nodes of devices that GPUs exchange data with, and their drivers, by the variable that requests them."""
GDS_VARIABLE = "NVIDIA_GDS"
_STORAGE_FILES = ("/run/udev", "/etc/cufile.json")
"""Files that libcufile reads. Its nodes, /dev/nvidia-fs*, are the driver's and need no request."""


class KernelModule(NamedTuple):
    """The version of the kernel module."""

    version: Optional[str]
    where: str
    why: Optional[str]
    """The reason why there is no version."""


def read_kernel_module(host: Host) -> KernelModule:
    """Return the version of the loaded module, from /sys/module/nvidia/version, else from
    /proc/driver/nvidia/version.
    """
    why = "no NVIDIA kernel module is loaded"
    for path, parse in (
        ("/sys/module/nvidia/version", kernel.parse_module_version),
        ("/proc/driver/nvidia/version", kernel.parse_driver_version),
    ):
        text = host.dev.read_text(path)
        if isinstance(text, Missing):
            if text.why != "absent":
                why = f"{path}: {text}"
            continue
        try:
            return KernelModule(parse(text), path, None)
        except FormatError as error:
            why = f"{path}: {error.why}"
    return KernelModule(None, "/sys/module/nvidia, /proc/driver/nvidia", why)


def _read_gpus(host: Host) -> tuple[tuple[Gpu, ...], list[Finding]]:
    """Return the GPUs with a directory of the kernel driver, in PCI order, and a finding for each empty file.

    Excluded GPUs have no index. A GPU with an empty file keeps its index, so that later GPUs keep theirs. If exactly
    one GPU has no minor number, and exactly one /dev/nvidiaN belongs to no GPU, they belong together.
    """
    reported: list[tuple[str, kernel.GpuInformation, Optional[str]]] = []
    for address in sorted(host.dev.names(PROC_GPUS), key=lambda address: kernel.normalize_pci(address) or address):
        text = host.dev.read_text(f"{PROC_GPUS}/{address}/information")
        info = kernel.parse_gpu_information("" if isinstance(text, Missing) else text)
        if (info.model, info.uuid, info.minor, info.pci) != (None, None, None, None):
            reported.append((address, info, None))
        elif kernel.normalize_pci(address) is not None:
            why = str(text) if isinstance(text, Missing) else "it has none of the lines of a GPU"
            reported.append((address, info, why))
    minors = [info.minor for _, info, _ in reported]
    nodes = [GPU_NODE.fullmatch(name) for name in host.dev.names("/dev")]
    unclaimed = [int(node.group(1)) for node in nodes if node and int(node.group(1)) not in minors]
    sole_minor = unclaimed[0] if len(unclaimed) == 1 and minors.count(None) == 1 else None
    gpus: list[Gpu] = []
    findings: list[Finding] = []
    index = 0
    for address, info, fault in reported:
        pci = kernel.normalize_pci(info.pci or address)
        number = None if info.excluded else index
        index += not info.excluded
        minor = sole_minor if info.minor is None else info.minor
        render, mig = render_node(host, pci), _mig(host, minor)
        gpus.append(Gpu("nvidia", number, info.uuid, pci, minor, info.model, render, not info.excluded, mig))
        if fault is not None:
            findings.append(_unreadable(address, gpus[-1], fault))
    return tuple(gpus), findings


def _unreadable(address: str, gpu: Gpu, fault: str) -> Finding:
    file = f"{PROC_GPUS}/{address}/information"
    return finding(
        "gpu-unreadable",
        case="no-node" if gpu.minor is None else "node",
        subject=gpu.pci or address,
        where=f"{file}: {fault}",
        pci=gpu.pci,
        minor=gpu.minor,
        index=gpu.index,
        file=file,
    )


def _mig(host: Host, minor: Optional[int]) -> tuple[MigDevice, ...]:
    """Return the compute instances (`/proc/driver/nvidia/capabilities/gpuN/mig/giG/ciC`), without UUIDs."""
    base = f"{kernel.PROC_CAPABILITIES}/gpu{minor}/mig"
    instances = () if minor is None else host.dev.names(base)
    parts = ((gi, host.dev.names(f"{base}/gi{gi}")) for gi in _numbers("gi", instances))
    return tuple(MigDevice(gi, ci, None) for gi, names in parts for ci in _numbers("ci", names))


def _numbers(prefix: str, names: Iterable[str]) -> list[int]:
    matches = (re.fullmatch(rf"{prefix}([0-9]{{1,6}})", name) for name in names)
    return sorted(int(match.group(1)) for match in matches if match)


def access_file(minor: int, gi: int, ci: Optional[int]) -> str:
    """Return the path of the access file of a GPU instance, or of a compute instance in it."""
    return f"{kernel.PROC_CAPABILITIES}/gpu{minor}/mig/gi{gi}" + ("" if ci is None else f"/ci{ci}") + "/access"


def capability_name(file: str) -> str:
    """Return the name of the access file *file* in the table of minor numbers: `gpu0/gi1/ci0/access`."""
    return file[len(kernel.PROC_CAPABILITIES) + 1 :].replace("/mig/", "/")


def read_mig_nodes(host: Host, gpus: Iterable[Gpu]) -> tuple[MigNode, ...]:
    """Return the nodes that grant access to the MIG devices of *gpus*, where the driver reports their numbers.

    A device's own file takes precedence over the table of all devices.
    """
    dev = host.lenient.dev
    divided = [(gpu.minor, gpu.mig) for gpu in gpus if gpu.mig and gpu.minor is not None]
    minors = kernel.parse_mig_minors(dev.text(kernel.MIG_MINORS) or "") if divided else {}
    nodes: dict[ContainerPath, MigNode] = {}
    parts = [(minor, device.gi, ci) for minor, mig in divided for device in mig for ci in (None, device.ci)]
    for minor, gi, ci in parts:
        file = access_file(minor, gi, ci)
        own_number = kernel.parse_number(kernel.parse_fields(dev.text(file) or "").get("DeviceFileMinor", ""))
        number = minors.get(capability_name(file)) if own_number is None else own_number
        if number is not None:
            target = ContainerPath(f"/dev/nvidia-caps/nvidia-cap{number}")
            nodes.setdefault(target, MigNode(target, minor, gi, ci))
    return tuple(nodes.values())


def read_devices(host: Host, board: Optional[TegraBoard] = None) -> Devices:
    """Return NVIDIA's device nodes, GPUs and sockets; *board* if the host is a Jetson.

    Order: nodes by path with numbers as numbers; GPUs by PCI address. A node whose number differs from the kernel's is
    planned nevertheless, with a finding.
    """
    gpus, unreadable = _read_gpus(host)
    expected: Iterable[ExpectedNode] = _expected_nodes(host, gpus)
    if board is not None:
        from gpubind.inventory.nvidia import tegra  # few hosts are such boards

        gpus = gpus or tegra.integrated_gpu(host, board)
        expected = tegra.merge_board_nodes(board, expected, gpus)
        unreadable += [*board.findings, *tegra.missing_nodes(board, gpus)]
    devices = read_nodes(host, "nvidia", gpus, expected)
    sockets, decisions = partition_outcomes((*_sockets(host), *_storage_files(host)))
    return devices._replace(
        sockets=sockets,
        decisions=(*devices.decisions, *decisions, *(board.decisions if board else ())),
        findings=(*unreadable, *devices.findings),
    )


def restrict_to_source(devices: Devices, serving: SourceResult) -> Devices:
    """Return *devices* with only the GPUs of *serving* chosen, and without the nodes of others."""
    meant = serving.nodes or ()
    gpus = {node.gpu for node in devices.nodes if node.target in meant}
    instances = [path for path in meant if "/nvidia-caps/" in path]
    removed = [
        node
        for node in devices.nodes
        if (node.gpu is not None and node.gpu not in gpus)
        or (node.gpu is None and GPU_NODE.fullmatch(node.target[len("/dev/") :]) and node.target not in meant)
        or (instances and "/nvidia-caps/" in node.target and node.target not in instances)
    ]
    location, targets = serving.claims[0].location, [node.target for node in removed]
    claims = [Claim("device", path, serving.name, location) for path in targets]
    detail = f"not among the devices of {location}"
    left_out = (claim.decision("left-out", "not-chosen", detail, path=claim.name) for claim in claims)
    return devices._replace(
        gpus=tuple(gpu._replace(chosen=gpu.chosen and gpu.index in gpus) for gpu in devices.gpus),
        nodes=tuple(node for node in devices.nodes if node not in removed),
        decisions=(*devices.decisions, *left_out),
        findings=tuple(finding for finding in devices.findings if finding.subject not in targets),
    )


def mps_directory(host: Host) -> str:
    """Return the pipe directory of the caller's MPS server."""
    return host.variable(MPS_PIPE_DIRECTORY) or "/tmp/nvidia-mps"


def is_requested(host: Host, variable: str) -> bool:
    """Return whether the caller requests the devices of *variable*."""
    return host.variable(variable) == "enabled"


def requested_nodes(host: Host, variable: str) -> Iterator[ExpectedNode]:
    """Yield the existing nodes that *variable* requests."""
    for pattern, driver in GPUDIRECT_NODES[variable].items():
        yield from (ExpectedNode(path, (driver,), "compute", None) for path in glob(host.lenient.dev, pattern))


def _storage_files(host: Host) -> Iterator[Outcome]:
    for path in _STORAGE_FILES if is_requested(host, GDS_VARIABLE) else ():
        claim = Claim("file", path, "devices", GDS_VARIABLE, target=ContainerPath(path))
        resolved = host.lenient.driver.find(path)
        if isinstance(resolved, Missing):
            yield claim.absent(str(resolved), path)
            continue
        file = claim.to_file(host.driver, resolved, found_by=path, capability="compute")
        yield file._replace(options=READ_ONLY_OPTIONS) if isinstance(file, HostFile) else file


def _expected_nodes(host: Host, gpus: tuple[Gpu, ...]) -> Iterator[ExpectedNode]:
    by_node: dict[Optional[str], Optional[int]] = {gpu.node: gpu.index for gpu in gpus}
    every = host.dev.names("/dev")
    top = [name for name in every if name.startswith("nvidia")]
    if DXG.rpartition("/")[2] in every:
        yield ExpectedNode(DXG, (), None, None)
    names = [name for name in top if name not in _CAPABILITY_DIRECTORIES]
    for directory in _CAPABILITY_DIRECTORIES:
        if directory in top:
            names += [f"{directory}/{name}" for name in host.dev.names(f"/dev/{directory}")]
    for name in sorted(names, key=natural_sort_key):
        node_row = next((row for row in _NODES if re.fullmatch(row[0], name)), (None, (), None))
        path = f"/dev/{name}"
        yield ExpectedNode(path, node_row[1], node_row[2], by_node.get(path), _FIXED_MINORS.get(name))
    for gpu in gpus:
        yield from (ExpectedNode(path, DRM, "graphics", gpu.index) for path in drm_nodes(host, gpu.pci))
    for variable in GPUDIRECT_NODES:
        yield from requested_nodes(host, variable) if is_requested(host, variable) else ()


def _sockets(host: Host) -> Iterator[Outcome]:
    for name in _SOCKETS:
        claim = Claim("device", f"/run/{name}", "devices", "sockets", target=ContainerPath(f"/run/{name}"))
        places = (host.dev.find(f"{base}/{name}") for base in ("/run", "/var/run"))
        sockets = (at for at in places if isinstance(at, ResolvedFile) and at.stat.kind == "socket")
        socket = next(sockets, None)
        if socket is None:
            yield claim._replace(location="/run").absent("no such socket below /run or /var/run")
        else:
            yield claim.file(host.dev, socket, kind="socket", found_by=socket.path, capability="utility")
    directory = mps_directory(host)
    if not directory.startswith("/"):
        return
    claim = Claim("device", directory, "devices", "MPS", target=ContainerPath(directory))
    mps = host.dev.find(directory)
    if isinstance(mps, Missing) or mps.stat.kind != "dir":
        yield claim.absent("no MPS server has made it", directory)
    elif mps.stat.uid != host.identity.euid:
        detail = f"it belongs to uid {mps.stat.uid}: another user's MPS server"
        yield claim.decision("left-out", "not-yours", detail, path=directory)
    else:
        claim = claim._replace(location="sockets")
        yield claim.file(host.dev, mps, kind="directory", found_by=mps.path, capability="compute")
