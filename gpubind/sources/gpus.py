"""The GPUs that the NVIDIA driver knows, from /proc and /sys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Optional

from gpubind.formats.procfs import GpuInformation, normal_pci, parse_gpu_information
from gpubind.host import Host
from gpubind.model import Finding, Gpu, MigDevice, Missing, RootedPath
from gpubind.sources.mig import PROC_CAPABILITIES

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
        "gpu-unreadable",
        "warning",
        "nvidia",
        gpu.pci or told.address,
        f"the driver's file about the GPU at {gpu.pci} tells nothing: {node}",
        f"{PROC_GPUS}/{told.address}/information: {told.why}",
        f"it keeps its index, {gpu.index}; its UUID, model and minor number are unknown",
        "see who hides a part of /proc (a container, a sandbox), or look for the GPU in the kernel's log",
        f"cat {PROC_GPUS}/{told.address}/information; dmesg | grep -i nvrm",
    )


def drm_nodes(host: Host, pci: Optional[str]) -> tuple[str, ...]:
    """`/dev/dri/card*` and `renderD*` of the GPU at *pci*: from sysfs, else from udev's by-path links."""
    if pci is None:
        return ()
    names = host.dev.list(f"/sys/bus/pci/devices/{pci}/drm")
    if not isinstance(names, Missing):
        return tuple(f"/dev/dri/{name}" for name in names if re.fullmatch(r"(card|renderD)[0-9]+", name))
    nodes = []
    for end in ("card", "render"):
        path = host.dev.resolve(f"/dev/dri/by-path/pci-{pci}-{end}")
        if not isinstance(path, Missing) and re.fullmatch(r"/dev/dri/(card|renderD)[0-9]+", path):
            nodes.append(path)
    return tuple(nodes)


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
