"""Device nodes of all vendors, and findings about them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Optional, Union

from gpubind.errors import FormatError
from gpubind.formats.driver.kernel import MIG_MINORS, parse_devices, parse_groups, parse_mig_minors
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.inventory.claims import Claim
from gpubind.model import Capability, Decision, DeviceNode, DriverKind, Gpu, HostFile, Vendor
from gpubind.model.files import ABSENT, NOUNS, ContainerPath, Missing, RootedPath
from gpubind.model.findings import active_cases, finding
from gpubind.model.host import Finding, Severity
from gpubind.model.layouts import DXG, TEGRA_CONTROL, TEGRA_RELEASE, WSL_LIBRARIES

DRM = ("drm",)
_SOC_FAMILY = "/sys/devices/soc0/family"
NVIDIA_MODULE = "/sys/module/nvidia"
PCI_DEVICES = "/sys/bus/pci/devices"
NVIDIA_PCI_CLASS = ("0x10de", ("0x03",))
"""The PCI vendor, and the PCI classes of its GPUs."""
_CUDA_NODES = re.compile(rf"/dev/(nvidiactl|nvidia-uvm|dxg|nvmap)|{TEGRA_CONTROL}")
"""The nodes without which CUDA finds no GPU. Other nodes that CUDA uses on a Jetson belong to the same group of
users.
"""


class ExpectedNode(NamedTuple):
    """A node that a vendor's driver has, or should have."""

    path: str
    drivers: tuple[str, ...]
    """Names in /proc/devices: its major number must be that of one of these drivers."""
    capability: Optional[Capability]
    gpu: Optional[int]
    minor: Optional[int] = None
    """Its minor number, where that is fixed."""


class Devices(NamedTuple):
    """A vendor's devices, from /dev, /proc and /sys."""

    gpus: tuple[Gpu, ...]
    nodes: tuple[DeviceNode, ...]
    decisions: tuple[Decision, ...]
    """The Decisions about devices that are not taken."""
    findings: tuple[Finding, ...]
    sockets: tuple[HostFile, ...] = ()
    forbidden: tuple[str, ...] = ()
    """Nodes that the kernel forbids to this process although their mode and access control list allow them."""


def read_nodes(host: Host, vendor: Vendor, gpus: tuple[Gpu, ...], expected: Iterable[ExpectedNode]) -> Devices:
    """Return *gpus*, and the existing ones of the *expected* nodes, in their order.

    A node whose number differs from the kernel's is planned nevertheless, with a finding.
    """
    groups = read_groups(host)
    majors, findings = read_majors(host, vendor)
    decisions: list[Decision] = []
    nodes: dict[str, DeviceNode] = {}
    forbidden: list[str] = []
    for path, drivers, capability, gpu, minor in expected:
        node = read_node(host, Claim("device", path, "devices", "/dev", vendor), path, groups)
        if isinstance(node, Decision):
            decisions.append(node)
            continue
        nodes[path] = node = node._replace(gpu=gpu, capability=capability)
        findings += _number_finding(host, node, drivers, majors, minor)
        if is_forbidden(host, RootedPath(path), node.access):
            forbidden.append(node.target)
            # A scheduler rightly forbids the GPUs of other jobs: planner/gpus/selection.py reports chosen ones.
            if gpu is not None or "/nvidia-caps" in path:
                continue
        by_group = _is_group_accessible(host, RootedPath(path))
        findings += _permission_finding(node, by_group=by_group, is_forbidden=node.target in forbidden)
    return Devices(gpus, tuple(nodes.values()), tuple(decisions), tuple(findings), forbidden=tuple(forbidden))


def _is_group_accessible(host: Host, path: RootedPath) -> bool:
    stat = host.dev.stat(path)
    if isinstance(stat, Missing):
        return False
    return any((tag, number) == ("group", stat.gid) and bits & 6 == 6 for tag, number, bits in stat.rights())


def is_forbidden(host: Host, path: RootedPath, access: str) -> bool:
    """Return whether the kernel allows less at *path*, namely *access*, than the mode and the access control list
    do.
    """
    resolved = host.dev.find(path)
    granted = "none" if isinstance(resolved, Missing) else host.granted(resolved.stat)
    return any(right in granted and right not in access for right in "rw")


