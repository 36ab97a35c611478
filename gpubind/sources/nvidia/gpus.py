"""The GPUs that the NVIDIA driver knows, from /proc and /sys; of those that MIG divides, the parts and their nodes.

Sources: MIG User Guide, "Device Nodes and Capabilities"; libnvidia-container `src/nvc_info.c`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Optional

from gpubind.errors import NotRecordedError
from gpubind.formats.procfs import GpuInformation, normal_pci, parse_gpu_information, parse_params
from gpubind.host import Host
from gpubind.model import ContainerPath, Finding, Gpu, MigDevice, MigNode, Missing, Request, RootedPath
from gpubind.sources.nodes import drm_nodes

PROC_CAPABILITIES = "/proc/driver/nvidia/capabilities"
MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"
MIG_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
PROC_GPUS = "/proc/driver/nvidia/gpus"
GPU_NODE = re.compile(r"nvidia([0-9]+)")
"""The name of a GPU's node in /dev, with its minor number."""


class Told(NamedTuple):
    """What the driver tells of one GPU."""

    address: str
    """The name of its directory."""
    info: GpuInformation
    why: Optional[str] = None
    """Why that is nothing."""


def _information(host: Host) -> Iterator[Told]:
    addresses = host.dev.list(PROC_GPUS)
    for address in () if isinstance(addresses, Missing) else sorted(addresses, key=lambda a: normal_pci(a) or a):
        text = host.dev.read_text(f"{PROC_GPUS}/{address}/information")
        info = parse_gpu_information("" if isinstance(text, Missing) else text)
        is_silent = (info.model, info.uuid, info.minor, info.pci) == (None, None, None, None)
        if not is_silent:
            yield Told(address, info)
        elif normal_pci(address) is not None:
            yield Told(address, info, str(text) if isinstance(text, Missing) else "it has none of the lines of a GPU")


def read_information(host: Host) -> tuple[Told, ...]:
    """Every GPU that the kernel driver has a directory for, in PCI order, whether or not its file can be read."""
    return tuple(_information(host))


def gpus_of(host: Host, told: tuple[Told, ...]) -> tuple[Gpu, ...]:
    """The GPUs, in PCI order; the index counts those that are not excluded.

    A GPU whose file tells nothing keeps its place, or the index of those after it would be another GPU's. The only
    /dev/nvidiaN that is nobody else's is the node of the only GPU without a minor number.
    """
    minors = [one.info.minor for one in told]
    spare = [minor for minor in _minors_in_dev(host) if minor not in minors]
    only = spare[0] if len(spare) == 1 and minors.count(None) == 1 else None
    gpus: list[Gpu] = []
    index = 0
    for address, info, _ in told:
        pci = normal_pci(info.pci or address)
        render = next((RootedPath(n) for n in drm_nodes(host, pci) if "/renderD" in n), None)
        number = None if info.excluded else index
        index += not info.excluded
        minor = only if info.minor is None else info.minor
        mig = _mig(host, minor)
        gpus.append(Gpu("nvidia", number, info.uuid, pci, minor, info.model, render, not info.excluded, mig))
    return tuple(gpus)


def _minors_in_dev(host: Host) -> list[int]:
    names = host.dev.list("/dev")
    matches = [GPU_NODE.fullmatch(name) for name in (() if isinstance(names, Missing) else names)]
    return [int(match.group(1)) for match in matches if match]


def unreadable(told: Told, gpus: tuple[Gpu, ...]) -> Finding:
    gpu = next(gpu for gpu in gpus if gpu.pci == normal_pci(told.address))
    node = "its device node cannot be told" if gpu.minor is None else f"its node is taken to be /dev/nvidia{gpu.minor}"
    return Finding(
        code="gpu-unreadable",
        severity="warning",
        vendor="nvidia",
        subject=gpu.pci or told.address,
        what=f"the driver's file about the GPU at {gpu.pci} tells nothing: {node}",
        where=f"{PROC_GPUS}/{told.address}/information: {told.why}",
        why=f"it keeps its index, {gpu.index}; its UUID, model and minor number are unknown",
        hint="see who hides a part of /proc (a container, a sandbox), or look for the GPU in the kernel's log",
        command=f"cat {PROC_GPUS}/{told.address}/information; dmesg | grep -i nvrm",
    )


