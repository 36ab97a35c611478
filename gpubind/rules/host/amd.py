"""AMD's devices and variables: reasons why ROCm drops a GPU without a message.

Source: ROCr `core/driver/kfd` and libhsakmt `topology.c` (a node whose render device cannot be opened is dropped);
ROCm documentation, "GPU isolation techniques".
"""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.formats.driver.gpu_names import CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES
from gpubind.formats.driver.mknod import node_command
from gpubind.inventory.amd.devices import DRIVER, KFD, TOPOLOGY, Topology, read_topology
from gpubind.inventory.nodes import pci_driver
from gpubind.model import Finding, Gpu, Inventory, Plan, Severity, finding, with_count
from gpubind.rules.preflight import Preflight, lost_groups


def kfd_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report that the host has GPUs of AMD, but KFD or its device node is missing: programs use all GPUs through it."""
    gpus, dev, where = _topology(preflight).gpus, preflight.host.dev, f"{KFD}, {TOPOLOGY}"
    if not dev.lacks(KFD):
        return
    # Graphics and the GPUs of other vendors work without KFD.
    has_others = any(gpu.vendor != "amd" for gpu in preflight.plan.gpus)
    severity: Severity = "warning" if has_others or not preflight.wants("compute") else "error"
    if gpus:
        remake, number = node_command(KFD, {}), with_count(len(gpus), "GPU")
        yield finding("kfd-missing", subject=KFD, severity=severity, where=where, gpus=number, remake=remake)
        return
    driven = [gpu for gpu in _gpus(preflight.plan) if gpu.pci and pci_driver(preflight.host, gpu.pci) == DRIVER]
    if driven and dev.lacks(TOPOLOGY):
        number = with_count(len(driven), "GPU")
        yield finding("kfd-missing", subject=KFD, case="no-kfd", severity=severity, where=where, gpus=number)


def kfd_hidden(preflight: Preflight) -> Iterator[Finding]:
    """Report GPUs that KFD hides from this process: a device cgroup, often a scheduler's, forbids their render devices.

    GPUs whose files in the topology are damaged are reported in another case.
    """
    for case in ("forbidden", "damaged"):
        nodes = [node for node in _topology(preflight).hidden if node.is_forbidden == (case == "forbidden")]
        if nodes:
            where, number = "; ".join(node.why for node in nodes), with_count(len(nodes), "node")
            yield finding("kfd-hidden", subject=TOPOLOGY, case=case, where=where, nodes=number)


def amd_render_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report each GPU of the topology without the render node by which ROCr opens it: ROCr drops such a GPU
    silently.
    """
    for gpu in _gpus(preflight.plan):
        if gpu.render is None or preflight.host.dev.lacks(gpu.render):
            yield finding(
                "amd-render-missing",
                case="told" if gpu.render else "untold",
                subject=gpu.uuid or gpu.pci or f"GPU {gpu.index}",
                where=f"{gpu.render or '/dev/dri/renderD*'}, {TOPOLOGY} (drm_render_minor)",
                index=gpu.index,
                node=gpu.render,
                remake=node_command(gpu.render, {}) if gpu.render else None,
            )


def amd_groups(preflight: Preflight) -> Iterator[Finding]:
    """Report a runtime that drops the caller's groups although only a group may use the nodes of AMD's GPUs."""
    yield from lost_groups(preflight, "amd-groups", "amd")


def hip_visible_composed(preflight: Preflight) -> Iterator[Finding]:
    """Report that two variables choose GPUs one after the other: ROCR_VISIBLE_DEVICES, then the variable of HIP.

    HIP numbers the GPUs that ROCr shows from 0, so the numbers in its variable are not those of the host.
    """
    environ, gpus = preflight.host.environ, _gpus(preflight.plan)
    name = HIP_VISIBLE_DEVICES if HIP_VISIBLE_DEVICES in environ else CUDA_VISIBLE_DEVICES
    planned = next((planned for planned in preflight.plan.drivers if planned.driver.vendor == "amd"), None)
    if ROCR_VISIBLE_DEVICES not in environ or name not in environ or not gpus or planned is None:
        return
    if preflight.plan.request.gpus is not None:
        return  # --gpus sets both
    from gpubind.planner.gpus.environment import GpuList, read_list  # only if both are set

    inventory = Inventory(planned.driver, planned.source, gpus=gpus)
    rocr = read_list(GpuList(ROCR_VISIBLE_DEVICES, inventory, environ), gpus, certain=True)
    visible_gpus = [chosen.gpu for chosen in rocr.chosen]
    hip_list = GpuList(HIP_VISIBLE_DEVICES, inventory, {HIP_VISIBLE_DEVICES: environ[name]})
    hip = read_list(hip_list, visible_gpus, certain=True)
    if rocr.ambiguity or hip.ambiguity:
        return
    gpu_ids = ((gpu.index, gpu.uuid or gpu.render) for gpu, _ in hip.chosen)
    names = [f"{index} ({gpu_id})" if gpu_id else f"{index}" for index, gpu_id in gpu_ids]
    yield finding(
        "hip-visible-composed",
        subject=name,
        case=None if hip.chosen else "none",
        severity="note" if hip.chosen else "warning",
        where=f"the environment: {ROCR_VISIBLE_DEVICES}={environ[ROCR_VISIBLE_DEVICES]} {name}={environ[name]}",
        mapping=", ".join(f"HIP's {number} is GPU {name}" for number, name in enumerate(names)),
    )


def _gpus(plan: Plan) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in plan.gpus if gpu.vendor == "amd" and gpu.index is not None)


def _topology(preflight: Preflight) -> Topology:
    return read_topology(preflight.host) if "amd" in preflight.vendors else Topology((), ())
