"""The plan as a table: whole names at every width, each thing said once."""

from __future__ import annotations

import re

import pytest

from gpubind.documents.plan_table import render_plan_table
from gpubind.facade import open_host, plan
from gpubind.model import Plan, Request

PLANS = [plan(open_host(host), Request()) for host in ("debian13-nvidia550", "mi300x-rocm62")]


@pytest.mark.parametrize("made", PLANS, ids=["nvidia", "amd"])
@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_every_name_is_whole_and_lines_fit_where_names_do(made: Plan, width: int) -> None:
    text = render_plan_table(made, width)
    for mount in made.mounts:
        name = mount.target.rpartition("/")[2] if mount.kind in ("library", "binary") else mount.target
        assert re.search(rf"(?m)(^|[ ,]){re.escape(name)}($|[ ,])", text), name
    long = [line for line in text.splitlines()[:-1] if len(line) > width and not line.startswith(("libraries", "prog"))]
    assert all(len(word) > width - 20 for line in long for word in [max(line.split(), key=len)]), long


def test_files_stand_below_their_directory_and_a_column_of_equals_is_said_once() -> None:
    lines = render_plan_table(PLANS[0], 120).splitlines()
    place = "/usr/lib/x86_64-linux-gnu/nvidia/current/"
    at = lines.index(f"libraries for utility, from {place}")
    assert re.fullmatch(r"  libnvidia-cfg.so.1 +389.6 KiB  libnvidia-cfg.so.550.163.01", lines[at + 1])
    assert "each: listed by liblist" in lines
    assert not any("0666" in line for line in lines if line.startswith("each: "))  # MIG's nodes have other modes


def test_what_is_not_in_the_plan_is_a_table_of_its_own_when_asked_for() -> None:
    assert "not in the plan" not in render_plan_table(PLANS[0], 200)
    assert "not in the plan" in render_plan_table(PLANS[0], 200, verbose=True)


def test_colours_change_no_word() -> None:
    plain = render_plan_table(PLANS[0], 80)
    assert re.sub(r"\x1b\[[0-9]*m", "", render_plan_table(PLANS[0], 80, colour=True)) == plain
