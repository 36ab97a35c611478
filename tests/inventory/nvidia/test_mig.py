"""MIG: nodes that guard parts, names that only the driver's program knows, and GPUs that a cgroup hides."""

from __future__ import annotations

import json
from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.errors import UsageError
from gpubind.host.record import RecordedRun
from gpubind.inventory.nodes import hidden_gpus
from gpubind.inventory.nvidia.container_cli import find_mig_names
from gpubind.inventory.nvidia.devices import read_devices, read_mig_nodes
from gpubind.model import MigName, Plan, Request
from tests.support.driver import InCgroup, host, in_cgroup, kernel, rhel
from tests.support.trees import Item, Node, Spec

CAPS = "/dev/nvidia-caps/nvidia-cap"
BASE = "/proc/driver/nvidia/capabilities/gpu0/mig"
LIST = "/usr/lib64/libcuda.so.550.54.14\n/dev/nvidia0\n"
CLI = "nvidia-container-cli"


def divided(own_files: bool = False) -> Spec:
    """GPU 0 with the parts 1/0 and 2/0; their nodes by the table of all, or by the files of each."""
    spec: dict[str, Item] = {
        "/proc/devices": "Character devices:\n195 nvidia\n235 nvidia-uvm\n234 nvidia-caps\n",
        f"{CAPS}1": Node("char", 234, 1, 0o400),
    }
    table = "config 1\nmonitor 2\n"
    for number, name in enumerate(("gi1", "gi1/ci0", "gi2", "gi2/ci0"), 30):
        spec[f"{BASE}/{name}/access"] = f"DeviceFileMinor: {number}\nDeviceFileMode: 292\n" if own_files else ""
        spec[f"{CAPS}{number}"] = Node("char", 234, number, 0o444)
        table += f"gpu0/{name}/access {number}\n"
    spec["/proc/driver/nvidia-caps/mig-minors"] = "config 1\n" if own_files else table
    return spec


def answers(name: str, gi: int) -> tuple[RecordedRun, ...]:
    listed = f"/dev/nvidia0\n{BASE}/gi{gi}/access\n{BASE}/gi{gi}/ci0/access\n{CAPS}30\n"
    return RecordedRun((CLI, "list"), 0, LIST), RecordedRun((CLI, "list", f"--device={name}"), 0, listed)


def nodes(made: Plan) -> list[str]:
    return [node.target for node in made.devices if node.gpu is not None or "caps" in node.target]


def variables(made: Plan) -> dict[str, Optional[str]]:
    return {e.name: e.value for e in made.env if e.name.startswith("CUDA")}


@pytest.mark.parametrize("own_files", [False, True])
def test_the_nodes_that_guard_parts_are_found(own_files: bool) -> None:
    on = host(kernel(), divided(own_files))
    guards = read_mig_nodes(on, read_devices(on).gpus)
    assert [(g.target, g.minor, g.gi, g.ci) for g in guards] == [
        (f"{CAPS}30", 0, 1, None),
        (f"{CAPS}31", 0, 1, 0),
        (f"{CAPS}32", 0, 2, None),
        (f"{CAPS}33", 0, 2, 0),
    ]


def test_the_nodes_of_other_parts_are_left_out() -> None:
    made = plan(host(rhel(), kernel(), divided()), Request(gpus="0:2/0"))
    assert nodes(made) == [f"{CAPS}32", f"{CAPS}33", "/dev/nvidia0"]
    assert variables(made) == {"CUDA_VISIBLE_DEVICES": "MIG-GPU-00000000-1111-2222-3333-444444444444/2/0"}


@pytest.mark.parametrize(
    ("gpus", "environ"),
    [("0", {}), (None, {}), ("0:2/0", {"NVIDIA_MIG_CONFIG_DEVICES": "all"}), ("0:2/0,1", {})],
    ids=["whole", "all", "requested", "with-a-whole-gpu"],
)
def test_the_right_to_configure_mig_goes_with_whole_gpus_or_a_request(gpus: Optional[str], environ: Any) -> None:
    made = plan(host(rhel(), kernel(), divided(), environ=environ), Request(gpus=gpus))
    assert f"{CAPS}1" in nodes(made)


def test_where_the_nodes_of_parts_are_unknown_all_stay() -> None:
    unknown: Spec = {"/proc/driver/nvidia-caps/mig-minors": "config 1\n"}
    made = plan(host(rhel(), kernel(), divided(), unknown), Request(gpus="0:2/0"))
    assert nodes(made)[:5] == [f"{CAPS}{number}" for number in (1, 30, 31, 32, 33)]


@pytest.mark.parametrize("name", ["MIG-abcd", "0:1"])
def test_the_drivers_own_program_says_what_a_name_means(name: str) -> None:
    made = plan(host(rhel(), kernel(), divided(), runs=answers(name, 2)), Request(gpus=name))
    assert variables(made) == {"CUDA_VISIBLE_DEVICES": "MIG-GPU-00000000-1111-2222-3333-444444444444/2/0"}
    assert "mig-unresolved" not in [finding.code for finding in made.findings]


def with_spec(name: str, *caps: int) -> Spec:
    """A CDI spec that has *name* for the part with these nodes."""
    nodes = [{"path": "/dev/nvidia0"}, *({"path": f"{CAPS}{number}"} for number in caps)]
    devices = [{"name": name, "containerEdits": {"deviceNodes": nodes}}]
    return {"/etc/cdi/nvidia.json": json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices})}


