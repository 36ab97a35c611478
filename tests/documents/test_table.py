"""Tables as values: nothing is said in every row."""

from __future__ import annotations

from gpubind.documents.tables import Column, RowHeading, Table, make_table

COLUMNS = (Column("name"), Column("size", align_right=True), Column("mode"), Column("path"))
ROWS = (("a", "1", "0666", "/dev/a"), ("bb", "22", "0666", "/dev/b b"))


def test_a_column_with_the_same_in_every_row_is_left_out_and_told_once() -> None:
    rows = (("a", "1", "/dev/a"), ("bb", "22", "/dev/b b"))
    assert make_table(COLUMNS, ROWS) == Table((*COLUMNS[:2], COLUMNS[3]), rows, ("mode 0666",))


def test_an_empty_column_is_left_out_without_a_word() -> None:
    assert make_table(COLUMNS, [(name, size, "", path) for name, size, _, path in ROWS]).common_values == ()


def test_a_row_alone_shows_every_column() -> None:
    assert make_table(COLUMNS, ROWS[:1]) == Table(COLUMNS, ROWS[:1])


def test_a_column_that_is_to_be_kept_is_kept() -> None:
    columns = (*COLUMNS[:2], Column("mode", always_shown=True), COLUMNS[3])
    assert make_table(columns, ROWS) == Table(columns, ROWS)


def test_headings_stay_between_their_rows() -> None:
    rows = (RowHeading("first"), ROWS[0], RowHeading("second"), ROWS[1])
    assert [row for row in make_table(COLUMNS, rows).rows if isinstance(row, RowHeading)] == [rows[0], rows[2]]


def test_every_text_is_printable() -> None:
    table = make_table(
        (Column("\x1b[1m"), Column("b")), (RowHeading("\x1b[2m"), ("\x1b[3m", "\x1b[4m"), ("c", "\x1b[4m"))
    )
    assert table == Table((Column("\\x1b[1m"),), (RowHeading("\\x1b[2m"), ("\\x1b[3m",), ("c",)), ("b \\x1b[4m",))
