"""NVIDIA's device nodes: missing ones, those of another device, and those of divided GPUs (MIG)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote
from typing import Any

from gpubind.formats.driver.gpu_names import CUDA_VISIBLE_DEVICES, SLURM_GPUS
from gpubind.formats.driver.kernel import PROC_CAPABILITIES, parse_fields
from gpubind.inventory.nodes import is_forbidden, is_seldom_used, read_majors
from gpubind.inventory.nvidia.devices import PROC_GPUS, access_file, capability_name, read_mig_nodes
from gpubind.model import DeviceNode, Finding, Gpu, Missing, finding, with_count
from gpubind.rules.preflight import Preflight, is_root_only

UVM = "/dev/nvidia-uvm"
CONTROL = "/dev/nvidiactl"
PARAMS = "/proc/driver/nvidia/params"


def control_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report a missing /dev/nvidiactl, which every program of the driver opens."""
    if preflight.has_linux_driver and CONTROL not in preflight.nodes:
        yield finding("control-node-missing", subject=CONTROL, where=CONTROL, **_wrong_kind_facts(preflight, CONTROL))


def uvm_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report a missing /dev/nvidia-uvm. Its module is loaded on demand; without the node, CUDA returns 999."""
    if preflight.has_linux_driver and preflight.wants("compute") and UVM not in preflight.nodes:
        yield finding("uvm-missing", subject=UVM, where=UVM, **_wrong_kind_facts(preflight, UVM))


def _wrong_kind_facts(preflight: Preflight, path: str) -> dict[str, Any]:
    """Return facts for a finding if *path* is not a device node: docker makes a directory where a node is missing."""
    about = (decision for decision in preflight.plan.decisions if decision.subject == path)
    wrong = next((decision for decision in about if decision.rule == "no-device"), None)
    return {"case": "no-node", "instead": wrong.detail or ""} if wrong is not None else {}


def uvm_not_loaded(preflight: Preflight) -> Iterator[Finding]:
    """Report a /dev/nvidia-uvm whose kernel module is not loaded: opening it fails with ENXIO.

    It was left from an earlier boot or made by hand.
    """
    numbers, _ = read_majors(preflight.host)
    node = preflight.nodes.get(UVM)
    if preflight.has_linux_driver and numbers and "nvidia-uvm" not in numbers and node is not None:
        where = f"{node.source} (major {node.major}), /proc/devices has no nvidia-uvm"
        yield finding("uvm-not-loaded", subject=UVM, where=where)


def gpu_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report each GPU that no process can open: its /dev/nvidiaN is missing, or belongs to another GPU."""
    if not preflight.has_linux_driver:
        return
    nodes = preflight.nodes
    gpu_nodes = [(gpu, gpu.node, nodes.get(gpu.node)) for gpu in preflight.gpus if gpu.node is not None]
    without = [(gpu, path, node) for gpu, path, node in gpu_nodes if node is None or node.minor != gpu.minor]
    for gpu, path, node in without:
        facts = {"case": "absent" if node is None else "of-another", **_wrong_kind_facts(preflight, path)}
        is_lost = len(without) == len(gpu_nodes) or facts["case"] != "absent" or _is_chosen_by_name(preflight, gpu)
        yield finding(
            "gpu-node-missing",
            subject=path,
            severity="error" if is_lost else "warning",
            where=f"{path}, {PROC_GPUS}/{gpu.pci}/information (Device Minor: {gpu.minor})",
            gpu=gpu,
            minor=node.minor if node is not None else None,
            **facts,
        )


def _is_chosen_by_name(preflight: Preflight, gpu: Gpu) -> bool:
    """Return whether the user or the scheduler chose *gpu*. Without any choice, some GPUs may be hidden on purpose."""
    usable = [each for each in preflight.plan.gpus if each.vendor == "nvidia" and each.index is not None]
    if preflight.plan.request.gpus is not None or not all(each.chosen for each in usable):
        return True
    job = next(filter(None, map(preflight.host.variable, SLURM_GPUS)), "")
    return str(gpu.minor) in job.split(",")


def device_permission(preflight: Preflight) -> Iterator[Finding]:
    """Report to root each node that only root may open. For other users, the inventory reports nodes that they may not
    open.
    """
    dev = preflight.host.dev
    for node in preflight.plan.devices if preflight.is_for_others else ():
        path = dev.rooted(node.source)
        stat = Missing("absent") if path is None else dev.lstat(path)
        # The nodes of managers are root's by design; most jobs do not need the nodes of graphics.
        is_graphics = node.capability == "graphics" and not preflight.wants_by_name("graphics")
        is_extra = is_graphics or is_seldom_used(node.target)
        if not isinstance(stat, Missing) and is_root_only(stat, 6) and not is_extra:
            yield finding(
                "device-permission",
                case="root-alone",
                severity="warning",
                vendor=node.vendor,
                subject=node.target,
                where=node.source,
                mode=node.mode,
                owner=node.group or f"gid {node.gid}",
            )