def _mig(host: Host, minor: Optional[int]) -> tuple[MigDevice, ...]:
    """The compute instances below `/proc/driver/nvidia/capabilities/gpuN/mig/giG/ciC`; their UUIDs are not on disk."""
    if minor is None:
        return ()
    base = f"{PROC_CAPABILITIES}/gpu{minor}/mig"
    instances = host.dev.list(base)
    found = []
    for gi in () if isinstance(instances, Missing) else instances:
        if re.fullmatch(r"gi[0-9]{1,6}", gi):
            below = host.dev.list(f"{base}/{gi}")
            for ci in () if isinstance(below, Missing) else below:
                if re.fullmatch(r"ci[0-9]{1,6}", ci):
                    found.append(MigDevice(int(gi[2:]), int(ci[2:]), None))
    return tuple(sorted(found, key=lambda device: (device.gi, device.ci)))


def access_file(minor: Optional[int], gi: int, ci: Optional[int]) -> str:
    """The file that describes the right to use a GPU instance, or a compute instance in it."""
    return f"{PROC_CAPABILITIES}/gpu{minor}/mig/gi{gi}" + ("" if ci is None else f"/ci{ci}") + "/access"


def read_minors(host: Host) -> dict[str, int]:
    """mig-minors, `gpu0/gi1/ci0/access 13` a line, as capability -> minor of its node."""
    found = {}
    for line in _text(host, MIG_MINORS).split("\n"):
        name, _, number = line.strip().partition(" ")
        if number.isascii() and number.isdigit() and len(number) < 10:
            found[name] = int(number)
    return found


def access_minor(host: Host, minors: dict[str, int], minor: Optional[int], gi: int, ci: Optional[int]) -> Optional[int]:
    """The minor of the node that guards a part; its own file counts, the table of all stands in for it."""
    file = access_file(minor, gi, ci)
    told = parse_params(_text(host, file)).get("DeviceFileMinor", "")
    if told.isascii() and told.isdigit() and len(told) < 10:
        return int(told)
    name = file[len(PROC_CAPABILITIES) + 1 :].replace("/mig/", "/")
    return minors.get(name)


def read_mig_nodes(host: Host, gpus: Iterable[Gpu]) -> tuple[MigNode, ...]:
    """The nodes that guard the parts of *gpus*, as far as the driver tells their numbers."""
    divided = [gpu for gpu in gpus if gpu.mig]
    minors = read_minors(host) if divided else {}
    nodes: dict[ContainerPath, MigNode] = {}
    for gpu in divided:
        for device in gpu.mig:
            for ci in (None, device.ci):
                number = access_minor(host, minors, gpu.minor, device.gi, ci)
                if number is not None and gpu.minor is not None:
                    target = ContainerPath(f"/dev/nvidia-caps/nvidia-cap{number}")
                    nodes.setdefault(target, MigNode(target, gpu.minor, device.gi, ci))
    return tuple(nodes.values())


def mig_values(host: Host, request: Request) -> tuple[str, ...]:
    """What of *request*, or of the environment, may name MIG devices."""
    values = (request.gpus,) if request.gpus is not None else (host.environ.get(name, "") for name in MIG_VARIABLES)
    return tuple(value for value in values if ":" in value or "MIG-" in value.upper())


def _text(host: Host, path: str) -> str:
    """A small file's text; empty if it is not there, or outside what an older record covers."""
    try:
        text = host.dev.read_text(path)
    except NotRecordedError:
        return ""
    return "" if isinstance(text, Missing) else text