def read_node(host: Host, claim: Claim, source: str, groups: dict[int, str]) -> Union[DeviceNode, Decision]:
    """Return the node at *source* with the name of *claim*; the caller adds the GPU and the capability."""
    resolved = host.dev.find(source)
    if isinstance(resolved, Missing):
        return claim.unreadable(resolved, source)
    facts = resolved.stat
    if facts.kind not in ("char", "block"):
        return claim.rejected("no-device", f"{NOUNS[facts.kind]}, not a device node", source)
    return DeviceNode(
        vendor=claim.vendor,
        source=host.dev.real(resolved.path),
        target=ContainerPath(claim.name),
        type="c" if facts.kind == "char" else "b",
        major=facts.major,
        minor=facts.minor,
        mode=facts.mode,
        uid=facts.uid,
        gid=facts.gid,
        group=groups.get(facts.gid),
        access=host.access(resolved),
        gpu=None,
        capability=None,
    )


def read_groups(host: Host) -> dict[int, str]:
    """Return the group names in the dev root's /etc/group, by number."""
    return parse_groups(host.dev.text("/etc/group") or "")


def hidden_gpus(devices: Devices) -> tuple[int, ...]:
    """Return the indexes of the GPUs that this process cannot open, so that the vendor's library skips them.

    Their nodes are missing, or their mode or a device cgroup forbids them. If no GPU has a node, none is hidden: the
    first program creates them. A GPU whose node is unknown is not hidden.
    """
    nodes = {node.target: node for node in devices.nodes}
    found = [(gpu.index, nodes.get(ContainerPath(gpu.node))) for gpu in devices.gpus if gpu.node is not None]
    if all(node is None for _, node in found):
        return ()
    return tuple(index for index, node in found if index is not None and (node is None or node.access != "rw"))


def hides_some(devices: Devices) -> bool:
    """Return whether this process can open some, but not all GPUs."""
    return 0 < len(hidden_gpus(devices)) < sum(1 for gpu in devices.gpus if gpu.index is not None)


def inventory_fields(devices: Devices, every: Devices) -> dict[str, Any]:
    """Return the fields of an `Inventory` about its *devices*; *every* includes devices that were not chosen."""
    return {
        "devices": devices.nodes,
        "gpus": devices.gpus,
        "hides_gpus": hides_some(devices),
        "hidden_gpu_indexes": hidden_gpus(every),
        "forbidden": every.forbidden,
    }


def read_majors(host: Host, vendor: Vendor = "nvidia") -> tuple[dict[str, set[int]], list[Finding]]:
    """Return /proc/devices as name -> majors (empty if it cannot be read or parsed), and the findings about it.

    A driver may have several majors: `infiniband_verbs` has a fixed and a dynamic one (uverbs_main.c).
    """
    majors: dict[str, set[int]] = {}
    try:
        for name, major in parse_devices(host.dev.text("/proc/devices") or ""):
            majors.setdefault(name, set()).add(major)
    except FormatError as error:
        where = f"/proc/devices: {error.place}"
        return {}, [finding("bad-procfs", subject="/proc/devices", vendor=vendor, where=where, why=error.why)]
    return majors, []


def _number_finding(
    host: Host, node: DeviceNode, drivers: tuple[str, ...], majors: dict[str, set[int]], minor: Optional[int]
) -> Iterator[Finding]:
    expected = sorted({major for driver in drivers for major in majors.get(driver, ())})
    # A driver that is not loaded is another finding.
    is_anothers = bool(expected) and node.major not in expected
    if not is_anothers and minor in (None, node.minor):
        return
    from gpubind.formats.driver.mknod import node_command  # few hosts have such a node

    yield finding(
        "device-number",
        case=("nvidia" if node.vendor == "nvidia" else "other", *(() if is_anothers else ("minor",))),
        vendor=node.vendor,
        subject=node.target,
        where=f"{node.source}, /proc/devices ({drivers[0]})" if is_anothers else node.source,
        has=node.major if is_anothers else node.minor,
        number=" or ".join(map(str, expected)) if is_anothers else minor,
        remake=node_command(node.target, parse_mig_minors(host.lenient.dev.text(MIG_MINORS) or "")),
    )


