"""The plan as a picture: what is in it, and which lines lead where."""

from __future__ import annotations

import re
from typing import Any

import pytest

import gpubind
from gpubind.documents.report.check import render_check_html
from gpubind.documents.report.picture import (
    LEFT,
    MIDDLE,
    GraphNode,
    PlanGraph,
    picture_of,
    script_data,
    truncate_middle,
)
from gpubind.launch.preflight import make_preflight
from gpubind.model import Plan, Request
from gpubind.planner.planning import PlanQuery
from gpubind.rules.linkage import linkage_of
from tests.documents.report.pages import IMAGE, LOADER, NEWER, REPORT, made
from tests.support.commands import HOST
from tests.support.driver import V
from tests.support.elf import elf
from tests.support.images import glibc, image
from tests.support.trees import File, Spec


def drawn(report: gpubind.documents.check.report.Report = REPORT) -> PlanGraph:  # type: ignore[name-defined]
    assert report.plan is not None
    return picture_of(report.plan, report.linked, report.findings, report.checked.program)


PICTURE = drawn()
assert REPORT.plan is not None
PLAN: Plan = REPORT.plan
CUDA = "libcuda.so, libcuda.so.1"
ML = "libnvidia-ml.so.1"


def labelled(picture: PlanGraph, label: str) -> GraphNode:
    (part,) = [part for part in (*picture.rows, *picture.needed) if part.label == label]
    return part


def needs(picture: PlanGraph, label: str) -> list[tuple[str, str]]:
    """What the part *label* needs, and the kind of the line that leads there."""
    names = {part.id: part.label for part in (*picture.rows, *picture.needed)}
    begin = labelled(picture, label).id
    return [(names[line.end], line.kind) for line in picture.lines if line.begin == begin and line.end != begin]


def test_each_bind_each_node_and_the_program_is_in_a_row() -> None:
    titles = "\n".join(row.title for row in PICTURE.rows)
    for path in (*(mount.target for mount in PLAN.mounts), *(node.target for node in PLAN.devices), "/opt/app"):
        assert path in titles


def test_the_program_leads_to_what_it_needs_and_to_what_is_missing() -> None:
    assert needs(PICTURE, "/opt/app") == [(CUDA, "use"), ("libgone.so", "broken")]
    assert labelled(PICTURE, "libgone.so").severity == "error"


def test_a_library_of_the_image_that_lacks_something_has_a_row_on_the_way_to_it() -> None:
    inner: Spec = {
        "/opt/app": File(elf(kind=2, needed=("liba.so",), runpath="/opt", interpreter=LOADER), 0o755),
        "/opt/liba.so": elf("liba.so", needed=("libb.so", "libc.so.6"), runpath="/opt"),
        "/opt/libb.so": elf("libb.so", needed=("libc.so.6", "libgone.so"), needs={"libc.so.6": ("GLIBC_2.99",)}),
    }
    picture = drawn(made(image(glibc("2.36"), inner), "/opt/app"))
    assert needs(picture, "/opt/app") == [("/opt/liba.so", "use")]
    assert labelled(picture, "/opt/liba.so").host == "(the image's)"
    assert needs(picture, "/opt/liba.so") == [("/opt/libb.so", "use"), ("libc.so.6", "use")]
    assert needs(picture, "/opt/libb.so") == [("GLIBC_2.99", "broken"), ("libc.so.6", "use"), ("libgone.so", "broken")]


def test_what_is_left_out_leads_to_the_symbol_version_that_is_not_defined() -> None:
    assert labelled(PICTURE, ML).kind == "left-out"
    assert needs(PICTURE, ML) == [("GLIBC_2.38", "broken"), ("libc.so.6", "use")]
    own = labelled(PICTURE, ML).id
    assert [line.kind for line in PICTURE.lines if line.begin == line.end == own] == ["dead", "broken"]


def test_without_an_image_it_says_what_an_image_must_have() -> None:
    picture = drawn(made(None, None, NEWER))
    assert labelled(picture, "libc.so.6").kind == "unknown"
    assert ("needed versions", "GLIBC_2.38") in labelled(picture, "libc.so.6").facts


