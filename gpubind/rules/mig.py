"""GPUs that are divided (MIG): the nodes that their parts need, and what CUDA makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote
from typing import NamedTuple, Optional

from gpubind.formats.gpu_variables import CUDA_VISIBLE_DEVICES as CUDA
from gpubind.model import DeviceNode, Finding, Gpu, MigDevice
from gpubind.rules.looking import counted, gpus_in_use, is_linux_driver, is_wanted, majors, names_in
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
    host, plan = preflight.host, preflight.plan
    if not (is_linux_driver(plan) and is_wanted(plan, "compute") and "nvidia-caps" in majors(host)):
        return  # before 450.80, or by a module parameter, the files of /proc are opened instead
    nodes: dict[str, DeviceNode] = {node.target: node for node in plan.devices}
    minors = read_minors(host)
    broken: dict[str, _Access] = {}
    lost: set[tuple[Optional[str], MigDevice]] = set()
    accesses = [access for gpu in gpus_in_use(plan) for device in gpu.mig for access in _accesses(gpu, device)]
    for access in accesses:
        minor = access_minor(host, minors, access.gpu.minor, access.device.gi, access.ci)
        path = f"/dev/nvidia-caps/nvidia-cap{minor}"
        if minor is not None and not _is_readable(nodes.get(path)):
            broken.setdefault(path, access)
            lost.add((access.gpu.pci, access.device))
    all_lost = len(lost) == len({(access.gpu.pci, access.device) for access in accesses})
    whole = any(not gpu.mig for gpu in gpus_in_use(plan))
    for path, access in broken.items():
        node = nodes.get(path)
        yield Finding(
            "mig-node-missing",
            "error" if all_lost and not whole else "warning",
            "nvidia",
            path,
            f"the node for {access.capability} is missing"
            if node is None
            else f"this user may not read the node for {access.capability} (mode {node.mode:04o})",
            f"{path}, {access.file}",
            "CUDA does not list this MIG device; if it is the only one: CUDA_ERROR_NO_DEVICE (100). nvidia-smi -L "
            "shows the GPU without it",
            "make the node on the host, as root"
            if node is None
            else "let the group or all read it: DeviceFileMode of that file; as root",
            f"nvidia-modprobe -f {access.file}" if node is None else f"chmod a+r {quote(node.source)}",
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
    plan = preflight.plan
    if not (is_linux_driver(plan) and is_wanted(plan, "compute")):
        return
    yield from _mig_without_instance(preflight)
    divided = [gpu for gpu in gpus_in_use(plan) if gpu.mig]
    # What the plan sets counts; where it sets nothing, the caller's own value comes into the container.
    values = [variable.value or "" for variable in plan.env if variable.name == CUDA]
    named = "MIG-" in (values[0] if values else preflight.host.environ.get(CUDA, ""))
    if divided and not named:
        whole = [gpu for gpu in gpus_in_use(plan) if not gpu.mig]
        count = sum(len(gpu.mig) for gpu in divided)
        yield Finding(
            "mig-mode",
            "warning" if whole else "note",
            "nvidia",
            ", ".join(gpu.pci or "GPU" for gpu in divided),
            f"{len(divided)} of {len(divided) + len(whole)} GPUs are divided (MIG) into {counted(count, 'device')}; a "
            "CUDA process lists one of those, and no whole GPU",
            ", ".join(f"{PROC_CAPABILITIES}/gpu{gpu.minor}/mig" for gpu in divided),
            "without a name CUDA takes the first MIG device; a divided GPU's number or UUID does not mean all of it",
            "name the device that is meant: CUDA_VISIBLE_DEVICES=MIG-<UUID>; the whole GPUs are listed again when "
            "CUDA_VISIBLE_DEVICES names only them"
            if whole
            else "name the device that is meant: CUDA_VISIBLE_DEVICES=MIG-<UUID>",
            "nvidia-smi -L",
        )


def _mig_without_instance(preflight: Preflight) -> Iterator[Finding]:
    """A GPU in MIG mode with GPU instances, but nothing in them that could compute."""
    gpus = gpus_in_use(preflight.plan)
    for gpu in gpus:
        base = f"{PROC_CAPABILITIES}/gpu{gpu.minor}/mig"
        instances = [name for name in names_in(preflight.host.dev, base) if re.fullmatch(r"gi[0-9]+", name)]
        if instances and not gpu.mig:
            yield Finding(
                "mig-mode",
                "warning" if len(gpus) > 1 else "error",
                "nvidia",
                gpu.pci or "GPU",
                f"the GPU at {gpu.pci} is in MIG mode, and has no compute instance",
                f"{base} ({', '.join(instances)})",
                "CUDA finds nothing on it; if it is the only GPU: CUDA_ERROR_NO_DEVICE (100)",
                "make compute instances in its GPU instances, or leave MIG mode, as root",
                f"nvidia-smi mig -i {gpu.pci} -cci",
            )
