"""Choosing GPUs: each row of the table gives these devices, variables and findings."""

from __future__ import annotations

import re

import pytest

from gpubind import plan
from gpubind.model import Request
from gpubind.planner import make_plan
from gpubind.planner.gpus.selection import SelectedInventory, select
from tests.planner.gpus.cases import ALL, ERRORS, ROWS, Row
from tests.planner.gpus.hosts import DRIVER, HOSTS, both, hexid
from tests.support.amd import UNIQUE_IDS
from tests.support.amd import kernel as amd_kernel
from tests.support.driver import gpu, host, kernel, uuid
from tests.support.trees import Node, Spec


def chosen(row: Row) -> tuple[SelectedInventory, ...]:
    return select(HOSTS[row.host], row.gpus, row.environ, isolated=row.isolated)


def nodes(row: Row) -> list[str]:
    """The nodes that *row* expects: a render node's card, and an accelerator's control node, go with it."""
    if row.devices == ALL:
        return [node.target for inventory in HOSTS[row.host] for node in inventory.devices]
    more = [f"dri/card{int(number) - 128}" for number in re.findall("renderD([0-9]+)", row.devices)]
    more += [name.replace("accel/accel", "accel/accel_controlD") for name in row.devices.split() if "accel" in name]
    return [f"/dev/{name}" for name in (*row.devices.split(), *more)]


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.devices not in ERRORS])
def test_a_choice_gives_these_devices_variables_and_findings(name: str) -> None:
    row = ROWS[name]
    made = chosen(row)
    devices = [node.target for selection in made for node in selection.inventory.devices]
    assert sorted(devices) == sorted(nodes(row))
    env = [variable for selection in made for variable in selection.env]
    assert {variable.name: variable.value for variable in env} == row.env
    assert len({variable.name for variable in env}) == len(env)
    assert all((variable.op == "unset") == (variable.value is None) for variable in env)
    own = [finding for inventory in HOSTS[row.host] for finding in inventory.findings]
    every = [finding for selection in made for finding in selection.inventory.findings]
    findings = [f"{f.severity} {f.code}" for f in every if f not in own]
    assert findings == ([row.findings] if row.findings else [])
    assert all(f.hint and f.where for f in every)
    assert {f.vendor for f in every} <= {inventory.driver.vendor for inventory in HOSTS[row.host]}


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.devices not in ERRORS])
def test_every_node_is_planned_or_has_a_reason_and_gpus_say_whether_they_are_chosen(name: str) -> None:
    for before, made in zip(HOSTS[ROWS[name].host], chosen(ROWS[name])):
        left = [decision.subject for decision in made.decisions]
        assert {decision.rule for decision in made.decisions} <= {"not-chosen"}
        assert sorted([*left, *(node.target for node in made.inventory.devices)]) == sorted(
            node.target for node in before.devices
        )
        with_nodes = {node.gpu for node in made.inventory.devices if node.gpu is not None}
        told = [gpu for gpu in made.inventory.gpus if gpu.minor is not None]
        # Where nothing chooses, the nodes that a cgroup forbids stay, and their GPUs are nobody's.
        is_closed = not left and ROWS[name].gpus is None and before.hides_gpus
        assert {gpu.index for gpu in told if gpu.chosen} == with_nodes - set(
            before.hidden_gpu_indexes if is_closed else ()
        )


def test_there_are_rows_enough() -> None:
    assert len(ROWS) >= 60
    assert {row.host for row in ROWS.values()} == set(HOSTS)


def test_a_gpu_of_which_mig_devices_are_chosen_has_those_in_the_plan() -> None:
    (made,) = select(HOSTS["mig"], "0:2/0", {}, isolated=True)
    assert [(device.gi, device.ci) for device in made.inventory.gpus[0].mig] == [(2, 0)]


def test_findings_about_nodes_that_are_left_out_do_not_count() -> None:
    closed: Spec = {f"/dev/nvidia{number}": Node("char", 195, number, 0o600) for number in range(2)}
    made = plan(host(DRIVER, kernel(), closed), Request(gpus="1"))
    assert [finding.subject for finding in made.findings] == ["/dev/nvidia1"]


def test_an_equal_choice_on_equal_nodes_has_an_equal_digest() -> None:
    first = make_plan(HOSTS["both"], Request(gpus=f"{uuid(1)},{hexid(0)}"))
    by_number = make_plan(HOSTS["both"], Request(gpus="minor:1,renderD128"))
    assert by_number.digest == make_plan(HOSTS["both"], Request(gpus="0000:02:00.0,renderD128")).digest
    others = amd_kernel(2, bmc=False, step=1, uniques=UNIQUE_IDS[6:])
    second = make_plan(both(gpu(0, told=uuid(8)), gpu(1, told=uuid(9)), others), Request(gpus=f"{uuid(9)},{hexid(6)}"))
    assert [e.value for e in first.env] != [e.value for e in second.env]
    assert first.digest == second.digest
    assert first.digest != make_plan(HOSTS["both"], Request(gpus=f"{uuid(0)},{hexid(0)}")).digest