def test_a_gpu_leads_to_its_nodes() -> None:
    assert labelled(PICTURE, "/dev/nvidia0").kind == "node"
    assert [name for name, _ in needs(PICTURE, "/dev/nvidia0")] == ["GPU 0: NVIDIA A100"]


def test_no_two_parts_of_a_column_touch_and_all_are_in_the_picture() -> None:
    start = make_preflight(gpubind.open_host(HOST), PlanQuery(Request(), None), IMAGE)
    picture = picture_of(start.plan, linkage_of(start), start.plan.findings, None)
    for column in (picture.rows, picture.needed):
        heights = [part.y for part in column]
        assert all(after - before >= 20 for before, after in zip(heights, heights[1:]))
        assert max(heights) < picture.height
    assert len({part.id for part in (*picture.rows, *picture.needed)}) == len(picture.rows) + len(picture.needed)


def test_every_line_joins_parts_that_are_there() -> None:
    ids = {part.id for part in (*PICTURE.rows, *PICTURE.needed)}
    assert all(line.begin in ids and line.end in ids for line in PICTURE.lines)
    data = script_data(PICTURE)
    assert {part["id"] for part in data["parts"]} == ids  # type: ignore[attr-defined]


def test_a_name_that_is_too_long_keeps_its_beginning_and_its_end() -> None:
    text = truncate_middle("/usr/share/" + "x" * 90 + "/nvidia_icd.json", "middle")
    assert text.startswith("/usr/share/x")
    assert text.endswith("x/nvidia_icd.json")
    assert len(text) == 47
    assert truncate_middle("libcuda.so.1", "middle") == "libcuda.so.1"


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"origin": "user"}, ("covered by", "a bind of yours over /.gpubind/libs/libcuda.so.1")),
        ({"fault": "file too short"}, ("the loader", "file too short")),
    ],
    ids=["a bind of the user", "a fault"],
)
def test_what_keeps_a_file_of_the_plan_from_being_loaded_is_said(change: dict[str, Any], fact: tuple[str, str]) -> None:
    linked = tuple(file._replace(**change) if file.path.endswith("libcuda.so.1") else file for file in REPORT.linked)
    before, after = (labelled(drawn(one), CUDA).facts for one in (REPORT, REPORT._replace(linked=linked)))
    assert [one for one in after if one not in before] == [fact]


def test_a_file_that_is_left_out_says_what_it_is_and_by_which_rule() -> None:
    (one,) = [one for one in PLAN.decisions if one.subject == ML and one.verdict == "left-out"]
    facts = (("on the host", one.path), ("left out", one.detail), ("rule", one.rule), ("listed by", one.named_by))
    assert labelled(PICTURE, ML).facts == facts


def test_a_file_is_named_by_its_place_on_the_host_and_one_without_a_source_by_who_writes_it() -> None:
    written = PLAN._replace(mounts=tuple(one._replace(source=None) for one in PLAN.mounts))
    pictures = (PICTURE, drawn(REPORT._replace(plan=written)))
    names = [{row.host for row in picture.rows if row.kind == "file"} for picture in pictures]
    assert f"libcuda.so.{V}" in names[0]
    assert names[1] == {"(rewritten by gpubind)"}


def test_the_name_of_each_row_is_tied_to_its_lines_and_of_no_other() -> None:
    around = [line for line in PICTURE.lines if line.kind in ("use", "broken")]
    ends = {end for line in around if line.begin != line.end for end in (line.begin, line.end)}
    rows = {row.id for row in PICTURE.rows}
    assert {line.begin for line in around if line.begin == line.end} == rows & ends != rows


def test_texts_begin_where_the_lines_are_counted_from() -> None:
    svg = render_check_html(REPORT).partition("<svg id")[2].partition("</svg>")[0]
    assert {int(at) for at in re.findall(r'<text x="([0-9]+)"', svg)} > {LEFT, MIDDLE}
