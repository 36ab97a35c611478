"""What a test says when a golden file or a list differs: where, and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import golden
from tests.support.golden import assert_golden, assert_listed, differences

UPDATE = "If the change is meant: python -m pytest tests/test_failures.py --update-golden, then read `git diff`."


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(golden, "ROOT", tmp_path)
    monkeypatch.setattr(golden, "is_updating", False)
    return tmp_path / "page"


def said(check: Any, *arguments: Any, **options: Any) -> list[str]:
    with pytest.raises(pytest.fail.Exception) as caught:
        check(*arguments, **options)
    return str(caught.value).splitlines()


def test_a_text_differs_by_lines_and_the_command_that_rewrites_it_is_named(page: Path) -> None:
    page.write_text("a\nb\n")
    head = "page differs from what the code makes now (- and left: the file):"
    assert said(assert_golden, page, "a\nc\n") == [head, "@@ -1,2 +1,2 @@", " a", "-b", "+c", "", UPDATE]
    assert len(said(assert_golden, page, "x\n" * 100)) == golden.LINES + 4


def test_of_a_long_line_the_part_that_differs_is_shown(page: Path) -> None:
    page.write_text("a" * 5000 + "b" + "c" * 5000)
    _, _, left, right, *_ = said(assert_golden, page, "a" * 5000 + "d" + "c" * 5000)
    assert "ab" in left and "ad" in right and max(len(left), len(right)) < 260


@pytest.mark.parametrize(
    ("there", "made", "wanted"),
    [
        ({"a": 1, "b": 0}, {"a": 2, "c": None}, ["a: 1 != 2", "b: 0 != nothing", "c: nothing != null"]),
        ([{"target": "/a", "x": 1}], [{"target": "/0"}, {"target": "/a", "x": 2}], ["[/a].x: 1 != 2"]),
        ([{"target": "/a", "x": 1}], [{"target": "/b", "x": 1}], ['[/a].target: "/a" != "/b"']),
        ([{"name": "a"}, {"name": "b"}], [{"name": "b"}, {"name": "a"}], [', their order: ["a", "b"] != ["b", "a"]']),
        ([{"name": "a", "x": 1}, {"name": "a", "x": 1}], [{"name": "a", "x": 1}] * 3, []),
        ({"a": 1}, {"a": True}, ["a: 1 != true"]),
        ({"a": [1, 2, 3]}, {"a": [1, 0, 3]}, ["a[1]: 2 != 0"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a: [1, 2] != [1]"]),
    ],
)
def test_json_differs_by_path(page: Path, there: Any, made: Any, wanted: list[str]) -> None:
    page.write_text(json.dumps(there))
    lines = said(assert_golden, page, json.dumps(made))[1:-2]
    assert [*wanted, *(line for line in lines if "nothing != {" in line)] == lines
    assert [*differences(there, there)] == []


def test_a_part_of_a_page_is_rewritten_and_the_rest_stays(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page.write_text("x\n<!-- p: begin -->\nold\n<!-- p: end -->\ny\n")
    assert said(assert_golden, page, "new\n", part="q") == ["page: add the line `<!-- q: begin -->`"]
    monkeypatch.setattr(golden, "is_updating", True)
    assert_golden(page, "new\n", part="p")
    assert page.read_text() == "x\n<!-- p: begin -->\nnew\n<!-- p: end -->\ny\n"


def test_a_list_says_for_each_name_what_to_add_and_to_remove() -> None:
    assert_listed(["a", "b"], ["b"], add="")
    assert said(assert_listed, "ab", "bc", add="F: add {}", remove="F: remove {}") == ["F: add c", "F: remove a"]
    assert said(assert_listed, "acb", "abc", add="", order="F") == ["F: `b` is to be where `c` is"]
