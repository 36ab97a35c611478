"""`gpubind gpus`: every GPU with what it is called, what one may do with it, and whether it is chosen."""

from __future__ import annotations

import json

import jsonschema
import pytest
from gpus.hosts import HOSTS, uuid

from gpubind.data import read_data
from gpubind.documents.gpus import Listed, list_gpus, render_gpus_json, render_gpus_table


def listed(host: str, gpus: str = "all") -> tuple[Listed, ...]:
    return list_gpus(HOSTS[host], gpus, {})


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_the_document_of_every_host_is_as_its_schema_says(host: str) -> None:
    document = json.loads(render_gpus_json(listed(host)))
    jsonschema.Draft202012Validator(json.loads(read_data("data/gpus.schema.json"))).validate(document)
    assert len(document["gpus"]) == sum(len(inventory.gpus) for inventory in HOSTS[host])


@pytest.mark.parametrize("host", sorted(HOSTS))
def test_the_table_of_every_host_has_a_row_for_each_gpu_and_each_mig_device(host: str) -> None:
    lines = render_gpus_table(listed(host), 200).splitlines()
    rows = [line for line in lines[1:] if not line.startswith("each: ")]
    assert len(rows) == sum(1 + len(one.gpu.mig) for one in listed(host))


def test_a_gpu_that_is_not_chosen_is_listed_and_says_so() -> None:
    lines = render_gpus_table(listed("two", "1"), 200).splitlines()
    assert [line.split()[-1] for line in lines[:3]] == ["chosen", "no", "yes"]


def test_of_a_gpu_with_a_chosen_part_every_part_is_listed() -> None:
    (first, *_) = listed("mig", "0:2/0")
    assert [part["chosen"] for part in first.to_dict()["mig"]] == [False, True]
    rows = render_gpus_table(listed("mig", "0:2/0"), 200).splitlines()
    assert [row.split()[-1] for row in rows if row.startswith("0:")] == ["no", "yes"]


def test_access_is_what_is_allowed_on_all_nodes_of_the_gpu() -> None:
    (one,) = listed("one")
    nodes = (one.nodes[0], one.nodes[0]._replace(access="r"))
    assert [one._replace(nodes=kept).access for kept in (nodes, nodes[:1], ())] == ["r", "rw", None]
    assert one._replace(nodes=(*nodes, nodes[0]._replace(access="w"))).access == "none"


def test_in_a_narrow_terminal_no_name_is_broken() -> None:
    lines = render_gpus_table(listed("eight"), 60).splitlines()
    assert max(map(len, lines)) <= 60
    text = "\n".join(lines)
    assert all(uuid(number) in text for number in range(8))


def test_a_host_without_gpus_has_none() -> None:
    assert render_gpus_table(listed("none"), 80) == "no GPU is here\n"
