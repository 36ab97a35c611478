"""GPUs that are divided (MIG): the nodes that their parts need, and what CUDA makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote
from typing import NamedTuple, Optional

from gpubind.findings import counted, finding
from gpubind.formats.gpu_variables import CUDA_VISIBLE_DEVICES
from gpubind.model import DeviceNode, Finding, Gpu, MigDevice
from gpubind.rules.nodes import majors
from gpubind.rules.preflight import Preflight
from gpubind.sources.nvidia.gpus import PROC_CAPABILITIES, access_file, access_minor, read_minors


class _Access(NamedTuple):
    """What opening a part of a GPU takes: a node for the GPU instance, and one for the compute instance."""

    gpu: Gpu
    device: MigDevice
    ci: Optional[int]
    """None: the right to the GPU instance itself."""
    capability: str
    """`gpu0/gi1/ci0/access`, as mig-minors spells it."""
    file: str
    """The same below /proc/driver/nvidia/capabilities, with what the driver makes of it."""


def mig_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """A part of a GPU whose nodes in /dev/nvidia-caps are missing, or may not be read: CUDA does not see it.

    Source: MIG User Guide, "Device Nodes and Capabilities"; libnvidia-container src/nvc_info.c.
    """
    host, gpus = preflight.host, preflight.gpus
    if not (preflight.has_linux_driver and preflight.wants("compute") and "nvidia-caps" in majors(host)):
        return  # before 450.80, or by a module parameter, the files of /proc are opened instead
    nodes: dict[str, DeviceNode] = {node.target: node for node in preflight.plan.devices}
    minors = read_minors(host)
    broken: dict[str, _Access] = {}
    lost: set[tuple[Optional[str], MigDevice]] = set()
    accesses = [access for gpu in gpus for device in gpu.mig for access in _accesses(gpu, device)]
    for access in accesses:
        minor = access_minor(host, minors, access.gpu.minor, access.device.gi, access.ci)
        path = f"/dev/nvidia-caps/nvidia-cap{minor}"
        if minor is not None and not _is_readable(nodes.get(path)):
            broken.setdefault(path, access)
            lost.add((access.gpu.pci, access.device))
    all_lost = len(lost) == len({(access.gpu.pci, access.device) for access in accesses})
    whole = any(not gpu.mig for gpu in gpus)
    for path, access in broken.items():
        node = nodes.get(path)
        yield finding(
            "mig-node-missing",
            subject=path,
            case="absent" if node is None else "forbidden",
            severity="error" if all_lost and not whole else "warning",
            where=f"{path}, {access.file}",
            capability=access.capability,
            file=access.file,
            mode=node.mode if node is not None else None,
            source=quote(node.source) if node is not None else None,
        )


def _accesses(gpu: Gpu, device: MigDevice) -> tuple[_Access, _Access]:
    gi, ci = f"gi{device.gi}", f"gi{device.gi}/ci{device.ci}"
    return (
        _Access(gpu, device, None, f"gpu{gpu.minor}/{gi}/access", access_file(gpu.minor, device.gi, None)),
        _Access(gpu, device, device.ci, f"gpu{gpu.minor}/{ci}/access", access_file(gpu.minor, device.gi, device.ci)),
    )


def _is_readable(node: Optional[DeviceNode]) -> bool:
    return node is not None and "r" in node.access


def mig_mode(preflight: Preflight) -> Iterator[Finding]:
    """What CUDA makes of divided GPUs: of all parts it lists the first alone, and then no whole GPU beside it.

    Source: MIG User Guide, "Running CUDA Applications on Bare-Metal", "CUDA Device Enumeration".
    """
    if not (preflight.has_linux_driver and preflight.wants("compute")):
        return
    yield from _mig_without_instance(preflight)
    gpus = preflight.gpus
    divided = [gpu for gpu in gpus if gpu.mig]
    # What the plan sets counts; where it sets nothing, the caller's own value comes into the container.
    values = [variable.value or "" for variable in preflight.plan.env if variable.name == CUDA_VISIBLE_DEVICES]
    named = "MIG-" in (values[0] if values else preflight.host.environ.get(CUDA_VISIBLE_DEVICES, ""))
    if divided and not named:
        beside_whole = len(divided) < len(gpus)
        yield finding(
            "mig-mode",
            subject=", ".join(gpu.pci or "GPU" for gpu in divided),
            case="beside-whole" if beside_whole else None,
            severity="warning" if beside_whole else "note",
            where=", ".join(f"{PROC_CAPABILITIES}/gpu{gpu.minor}/mig" for gpu in divided),
            divided=len(divided),
            gpus=len(gpus),
            devices=counted(sum(len(gpu.mig) for gpu in divided), "device"),
        )


def _mig_without_instance(preflight: Preflight) -> Iterator[Finding]:
    """A GPU in MIG mode with GPU instances, but nothing in them that could compute."""
    gpus = preflight.gpus
    for gpu in gpus:
        base = f"{PROC_CAPABILITIES}/gpu{gpu.minor}/mig"
        instances = [name for name in preflight.host.dev.names(base) if re.fullmatch(r"gi[0-9]+", name)]
        if instances and not gpu.mig:
            yield finding(
                "mig-mode",
                subject=gpu.pci or "GPU",
                case="without-instance",
                severity="warning" if len(gpus) > 1 else "error",
                where=f"{base} ({', '.join(instances)})",
                pci=gpu.pci,
            )