@pytest.mark.parametrize("name", ["MIG-abcd", "0:1"])
def test_a_cdi_spec_says_what_a_name_means(name: str) -> None:
    made = plan(host(rhel(), kernel(), divided(), with_spec(name, 32, 33)), Request(gpus=name))
    assert variables(made) == {"CUDA_VISIBLE_DEVICES": "MIG-GPU-00000000-1111-2222-3333-444444444444/2/0"}
    assert f"{CAPS}31" not in nodes(made)
    assert "mig-unresolved" not in [finding.code for finding in made.findings]


@pytest.mark.parametrize("caps", [(), (32,), (31, 33)], ids=["none", "instance alone", "two parts"])
def test_a_cdi_spec_that_names_no_one_part_leaves_all_nodes(caps: tuple[int, ...]) -> None:
    made = plan(host(rhel(), kernel(), divided(), with_spec("MIG-abcd", *caps)), Request(gpus="MIG-abcd"))
    assert "mig-unresolved" in [finding.code for finding in made.findings]
    assert len([name for name in nodes(made) if "caps" in name]) == 5


def test_names_in_the_environment_are_asked_about_too() -> None:
    facts: dict[str, Any] = {"environ": {"CUDA_VISIBLE_DEVICES": "MIG-abcd"}, "runs": answers("MIG-abcd", 1)}
    made = plan(host(rhel(), kernel(), divided(), **facts), Request())
    assert variables(made) == {"CUDA_VISIBLE_DEVICES": "MIG-abcd"}
    assert [(part.gi, part.ci) for part in made.gpus[0].mig] == [(1, 0)]


@pytest.mark.parametrize(
    "answer",
    [
        RecordedRun((CLI, "list", "--device=MIG-abcd"), 1, "", "nvidia-container-cli: device error: MIG-abcd: unknown"),
        RecordedRun((CLI, "list", "--device=MIG-abcd"), 0, ""),
        RecordedRun((CLI, "list", "--device=MIG-abcd"), 0, "/dev/nvidia0\n"),
    ],
)
def test_a_program_that_does_not_know_either_leaves_all_nodes(answer: RecordedRun) -> None:
    runs = (RecordedRun((CLI, "list"), 0, LIST), answer)
    made = plan(host(rhel(), kernel(), divided(), runs=runs), Request(gpus="MIG-abcd"))
    assert len([name for name in nodes(made) if "caps" in name]) == 5
    assert variables(made) == {"CUDA_VISIBLE_DEVICES": "MIG-abcd"}
    assert "mig-unresolved" in [finding.code for finding in made.findings]


def confined_to(node: str, **facts: Any) -> InCgroup:
    nodes = [f"/dev/nvidia{number}" for number in range(3)]
    return in_cgroup(host(rhel(), kernel(gpus=3), **facts), *(path for path in nodes if path != node))


def test_a_gpu_that_a_cgroup_forbids_makes_numbers_unsure() -> None:
    facts = {"environ": {"CUDA_VISIBLE_DEVICES": "0"}}
    made = plan(confined_to("/dev/nvidia1", **facts), Request())
    assert [f.code for f in made.findings if f.subject == "CUDA_VISIBLE_DEVICES"] == ["gpu-order-unknown"]
    free = plan(host(rhel(), kernel(gpus=3), **facts), Request())
    assert nodes(free) == ["/dev/nvidia0"]


def test_a_gpu_whose_node_is_hidden_makes_numbers_unsure_but_not_if_none_has_one() -> None:
    spec = dict(kernel(gpus=3))
    del spec["/dev/nvidia0"]
    on = host(rhel(), spec)
    assert hidden_gpus(read_devices(on)) == (0,)
    on = host(rhel(), {path: item for path, item in spec.items() if not path.startswith("/dev/nvidia")})
    assert hidden_gpus(read_devices(on)) == ()


def test_slurms_numbers_hold_in_a_cgroup() -> None:
    facts = {"environ": {"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "2"}}
    made = plan(confined_to("/dev/nvidia2", **facts), Request())
    assert nodes(made) == ["/dev/nvidia2"]
    assert variables(made) == {"CUDA_VISIBLE_DEVICES": "0"}


def test_a_gpu_that_is_not_there_is_an_error_that_lists_those_that_are() -> None:
    with pytest.raises(UsageError) as error:
        plan(host(rhel(), kernel(), divided()), Request(gpus="5"))
    assert error.value.code == "unknown-gpu"
    assert "0000:02:00.0" in error.value.hint
    assert "0:2/0" in error.value.hint


@pytest.mark.parametrize(("count", "known"), [(64, True), (65, False)])
def test_sixty_four_names_are_resolved(count: int, known: bool) -> None:
    names = [f"MIG-{number:04x}" for number in range(count)]
    on = host(kernel(), divided(), with_spec(names[-1], 32, 33))
    guards = read_mig_nodes(on, read_devices(on).gpus)
    found = find_mig_names(on, Request(gpus=",".join(names)), guards, use_cli=False)
    assert found == ((MigName(names[-1], 0, 2, 0),) if known else ())
