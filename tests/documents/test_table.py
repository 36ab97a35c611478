"""Tables: nothing breaks inside a name, and nothing is said in every row."""

from __future__ import annotations

from gpubind.documents.table import Column, Heading, table_lines

COLUMNS = (Column("name"), Column("size", right=True), Column("mode"), Column("path"))
ROWS = (("a", "1", "0666", "/dev/a"), ("bb", "22", "0666", "/dev/b b"))


def test_columns_are_as_wide_as_what_is_in_them_and_one_with_the_same_in_every_row_is_told_once() -> None:
    assert table_lines(COLUMNS, ROWS, 40) == [
        "name  size  path",
        "a        1  /dev/a",
        "bb      22  /dev/b b",
        "each: mode 0666",
    ]


def test_what_is_too_wide_is_told_below_the_name_and_items_stay_together() -> None:
    assert table_lines(COLUMNS, ROWS, 18) == [
        "a",
        "    size 1,",
        "    path /dev/a",
        "bb",
        "    size 22,",
        "    path /dev/b b",
        "each: mode 0666",
    ]


def test_a_name_that_is_longer_than_a_line_is_whole() -> None:
    lines = table_lines(COLUMNS, (("x" * 50, "1", "", "/" + "y" * 50),), 30)
    assert lines == ["x" * 50, "    size 1, path", "    /" + "y" * 50]


def test_a_row_alone_shows_every_column() -> None:
    assert table_lines(COLUMNS, ROWS[:1], 40) == ["name  size  mode  path", "a        1  0666  /dev/a"]


def test_a_column_that_is_to_be_kept_is_kept() -> None:
    columns = (*COLUMNS[:2], Column("mode", kept=True), COLUMNS[3])
    assert table_lines(columns, ROWS, 40)[1] == "a        1  0666  /dev/a"


def test_rows_stand_below_their_heading() -> None:
    rows = (Heading("first"), ROWS[0], Heading("second"), ROWS[1])
    assert table_lines(COLUMNS, rows, 40)[1:4] == ["first", "  a        1  /dev/a", "second"]


def test_control_characters_do_not_reach_the_terminal_and_colour_is_ours() -> None:
    lines = table_lines(COLUMNS, (("\x1b[2J", "1", "", ""),), 40, colour=True)
    assert lines[0].startswith("\x1b[1mname")
    assert lines[1].startswith("\\x1b[2J")


def test_without_rows_there_are_no_lines() -> None:
    assert table_lines(COLUMNS, (), 40) == []
