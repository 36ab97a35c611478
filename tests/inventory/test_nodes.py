"""Device nodes: what is told of a number that differs and of a node that may not be used."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind.inventory.nodes import (
    PCI_DEVICES,
    Devices,
    ExpectedNode,
    devices_without_driver,
    drm_nodes,
    is_seldom_used,
    pci_devices,
    pci_driver,
    read_majors,
    read_nodes,
    render_node,
)
from gpubind.model import Finding, Missing, Vendor
from tests.support.driver import host, in_cgroup
from tests.support.trees import Dir, Link, Node, Spec

NUMBERS = "Character devices:\n195 nvidia\n226 drm\n235 nvidia-uvm\n"
OF_GROUP, OF_ROOT, OPEN = (Node("char", 195, 0, mode, 0, gid) for mode, gid in ((0o660, 44), (0o600, 7), (0o666, 0)))
ENDS = {
    "nvidia": "",
    "amd": "; ROCm then reports no GPU: hipErrorNoDevice (100)",
    "intel": ": zeInit returns ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS (0x70010000), "
    "and Level Zero and OpenCL list no GPU",
}


def read(
    path: str, node: Node, vendor: Vendor = "nvidia", capability: Any = None, gpu: Optional[int] = None, **more: Any
) -> Devices:
    forbidden = more.pop("forbidden", ())
    expected = ExpectedNode(path, more.pop("drivers", ()), capability, gpu, more.pop("minor", None))
    on = host({"/proc/devices": NUMBERS, "/etc/group": "video:x:44:\n", path: node}, euid=1000, **more)
    return read_nodes(in_cgroup(on, *forbidden) if forbidden else on, vendor, (), [expected])


def only(devices: Devices) -> Finding:
    (finding,) = devices.findings
    return finding


@pytest.mark.parametrize(
    ("path", "vendor", "capability", "gpu", "severity"),
    [
        ("/dev/nvidia0", "nvidia", None, 0, "error"),
        ("/dev/nvidiactl", "nvidia", None, None, "error"),
        ("/dev/nvidia-uvm", "nvidia", "compute", None, "error"),
        ("/dev/dxg", "nvidia", None, None, "error"),
        ("/dev/nvmap", "nvidia", None, None, "error"),
        ("/dev/nvidia-modeset", "nvidia", "graphics", None, "warning"),
        ("/dev/nvidia-uvm-tools", "nvidia", "compute", None, "warning"),
        ("/dev/nvidia-caps/nvidia-cap1", "nvidia", "compute", None, "note"),
        ("/dev/nvidia-caps-imex-channels/channel0", "nvidia", "compute", None, "note"),
        ("/dev/dri/renderD128", "nvidia", "graphics", 0, "warning"),
        ("/dev/dri/renderD128", "nvidia", None, 0, "error"),
        ("/dev/nvhost-x", "nvidia", None, None, "note"),
        ("/dev/nvhost-ctrl-gpu", "nvidia", None, None, "error"),
        ("/dev/nvgpu/igpu0/x", "nvidia", None, None, "note"),
        ("/dev/nvgpu/igpu0/ctrl", "nvidia", None, None, "error"),
        ("/dev/kfd", "amd", None, None, "error"),
        ("/dev/dri/card0", "amd", None, 0, "warning"),
        ("/dev/dri/renderD128", "amd", None, 0, "error"),
        ("/dev/infiniband/uverbs0", "intel", None, 0, "warning"),
        ("/dev/accel/accel0", "intel", None, 0, "error"),
    ],
)
def test_a_node_that_may_not_be_used_is_as_bad_as_what_fails_without_it(
    path: str, vendor: Vendor, capability: Any, gpu: Optional[int], severity: str
) -> None:
    devices = read(path, OF_ROOT, vendor, capability, gpu)
    finding = only(devices)
    assert (finding.code, finding.severity, finding.vendor) == ("device-permission", severity, vendor)
    assert (finding.subject, finding.where, devices.forbidden) == (path, path, ())
    assert finding.what == f"this user may not use {path} (mode 0600, group gid 7)"
    assert finding.why == "opening it fails with EACCES, also in the container" + ENDS[vendor]
    assert finding.hint == "ask the administrator for permission"


def test_the_group_that_may_use_a_node_is_named() -> None:
    finding = only(read("/dev/nvidia0", OF_GROUP, gpu=0))
    assert finding.what == "this user may not use /dev/nvidia0 (mode 0660, group video)"
    assert finding.hint == "become a member of group `video`"
    readers = only(read("/dev/nvidia0", Node("char", 195, 0, 0o640, 0, 44), gpu=0))
    assert readers.hint == "ask the administrator for permission"


@pytest.mark.parametrize(
    ("path", "mode", "is_told"),
    [
        ("/dev/nvidia-caps/nvidia-cap1", 0o444, False),
        ("/dev/nvidia-caps/nvidia-cap1", 0o222, True),
        ("/dev/nvidia-caps-imex-channels/channel0", 0o444, True),
        ("/dev/nvidiactl", 0o444, True),
        ("/dev/nvidiactl", 0o666, False),
    ],
)
def test_to_read_is_enough_for_the_nodes_of_capabilities(path: str, mode: int, is_told: bool) -> None:
    assert bool(read(path, Node("char", 195, 0, mode)).findings) is is_told


def test_a_cgroup_that_forbids_what_all_gpus_need_is_told_and_one_that_forbids_a_gpu_is_not() -> None:
    shared = read("/dev/nvidiactl", OPEN, forbidden=("/dev/nvidiactl",))
    finding = only(shared)
    assert finding.what == "a device cgroup forbids this process to open /dev/nvidiactl (mode 0666, group gid 0)"
    assert finding.why == "opening it fails with EPERM, whatever its mode, also in the container"
    assert shared.forbidden == ("/dev/nvidiactl",)
    for path, gpu in (("/dev/nvidia0", 0), ("/dev/nvidia-caps/nvidia-cap1", None)):
        devices = read(path, OPEN, gpu=gpu, forbidden=(path,))
        assert (devices.findings, devices.forbidden) == ((), (path,))
        assert [node.target for node in devices.nodes] == [path]


LEFT = "the node is left from an earlier boot or driver; opening it fails with ENXIO or reaches another driver"
RESTORED = (
    "the node was created by hand or restored from elsewhere; opening it fails with ENXIO or reaches another device"
)


@pytest.mark.parametrize(
    ("path", "numbers", "vendor", "drivers", "minor", "where", "what", "why"),
    [
        (
            *("/dev/nvidia0", (99, 0), "nvidia", ("nvidia", "nvidia-uvm"), None),
            "/dev/nvidia0, /proc/devices (nvidia)",
            "/dev/nvidia0 has major number 99, the kernel reports 195 or 235",
            f"{LEFT}: CUDA_ERROR_UNKNOWN (999)",
        ),
        (
            *("/dev/kfd", (5, 0), "amd", ("drm",), 4),
            "/dev/kfd, /proc/devices (drm)",
            "/dev/kfd has major number 5, the kernel reports 226",
            LEFT,
        ),
        (
            *("/dev/nvidiactl", (195, 3), "nvidia", ("nvidia",), 255),
            "/dev/nvidiactl",
            "/dev/nvidiactl has minor number 3; the right number is 255",
            RESTORED,
        ),
    ],
)
def test_a_number_that_differs_is_told_with_the_right_one(
    path: str, numbers: tuple[int, int], vendor: Vendor, drivers: Any, minor: Any, where: str, what: str, why: str
) -> None:
    finding = only(read(path, Node("char", *numbers), vendor, drivers=drivers, minor=minor))
    assert (finding.code, finding.severity, finding.vendor, finding.subject) == ("device-number", "error", vendor, path)
    assert (finding.where, finding.what, finding.why) == (where, what, why)


@pytest.mark.parametrize(("drivers", "minor"), [(("nvidia",), 0), (("nvidia", "gone"), None), (("gone",), None)])
def test_a_number_is_right_if_it_is_that_of_a_driver_or_no_driver_is_loaded(drivers: Any, minor: Any) -> None:
    assert read("/dev/nvidia0", OPEN, drivers=drivers, minor=minor).findings == ()


def test_a_malformed_proc_devices_gives_no_numbers_and_its_line() -> None:
    majors, (finding,) = read_majors(host({"/proc/devices": "Character devices:\n195 nvidia\nx y\n"}), "amd")
    assert (majors, finding.code, finding.vendor, finding.subject) == ({}, "bad-procfs", "amd", "/proc/devices")
    assert (finding.where, finding.why) == ("/proc/devices: line 3", "'x y'")
    (of_default,) = read_majors(host({"/proc/devices": "Character devices:\nx\n"}))[1]
    assert of_default.vendor == "nvidia"


def test_what_is_seldom_used_is_for_managers_of_mig_or_of_a_jetson() -> None:
    seldom = ("/dev/nvidia-caps/nvidia-cap1", "/dev/nvhost-x", "/dev/nvgpu/igpu0/x")
    often = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu/igpu0/ctrl", "/dev/dri/card0")
    assert [path for path in (*seldom, *often) if is_seldom_used(path)] == list(seldom)


def device(address: str, kind: str = "0x030000", maker: str = "0x10de", **more: Any) -> Spec:
    base = f"{PCI_DEVICES}/{address}"
    return {f"{base}/class": kind, f"{base}/vendor": maker, **{f"{base}/{name}": item for name, item in more.items()}}


def test_a_pci_device_is_without_a_driver_unless_it_has_one_its_nodes_or_is_for_guests() -> None:
    spec: Spec = {
        **device("0000:01:00.0"),
        **device("0000:02:00.0", driver=Link("../../../bus/pci/drivers/nouveau")),
        **device("0000:03:00.0", drm=Dir()),
        **device("0000:04:00.0", physfn=Link("../0000:01:00.0")),
        **device("0000:05:00.0", kind="0x020000"),
        **device("0000:06:00.0", maker="0x8086"),
        **device("0000:07:00.0", kind="0x120000"),
    }
    on = host(spec)
    both = ("0x03", "0x12")
    assert devices_without_driver(on, "0x10de", both) == ("0000:01:00.0", "0000:07:00.0")
    assert pci_devices(on, "0x10de", ("0x03",)) == tuple(f"0000:0{number}:00.0" for number in (1, 2, 3, 4))
    assert pci_driver(on, "0000:02:00.0") == "nouveau"
    assert pci_driver(on, "0000:01:00.0") == Missing("absent")


def test_the_drm_nodes_of_a_gpu_are_from_sysfs_or_else_from_links_by_path() -> None:
    drm = f"{PCI_DEVICES}/0000:01:00.0/drm"
    names = ("card1", "renderD128", "controlD64", "card1-DP-1", "version")
    by_path: Spec = {
        "/dev/dri/by-path/pci-0000:01:00.0-card": Link("../card2"),
        "/dev/dri/by-path/pci-0000:01:00.0-render": Link("../renderD129"),
        "/dev/dri/by-path/pci-0000:02:00.0-card": Link("../version"),
        **{f"/dev/dri/{name}": Node("char", 226, 0) for name in ("card2", "renderD129", "version")},
    }
    for spec, nodes in (
        ({f"{drm}/{name}": Dir() for name in names}, ("card1", "renderD128")),
        ({}, ("card2", "renderD129")),
    ):
        on = host(by_path, spec)
        assert drm_nodes(on, "0000:01:00.0") == tuple(f"/dev/dri/{name}" for name in nodes)
        assert render_node(on, "0000:01:00.0") == f"/dev/dri/{nodes[1]}"
    assert (drm_nodes(host(by_path), "0000:02:00.0"), drm_nodes(host(by_path), None)) == ((), ())
    assert render_node(host(by_path), None) is None
