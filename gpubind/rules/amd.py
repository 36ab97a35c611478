"""AMD's devices and variables: what makes a GPU vanish without a word.

Source: ROCr `core/driver/kfd` and libhsakmt `topology.c` (a node whose render device cannot be opened is dropped);
ROCm documentation, "GPU isolation techniques".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from gpubind.errors import NotRecordedError
from gpubind.host.base import CUDA, HIP, ROCR
from gpubind.model import Finding, Gpu, Inventory, Plan
from gpubind.rules.looking import counted, is_absent
from gpubind.rules.preflight import Preflight
from gpubind.sources.amd.devices import KFD, TOPOLOGY, Topology, read_topology

NO_GPU = "hipErrorNoDevice (100), HSA finds no GPU agent"


def kfd_missing(preflight: Preflight) -> Iterator[Finding]:
    """The kernel has the GPUs, and /dev lacks the node through which all of them are used."""
    topology = _topology(preflight)
    if topology is not None and topology.gpus and is_absent(preflight.host.dev, KFD):
        yield Finding(
            "kfd-missing",
            "error",
            "amd",
            KFD,
            f"{KFD} is missing, though the kernel has {counted(len(topology.gpus), 'GPU')}",
            f"{KFD}, {TOPOLOGY}",
            f"HSA_STATUS_ERROR_OUT_OF_RESOURCES (0x1008); {NO_GPU}",
            "let udev make it anew, as root; in a container, it must be bound from its host",
            "udevadm trigger --action=add --subsystem-match=kfd",
        )


def kfd_hidden(preflight: Preflight) -> Iterator[Finding]:
    """KFD does not let this process read a node: a device cgroup forbids its render device, as schedulers do."""
    topology = _topology(preflight)
    if topology is not None and topology.hidden:
        number = len(topology.hidden)
        yield Finding(
            "kfd-hidden",
            "warning",
            "amd",
            TOPOLOGY,
            f"{counted(number, 'node')} of the KFD topology cannot be read; GPUs there are not in the plan",
            "; ".join(topology.hidden),
            "the kernel hides a GPU whose render node a device cgroup forbids; the indices of the others move up",
            "ask the scheduler for those GPUs; without a scheduler, see who has made the cgroup",
            "cat /proc/self/cgroup",
        )


def amd_render_missing(preflight: Preflight) -> Iterator[Finding]:
    """A GPU of the topology without the render node by which ROCr opens it: it is dropped without a word."""
    for gpu in _gpus(preflight.plan):
        if gpu.render is None or is_absent(preflight.host.dev, gpu.render):
            node = gpu.render or "its render node"
            yield Finding(
                "amd-render-missing",
                "error",
                "amd",
                gpu.uuid or gpu.pci or f"GPU {gpu.index}",
                f"GPU {gpu.index} has no {node}: ROCm drops it, and the indices of those after it move up",
                f"{gpu.render or '/dev/dri/renderD*'}, {TOPOLOGY} (drm_render_minor)",
                NO_GPU,
                "let udev make the node anew, as root; in a container, /dev/dri must be bound from its host",
                "udevadm trigger --action=add --subsystem-match=drm",
            )


def amd_groups(preflight: Preflight) -> Iterator[Finding]:
    """A runtime that gives a container other groups than its caller's, and nodes that a group alone may use."""
    limits = preflight.limits
    if not limits.drops_groups:
        return
    nodes = [node for node in preflight.plan.devices if node.vendor == "amd" and node.mode & 0o006 != 0o006]
    groups = sorted({(node.gid, node.group or f"gid {node.gid}") for node in nodes if node.gid})
    if groups:
        names = " and ".join(name for _, name in groups)
        options = [limits.keep_groups] if limits.keep_groups else [str(gid) for gid, _ in groups]
        yield Finding(
            "amd-groups",
            "note",
            "amd",
            "groups",
            f"AMD's nodes are for group {names}, and {preflight.backend} does not keep its caller's groups",
            ", ".join(node.target for node in nodes),
            f"opening them fails with EACCES unless the container runs as root: {NO_GPU}",
            "let the container keep the groups (crun), or give it them by number",
            f"{preflight.backend} run " + " ".join(f"--group-add {option}" for option in options) + " ...",
        )


def hip_visible_composed(preflight: Preflight) -> Iterator[Finding]:
    """HIP counts among what ROCr leaves it, from 0 again: both variables with the host's numbers are a common trap."""
    environ, gpus = preflight.host.environ, _gpus(preflight.plan)
    name = HIP if HIP in environ else CUDA
    planned = next((planned for planned in preflight.plan.drivers if planned.driver.vendor == "amd"), None)
    if ROCR not in environ or name not in environ or not gpus or planned is None:
        return
    if preflight.plan.request.gpus is not None:
        return  # --gpus says both anew
    from gpubind.gpus.lists import GpuList, read_list  # only where somebody sets both

    inventory = Inventory(
        planned.driver, planned.source, searched=(), files=(), devices=(), gpus=gpus, decisions=(), findings=()
    )
    rocr = read_list(GpuList(ROCR, inventory, environ), gpus, certain=True)
    left = [chosen.gpu for chosen in rocr.chosen]
    hip = read_list(GpuList(HIP, inventory, {HIP: environ[name]}), left, certain=True)
    if rocr.doubt or hip.doubt:
        return
    chosen = [one.gpu for one in hip.chosen]
    mapping = (
        ", ".join(f"HIP's {number} is GPU {_spelled(gpu)}" for number, gpu in enumerate(chosen)) or "HIP sees none"
    )
    yield Finding(
        "hip-visible-composed",
        "note" if chosen else "warning",
        "amd",
        name,
        f"{name} counts within {ROCR}: {mapping}",
        f"the environment: {ROCR}={environ[ROCR]} {name}={environ[name]}",
        "ROCr hides GPUs first, and HIP numbers what is left from 0",
        f"set one of them alone: {ROCR} works for all of ROCm",
        f"unset {name}",
    )


def _spelled(gpu: Gpu) -> str:
    return f"{gpu.index}" + (f" ({gpu.uuid})" if gpu.uuid else f" ({gpu.render})" if gpu.render else "")


def _gpus(plan: Plan) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in plan.gpus if gpu.vendor == "amd" and gpu.index is not None)


def _topology(preflight: Preflight) -> Optional[Topology]:
    if not any(planned.driver.vendor == "amd" for planned in preflight.plan.drivers):
        return None
    try:
        return read_topology(preflight.host)
    except NotRecordedError:
        return None
