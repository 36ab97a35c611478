"""Device nodes, sockets and GPUs."""

from __future__ import annotations

from typing import Any

import pytest

from gpubind import plan
from gpubind.inventory.nodes import Devices, hidden_gpus, natural_sort_key
from gpubind.inventory.nvidia.devices import read_devices
from gpubind.model import Request
from gpubind.planner.placement import SINGULARITY_LAYOUT
from tests.support.driver import host, in_cgroup, kernel, rhel
from tests.support.trees import Dir, Hidden, Item, Link, Node, Socket, Spec


def devices(*parts: Spec, **facts: Any) -> Devices:
    return read_devices(host(*parts, **facts))


def codes(found: Devices) -> list[tuple[str, str, str]]:
    return [(f.code, f.severity, f.subject) for f in found.findings]


def test_numbers_mode_owner_and_group_are_told() -> None:
    spec: Spec = {"/dev/nvidia0": Node("char", 195, 0, 0o660, 0, 44)}
    (node,) = [n for n in devices(kernel(), spec, groups=(44,)).nodes if n.target == "/dev/nvidia0"]
    assert (node.type, node.major, node.minor, node.mode, node.uid, node.gid, node.group) == (
        "c",
        195,
        0,
        0o660,
        0,
        44,
        "video",
    )
    assert (node.access, node.gpu, node.capability) == ("rw", 0, None)


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("nvidiactl", None),
        ("nvidia12", None),
        ("nvidia-uvm", "compute"),
        ("nvidia-uvm-tools", "compute"),
        ("nvidia-modeset", "graphics"),
        ("nvidia-caps/nvidia-cap7", "compute"),
        ("nvidia-caps-imex-channels/channel0", "compute"),
        ("nvidia-nvswitch3", "utility"),
        ("nvidia-nvswitchctl", "utility"),
        ("nvidia-fs2", "compute"),
        ("nvidia-something-new", None),
    ],
)
def test_each_node_belongs_to_a_capability(name: str, capability: str) -> None:
    (node,) = devices({f"/dev/{name}": Node("char", 195, 9)}).nodes
    assert (node.target, node.capability) == (f"/dev/{name}", capability)


def test_dri_nodes_of_a_gpu_are_found_by_its_address_in_sysfs() -> None:
    spec: Spec = {
        "/sys/bus/pci/devices/0000:02:00.0/drm/card7": Dir(),
        "/sys/bus/pci/devices/0000:02:00.0/drm/renderD135": Dir(),
        "/sys/bus/pci/devices/0000:02:00.0/drm/controlD64": Dir(),
        "/dev/dri/card0": Node("char", 226, 0),
        "/dev/dri/card7": Node("char", 226, 7),
        "/dev/dri/renderD135": Node("char", 226, 135),
    }
    found = devices(kernel(), spec)
    assert [(n.target, n.gpu) for n in found.nodes if "/dri/" in n.target] == [
        ("/dev/dri/card7", 1),
        ("/dev/dri/renderD135", 1),
    ]
    assert found.gpus[1].render == "/dev/dri/renderD135"


def test_dri_nodes_are_found_by_udevs_links_where_sysfs_says_nothing() -> None:
    spec: Spec = {
        "/dev/dri/by-path/pci-0000:01:00.0-render": Link("../renderD128"),
        "/dev/dri/renderD128": Node("char", 226, 128),
    }
    assert devices(kernel(), spec).gpus[0].render == "/dev/dri/renderD128"


def test_a_link_out_of_dri_is_no_dri_node() -> None:
    spec: Spec = {"/dev/dri/by-path/pci-0000:01:00.0-render": Link("/dev/sda"), "/dev/sda": Node("block", 8, 0)}
    assert devices(kernel(), spec).gpus[0].render is None


def test_the_index_counts_gpus_in_pci_order_without_the_excluded() -> None:
    spec: dict[str, Item] = {}
    for bus, minor, excluded in (("0a", 0, "No"), ("02", 1, "Yes"), ("ff", 2, "No")):
        spec[f"/proc/driver/nvidia/gpus/0000:{bus}:00.0/information"] = (
            f"Model: X\nBus Location: 0000:{bus}:00.0\nDevice Minor: {minor}\nGPU Excluded: {excluded}\n"
            "GPU UUID: GPU-????????\n"
        )
    gpus = devices(spec).gpus
    assert [(g.pci, g.index, g.minor, g.chosen) for g in gpus] == [
        ("0000:02:00.0", None, 1, False),
        ("0000:0a:00.0", 0, 0, True),
        ("0000:ff:00.0", 1, 2, True),
    ]
    assert {g.uuid for g in gpus} == {None}


