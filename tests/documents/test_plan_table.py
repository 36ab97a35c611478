"""The plan as tables: each thing said once."""

from __future__ import annotations

from gpubind import open_host, plan
from gpubind.documents.tables import RowHeading, plan_tables
from gpubind.model import ContainerPath, HostPath, Request

PLAN = plan(open_host("debian13-nvidia550"), Request())


def test_files_stand_below_their_directory_and_a_column_of_equals_is_said_once() -> None:
    binds, others, nodes, variables = plan_tables(PLAN)
    at = binds.rows.index(RowHeading("libraries for utility, from /usr/lib/x86_64-linux-gnu/nvidia/current/"))
    assert binds.rows[at + 1] == ("libnvidia-cfg.so.1", "389.6 KiB", "libnvidia-cfg.so.550.163.01")
    assert binds.common_values == ("listed by liblist",)
    assert others.rows
    assert nodes.rows
    assert not any("0666" in same for same in nodes.common_values)  # MIG's nodes have other modes
    assert [row[0] for row in variables.rows if not isinstance(row, RowHeading)] == [one.name for one in PLAN.env]


def test_nodes_are_sorted_as_numbers() -> None:
    paths = [f"/dev/nvidia{at}" for at in (10, 2, 1)]
    devices = tuple(PLAN.devices[0]._replace(source=HostPath(path), target=ContainerPath(path)) for path in paths)
    nodes = plan_tables(PLAN._replace(devices=devices))[2]
    assert [row[0] for row in nodes.rows if not isinstance(row, RowHeading)] == paths[::-1]


def test_what_is_not_in_the_plan_is_a_table_of_its_own_when_asked_for() -> None:
    assert len(plan_tables(PLAN)) == 4
    assert plan_tables(PLAN, verbose=True)[4].columns[0].title == "not in the plan"
