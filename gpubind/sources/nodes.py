"""Device nodes, of whatever vendor: their facts, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, Optional, Union

from gpubind.errors import FormatError
from gpubind.formats.procfs import parse_devices
from gpubind.host import Host
from gpubind.model import (
    Capability,
    ContainerPath,
    Decision,
    DeviceNode,
    DriverKind,
    Finding,
    Missing,
    Severity,
    Stat,
    Vendor,
)
from gpubind.sources.claims import Claim

DRM = ("drm",)
_MAKES_NODES: dict[Vendor, str] = {"nvidia": "nvidia-modprobe -u -c=0", "amd": "udevadm trigger --action=add"}


class Wanted(NamedTuple):
    """A node that a vendor's driver has, or should have."""

    path: str
    drivers: tuple[str, ...]
    """The names in /proc/devices of those whose major number it may have."""
    capability: Optional[Capability]
    gpu: Optional[int]


class Nodes(NamedTuple):
    """Nodes by path, what became of the others, and what is wrong."""

    nodes: tuple[DeviceNode, ...]
    decisions: tuple[Decision, ...]
    findings: tuple[Finding, ...]


def read_nodes(host: Host, vendor: Vendor, wanted: Iterable[Wanted]) -> Nodes:
    """Those of *wanted* that are there, in their order. A node whose number is not what the kernel says now is a
    finding, and is planned all the same.
    """
    groups = read_groups(host)
    majors, findings = _read_majors(host, vendor)
    decisions: list[Decision] = []
    nodes: dict[str, DeviceNode] = {}
    for path, drivers, capability, gpu in wanted:
        node = look_at_node(host, path, path, groups, vendor)
        if isinstance(node, NoNode):
            claim = Claim("device", path, "devices", "/dev", vendor)
            decisions.append(claim.decision(verdict="rejected", rule=node.rule, path=path, detail=node.detail))
            continue
        nodes[path] = node = node._replace(gpu=gpu, capability=capability)
        findings += [*_number_finding(node, drivers, majors), *_permission_finding(node)]
    return Nodes(tuple(nodes.values()), tuple(decisions), tuple(findings))


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


def _read_majors(host: Host, vendor: Vendor) -> tuple[Optional[dict[str, int]], list[Finding]]:
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
        finding = Finding(
            code="bad-procfs",
            severity="warning",
            vendor=vendor,
            subject="/proc/devices",
            what=what,
            where=where,
            why=error.why,
            hint=hint,
        )
        return None, [finding]


def _number_finding(node: DeviceNode, drivers: tuple[str, ...], majors: Optional[dict[str, int]]) -> list[Finding]:
    if majors is None or not drivers:
        return []
    wanted = {majors[driver] for driver in drivers if driver in majors}
    if not wanted or node.major in wanted:  # a driver that is not loaded is another finding
        return []
    number = " or ".join(str(major) for major in sorted(wanted))
    return [
        Finding(
            code="device-number",
            severity="error",
            vendor=node.vendor,
            subject=node.target,
            what=f"{node.target} has major number {node.major}, the kernel says {number}",
            where=f"{node.source}, /proc/devices ({drivers[0]})",
            why="the node is left from an earlier boot or driver; opening it fails with ENXIO or reaches another driver"
            + (" (CUDA_ERROR_UNKNOWN, 999)" if node.vendor == "nvidia" else ""),
            hint="remove the node and let the driver make it anew, as root",
            command=f"rm {node.source} && " + _MAKES_NODES[node.vendor],
        )
    ]


def _permission_finding(node: DeviceNode) -> list[Finding]:
    if node.access == "rw" or (node.access == "r" and "/nvidia-caps/" in node.target):
        return []
    owner = node.group or f"gid {node.gid}"
    # MIG's management nodes are root's by design; a render node matters to graphics only.
    needed = node.gpu is not None or node.target in ("/dev/nvidiactl", "/dev/nvidia-uvm")
    severity: Severity = (
        "error" if needed and "/dri/" not in node.target else "note" if "caps" in node.target else "warning"
    )
    why = "opening it fails with EACCES; the container has no more rights than its user"
    if node.vendor == "amd":  # compute goes through /dev/kfd and the render nodes; ROCr drops a GPU without a word
        severity = "warning" if "/card" in node.target else "error"
        why += "; ROCm then says that there is no GPU (hipErrorNoDevice, 100)"
    return [
        Finding(
            code="device-permission",
            severity=severity,
            vendor=node.vendor,
            subject=node.target,
            what=f"this user may not use {node.target} (mode {node.mode:04o}, group {owner})",
            where=node.source,
            why=why,
            hint=f"become a member of group `{owner}`" if node.mode & 0o060 == 0o060 else "ask the administrator",
        )
    ]


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


def driver_kind(host: Host) -> DriverKind:
    """`wsl` where /dev/dxg stands for the driver, `tegra` on Jetson, else `linux`."""
    if not isinstance(host.dev.lstat("/dev/dxg"), Missing):
        return "wsl"
    if not isinstance(host.dev.lstat("/etc/nv_tegra_release"), Missing):
        return "tegra"
    return "linux"


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key: digits as numbers, so that nvidia10 comes after nvidia9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]