SECOND = "/proc/driver/nvidia/gpus/0000:02:00.0/information"


@pytest.mark.parametrize("silent", [Hidden(), "", "\0\0\0", "rm_get_gpu_info failed\n", Dir(), Link("/nowhere")])
def test_a_gpu_whose_file_tells_nothing_keeps_its_place(silent: Item) -> None:
    found = devices(kernel(gpus=3), {SECOND: silent})
    assert [(g.pci, g.index, g.minor, g.uuid is None) for g in found.gpus] == [
        ("0000:01:00.0", 0, 0, False),
        ("0000:02:00.0", 1, 1, True),
        ("0000:03:00.0", 2, 2, False),
    ]
    assert codes(found) == [("gpu-unreadable", "warning", "0000:02:00.0")]
    assert [node.gpu for node in found.nodes if node.target == "/dev/nvidia1"] == [1]


def test_a_gpu_that_has_only_a_directory_keeps_its_place() -> None:
    spec = {path: item for path, item in kernel(gpus=3).items() if path != SECOND}
    gpus = devices(spec, {"/proc/driver/nvidia/gpus/0000:02:00.0/registry": "Binary: \n"}).gpus
    assert [(g.index, g.minor) for g in gpus] == [(0, 0), (1, 1), (2, 2)]


def test_a_directory_that_is_no_address_and_tells_nothing_is_no_gpu() -> None:
    assert len(devices(kernel(), {"/proc/driver/nvidia/gpus/other/information": ""}).gpus) == 2


def test_the_node_of_a_gpu_that_tells_nothing_is_not_guessed_among_several() -> None:
    first = SECOND.replace("0000:02", "0000:01")
    found = devices(kernel(gpus=3), {first: Hidden(), SECOND: Hidden()})
    assert [(g.index, g.minor) for g in found.gpus] == [(0, None), (1, None), (2, 2)]
    assert [(n.target, n.gpu) for n in found.nodes if n.target[-1].isdigit()] == [
        ("/dev/nvidia0", None),
        ("/dev/nvidia1", None),
        ("/dev/nvidia2", 2),
    ]


def test_a_gpu_that_tells_nothing_has_no_node_of_anothers() -> None:
    spec = {path: item for path, item in kernel(gpus=2).items() if path != "/dev/nvidia1"}
    assert [g.minor for g in devices(spec, {SECOND: Hidden()}).gpus] == [0, None]


def test_a_gpu_is_chosen_by_its_number_whatever_the_one_before_it_tells() -> None:
    on = host(rhel(), kernel(gpus=3), {SECOND: Hidden()})
    made = plan(on, Request(gpus="2"))
    assert [n.target for n in made.devices if n.gpu is not None] == ["/dev/nvidia2"]
    assert [(g.pci, g.chosen) for g in made.gpus][2] == ("0000:03:00.0", True)


def test_gpus_that_a_cgroup_or_their_mode_forbids_are_hidden() -> None:
    spec: Spec = {"/dev/nvidia1": Node("char", 195, 1, 0o600)}
    on = in_cgroup(host(kernel(gpus=3), spec, euid=1000), "/dev/nvidia0")
    assert hidden_gpus(read_devices(on)) == (0, 1)


def test_a_number_counts_no_gpu_whose_mode_forbids_it() -> None:
    on = host(rhel(), kernel(gpus=3), {"/dev/nvidia0": Node("char", 195, 0, 0o600)}, euid=1000)
    made = plan(on, Request(gpus="2"), layout=SINGULARITY_LAYOUT)
    assert [variable.value for variable in made.env if variable.name == "CUDA_VISIBLE_DEVICES"] == ["1"]


def test_where_no_gpu_may_be_opened_numbers_are_the_hosts() -> None:
    spec = {f"/dev/nvidia{number}": Node("char", 195, number, 0o600) for number in range(3)}
    made = plan(host(rhel(), kernel(gpus=3), spec, euid=1000), Request(gpus="2"), layout=SINGULARITY_LAYOUT)
    assert [variable.value for variable in made.env if variable.name == "CUDA_VISIBLE_DEVICES"] == ["2"]


