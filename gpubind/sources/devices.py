"""Device nodes and sockets of the NVIDIA driver, from /dev and /proc."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Optional, Union

from gpubind.errors import FormatError
from gpubind.formats.procfs import parse_devices
from gpubind.host import Host
from gpubind.model import (
    Capability,
    ContainerPath,
    Decision,
    DeviceNode,
    Finding,
    Gpu,
    HostFile,
    Missing,
    RootedPath,
    Stat,
    Vendor,
)
from gpubind.sources.claims import Claim, Serving
from gpubind.sources.gpus import GPU_NODE, drm_nodes, gpus_of, read_information, unreadable

CAPABILITY_DIRECTORIES = ("nvidia-caps", "nvidia-caps-imex-channels")

# Names of /dev/nvidia*: the driver whose major they must have (its name in /proc/devices), and what needs them.
# Source: libnvidia-container src/nvc_info.c; open-gpu-kernel-modules nvidia-modprobe-utils.h.
_NODES: tuple[tuple[re.Pattern[str], tuple[str, ...], Optional[Capability]], ...] = (
    (re.compile(r"nvidia[0-9]+|nvidiactl"), ("nvidia", "nvidia-frontend", "nvidiactl"), None),
    (re.compile(r"nvidia-modeset"), ("nvidia-modeset", "nvidia", "nvidia-frontend"), "graphics"),
    (re.compile(r"nvidia-uvm(-tools)?"), ("nvidia-uvm",), "compute"),
    (re.compile(r"nvidia-caps/nvidia-cap[0-9]+"), ("nvidia-caps",), "compute"),
    (re.compile(r"nvidia-caps-imex-channels/channel[0-9]+"), ("nvidia-caps-imex-channels",), "compute"),
    (re.compile(r"nvidia-nvswitch(ctl|[0-9]+)"), ("nvidia-nvswitch",), "utility"),
    (re.compile(r"nvidia-nvlink"), ("nvidia-nvlink",), "utility"),
    (re.compile(r"nvidia-fs[0-9]*"), ("nvidia-fs",), "compute"),
)
DRM = ("drm",)

_MAKES_NODES: dict[Vendor, str] = {"nvidia": "nvidia-modprobe -u -c=0", "amd": "udevadm trigger --action=add"}

SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
MPS_DIRECTORY = "/tmp/nvidia-mps"


class Devices(NamedTuple):
    """What /dev, /proc and /sys say of the vendor's devices."""

    gpus: tuple[Gpu, ...]
    nodes: tuple[DeviceNode, ...]
    sockets: tuple[HostFile, ...]
    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]


def read_devices(host: Host) -> Devices:
    """Every NVIDIA device node with its facts, the GPUs behind them, and the driver's sockets.

    Order: nodes by path with numbers as numbers; GPUs by PCI address. A node whose number is not what the kernel says
    now is a finding, and is planned all the same.
    """
    told = read_information(host)
    gpus = gpus_of(host, told)
    groups = read_groups(host)
    majors, findings = read_majors(host)
    findings += [unreadable(one, gpus) for one in told if one.why is not None]
    decisions: list[Decision] = []
    nodes: list[DeviceNode] = []
    for name, number_names, capability in _node_names(host):
        path = f"/dev/{name}"
        node = device_node(host, path, capability, _gpu_of(name, gpus), groups, decisions)
        if node is not None:
            nodes.append(node)
            findings += number_finding(node, number_names, majors)
    for gpu in gpus:
        for path in drm_nodes(host, gpu.pci):
            node = device_node(host, path, "graphics", gpu.index, groups, decisions)
            if node is not None:
                nodes.append(node)
                findings += number_finding(node, DRM, majors)
    findings += [finding for node in nodes for finding in permission_finding(node)]
    sockets = tuple(_sockets(host, decisions))
    unique = tuple({node.target: node for node in nodes}.values())
    return Devices(gpus, unique, sockets, tuple(decisions), tuple(findings))


def only(devices: Devices, serving: Serving) -> Devices:
    """*devices*, without GPUs and their nodes that *serving* does not mean."""
    wanted = serving.nodes or ()
    gpus = {node.gpu for node in devices.nodes if node.target in wanted}
    instances = [path for path in wanted if "/nvidia-caps/" in path]
    out = [
        node
        for node in devices.nodes
        if (node.gpu is not None and node.gpu not in gpus)
        or (node.gpu is None and GPU_NODE.fullmatch(node.target[len("/dev/") :]) and node.target not in wanted)
        or (instances and "/nvidia-caps/" in node.target and node.target not in instances)
    ]
    at, targets = serving.claims[0].at, [node.target for node in out]
    left_out = [
        Claim("device", path, serving.name, at).decision(
            verdict="left-out", rule="not-chosen", path=path, detail=f"not among the devices of {at}"
        )
        for path in targets
    ]
    return devices._replace(
        gpus=tuple(gpu._replace(chosen=gpu.chosen and gpu.index in gpus) for gpu in devices.gpus),
        nodes=tuple(node for node in devices.nodes if node not in out),
        decisions=(*devices.decisions, *left_out),
        findings=tuple(finding for finding in devices.findings if finding.subject not in targets),
    )


