"""A plan, a finding and an explanation as plain text."""

from __future__ import annotations

import pytest

from gpubind import plan
from gpubind.documents.explanation import render_explanation
from gpubind.documents.text import printable, render_finding, render_paths, render_tsv
from gpubind.explanation.decisions import Explanation, explain
from gpubind.model import Finding, Request
from tests.support.driver import host, kernel, rhel

PLAN = plan(host(rhel(), kernel()), Request())


@pytest.mark.parametrize("character", ["\n", "\x1b", "\x9b", "\u2028", "\u202e", "\u2066"])
def test_no_name_breaks_a_line_or_steers_a_terminal(character: str) -> None:
    assert character not in printable(f"lib{character}.so")
    assert printable("libcuda.so.1 \u00e9 \u4e2d") == "libcuda.so.1 \u00e9 \u4e2d"


def test_an_item_is_a_line_of_columns_and_the_last_line_sums_up() -> None:
    *items, last = render_tsv(PLAN).splitlines()
    assert len(items) == len(PLAN.mounts) + len(PLAN.devices) + len(PLAN.env)
    assert {line.split("\t")[0] for line in items} == {"mount", "device", "env"}
    assert last == f"# {PLAN.summary}"


def test_verbose_adds_what_is_not_in_the_plan() -> None:
    verdicts = [line.split("\t")[0] for line in render_tsv(PLAN, verbose=True).splitlines()]
    left_out = [decision.verdict for decision in PLAN.decisions if decision.verdict != "taken"]
    assert left_out
    assert [verdict for verdict in verdicts if verdict in left_out] == left_out


def test_paths_are_sorted_and_each_is_there_once() -> None:
    paths = render_paths(PLAN).splitlines()
    assert paths == sorted({*paths})
    assert {mount.source for mount in PLAN.mounts if mount.source} <= {*paths}


def test_a_finding_has_a_line_for_each_thing_that_is_known_of_it() -> None:
    finding = Finding(
        "uvm-missing", "error", "nvidia", "/dev/nvidia-uvm", "it is missing", "/dev", None, "load it", "a\nb"
    )
    assert render_finding(finding).splitlines() == [
        "error: uvm-missing: it is missing",
        "  where: /dev",
        "  hint:  load it",
        "         $ a",
        "         $ b",
    ]


def test_an_explanation_says_where_a_file_lands_and_where_files_were_looked_for() -> None:
    lines = render_explanation(explain(PLAN, "libcuda.so.1")).splitlines()
    assert lines[0] == "libcuda.so.1"
    assert lines[1] == "`-- taken: it lands at /.gpubind/libs/libcuda.so.1"
    assert "looked in, in this order:" in lines


def test_a_name_that_nobody_has_named_is_explained_as_such() -> None:
    assert render_explanation(Explanation("libx.so", (), ())).startswith("libx.so: no source names it")