def test_mig_instances_are_read_from_the_capabilities_directory() -> None:
    base = "/proc/driver/nvidia/capabilities/gpu0/mig"
    spec: Spec = {
        f"{base}/gi11/ci0/access": "",
        f"{base}/gi2/ci1/access": "",
        f"{base}/gi2/ci0/access": "",
        f"{base}/x": "",
    }
    assert [(m.gi, m.ci) for m in devices(kernel(), spec).gpus[0].mig] == [(2, 0), (2, 1), (11, 0)]


def test_a_number_that_differs_from_the_kernels_is_a_finding_and_still_planned() -> None:
    found = devices(kernel(), {"/dev/nvidia-uvm": Node("char", 510, 0)})
    assert ("device-number", "error", "/dev/nvidia-uvm") in codes(found)
    assert "/dev/nvidia-uvm" in [node.target for node in found.nodes]


NUMBERS = {
    "nvidia0": ("nvidia", "nvidia-frontend", "nvidiactl"),
    "nvidiactl": ("nvidia", "nvidia-frontend", "nvidiactl"),
    "nvidia-modeset": ("nvidia-modeset", "nvidia", "nvidia-frontend"),
    "nvidia-uvm": ("nvidia-uvm",),
    "nvidia-uvm-tools": ("nvidia-uvm",),
    "nvidia-caps/nvidia-cap1": ("nvidia-caps",),
    "nvidia-caps-imex-channels/channel0": ("nvidia-caps-imex-channels",),
    "nvidia-nvswitchctl": ("nvidia-nvswitch",),
    "nvidia-nvswitch0": ("nvidia-nvswitch",),
    "nvidia-nvlink": ("nvidia-nvlink",),
    "nvidia-fs0": ("nvidia-fs",),
    "dri/card0": ("drm",),
}
CAPABILITIES_OF = {
    "nvidia-modeset": "graphics",
    "dri/card0": "graphics",
    **dict.fromkeys(("nvidia-nvswitchctl", "nvidia-nvswitch0", "nvidia-nvlink"), "utility"),
    **dict.fromkeys(("nvidia0", "nvidiactl"), None),
}
MINORS = {"nvidiactl": 255, "nvidia-modeset": 254, "nvidia-uvm": 0, "nvidia-uvm-tools": 1}


@pytest.mark.parametrize("name", NUMBERS)
def test_each_node_has_the_number_of_its_drivers_and_its_capability(name: str) -> None:
    path, minor = f"/dev/{name}", MINORS.get(name, 7)
    gpu: Spec = {
        "/proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: A\nDevice Minor: 0\n",
        "/sys/bus/pci/devices/0000:01:00.0/drm/card0": Dir(),
    }
    for driver in NUMBERS[name]:
        numbers: Spec = {"/proc/devices": f"Character devices:\n 77 {driver}\n", **gpu}
        found = devices(numbers, {path: Node("char", 77, minor)})
        assert (codes(found), [node.capability for node in found.nodes]) == ([], [CAPABILITIES_OF.get(name, "compute")])
        wrong = devices(numbers, {path: Node("char", 78, minor)})
        assert [(one.code, one.where) for one in wrong.findings] == [
            ("device-number", f"{path}, /proc/devices ({NUMBERS[name][0]})")
        ]
    of_minor = devices(gpu, {path: Node("char", 77, minor + 1)})
    assert [one.what.partition("; ")[2] for one in of_minor.findings] == (
        [f"the right number is {minor}"] if name in MINORS else []
    )


@pytest.mark.parametrize("name", ["nvidia", "nvidia-frontend"])
def test_both_names_of_the_gpu_driver_count(name: str) -> None:
    numbers: Spec = {"/proc/devices": f"Character devices:\n195 {name}\n235 nvidia-uvm\n"}
    assert codes(devices(kernel(), numbers)) == []


def test_numbers_are_not_judged_where_the_kernel_says_none() -> None:
    assert (
        codes(devices(kernel(), {"/proc/devices": "Character devices:\n  1 mem\n", "/dev/nvidia0": Node("char", 1, 1)}))
        == []
    )