def hidden_gpus(host: Host, devices: Devices) -> tuple[int, ...]:
    """The indexes of the GPUs that this process cannot open, and that CUDA does not count in it.

    Their nodes are missing, or their mode or a device cgroup forbids them.

    Where no GPU has a node, nothing has asked the driver for them yet. A GPU whose node is unknown is none of these.
    """
    nodes = {node.target: node for node in devices.nodes}
    known = [
        (gpu, nodes.get(ContainerPath(f"/dev/nvidia{gpu.minor}"))) for gpu in devices.gpus if gpu.minor is not None
    ]
    if all(node is None for _, node in known):
        return ()
    return tuple(
        gpu.index
        for gpu, node in known
        if gpu.index is not None and (node is None or node.access != "rw" or not host.may_open(node.source))
    )


def is_confined(devices: Devices, hidden: tuple[int, ...]) -> bool:
    """Whether numbers count other GPUs for this process than for the whole host: some are hidden, and some are left."""
    return 0 < len(hidden) < sum(1 for gpu in devices.gpus if gpu.index is not None)


def _node_names(host: Host) -> Iterator[tuple[str, tuple[str, ...], Optional[Capability]]]:
    """Names below /dev that are NVIDIA's, with the drivers they may belong to and the capability that needs them."""
    top = host.dev.list("/dev")
    names = [] if isinstance(top, Missing) else [name for name in top if name.startswith("nvidia")]
    for directory in CAPABILITY_DIRECTORIES:
        if directory in names:
            names.remove(directory)
            below = host.dev.list(f"/dev/{directory}")
            names += [] if isinstance(below, Missing) else [f"{directory}/{name}" for name in below]
    for name in sorted(names, key=natural):
        for pattern, drivers, capability in _NODES:
            if pattern.fullmatch(name):
                yield name, drivers, capability
                break
        else:
            yield name, (), None


def device_node(
    host: Host,
    path: str,
    capability: Optional[Capability],
    gpu: Optional[int],
    groups: dict[int, str],
    decisions: list[Decision],
    vendor: Vendor = "nvidia",
) -> Optional[DeviceNode]:
    """The node at *path* with its facts; None, with a Decision, if there is none."""
    node = look_at_node(host, path, path, groups, vendor)
    if isinstance(node, NoNode):
        decisions.append(
            Decision(vendor, path, "rejected", node.rule, "search", "devices", "/dev", path, None, None, node.detail)
        )
        return None
    return node._replace(gpu=gpu, capability=capability)


class NoNode(NamedTuple):
    """Why there is no device node at a path."""

    rule: str
    detail: str


def look_at_node(
    host: Host, path: str, target: str, groups: dict[int, str], vendor: Vendor
) -> Union[DeviceNode, NoNode]:
    """The node at *path*, which a container shall have as *target*; of no GPU and for no capability yet."""
    real = host.dev.resolve(path)
    found = real if isinstance(real, Missing) else host.dev.stat(real)
    if isinstance(real, Missing) or isinstance(found, Missing):
        return NoNode("dangling", str(found))
    if found.kind not in ("char", "block"):
        return NoNode("no-device", f"a {found.kind}, not a device node")
    return DeviceNode(
        vendor=vendor,
        source=host.dev.real(real),
        target=ContainerPath(target),
        type="c" if found.kind == "char" else "b",
        major=found.major,
        minor=found.minor,
        mode=found.mode,
        uid=found.uid,
        gid=found.gid,
        group=groups.get(found.gid),
        access=access_to(host, found),
        gpu=None,
        capability=None,
    )


def read_groups(host: Host) -> dict[int, str]:
    """The names of the groups in the dev root's /etc/group, by number; the first of a number counts."""
    text = host.dev.read_text("/etc/group")
    names: dict[int, str] = {}
    for line in () if isinstance(text, Missing) else text.split("\n"):
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isascii() and fields[2].isdigit() and len(fields[2]) < 11:
            names.setdefault(int(fields[2]), fields[0])
    return names


def access_to(host: Host, found: Stat) -> str:
    """What the caller may do with a node, by its mode, owner and group: `rw`, `r`, `w` or `none`."""
    if host.identity.euid == 0:
        return "rw"
    if found.uid == host.identity.euid:
        bits = found.mode >> 6
    elif found.gid in host.identity.groups:
        bits = found.mode >> 3
    else:
        bits = found.mode
    return ("r" if bits & 4 else "") + ("w" if bits & 2 else "") or "none"


def _gpu_of(name: str, gpus: tuple[Gpu, ...]) -> Optional[int]:
    match = GPU_NODE.fullmatch(name)
    if match is None:
        return None
    return next((gpu.index for gpu in gpus if gpu.minor == int(match.group(1))), None)


