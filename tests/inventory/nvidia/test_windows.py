"""Windows' driver in WSL: its one node, its two directories, and the GPUs that no file names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

import pytest

import gpubind
from gpubind.errors import NothingToBindError, UsageError
from gpubind.formats.driver.nvidia import GPU_QUERY, list_argv, parse_gpu_rows
from gpubind.host.record import RecordedRun, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.inventory.asked import with_gpus_of_smi
from gpubind.inventory.vendors import read_inventories
from gpubind.model import Finding, Plan, Request
from gpubind.planner.placement import SINGULARITY_LAYOUT
from tests.layouts.families.windows import BRIDGE, DRIVERS, LIB, OLD_STORE, ROCM, STORE, TOLD, cache, store, wsl
from tests.rules.situations import Situation, found
from tests.support.driver import host, kernel, ubuntu
from tests.support.elf import elf
from tests.support.trees import Node, Spec, make_tree

HERE, BEFORE = f"{DRIVERS}/{STORE}", f"{DRIVERS}/{OLD_STORE}"
WHOLE: Spec = {**wsl(), **store(STORE), **cache()}
OWN = sorted(path for path in WHOLE if path.startswith(HERE) and not path.endswith((".inf", ".sys")))
"""What NVIDIA's container toolkit binds of the driver's directory."""
TOOLKITS_SPEC = json.dumps(
    {
        "cdiVersion": "0.3.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/dxg"}]}}],
        "containerEdits": {
            "mounts": [{"hostPath": path, "containerPath": path} for path in (f"{LIB}/libdxcore.so", *OWN)]
        },
    }
)


def planned(*parts: Spec, environ: Optional[Mapping[str, str]] = None, **asked: object) -> Plan:
    return gpubind.plan(host(*parts, environ=environ), Request(**asked))  # type: ignore[arg-type]


def sources(plan: Plan) -> dict[str, Optional[str]]:
    return {mount.target: mount.source for mount in plan.mounts}


def about_wsl(*parts: Spec) -> list[Finding]:
    return [finding for finding in found(Situation(parts)) if finding.code == "wsl"]


def test_each_file_of_the_drivers_directory_that_programs_open_is_at_its_own_path() -> None:
    targets = sources(planned(WHOLE))
    assert {target for target, source in targets.items() if target == source} == {*OWN, f"{LIB}/libdxcore.so"}


def test_ld_so_finds_each_library_of_the_drivers_directory() -> None:
    names = {path.rpartition("/")[2] for path in WHOLE if path.startswith(HERE) and ".so" in path}
    assert names <= {target.rpartition("/")[2] for target in sources(planned(WHOLE)) if target.startswith("/.gpubind/")}


def test_programs_open_libcuda_and_nvml_of_the_directory_that_they_open_in_windows() -> None:
    targets = sources(planned(WHOLE))
    for name, source in (("libcuda.so", "libcuda.so.1"), ("libcuda.so.1", "libcuda.so.1")):
        assert targets[f"/.gpubind/libs/{name}"] == f"{LIB}/{source}"
    assert targets["/.gpubind/libs/libnvidia-ml.so.1"] == f"{LIB}/libnvidia-ml.so.1"


@pytest.mark.parametrize("links", [False, True])
def test_files_of_one_library_do_not_collide(links: bool) -> None:
    plan = planned(wsl(links=links), store(STORE), cache())
    assert not [decision for decision in plan.decisions if decision.rule == "collision"]


def test_of_several_drivers_the_one_whose_files_programs_open_is_in_use() -> None:
    plan = planned(WHOLE, store(OLD_STORE, 64))
    targets = sources(plan)
    assert f"{HERE}/nvcubins.bin" in targets
    (other,) = [one for one in plan.decisions if one.rule == "other-driver-version"]
    assert (other.subject, other.path, other.named_by, other.named_at) == (BEFORE, BEFORE, "driver", DRIVERS)
    assert other.detail == "fewer of its files are in /usr/lib/wsl/lib than of the driver in use"
    assert not [target for target in targets if target.startswith(BEFORE)]


def test_of_several_drivers_that_nothing_tells_apart_a_container_gets_each() -> None:
    targets = sources(planned(WHOLE, store(OLD_STORE)))
    assert {f"{HERE}/nvcubins.bin", f"{BEFORE}/nvcubins.bin"} <= {*targets}


def test_a_driver_in_a_directory_of_another_name_is_found() -> None:
    targets = sources(planned(wsl(), store("oem.inf_amd64_1"), cache()))
    assert f"{DRIVERS}/oem.inf_amd64_1/libcuda.so.1.1" in targets


def test_a_plan_is_the_same_whichever_source_serves() -> None:
    printed = ("/dev/dxg", *(f"{HERE}/{name}" for name in ("nvidia-smi", "libcuda.so.1.1", "libnvidia-ml.so.1")))
    printed += (f"{HERE}/libnvidia-ptxjitcompiler.so.1", f"{HERE}/nvcubins.bin", f"{LIB}/libdxcore.so")
    run = RecordedRun(list_argv("/"), 0, "".join(f"{path}\n" for path in printed))
    on = host(WHOLE, {"/etc/cdi/nvidia.json": TOOLKITS_SPEC}, runs=(run,))
    served = ["nvidia-container-cli", "liblist", "driver", "cdi"]
    plans = [gpubind.plan(on, Request(source=source)) for source in served]
    assert [plan.drivers[0].source.served for plan in plans] == served
    assert len({plan.digest for plan in plans}) == 1


def test_a_record_has_nothing_of_the_other_drivers_that_windows_keeps(tmp_path: Path) -> None:
    others = {f"{DRIVERS}/usb{number}.inf_amd64_1/secret{number}.dll": b"x" for number in range(30)}
    shown = {**WHOLE, "/dev/dxg": b"", **store(OLD_STORE, 64), **others}
    make_tree(tmp_path, {path: item for path, item in shown.items() if not isinstance(item, Node)})
    text = gpubind.record(gpubind.open_host(root=tmp_path))
    assert "secret" not in text
    recorded = RecordedHost(parse_record(text.encode()), "test")
    assert gpubind.plan(recorded, Request()).digest == gpubind.plan(gpubind.open_host(root=tmp_path), Request()).digest


def test_a_driver_for_linux_does_not_serve() -> None:
    plan = planned(ubuntu(), WHOLE, cache("/usr/lib/x86_64-linux-gnu"))
    assert not [mount.source for mount in plan.mounts if "550.54" in (mount.source or "")]
    assert plan.drivers[0].driver.version is None
    (finding,) = [finding for finding in plan.findings if finding.code == "other-driver-version"]
    assert "550.54.14" in finding.what and "Windows" in finding.what


def test_no_kernel_module_is_expected() -> None:
    codes = {finding.code for finding in found(Situation((WHOLE,)))}
    assert codes == {"wsl"}


@pytest.mark.parametrize(
    ("parts", "severity", "where", "what"),
    [
        (
            (WHOLE,),
            *("note", "/dev/dxg, /usr/lib/wsl/lib"),
            "this is WSL: the driver is Windows', so its version cannot be checked here",
        ),
        (
            ({path: item for path, item in WHOLE.items() if path != "/dev/dxg"},),
            *("warning", "/dev/dxg", "this is WSL, and /dev/dxg, which is all GPUs of Windows, is missing"),
        ),
        (
            (wsl(), cache()),
            *("warning", DRIVERS, f"this is WSL, and no directory in {DRIVERS} has NVIDIA's driver"),
        ),
    ],
    ids=["whole", "no node", "no directory of the driver"],
)
def test_what_cannot_be_served_is_a_warning(parts: tuple[Spec, ...], severity: str, where: str, what: str) -> None:
    (finding,) = about_wsl(*parts)
    assert (finding.severity, finding.where, finding.what) == (severity, where, what)
    assert finding.subject == where.partition(",")[0]


def test_a_node_that_may_not_be_opened_is_an_error() -> None:
    closed: Spec = {"/dev/dxg": Node("char", 10, 125, 0o600)}
    (finding,) = planned(WHOLE, closed).findings
    assert (finding.code, finding.severity, finding.subject) == ("device-permission", "error", "/dev/dxg")


def test_windows_without_a_driver_of_nvidias_is_nothing_to_bind() -> None:
    others = {"/dev/dxg": wsl()["/dev/dxg"], **{f"{LIB}/{n}": elf(n) for n in ("libdxcore.so", "libd3d12.so")}}
    with pytest.raises(NothingToBindError) as caught:
        planned(others, vendors=("nvidia",))
    assert "in Windows" in (caught.value.hint or "")


def test_a_loaded_kernel_module_is_the_driver_whatever_lies_in_the_directory_of_windows() -> None:
    plan = planned(ubuntu(), kernel(), {f"{LIB}/libcuda.so.1": elf("libcuda.so.1")})
    assert plan.drivers[0].driver.kind == "linux"


@pytest.mark.parametrize("gpus", ["0", "0,1", "GPU-0", "0000:01:00.0", "minor:0", "MIG-a"])
def test_no_gpu_can_be_chosen_where_one_node_is_all(gpus: str) -> None:
    with pytest.raises(UsageError) as caught:
        planned(WHOLE, gpus=gpus)
    assert caught.value.code == "inseparable-gpus"
    assert "/dev/dxg" in str(caught.value)


@pytest.mark.parametrize(("gpus", "nodes"), [("all", ["/dev/dxg"]), ("none", [])])
def test_all_gpus_and_none_can_be_chosen(gpus: str, nodes: list[str]) -> None:
    assert [node.target for node in planned(WHOLE, gpus=gpus).devices] == nodes


@pytest.mark.parametrize("value", ["0", "1,0", "GPU-1", "7"])
def test_the_callers_own_list_is_handed_on_and_the_node_stays(value: str) -> None:
    plan = planned(WHOLE, environ={"CUDA_VISIBLE_DEVICES": value})
    assert [node.target for node in plan.devices] == ["/dev/dxg"]
    assert [(one.op, one.value) for one in plan.env if one.name == "CUDA_VISIBLE_DEVICES"] == [("set", value)]
    assert [finding.code for finding in plan.findings] == []
    inherited = gpubind.plan(host(WHOLE, environ={"CUDA_VISIBLE_DEVICES": value}), Request(), layout=SINGULARITY_LAYOUT)
    assert not [one for one in inherited.env if one.name == "CUDA_VISIBLE_DEVICES"]


def test_amds_gpus_are_reached_through_the_same_node() -> None:
    on = host(ROCM, environ={"ROCR_VISIBLE_DEVICES": "1"})
    plan = gpubind.plan(on, Request())
    assert [(node.vendor, node.target) for node in plan.devices] == [("amd", "/dev/dxg")]
    env = {one.name: (one.op, one.value) for one in plan.env}
    assert env["HSA_ENABLE_DXG_DETECTION"] == ("default", "1")
    assert env["ROCR_VISIBLE_DEVICES"] == ("set", "1")
    assert {f"/.gpubind/libs/{name}" for name in BRIDGE} <= {*sources(plan)}


def test_without_its_bridge_rocm_reaches_nothing_in_windows() -> None:
    without = {path: item for path, item in ROCM.items() if "rocdxg" not in path}
    plan = planned(without, vendors=("amd",))
    assert (plan.devices, [one.name for one in plan.env if one.name.startswith("HSA")]) == ((), [])
    assert "driver-not-loaded" in {finding.code for finding in plan.findings}


def test_a_node_of_both_vendors_is_there_once() -> None:
    plan = planned(WHOLE, ROCM, vendors=("nvidia", "amd"))
    assert [node.target for node in plan.devices] == ["/dev/dxg"]


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles"])
def test_a_caller_who_hides_all_gpus_gets_no_node(value: str) -> None:
    plan = planned(WHOLE, environ={"CUDA_VISIBLE_DEVICES": value})
    assert plan.devices == ()
    assert [finding.code for finding in plan.findings] == ["visible-devices-none"]


@pytest.mark.parametrize(
    ("run", "models"),
    [
        (TOLD, ["NVIDIA GeForce RTX 4090"]),
        (RecordedRun(GPU_QUERY, 9, "", "Failed to initialize NVML"), []),
        (RecordedRun(GPU_QUERY, 0, "No devices were found\n"), []),
        (None, []),
    ],
    ids=["told", "fails", "none", "no program"],
)
def test_nvidia_smi_tells_the_gpus(run: Optional[RecordedRun], models: list[str]) -> None:
    on = host(WHOLE, runs=() if run is None else (run,))
    (inventory,) = with_gpus_of_smi(on, read_inventories(on, Request()).inventories)
    assert [gpu.model for gpu in inventory.gpus] == models


def test_where_files_name_the_gpus_no_program_is_asked() -> None:
    on = host(ubuntu(), kernel(), runs=(TOLD,))
    before = read_inventories(on, Request()).inventories
    assert with_gpus_of_smi(on, before) == before


@pytest.mark.parametrize("line", ["", ",,,", "0", "x, GPU-1, a, b", "²,GPU-1,,", "0, , , ", "\0", "99999, GPU-1, 0, m"])
def test_a_line_of_nvidia_smi_that_names_no_gpu_is_none(line: str) -> None:
    assert parse_gpu_rows(f"{line}\n") == ()