def test_a_malformed_proc_devices_is_a_finding() -> None:
    assert ("bad-procfs", "warning", "/proc/devices") in codes(
        devices(kernel(), {"/proc/devices": "Character devices:\nx y\n"})
    )


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "groups", "access"),
    [
        (0o666, 0, 0, (1000,), "rw"),
        (0o660, 0, 44, (44, 1000), "rw"),
        (0o660, 0, 44, (1000,), "none"),
        (0o640, 0, 44, (44,), "r"),
        (0o600, 1000, 0, (1000,), "rw"),
        (0o066, 1000, 44, (44,), "none"),
        (0o622, 0, 44, (1,), "w"),
    ],
)
def test_access_is_what_the_kernel_would_allow(
    mode: int, uid: int, gid: int, groups: tuple[int, ...], access: str
) -> None:
    (node,) = devices({"/dev/nvidia0": Node("char", 195, 0, mode, uid, gid)}, euid=1000, groups=groups).nodes
    assert node.access == access


ACL = "user::rw-,user:1000:rw-,group::---,group:105:r--,mask::rw-,other::---"
"""As udev's `uaccess` gives a node to the user of a seat, with a group beside."""


@pytest.mark.parametrize(
    ("acl", "mode", "euid", "groups", "access"),
    [
        (ACL, 0o660, 1000, (), "rw"),
        (ACL, 0o660, 1001, (), "none"),
        (ACL, 0o660, 1001, (105,), "r"),
        (ACL, 0o640, 1000, (), "r"),  # the group's bits are the mask
        (ACL.replace("user:1000:rw-", "user:1000:---"), 0o666, 1000, (105,), "none"),  # a user's own entry decides
        (ACL.replace("other::---", "other::rw-"), 0o606, 1001, (), "rw"),  # the mask does not limit all others
        (ACL.replace("group::---", "group::rw-"), 0o660, 1001, (44,), "rw"),
    ],
)
def test_an_access_control_list_decides_before_the_mode(
    acl: str, mode: int, euid: int, groups: tuple[int, ...], access: str
) -> None:
    spec: Spec = {"/dev/nvidia0": Node("char", 195, 0, mode, 0, 44, acl)}
    found = devices(kernel(), spec, euid=euid, groups=groups)
    (node,) = (node for node in found.nodes if node.target == "/dev/nvidia0")
    assert node.access == access
    reported = [each.subject for each in found.findings if each.code == "device-permission"]
    assert ("/dev/nvidia0" in reported) is (access != "rw")


def test_the_group_is_named_where_its_own_entry_of_an_access_control_list_has_the_rights() -> None:
    for entry, hint in (
        ("group::---", "ask the administrator for permission"),
        ("group::rw-", "become a member of group `video`"),
    ):
        spec: Spec = {"/dev/nvidia0": Node("char", 195, 0, 0o660, 0, 44, ACL.replace("group::---", entry))}
        found = devices(kernel(), spec, euid=1001).findings
        assert [one.hint for one in found if one.subject == "/dev/nvidia0"] == [hint]


def test_root_may_use_every_node() -> None:
    (node,) = devices({"/dev/nvidia0": Node("char", 195, 0, 0o000)}, euid=0).nodes
    assert node.access == "rw"


def test_a_forbidden_node_is_a_finding_that_names_the_group() -> None:
    found = devices(kernel(), {"/dev/nvidia0": Node("char", 195, 0, 0o660, 0, 44)}, groups=(1000,))
    finding = next(f for f in found.findings if f.subject == "/dev/nvidia0")
    assert (finding.code, finding.severity) == ("device-permission", "error")
    assert finding.hint == "become a member of group `video`"


def test_a_forbidden_render_node_is_no_error() -> None:
    spec: Spec = {
        "/dev/dri/by-path/pci-0000:01:00.0-render": Link("../renderD128"),
        "/dev/dri/renderD128": Node("char", 226, 128, 0o660, 0, 105),
    }
    assert ("device-permission", "warning", "/dev/dri/renderD128") in codes(devices(kernel(), spec))


def test_a_regular_file_in_dev_is_no_node() -> None:
    found = devices({"/dev/nvidia0": b"", "/dev/nvidia1": Link("gone")})
    assert found.nodes == ()
    assert [(d.subject, d.rule) for d in found.decisions[:2]] == [
        ("/dev/nvidia0", "no-device"),
        ("/dev/nvidia1", "dangling"),
    ]


def test_sockets_are_found_below_run_or_var_run() -> None:
    found = devices({"/run/nvidia-persistenced/socket": Socket(), "/var/run/nvidia-fabricmanager/socket": Socket()})
    assert [s.target for s in found.sockets] == ["/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket"]