def read_majors(host: Host) -> tuple[Optional[dict[str, int]], list[Finding]]:
    """/proc/devices as name -> major (None if it cannot be read), and what is wrong with it."""
    text = host.dev.read_text("/proc/devices")
    if isinstance(text, Missing):
        return None, []
    try:
        return dict(parse_devices(text)), []
    except FormatError as error:
        what = "the kernel's device numbers cannot be read"
        where = f"/proc/devices: {error.place}"
        hint = "see what stands there; a container or sandbox may show another /proc than the kernel's"
        return None, [Finding("bad-procfs", "warning", "nvidia", "/proc/devices", what, where, error.why, hint)]


def number_finding(node: DeviceNode, drivers: tuple[str, ...], majors: Optional[dict[str, int]]) -> list[Finding]:
    if majors is None or not drivers:
        return []
    wanted = {majors[driver] for driver in drivers if driver in majors}
    if not wanted or node.major in wanted:  # a driver that is not loaded is another finding
        return []
    number = " or ".join(str(major) for major in sorted(wanted))
    return [
        Finding(
            "device-number",
            "error",
            node.vendor,
            node.target,
            f"{node.target} has major number {node.major}, the kernel says {number}",
            f"{node.source}, /proc/devices ({drivers[0]})",
            "the node is left from an earlier boot or driver; opening it fails with ENXIO or reaches another driver"
            + (" (CUDA_ERROR_UNKNOWN, 999)" if node.vendor == "nvidia" else ""),
            "remove the node and let the driver make it anew, as root",
            f"rm {node.source} && " + _MAKES_NODES[node.vendor],
        )
    ]


def permission_finding(node: DeviceNode) -> list[Finding]:
    if node.access == "rw" or (node.access == "r" and "/nvidia-caps/" in node.target):
        return []
    owner = node.group or f"gid {node.gid}"
    # MIG's management nodes are root's by design; a render node matters to graphics only.
    needed = node.gpu is not None or node.target in ("/dev/nvidiactl", "/dev/nvidia-uvm")
    severity = "error" if needed and "/dri/" not in node.target else "note" if "caps" in node.target else "warning"
    why = "opening it fails with EACCES; the container has no more rights than its user"
    if node.vendor == "amd":  # compute goes through /dev/kfd and the render nodes; ROCr drops a GPU without a word
        severity = "warning" if "/card" in node.target else "error"
        why += "; ROCm then says that there is no GPU (hipErrorNoDevice, 100)"
    return [
        Finding(
            "device-permission",
            severity,  # type: ignore[arg-type]
            node.vendor,
            node.target,
            f"this user may not use {node.target} (mode {node.mode:04o}, group {owner})",
            node.source,
            why,
            f"become a member of group `{owner}`" if node.mode & 0o060 == 0o060 else "ask the administrator",
        )
    ]


def _sockets(host: Host, decisions: list[Decision]) -> Iterator[HostFile]:
    """The driver's sockets below /run, and the MPS directory when it is the caller's own."""
    for name in SOCKETS:
        for base in ("/run", "/var/run"):
            real = host.dev.resolve(f"{base}/{name}")
            found = real if isinstance(real, Missing) else host.dev.stat(real)
            if isinstance(real, Missing) or isinstance(found, Missing) or found.kind != "socket":
                continue
            yield _socket(host, real, f"/run/{name}", "utility", "socket")
            break
        else:
            detail = "no such socket below /run or /var/run"
            decisions.append(
                Decision(
                    "nvidia",
                    f"/run/{name}",
                    "absent",
                    "no-match",
                    "search",
                    "devices",
                    "/run",
                    None,
                    None,
                    None,
                    detail,
                )
            )
    directory = host.environ.get("CUDA_MPS_PIPE_DIRECTORY") or MPS_DIRECTORY
    if not directory.startswith("/"):
        return
    real = host.dev.resolve(directory)
    found = real if isinstance(real, Missing) else host.dev.stat(real)
    if isinstance(real, Missing) or isinstance(found, Missing) or found.kind != "dir":
        verdict, rule, detail = "absent", "no-match", "no MPS server has made it"
    elif found.uid != host.identity.euid:
        verdict, rule, detail = "left-out", "not-yours", f"it belongs to uid {found.uid}: another user's MPS server"
    else:
        yield _socket(host, real, directory, "compute", "directory")
        return
    decisions.append(
        Decision("nvidia", directory, verdict, rule, "search", "devices", "MPS", directory, None, None, detail)  # type: ignore[arg-type]
    )


def _socket(host: Host, real: RootedPath, target: str, capability: Capability, kind: str) -> HostFile:
    return HostFile(
        vendor="nvidia",
        kind=kind,  # type: ignore[arg-type]
        path=real,
        names=(),
        target=ContainerPath(target),
        arch=None,
        soname=None,
        version=None,
        capability=capability,
        size=0,
        source=host.dev.real(real),
        named_by="devices",
        named_at="sockets",
        found_by=real,
    )


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key: digits as numbers, so that nvidia10 comes after nvidia9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]
