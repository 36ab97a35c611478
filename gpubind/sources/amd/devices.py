"""AMD's GPUs and device nodes, from the KFD topology, /sys/class/drm and /dev.

Source: ROCr `core/driver/kfd`, libhsakmt `topology.c`: GPUs in the order of their topology nodes, each opened by
/dev/dri/renderD<drm_render_minor>, all through the one /dev/kfd.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Optional

from gpubind.errors import FormatError
from gpubind.formats.kfd import gfx_of, parse_properties, pci_of, uuid_of
from gpubind.host import Host
from gpubind.model import Decision, DeviceNode, Finding, Gpu, Missing, RootedPath
from gpubind.sources.nodes import DRM, Wanted, drm_nodes, natural, read_nodes

TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
KFD = "/dev/kfd"
MODULE = "/sys/module/amdgpu"
PCI_DEVICES = "/sys/bus/pci/devices"
PCI_VENDOR = "0x1002"
DISPLAY_CLASSES = ("0x03", "0x12")
"""Display controllers, and processing accelerators: the MI300 family calls itself so."""


class AmdDevices(NamedTuple):
    """What /dev and /sys say of AMD's devices."""

    gpus: tuple[Gpu, ...]
    nodes: tuple[DeviceNode, ...]
    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]


class KfdNode(NamedTuple):
    """One GPU of the topology."""

    number: int
    properties: dict[str, int]
    name: Optional[str]


class Topology(NamedTuple):
    """The GPUs that KFD shows to this process, and what it keeps from it."""

    gpus: tuple[KfdNode, ...]
    hidden: tuple[str, ...]
    """Why a node could not be read: a cgroup, or a damaged text."""


def read_devices(host: Host) -> AmdDevices:
    """/dev/kfd, the render and card nodes of AMD's GPUs, and the GPUs. Order: KFD first, then by GPU."""
    gpus = tuple(_gpus(host, read_topology(host)))
    return AmdDevices(gpus, *read_nodes(host, "amd", _wanted(host, gpus)))


def read_topology(host: Host) -> Topology:
    """The GPUs of the KFD topology, by node number; a node with gpu_id 0 is a CPU."""
    names = host.dev.list(TOPOLOGY)
    gpus: list[KfdNode] = []
    hidden: list[str] = []
    for name in () if isinstance(names, Missing) else sorted(names, key=natural):
        base = f"{TOPOLOGY}/{name}"
        told = host.dev.read_text(f"{base}/gpu_id")
        if not re.fullmatch(r"[0-9]{1,6}", name) or (isinstance(told, str) and told.strip() == "0"):
            continue
        text = host.dev.read_text(f"{base}/properties")
        if isinstance(told, Missing) or isinstance(text, Missing):
            hidden.append(f"{base}: {told if isinstance(told, Missing) else text}")
            continue
        try:
            properties = parse_properties(text)
        except FormatError as error:
            hidden.append(f"{base}/properties: {error.place}: {error.why}")
            continue
        code = host.dev.read_text(f"{base}/name")
        gpus.append(KfdNode(int(name), properties, code.strip() or None if isinstance(code, str) else None))
    return Topology(tuple(gpus), tuple(hidden))


def has_kernel_side(host: Host) -> bool:
    """Whether the kernel has AMD's driver."""
    return not isinstance(host.dev.lstat(MODULE), Missing)


def pci_gpus(host: Host) -> tuple[str, ...]:
    """The PCI addresses of AMD's GPUs, driver or not, in order."""
    names = host.dev.list(PCI_DEVICES)
    found = []
    for address in () if isinstance(names, Missing) else names:
        vendor = host.dev.read_text(f"{PCI_DEVICES}/{address}/vendor") if _is_display(host, address) else ""
        if isinstance(vendor, str) and vendor.strip() == PCI_VENDOR:
            found.append(address)
    return tuple(found)


def _is_display(host: Host, address: str) -> bool:
    base = f"{PCI_DEVICES}/{address}"
    if isinstance(host.dev.lstat(f"{base}/drm"), Missing):
        return False  # no driver has it, or it is something else; and records tell no more of those
    kind = host.dev.read_text(f"{base}/class")
    return isinstance(kind, str) and kind.startswith(DISPLAY_CLASSES)


def _gpus(host: Host, topology: Topology) -> Iterator[Gpu]:
    """The index is ROCr's: it counts the GPUs of the topology. Without one, by PCI address."""
    for index, node in enumerate(topology.gpus):
        minor = node.properties.get("drm_render_minor") or None
        render = RootedPath(f"/dev/dri/renderD{minor}") if minor else None
        gfx = gfx_of(node.properties)
        model = f"{node.name} ({gfx})" if node.name and gfx else node.name or gfx
        yield Gpu("amd", index, uuid_of(node.properties), pci_of(node.properties), minor, model, render, True)
    if topology.gpus or topology.hidden:
        return
    for index, address in enumerate(pci_gpus(host)):
        render = next((RootedPath(path) for path in drm_nodes(host, address) if "/renderD" in path), None)
        minor = int(render.rpartition("renderD")[2]) if render else None
        yield Gpu("amd", index, None, address, minor, None, render, True)


def _wanted(host: Host, gpus: tuple[Gpu, ...]) -> Iterable[Wanted]:
    """The nodes that are there, each once; one that is missing is a rule's business."""
    wanted = {KFD: Wanted(KFD, ("kfd",), None, None)}
    for gpu in gpus:
        for path in gpu_nodes(host, gpu):
            wanted.setdefault(path, Wanted(path, DRM, None, gpu.index))
    return [node for path, node in wanted.items() if not isinstance(host.dev.lstat(path), Missing)]


def gpu_nodes(host: Host, gpu: Gpu) -> tuple[str, ...]:
    """The render node and the card node of *gpu*. Neither has a number that could be guessed from the other: a BMC's
    display counts as a card, and a partition of a GPU has a card of its own.
    """
    if gpu.render is None:
        return drm_nodes(host, gpu.pci)
    names = host.dev.list(f"/sys/class/drm/{gpu.render.rpartition('/')[2]}/device/drm")
    if isinstance(names, Missing):
        return (gpu.render, *(path for path in drm_nodes(host, gpu.pci) if "/card" in path))
    return (gpu.render, *(f"/dev/dri/{name}" for name in names if re.fullmatch(r"card[0-9]+", name)))
