"""Tables as values: which columns and rows there are. `cli/render.py` lays them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Union

from gpubind.documents.text import printable


class Column(NamedTuple):
    """A column of a table."""

    title: str
    right: bool = False
    """Numbers stand to the right."""
    kept: bool = False
    """Shown also where every row has the same."""


class Heading(NamedTuple):
    """A line between rows, about those below it."""

    text: str


Row = tuple[str, ...]


class Table(NamedTuple):
    """What a table shows; every text in it is printable."""

    columns: tuple[Column, ...]
    rows: tuple[Union[Row, Heading], ...]
    same: tuple[str, ...] = ()
    """What every row has, said once: `mode 0666`."""


def table_of(columns: Sequence[Column], rows: Sequence[Union[Row, Heading]]) -> Table:
    """Return the table of *rows*. A column in which every row has the same is left out, and told in `same`."""
    cells = [row for row in rows if not isinstance(row, Heading)]
    equal = [
        at
        for at, column in enumerate(columns)
        if len(cells) > 1 and at > 0 and not column.kept and len({row[at] for row in cells}) == 1
    ]
    shown = [at for at in range(len(columns)) if at not in equal]
    return Table(
        tuple(columns[at]._replace(title=printable(columns[at].title)) for at in shown),
        tuple(
            Heading(printable(row.text)) if isinstance(row, Heading) else tuple(printable(row[at]) for at in shown)
            for row in rows
        ),
        tuple(printable(f"{columns[at].title} {cells[0][at]}") for at in equal if cells[0][at]),
    )
