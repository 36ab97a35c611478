"""The page docs/runtimes-tested.md is made of what the live tests saw."""

from __future__ import annotations

import pytest

from tests.live.table import ASKED, PAGE, TABLES, Fact, differs, page, untested
from tests.support.golden import assert_listed

ALL = [Fact(row, asked, "yes") for row, several in ASKED.items() for asked in several]


def test_what_no_test_has_seen_is_named() -> None:
    assert untested(ALL) == []
    assert untested([fact for fact in ALL if fact[:2] != ("crun", "SIGINT")]) == ["crun: SIGINT"]


def test_what_is_otherwise_is_told_with_what_was_asked() -> None:
    told = [Fact("proot", "SIGINT", "exit 255"), Fact("proot", "SIGINT", "yes"), Fact("proot", "terminal", "none")]
    line = next(line for line in page([*ALL, *told]).splitlines() if line.startswith("| proot"))
    assert line == f"| proot |{' yes |' * 7} SIGINT: exit 255 | yes | none | yes |"


def test_the_page_has_a_full_row_for_each_runtime() -> None:
    with open(PAGE) as file:
        rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in file if line.startswith("|")]
    rows = [row for row in rows if {*row} != {"---"}]
    write = "docs/runtimes-tested.md: `make live`, then `python -m tests.live.table --update`, writes the row `{}`"
    assert_listed([row[0] for row in rows if row[0]], ASKED, add=write, remove=write, order="docs/runtimes-tested.md")
    for columns, names in TABLES.values():
        assert ["", *columns] in rows
        assert all(len(row) == 1 + len(columns) and all(row) for row in rows if row[0] in names)


def test_a_newer_version_alone_is_noted_and_passes(capsys: pytest.CaptureFixture[str]) -> None:
    newer = [Fact(*fact[:2], "9.9") if fact[:2] == ("crun", "version") else fact for fact in ALL]
    assert not differs(page(ALL), page(newer))
    assert "+| crun | 9.9 |" in (said := capsys.readouterr().err)
    assert "note: only versions differ" in said
    assert not differs(page(ALL), page(ALL))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("asked", [asked for asked in ASKED["crun"] if asked != "version"])
def test_whatever_else_differs_fails(asked: str) -> None:
    changed = [Fact(*fact[:2], "no") if fact[:2] == ("crun", asked) else fact for fact in ALL]
    assert differs(page(ALL), page(changed))
    newer = [Fact(*fact[:2], "9.9") if fact[:2] == ("crun", "version") else fact for fact in changed]
    assert differs(page(ALL), page(newer))
