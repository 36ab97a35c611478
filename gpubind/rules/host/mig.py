"""Divided GPUs (MIG): the nodes of their devices, and how CUDA lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote
from typing import Optional

from gpubind.formats.driver.gpu_names import CUDA_VISIBLE_DEVICES
from gpubind.formats.driver.procfs import PROC_CAPABILITIES
from gpubind.inventory.nodes import read_majors
from gpubind.inventory.nvidia.gpus import access_file, capability_of, read_mig_nodes
from gpubind.model import DeviceNode, Finding
from gpubind.model.findings import counted, finding
from gpubind.rules.preflight import Preflight


def mig_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """Yield MIG devices whose nodes in /dev/nvidia-caps are missing or unreadable: CUDA does not see them.

    Source: MIG User Guide, "Device Nodes and Capabilities"; libnvidia-container src/nvc_info.c.
    """
    host, gpus = preflight.host, preflight.gpus
    if not (preflight.has_linux_driver and preflight.wants("compute") and "nvidia-caps" in read_majors(host)[0]):
        return  # before 450.80, or by a module parameter, the files of /proc are opened instead
    nodes = preflight.nodes
    broken = [guard for guard in read_mig_nodes(host, gpus) if not _is_readable(nodes.get(guard.target))]
    is_lost = [
        any(guard.minor == gpu.minor and guard.guards(device) for guard in broken) for gpu in gpus for device in gpu.mig
    ]
    whole = any(not gpu.mig for gpu in gpus)
    for guard in broken:
        node = nodes.get(guard.target)
        file = access_file(guard.minor, guard.gi, guard.ci)
        yield finding(
            "mig-node-missing",
            subject=guard.target,
            case="absent" if node is None else "forbidden",
            severity="error" if all(is_lost) and not whole else "warning",
            where=f"{guard.target}, {file}",
            capability=capability_of(file),
            file=file,
            mode=node.mode if node is not None else None,
            source=quote(node.source) if node is not None else None,
        )


def _is_readable(node: Optional[DeviceNode]) -> bool:
    return node is not None and "r" in node.access


def mig_mode(preflight: Preflight) -> Iterator[Finding]:
    """Yield divided GPUs: CUDA lists only the first MIG device, and then no whole GPU.

    Source: MIG User Guide, "Running CUDA Applications on Bare-Metal", "CUDA Device Enumeration".
    """
    if not (preflight.has_linux_driver and preflight.wants("compute")):
        return
    yield from _mig_without_instance(preflight)
    gpus = preflight.gpus
    divided = [gpu for gpu in gpus if gpu.mig]
    # If the plan sets nothing, the caller's value is passed to the container.
    values = [variable.value or "" for variable in preflight.plan.env if variable.name == CUDA_VISIBLE_DEVICES]
    named = "MIG-" in (values[0] if values else preflight.host.variable(CUDA_VISIBLE_DEVICES))
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
    """Yield a GPU in MIG mode with GPU instances, but nothing in them that could compute."""
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