def test_the_mps_directory_is_taken_only_if_it_is_the_callers() -> None:
    assert [s.target for s in devices({"/tmp/nvidia-mps": Dir()}, euid=0).sockets] == ["/tmp/nvidia-mps"]
    other = devices({"/tmp/nvidia-mps": Dir()}, euid=1000)
    assert other.sockets == ()
    assert ("/tmp/nvidia-mps", "not-yours") in [(d.subject, d.rule) for d in other.decisions]


def test_the_mps_directory_may_be_named_by_its_variable() -> None:
    found = devices({"/scratch/mps": Dir()}, euid=0, environ={"CUDA_MPS_PIPE_DIRECTORY": "/scratch/mps"})
    assert [s.target for s in found.sockets] == ["/scratch/mps"]


GPUDIRECT: Spec = {
    "/dev/gdrdrv": Node("char", 505, 0),
    "/dev/infiniband/uverbs0": Node("char", 231, 192),
    "/dev/infiniband/rdma_cm": Node("char", 10, 58),
    "/dev/infiniband/umad0": Node("char", 231, 0),
    "/dev/nvidia-fs0": Node("char", 511, 0),
    "/run/udev": Dir(),
    "/etc/cufile.json": "{}",
}


@pytest.mark.parametrize(
    ("environ", "nodes", "files"),
    [
        ({}, [], []),
        ({"NVIDIA_GDRCOPY": "enabled"}, ["/dev/gdrdrv"], []),
        ({"NVIDIA_GDRCOPY": "1"}, [], []),
        ({"NVIDIA_MOFED": "enabled"}, ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"], []),
        ({"NVIDIA_GDS": "enabled"}, [], ["/run/udev", "/etc/cufile.json"]),
    ],
)
def test_what_gpus_exchange_data_with_is_there_on_request(
    environ: dict[str, str], nodes: list[str], files: list[str]
) -> None:
    """Source: nvidia-container-toolkit, gated.go; gds.go, gdrcopy.go, mofed.go."""
    before, found = devices(kernel()), devices(kernel(), GPUDIRECT, environ=environ)
    known = {node.target for node in before.nodes} | {"/dev/nvidia-fs0"}
    assert sorted(node.target for node in found.nodes if node.target not in known) == nodes
    assert [file.target for file in found.sockets if file.target not in {s.target for s in before.sockets}] == files
    assert all(file.options == ("ro", "nosuid", "nodev") for file in found.sockets if file.target in files)
    assert codes(found) == codes(before)


def test_what_is_asked_for_and_not_there_is_told() -> None:
    found = devices(kernel(), environ={"NVIDIA_GDS": "enabled", "NVIDIA_MOFED": "enabled"})
    told = [(d.subject, d.verdict) for d in found.decisions if d.named_at == "NVIDIA_GDS"]
    assert told == [("/run/udev", "absent"), ("/etc/cufile.json", "absent")]


def test_names_sort_with_their_numbers_as_numbers() -> None:
    assert sorted(["nvidia10", "nvidia9", "nvidiactl", "nvidia-uvm"], key=natural_sort_key) == [
        "nvidia9",
        "nvidia10",
        "nvidia-uvm",
        "nvidiactl",
    ]


def test_any_name_has_its_place_in_the_order() -> None:
    long = "card" + "9" * 5000
    names = ["card2", "card\u00b2", "card\u0663", "card02", "card1", long]
    assert sorted(names, key=natural_sort_key) == ["card1", "card2", "card02", long, "card\u00b2", "card\u0663"]


def test_a_driver_may_have_several_major_numbers() -> None:
    """Source: Linux, uverbs_main.c: 231 is fixed, what is beyond its 32 devices has another."""
    table = str(kernel()["/proc/devices"]).replace("Character devices:\n", "Character devices:\n231 infiniband_verbs\n")
    told = {"/proc/devices": table.replace("\n\nBlock", "\n240 infiniband_verbs\n\nBlock")}
    nodes = {"/dev/infiniband/uverbs0": Node("char", 231, 192), "/dev/infiniband/uverbs32": Node("char", 240, 0)}
    found = devices(kernel(), told, nodes, environ={"NVIDIA_MOFED": "enabled"})
    assert {node.target for node in found.nodes} >= {*nodes}
    assert codes(found) == codes(devices(kernel()))
    wrong = {"/dev/infiniband/uverbs0": Node("char", 99, 192)}
    assert codes(devices(kernel(), told, wrong, environ={"NVIDIA_MOFED": "enabled"})) == [
        ("device-number", "error", "/dev/infiniband/uverbs0")
    ]
