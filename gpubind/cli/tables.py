"""Tables for people, laid out by rich. The only module that imports rich.

Errors of the import: `HostReadError` (code `missing-package`) where rich is not installed.

No name is broken: a column is at least as wide as its longest word. If the columns together are then too wide, a row
becomes a list: its first cell, and below it the others with their titles.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Optional

from gpubind.documents.tables import Column, RowHeading, Table
from gpubind.documents.text import wrapped
from gpubind.errors import missing_package

try:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table as Grid
    from rich.text import Text
except ImportError as error:
    raise missing_package("rich", "a table; --json needs none") from error

_GAP = 2
HEADING = "cyan"
_INDENT = " " * 4
"""The indent of the cells below the first one of a list."""


def render_tables(tables: Iterable[Table], width: int, last: str = "", *, colour: bool = False) -> str:
    """Return those of *tables* that have rows, then the line *last*. Lines have *width* columns, or more for a
    longer word.
    """
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        _environ={},  # COLUMNS and LINES may hold anything
        highlight=False,
        markup=False,
        emoji=False,
    )
    blocks = [_block(table, console) for table in tables if table.rows]
    if last:
        with console.capture() as captured:
            _print_wrapped(last, console, style="bold")
        blocks.append(captured.get())
    return "\n".join(blocks)


@contextmanager
def progress_counter(label: str, total: int) -> Iterator[Callable[[], None]]:
    """Show on standard error how many of *total* things are done within the context."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda: progress.advance(task)


def _block(table: Table, console: Console) -> str:
    widths = _widths(table, console.width)
    with console.capture() as captured:
        if widths is None:
            _list(table, console)
        else:
            _grid(table, widths, console)
        if table.common_values:
            _print_wrapped("each: " + ", ".join(table.common_values), console)
    return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())


def _widths(table: Table, width: int) -> Optional[list[int]]:
    """Return the width of each column, which is at least that of its longest word; None if the longest words do not
    fit.

    This is not left to rich, because its own distribution may go below the minimum width of a column.
    """
    indent = _indent(table)
    full, least = [], []
    for at, column in enumerate(table.columns):
        cells = [column.title, *(row[at] for row in table.rows if not isinstance(row, RowHeading))]
        more = indent if at == 0 else 0
        full.append(more + max(map(cell_len, cells)))
        words = cells if column.align_right else [word for cell in cells for word in cell.split()]
        least.append(more + max(map(cell_len, words)))
    spare = width - sum(least) - _GAP * (len(least) - 1)
    if spare < 0:
        return None
    for at in sorted(range(len(least)), key=lambda at: full[at] - least[at]):
        extra = min(full[at] - least[at], spare)
        least[at] += extra
        spare -= extra
    return least


def _indent(table: Table) -> int:
    return _GAP if any(isinstance(row, RowHeading) for row in table.rows) else 0


def _grid(table: Table, widths: Sequence[int], console: Console) -> None:
    """Print a grid below each heading. All have the same widths, and only the first has titles."""
    grid = _columns(table.columns, widths, show_header=True)
    for row in table.rows:
        if isinstance(row, RowHeading):
            _print_grid(grid, console)
            grid = _columns(table.columns, widths, show_header=False)
            _print_wrapped(row.text, console, style=HEADING)
        else:
            grid.add_row(Padding(Text(row[0]), (0, 0, 0, _indent(table))), *map(Text, row[1:]))
    _print_grid(grid, console)


def _columns(columns: Sequence[Column], widths: Sequence[int], *, show_header: bool) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", show_header=show_header)
    for column, width in zip(columns, widths):
        grid.add_column(Text(column.title), justify="right" if column.align_right else "left", width=width)
    return grid


def _print_grid(grid: Grid, console: Console) -> None:
    if grid.row_count or grid.show_header:
        console.print(grid)


def _list(table: Table, console: Console) -> None:
    indent = " " * _indent(table)
    for row in table.rows:
        if isinstance(row, RowHeading):
            _print_wrapped(row.text, console, style=HEADING)
            continue
        _print_wrapped(row[0], console, indent)
        for column, cell in zip(table.columns[1:], row[1:]):
            if cell:
                _print_wrapped(f"{column.title} {cell}", console, indent + _INDENT)


def _print_wrapped(text: str, console: Console, indent: str = "", style: str = "") -> None:
    """Print *text* in lines that end between words. A word longer than a line is not broken."""
    for line in wrapped(text, console.width, indent, indent):
        console.print(Text(line, style), soft_wrap=True)