def device_file_mode(preflight: Preflight) -> Iterator[Finding]:
    """Report that the driver's parameters forbid its nodes to other users.

    A chmod of the nodes lasts only until nvidia-modprobe runs again. DeviceFileMode is decimal in
    /proc/driver/nvidia/params (438 is 0666). Source: NVIDIA driver README, chapter "Frequently Asked Questions", "How
    and when are the NVIDIA device files created?".
    """
    params = parse_fields(preflight.host.dev.text(PARAMS) or "")
    mode, gid = params.get("DeviceFileMode", ""), params.get("DeviceFileGID", "")
    if params.get("ModifyDeviceFiles") == "0" or not (_is_number(mode) and _is_number(gid)):
        return
    for node in preflight.plan.devices:
        is_made_so = node.major == 195 and (node.mode, node.gid) == (int(mode), int(gid))
        if is_made_so and node.access != "rw" and not _is_forbidden(preflight, node):
            where = f"{PARAMS} (DeviceFileMode: {mode}, DeviceFileGID: {gid})"
            yield finding("device-file-mode", subject=PARAMS, where=where, mode=int(mode), group=node.group or gid)
            return


def _is_forbidden(preflight: Preflight, node: DeviceNode) -> bool:
    """Return whether a device cgroup forbids *node*: schedulers forbid the GPUs of other jobs."""
    path = preflight.host.dev.rooted(node.source)
    return path is not None and is_forbidden(preflight.host, path, node.access)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def mig_node_missing(preflight: Preflight) -> Iterator[Finding]:
    """Report nodes of MIG devices in /dev/nvidia-caps that are missing or unreadable: CUDA does not see these MIG
    devices.

    Source: MIG User Guide, "Device Nodes and Capabilities"; libnvidia-container src/nvc_info.c.
    """
    host, gpus = preflight.host, preflight.gpus
    if not (preflight.has_linux_driver and preflight.wants("compute") and "nvidia-caps" in read_majors(host)[0]):
        return  # before 450.80, or by a module parameter, programs open the files of /proc instead
    nodes = preflight.nodes
    readable = {target for target, node in nodes.items() if "r" in node.access or _is_forbidden(preflight, node)}
    broken = [guard for guard in read_mig_nodes(host, gpus) if guard.target not in readable]
    devices = [(gpu.minor, device) for gpu in gpus for device in gpu.mig]
    is_lost = (any(guard.minor == minor and guard.guards(device) for guard in broken) for minor, device in devices)
    is_error = all(is_lost) and all(gpu.mig for gpu in gpus)
    for guard in broken:
        node = nodes.get(guard.target)
        file = access_file(guard.minor, guard.gi, guard.ci)
        yield finding(
            "mig-node-missing",
            subject=guard.target,
            case="absent" if node is None else "forbidden",
            severity="error" if is_error else "warning",
            where=f"{guard.target}, {file}",
            capability=capability_name(file),
            file=file,
            mode=node.mode if node is not None else None,
            source=quote(node.source) if node is not None else None,
        )


def mig_mode(preflight: Preflight) -> Iterator[Finding]:
    """Report GPUs that are divided into MIG devices, if CUDA_VISIBLE_DEVICES names no MIG device.

    CUDA then lists only the first MIG device, and no whole GPU. Source: MIG User Guide, "Running CUDA Applications on
    Bare-Metal", "CUDA Device Enumeration".
    """
    if not (preflight.has_linux_driver and preflight.wants("compute")):
        return
    yield from _mig_without_instance(preflight)
    gpus = preflight.gpus
    divided = [gpu for gpu in gpus if gpu.mig]
    # If the plan sets no value, the container gets that of the caller.
    callers = preflight.host.variable(CUDA_VISIBLE_DEVICES)
    values = {variable.name: variable.value or "" for variable in preflight.plan.env}
    if divided and "MIG-" not in values.get(CUDA_VISIBLE_DEVICES, callers):
        beside_whole = len(divided) < len(gpus)
        yield finding(
            "mig-mode",
            subject=", ".join(gpu.pci or "GPU" for gpu in divided),
            case="beside-whole" if beside_whole else None,
            severity="warning" if beside_whole else "note",
            where=", ".join(f"{PROC_CAPABILITIES}/gpu{gpu.minor}/mig" for gpu in divided),
            divided=len(divided),
            gpus=len(gpus),
            devices=with_count(sum(len(gpu.mig) for gpu in divided), "device"),
        )


def _mig_without_instance(preflight: Preflight) -> Iterator[Finding]:
    """Report a GPU in MIG mode whose GPU instances have no compute instance."""
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
