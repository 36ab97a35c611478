"""Jetson: what its lists claim, without lists, the GPU in the chip beside another one."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest

import gpubind
from gpubind.documents.mounts.cdi import render_cdi
from gpubind.host.recorded import RecordedHost
from gpubind.model import Decision, Mount, Plan, Request
from gpubind.model.layouts import TEGRA_LISTS, TEGRA_PASSTHROUGH
from tests.layouts.families.jetson import GROUPS, LAYOUTS, TRIPLET, expanded, lines
from tests.support.elf import AARCH64, elf
from tests.support.trees import Dir, File, Hidden, Item, Link, Node, Spec, record

DRIVER = f"{TRIPLET}/nvidia"
DEVICES = "dev, /dev/nvmap\ndev, /dev/nvgpu/igpu0/ctrl\n"
BOARD: Spec = {
    "/etc/nv_tegra_release": "# R36 (release), REVISION: 3.0\n",
    "/etc/group": GROUPS,
    f"{DRIVER}/libcuda.so.1.1": elf("libcuda.so.1", machine=AARCH64),
    f"{DRIVER}/libcuda.so.1": Link("libcuda.so.1.1"),
    "/dev/nvmap": Node("char", 10, 1, 0o660, 0, 44),
    "/dev/nvgpu/igpu0/ctrl": Node("char", 500, 1, 0o660, 0, 44),
    f"{TEGRA_LISTS}/devices.csv": DEVICES,
    f"{TEGRA_LISTS}/l4t.csv": f"lib, {DRIVER}/libcuda.so.1.1\n",
}


def host(*parts: Spec, groups: tuple[int, ...] = (44,), **facts: Any) -> RecordedHost:
    spec: dict[str, Item] = {}
    for part in parts:
        spec.update(part)
    return RecordedHost(record(spec, machine="aarch64", groups=groups, **facts), "test")


def planned(*parts: Spec, request: Optional[Request] = None, **facts: Any) -> Plan:
    return gpubind.plan(host(BOARD, *parts, **facts), request or Request())


def drivers(text: str) -> Spec:
    return {f"{TEGRA_LISTS}/drivers.csv": text}


def mount_at(plan: Plan, target: str) -> Mount:
    return next(mount for mount in plan.mounts if mount.target == target)


def decided(plan: Plan, subject: str) -> list[Decision]:
    return [decision for decision in plan.decisions if decision.subject == subject]


def test_a_library_lands_with_the_others_and_a_module_at_its_own_path() -> None:
    module = f"{TRIPLET}/gstreamer-1.0/libgstnvjpeg.so"
    library = f"{DRIVER}/libnvbufsurface.so.1.0.0"
    files: Spec = {path: elf(machine=AARCH64) for path in (module, library)}
    links: Spec = {f"{DRIVER}/libnvbufsurface.so": Link("libnvbufsurface.so.1.0.0")}
    text = f"lib, {module}\nlib, {library}\nsym, {DRIVER}/libnvbufsurface.so\n"
    plan = planned(files, links, drivers(text))
    assert mount_at(plan, module).source == module
    assert {mount_at(plan, f"/.gpubind/libs/libnvbufsurface.so{end}").source for end in ("", ".1.0.0")} == {library}
    (taken,) = decided(plan, module)
    assert taken.named_at == f"{TEGRA_LISTS}/drivers.csv:1"


def test_a_link_of_another_name_is_a_name_of_its_library() -> None:
    text = f"lib, {DRIVER}/libnvv4l2.so\nsym, {TRIPLET}/libv4l2.so.0.0.999999\n"
    files: Spec = {f"{DRIVER}/libnvv4l2.so": elf("libv4l2.so.0", machine=AARCH64)}
    plan = planned(files, {f"{TRIPLET}/libv4l2.so.0.0.999999": Link("nvidia/libnvv4l2.so")}, drivers(text))
    assert mount_at(plan, "/.gpubind/libs/libv4l2.so.0.0.999999").source == f"{DRIVER}/libnvv4l2.so"


def test_a_manifest_lies_at_its_link_and_at_its_own_path() -> None:
    manifest: Spec = {
        f"{DRIVER}/nvidia_icd.json": '{"ICD": {"library_path": "libGLX_nvidia.so.0"}}',
        "/etc/vulkan/icd.d/nvidia_icd.json": Link(f"{DRIVER}/nvidia_icd.json"),
    }
    plan = planned(manifest, drivers(f"lib, {DRIVER}/nvidia_icd.json\nsym, /etc/vulkan/icd.d/nvidia_icd.json\n"))
    assert {mount.target for mount in plan.mounts if mount.kind == "manifest"} == {*manifest}


def test_a_program_lands_with_the_others() -> None:
    plan = planned({"/usr/bin/tegrastats": elf(kind=2, machine=AARCH64)}, drivers("lib, /usr/bin/tegrastats\n"))
    assert mount_at(plan, "/.gpubind/bin/tegrastats").kind == "binary"


def test_a_directory_is_bound_whole_and_read_only() -> None:
    plan = planned({f"{TRIPLET}/tegra": Link("nvidia")}, drivers(f"sym, {TRIPLET}/tegra\n"))
    mount = mount_at(plan, f"{TRIPLET}/tegra")
    assert (mount.kind, mount.source, mount.options) == ("directory", DRIVER, ("ro", "nosuid", "nodev"))


LINKS = "links to nodes by their address: programs open the nodes"
FIRMWARE = "firmware: the kernel reads it, not a process"


@pytest.mark.parametrize(
    ("line", "verdict", "rule", "detail"),
    [
        ("lib, /usr/lib/none.so", "rejected", "dangling", "completion names it, but it leads nowhere"),
        ("lib, /etc/none.txt", "absent", "no-match", "it is not there"),
        ("dev, /dev/none*", "absent", "no-match", "it is not there"),
        ("dir, /dev/dri/by-path", "left-out", "host-only", LINKS),
        ("lib, /lib/firmware/tegra23x/x.bin", "left-out", "host-only", FIRMWARE),
        ("dir, /usr/lib", "rejected", "system-directory", "binding it would hide the container's own"),
        ("dir, /etc/secret", "rejected", "path-forbidden", "forbidden: permission denied"),
    ],
)
def test_a_line_that_brings_nothing_has_a_decision_with_its_place(
    line: str, verdict: str, rule: str, detail: str
) -> None:
    plan = planned({"/usr/lib": Dir(), "/etc/secret": Hidden()}, drivers(f"lib, /etc/nv_tegra_release\n{line}\n"))
    (decision,) = decided(plan, line.split(", ")[1])
    assert (decision.verdict, decision.rule, decision.step, decision.detail) == (verdict, rule, "search", detail)
    assert (decision.named_by, decision.named_at) == ("completion", f"{TEGRA_LISTS}/drivers.csv:2")
    assert decision.path == (None if verdict == "absent" else line.split(", ")[1])


def test_nothing_above_the_lists_is_bound_by_a_pattern() -> None:
    plan = planned({"/usr/lib/a": Dir()}, drivers("dir, /usr/*\ndir, /*\n"))
    assert [mount.target for mount in plan.mounts if mount.kind == "directory"] == []


def test_lists_of_optional_packages_are_left_out_unless_all_are_requested() -> None:
    extra: Spec = {f"{TEGRA_LISTS}/tensorrt.csv": "dir, /usr/src/tensorrt\n", "/usr/src/tensorrt/README": "text"}
    (decision,) = decided(planned(extra), "tensorrt.csv")
    assert (decision.verdict, decision.rule, decision.step) == ("left-out", "optional-list", "search")
    assert (decision.named_by, decision.named_at) == ("completion", TEGRA_LISTS)
    assert decision.path == f"{TEGRA_LISTS}/tensorrt.csv"
    requests = "NVIDIA_REQUIRE_JETPACK=csv-mounts=all requests it"
    assert decision.detail == f"the list of an optional package: {requests}"
    assert decided(planned({f"{TEGRA_LISTS}/.csv": "x", f"{TEGRA_LISTS}/x.txt": "x"}), ".csv") == []
    assert decided(planned({f"{TEGRA_LISTS}/X.CSV": "x"}), "X.CSV")[0].rule == "optional-list"
    everything = planned(extra, environ={"NVIDIA_REQUIRE_JETPACK": "csv-mounts=all"})
    assert mount_at(everything, "/usr/src/tensorrt").kind == "directory"


def test_the_toolkits_configuration_may_name_another_directory_of_lists() -> None:
    config = '[nvidia-container-runtime.modes.csv]\nmount-spec-path = "/srv/lists"\n'
    elsewhere: Spec = {"/etc/nvidia-container-runtime/config.toml": config, "/srv/lists/devices.csv": "dev, /dev/fb0\n"}
    plan = planned(elsewhere, {"/dev/fb0": Node("char", 29, 0)})
    assert [node.target for node in plan.devices] == ["/dev/fb0"]


def test_what_yocto_keeps_apart_lands_where_the_lists_name_it() -> None:
    module, library = f"{TRIPLET}/libv4l/plugins/nv/libv4l2_nvargus.so", f"{DRIVER}/libnvv4l2.so"
    apart: Spec = {TEGRA_PASSTHROUGH + path: elf(machine=AARCH64) for path in (module, library)}
    plan = planned(apart, drivers(f"lib, {module}\nlib, {library}\n"))
    assert mount_at(plan, module).source == TEGRA_PASSTHROUGH + module
    assert mount_at(plan, "/.gpubind/libs/libnvv4l2.so").source == TEGRA_PASSTHROUGH + library


def test_a_list_of_a_user_is_the_law_and_completion_may_be_off() -> None:
    text = drivers("lib, /etc/nv_tegra_release\n")
    off = planned(text, request=Request(completion=False))
    assert "/etc/nv_tegra_release" not in {mount.target for mount in off.mounts}
    assert "/dev/nvmap" in {node.target for node in off.devices}


@pytest.mark.parametrize("name", ["devices.csv", "l4t.csv"])
def test_what_one_list_would_name_is_known_without_it(name: str) -> None:
    """The other list still counts."""
    plan = gpubind.plan(host({path: item for path, item in BOARD.items() if not path.endswith(name)}), Request())
    assert {"/dev/nvmap", "/dev/nvgpu/igpu0/ctrl"} <= {node.target for node in plan.devices}
    assert mount_at(plan, "/.gpubind/libs/libcuda.so.1.1")
    assert [(one.severity, one.where) for one in plan.findings if one.code == "tegra"] == [
        ("note", f"{TEGRA_LISTS}/*.csv")
    ]


def test_a_list_that_nobody_may_read_is_a_finding() -> None:
    plan = planned({f"{TEGRA_LISTS}/drivers.csv": Hidden()})
    (finding,) = [one for one in plan.findings if one.subject.endswith(".csv")]
    path, what = (
        f"{TEGRA_LISTS}/drivers.csv",
        "a Jetson's list cannot be read; files that only it names are missing in containers",
    )
    assert (finding.code, finding.severity, finding.subject, finding.where) == ("bad-tegra-list", "warning", path, path)
    assert (finding.what, finding.why) == (what, "forbidden: permission denied")


def test_the_first_five_lines_of_a_list_that_cannot_be_read_are_named_with_the_number_of_all() -> None:
    plan = planned(drivers("x\n" * 7 + "lib, /etc/nv_tegra_release\n"))
    (finding,) = [one for one in plan.findings if one.code == "bad-tegra-list"]
    path = f"{TEGRA_LISTS}/drivers.csv"
    assert finding.where == ", ".join(f"{path}:{line}" for line in range(1, 6))
    assert finding.what == "7 lines of a Jetson's list cannot be read; the others are used"
    assert (finding.subject, finding.why) == (path, "it begins with none of dev, dir, lib, sym")


@pytest.mark.parametrize(
    ("missing", "said"),
    [("/dev/nvmap", "/dev/nvmap"), ("/dev/nvgpu/igpu0/ctrl", "/dev/nvhost-ctrl-gpu, /dev/nvgpu/*/ctrl")],
)
def test_nodes_without_which_cuda_cannot_work_are_an_error(missing: str, said: str) -> None:
    spec = {path: item for path, item in BOARD.items() if path != missing}
    found = [one for one in gpubind.plan(host(spec), Request()).findings if one.code == "tegra"]
    assert [(one.severity, one.where) for one in found] == [("error", said)]


@pytest.mark.parametrize(
    ("path", "severity"),
    [("/dev/nvmap", "error"), ("/dev/nvgpu/igpu0/ctrl", "error"), ("/dev/nvgpu/igpu0/prof", "note"),
     ("/dev/dri/renderD128", "error"), ("/dev/fb0", "warning")],
)  # fmt: skip
def test_a_node_that_the_user_may_not_open_matters_as_cuda_needs_it(path: str, severity: str) -> None:
    spec: Spec = {path: Node("char", 500, 7, 0o660, 0, 999), f"{TEGRA_LISTS}/devices.csv": f"{DEVICES}dev, {path}\n"}
    (finding,) = (one for one in planned(spec).findings if one.code == "device-permission")
    assert (finding.subject, finding.severity) == (path, severity)
    assert finding.hint == "become a member of group `debug`"


def test_a_render_node_is_taken_for_cuda_alone() -> None:
    spec: Spec = {
        "/dev/dri/renderD128": Node("char", 226, 128),
        "/dev/dri/card0": Node("char", 226, 0),
        f"{TEGRA_LISTS}/devices.csv": f"{DEVICES}dev, /dev/dri/card*\ndev, /dev/dri/renderD*\n",
    }
    nodes = planned(spec, request=Request(caps=("compute",))).devices
    assert [node.target for node in nodes if "/dri/" in node.target] == ["/dev/dri/renderD128"]


@pytest.mark.parametrize(
    ("chosen", "own"),
    [
        ("0", {"/dev/nvidia0", "/dev/nvidia2", "/dev/dri/card0", "/dev/dri/renderD128"}),
        ("1", {"/dev/nvidia1", "/dev/dri/card1", "/dev/dri/renderD129"}),
        ("none", set()),
    ],
)
def test_the_chips_gpu_and_the_one_in_a_slot_are_chosen_apart(chosen: str, own: set[str]) -> None:
    thor = next(layout for layout in LAYOUTS if layout.name == "jetson7").host()
    nodes = {node.target for node in gpubind.plan(thor, Request(gpus=chosen)).devices}
    assert {node for node in nodes if "/dri/" in node or node[len("/dev/nvidia") :].isdigit()} == own
    assert ("/dev/nvmap" in nodes) == (chosen != "none")


def test_a_spec_of_nvidias_toolkit_has_the_gpu_in_the_chip() -> None:
    """It has no /dev/nvidia0 before JetPack 6."""
    edits = {"deviceNodes": [{"path": "/dev/nvmap"}, {"path": "/dev/nvgpu/igpu0/ctrl"}]}
    devices = [{"name": name, "containerEdits": edits} for name in ("0", "all")]
    spec: Spec = {
        "/etc/cdi/nvidia.json": json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices})
    }
    machine = host(BOARD, spec)
    found = gpubind.check(machine, gpubind.plan(machine, Request(cdi_devices=("nvidia.com/gpu=0",))))
    assert [one for one in found if "cdi" in one.code] == []


def test_a_cdi_spec_has_a_device_for_the_gpu_in_the_chip() -> None:
    made = json.loads(render_cdi(planned(), {}))
    assert [device["name"] for device in made["devices"]] == ["0", "all"]


def test_the_gpu_in_the_chip_has_the_name_of_the_board() -> None:
    board: Spec = {"/proc/device-tree/model": "NVIDIA Jetson Orin Nano\0"}
    assert [(gpu.index, gpu.model) for gpu in planned(board).gpus] == [(0, "NVIDIA Jetson Orin Nano")]
    assert [gpu.model for gpu in planned().gpus] == ["Tegra"]


def test_a_board_is_known_by_its_chip_where_it_has_no_release_file() -> None:
    spec = {path: item for path, item in BOARD.items() if path != "/etc/nv_tegra_release"}
    plan = gpubind.plan(host({**spec, "/sys/devices/soc0/family": "Tegra\n"}), Request())
    assert plan.drivers[0].driver.kind == "tegra"
    assert "/dev/nvmap" in {node.target for node in plan.devices}


@pytest.mark.parametrize("release", [5, 6, 7])
def test_every_line_of_nvidias_lists_is_planned_or_decided(release: int) -> None:
    board = next(layout for layout in LAYOUTS if layout.name == f"jetson{release}").host()
    plan = gpubind.plan(board, Request())
    told = {mount.target for mount in plan.mounts} | {decision.subject for decision in plan.decisions}
    told |= {mount.target.rpartition("/")[2] for mount in plan.mounts} | {node.target for node in plan.devices}
    paths = [path for line in lines(release) for path in expanded(line.path.replace("//", "/"))]
    assert [path for path in paths if path not in told and path.rpartition("/")[2] not in told] == []
    assert len(paths) > 250


def test_a_program_of_a_list_is_a_program() -> None:
    smi: Spec = {"/usr/sbin/nvidia-smi": File(elf(kind=2, machine=AARCH64), 0o755)}
    plan = planned(smi, drivers("lib, /usr/sbin/nvidia-smi\n"))
    assert [mount.kind for mount in plan.mounts if mount.target.endswith("nvidia-smi")] == ["binary"]
