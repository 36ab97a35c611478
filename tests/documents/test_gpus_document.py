"""`gpubind gpus`: every GPU with what it is called, what one may do with it, and whether it is chosen."""

from __future__ import annotations

import json

import pytest

from gpubind.documents.gpus import ListedGpu, gpus_table, list_gpus, render_gpus_json
from gpubind.planner.gpus.selection import select
from tests.planner.gpus.hosts import HOSTS
from tests.support.golden import assert_fits


def listed(host: str, gpus: str = "all") -> tuple[ListedGpu, ...]:
    return list_gpus(HOSTS[host], select(HOSTS[host], gpus, {}, isolated=True))


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_the_document_of_every_host_is_as_its_schema_says(host: str) -> None:
    document = json.loads(render_gpus_json(listed(host)))
    assert_fits(document, "gpus")
    assert len(document["gpus"]) == sum(len(inventory.gpus) for inventory in HOSTS[host])


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_the_table_of_every_host_has_a_row_for_each_gpu_and_each_mig_device(host: str) -> None:
    assert len(gpus_table(listed(host)).rows) == sum(1 + len(one.gpu.mig) for one in listed(host))


def test_a_gpu_that_is_not_chosen_is_listed_and_says_so() -> None:
    table = gpus_table(listed("two", "1"))
    assert (table.columns[-1].title, [row[-1] for row in table.rows]) == ("chosen", ["no", "yes"])


def test_a_gpu_that_a_cgroup_forbids_is_not_chosen_unless_all_are_forbidden_or_it_is_named() -> None:
    for host, gpus, chosen in (
        ("cgroup", None, ["no", "no", "yes", "yes"]),
        ("cgroup", "0", ["yes", "no", "no", "no"]),
        ("closed", None, ["yes", "yes"]),
    ):
        selected = select(HOSTS[host], gpus, {}, isolated=True)
        assert [row[-1] for row in gpus_table(list_gpus(HOSTS[host], selected)).rows] == chosen


def test_of_a_gpu_with_a_chosen_part_every_part_is_listed() -> None:
    (first, *_) = listed("mig", "0:2/0")
    assert [part["chosen"] for part in first.to_dict()["mig"]] == [False, True]
    rows = gpus_table(listed("mig", "0:2/0")).rows
    assert [row[-1] for row in rows if str(row[0]).startswith("0:")] == ["no", "yes"]


def test_the_mode_of_a_divided_gpu_is_a_column_where_one_has_a_mode() -> None:
    assert "partition" not in [column.title for column in gpus_table(listed("two")).columns]
    table = gpus_table(listed("both"))
    at = [column.title for column in table.columns].index("partition")
    assert [row[at] for row in table.rows] == ["-", "-", "SPX/NPS1", "SPX/NPS1"]


def test_access_is_what_is_allowed_on_all_nodes_of_the_gpu() -> None:
    (one,) = listed("one")
    nodes = (one.nodes[0], one.nodes[0]._replace(access="r"))
    assert [one._replace(nodes=kept).access for kept in (nodes, nodes[:1], ())] == ["r", "rw", None]
    assert one._replace(nodes=(*nodes, nodes[0]._replace(access="w"))).access == "none"


def test_a_host_without_gpus_has_no_rows() -> None:
    assert gpus_table(listed("none")).rows == ()
