"""NVIDIA's kernel driver in /proc and /sys: its version, its GPUs, and their MIG devices.

Sources: MIG User Guide, "Device Nodes and Capabilities"; libnvidia-container `src/nvc_info.c`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, Optional

from gpubind.errors import FormatError
from gpubind.formats.driver.gpu_names import CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES
from gpubind.formats.driver.procfs import (
    MIG_MINORS,
    PROC_CAPABILITIES,
    GpuInformation,
    normal_pci,
    parse_driver_version,
    parse_gpu_information,
    parse_mig_minors,
    parse_minor,
    parse_module_version,
    parse_params,
)
from gpubind.host import Host
from gpubind.inventory.nodes import render_node
from gpubind.model import ContainerPath, Finding, Gpu, MigDevice, MigNode, Missing, Request
from gpubind.model.findings import finding

MIG_VARIABLES = (CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES)
PROC_GPUS = "/proc/driver/nvidia/gpus"
GPU_NODE = re.compile(r"nvidia([0-9]+)")
"""The name of a GPU's node in /dev, with its minor number."""


class Kernel(NamedTuple):
    """The version of the kernel module."""

    version: Optional[str]
    where: str
    why: Optional[str]
    """Why there is no version."""


def read_kernel(host: Host) -> Kernel:
    """Return V of the loaded kernel module: /sys/module/nvidia/version, else /proc/driver/nvidia/version."""
    why = "no NVIDIA kernel module is loaded"
    for path, parse in (
        ("/sys/module/nvidia/version", parse_module_version),
        ("/proc/driver/nvidia/version", parse_driver_version),
    ):
        text = host.dev.read_text(path)
        if isinstance(text, Missing):
            if text.why != "absent":
                why = f"{path}: {text}"
            continue
        try:
            return Kernel(parse(text), path, None)
        except FormatError as error:
            why = f"{path}: {error.why}"
    return Kernel(None, "/sys/module/nvidia, /proc/driver/nvidia", why)


class ReportedGpu(NamedTuple):
    """The driver's file about one GPU."""

    address: str
    """The name of its directory."""
    info: GpuInformation
    why: Optional[str] = None
    """Why `info` is empty."""


def read_information(host: Host) -> tuple[ReportedGpu, ...]:
    """Return every GPU that the kernel driver has a directory for, in PCI order, even if its file cannot be read."""
    found = []
    for address in sorted(host.dev.names(PROC_GPUS), key=lambda address: normal_pci(address) or address):
        text = host.dev.read_text(f"{PROC_GPUS}/{address}/information")
        info = parse_gpu_information("" if isinstance(text, Missing) else text)
        if (info.model, info.uuid, info.minor, info.pci) != (None, None, None, None):
            found.append(ReportedGpu(address, info))
        elif normal_pci(address) is not None:
            why = str(text) if isinstance(text, Missing) else "it has none of the lines of a GPU"
            found.append(ReportedGpu(address, info, why))
    return tuple(found)


def gpus_of(host: Host, reported: tuple[ReportedGpu, ...]) -> tuple[Gpu, ...]:
    """Return the GPU of each in *reported*, in PCI order; excluded GPUs have no index.

    A GPU with an empty file keeps its place, or the index of those after it would be another GPU's. The only
    /dev/nvidiaN of no other GPU is the node of the only GPU without a minor number.
    """
    minors = [one.info.minor for one in reported]
    spare = [minor for minor in _minors_in_dev(host) if minor not in minors]
    only = spare[0] if len(spare) == 1 and minors.count(None) == 1 else None
    gpus: list[Gpu] = []
    index = 0
    for address, info, _ in reported:
        pci = normal_pci(info.pci or address)
        number = None if info.excluded else index
        index += not info.excluded
        minor = only if info.minor is None else info.minor
        render, mig = render_node(host, pci), _mig(host, minor)
        gpus.append(Gpu("nvidia", number, info.uuid, pci, minor, info.model, render, not info.excluded, mig))
    return tuple(gpus)


def _minors_in_dev(host: Host) -> list[int]:
    matches = [GPU_NODE.fullmatch(name) for name in host.dev.names("/dev")]
    return [int(match.group(1)) for match in matches if match]


def unreadable(reported: ReportedGpu, gpu: Gpu) -> Finding:
    """Return the finding about *gpu*, which the driver's file does not describe."""
    file = f"{PROC_GPUS}/{reported.address}/information"
    return finding(
        "gpu-unreadable",
        case="no-node" if gpu.minor is None else "node",
        subject=gpu.pci or reported.address,
        where=f"{file}: {reported.why}",
        pci=gpu.pci,
        minor=gpu.minor,
        index=gpu.index,
        file=file,
    )


def _mig(host: Host, minor: Optional[int]) -> tuple[MigDevice, ...]:
    """Return the compute instances below `/proc/driver/nvidia/capabilities/gpuN/mig/giG/ciC`, without UUIDs."""
    base = f"{PROC_CAPABILITIES}/gpu{minor}/mig"
    instances = () if minor is None else host.dev.names(base)
    return tuple(
        MigDevice(gi, ci, None)
        for gi in _numbers("gi", instances)
        for ci in _numbers("ci", host.dev.names(f"{base}/gi{gi}"))
    )


def _numbers(word: str, names: Iterable[str]) -> list[int]:
    """Return the numbers in those *names* that are *word* and a number, in order."""
    matches = (re.fullmatch(rf"{word}([0-9]{{1,6}})", name) for name in names)
    return sorted(int(match.group(1)) for match in matches if match)


def access_file(minor: int, gi: int, ci: Optional[int]) -> str:
    """Return the file that describes the right to use a GPU instance, or a compute instance in it."""
    return f"{PROC_CAPABILITIES}/gpu{minor}/mig/gi{gi}" + ("" if ci is None else f"/ci{ci}") + "/access"


def capability_of(file: str) -> str:
    """Return the right that *file* describes, as the table of all spells it: `gpu0/gi1/ci0/access`."""
    return file[len(PROC_CAPABILITIES) + 1 :].replace("/mig/", "/")


def read_mig_nodes(host: Host, gpus: Iterable[Gpu]) -> tuple[MigNode, ...]:
    """Return the nodes that guard the parts of *gpus*, where the driver reports their numbers.

    A part's own file takes precedence over the table of all.
    """
    dev = host.lenient.dev
    divided = [(gpu.minor, gpu.mig) for gpu in gpus if gpu.mig and gpu.minor is not None]
    minors = parse_mig_minors(dev.text(MIG_MINORS) or "") if divided else {}
    nodes: dict[ContainerPath, MigNode] = {}
    parts = [(minor, device.gi, ci) for minor, mig in divided for device in mig for ci in (None, device.ci)]
    for minor, gi, ci in parts:
        file = access_file(minor, gi, ci)
        own = parse_minor(parse_params(dev.text(file) or "").get("DeviceFileMinor", ""))
        number = minors.get(capability_of(file)) if own is None else own
        if number is not None:
            target = ContainerPath(f"/dev/nvidia-caps/nvidia-cap{number}")
            nodes.setdefault(target, MigNode(target, minor, gi, ci))
    return tuple(nodes.values())


def mig_values(host: Host, request: Request) -> tuple[str, ...]:
    """Return what of *request*, or of the environment, may name MIG devices."""
    values = (request.gpus,) if request.gpus is not None else (host.variable(name) for name in MIG_VARIABLES)
    return tuple(value for value in values if ":" in value or "MIG-" in value.upper())