def _permission_finding(node: DeviceNode, *, by_group: bool, is_forbidden: bool) -> Iterator[Finding]:
    if node.access == "rw" or (node.access == "r" and "/nvidia-caps/" in node.target):
        return
    # MIG's management nodes belong to root by design. Render nodes are for graphics only, except on a Jetson.
    needed = node.gpu is not None or _CUDA_NODES.fullmatch(node.target)
    severity: Severity = "note" if is_seldom_used(node.target) else "warning"
    if needed and ("/dri/" not in node.target or node.capability is None):
        severity = "error"
    if node.vendor != "nvidia":  # compute uses render nodes; a GPU with an inaccessible node is not listed
        severity = "warning" if "/card" in node.target or "/infiniband/" in node.target else "error"
    yield finding(
        "device-permission",
        case=active_cases(
            ("amd", node.vendor == "amd"),
            ("intel", node.vendor == "intel"),
            ("group", by_group),
            ("forbidden", is_forbidden),
        ),
        severity=severity,
        vendor=node.vendor,
        subject=node.target,
        where=node.source,
        mode=node.mode,
        owner=node.group or f"gid {node.gid}",
    )


def is_seldom_used(path: str) -> bool:
    """Return whether the node *path* is for MIG's managers, or one of a Jetson's many nodes."""
    return path.startswith(("/dev/nvidia-caps", "/dev/nvhost-", "/dev/nvgpu/")) and not _CUDA_NODES.fullmatch(path)


def pci_devices(host: Host, maker: str, classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the PCI addresses of the devices of vendor *maker* (`0x10de`) and *classes* (`0x03`), in order."""
    dev = host.lenient.dev  # a record contains the classes of displays only
    texts = ((address, dev.text(f"{PCI_DEVICES}/{address}/class")) for address in dev.names(PCI_DEVICES))
    of_kind = [address for address, kind in texts if kind is not None and kind.startswith(classes)]
    return tuple(address for address in of_kind if dev.text(f"{PCI_DEVICES}/{address}/vendor") == maker)


def pci_driver(host: Host, address: str) -> Union[str, Missing]:
    """Return the kernel driver bound to the PCI device at *address*; absent if none is."""
    link = host.lenient.dev.readlink(f"{PCI_DEVICES}/{address}/driver")
    return link if isinstance(link, Missing) else link.rpartition("/")[2]


def is_for_guests(host: Host, address: str) -> bool:
    """Return whether the PCI device at *address* is a virtual function (SR-IOV) of a device of this host."""
    return host.lenient.dev.has(f"{PCI_DEVICES}/{address}/physfn")


def devices_without_driver(host: Host, maker: str, classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the addresses of those `pci_devices` without a kernel driver that are not for guests."""
    dev, displays = host.lenient.dev, pci_devices(host, maker, classes)
    # The link to a driver may be hidden while its nodes are visible.
    return tuple(
        address
        for address in displays
        if pci_driver(host, address) == ABSENT
        and not dev.has(f"{PCI_DEVICES}/{address}/drm")
        and not is_for_guests(host, address)
    )


def drm_nodes(host: Host, pci: Optional[str]) -> tuple[str, ...]:
    """Return `/dev/dri/card*` and `renderD*` of the GPU at *pci*: from sysfs, else from udev's by-path links."""
    if pci is None:
        return ()
    names = host.dev.list(f"{PCI_DEVICES}/{pci}/drm")
    if not isinstance(names, Missing):
        return tuple(f"/dev/dri/{name}" for name in names if re.fullmatch(r"(card|renderD)[0-9]+", name))
    places = (host.dev.resolve(f"/dev/dri/by-path/pci-{pci}-{end}") for end in ("card", "render"))
    return tuple(at for at in places if isinstance(at, str) and re.fullmatch(r"/dev/dri/(card|renderD)[0-9]+", at))


def render_node(host: Host, pci: Optional[str]) -> Optional[RootedPath]:
    """Return `/dev/dri/renderDN` of the GPU at *pci*."""
    return next((RootedPath(path) for path in drm_nodes(host, pci) if "/renderD" in path), None)


def driver_kind(host: Host, kernel_version: Optional[str] = None) -> DriverKind:
    """Return `wsl` with the driver of Windows, `tegra` on Jetson, else `linux`.

    Source: go-nvlib `pkg/nvlib/info/property-extractor.go` (HasTegraFiles).
    """
    if host.dev.has(DXG) or (kernel_version is None and host.driver.has(f"{WSL_LIBRARIES}/libcuda.so.1")):
        return "wsl"
    family = host.lenient.dev.text(_SOC_FAMILY) or ""
    if host.dev.has(TEGRA_RELEASE) or family.lower().startswith("tegra"):
        return "tegra"
    return "linux"


def natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a sort key with digits as numbers: nvidia10 follows nvidia9."""
    parts = re.split(r"([0-9]+)", name)  # every second one is a number, of any length
    return [(len(number := part.lstrip("0")), number) if index % 2 else (-1, part) for index, part in enumerate(parts)]
