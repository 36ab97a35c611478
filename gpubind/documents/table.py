"""Tables for people, in as many columns as there are. Nothing breaks inside a name.

Where rows are too wide, the first cell has a line of its own; where the others alone are, too, a row becomes a list:
its first cell, and the others below with their titles.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import TextWrapper
from typing import NamedTuple, Union

from gpubind.documents.text import printable

GAP = "  "
NARROWEST = 24
"""Columns that the first cells have at least; with fewer, a list is easier to read."""
_STAY = "\x00"  # stands for a space at which no line may end


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


def table_lines(
    columns: Sequence[Column], rows: Sequence[Union[Row, Heading]], width: int, *, colour: bool = False
) -> list[str]:
    """The table in lines of *width* columns, but for names that are longer. No rows, no lines.

    A column in which every row has the same is left out; what it has is said in a last line.
    """
    cells = [tuple(printable(cell) for cell in row) for row in rows if not isinstance(row, Heading)]
    if not cells:
        return []
    is_equal = [
        len(cells) > 1 and at > 0 and not column.kept and len({row[at] for row in cells}) == 1
        for at, column in enumerate(columns)
    ]
    shown = [at for at, equal in enumerate(is_equal) if not equal]
    wide = {at: max(len(columns[at].title), *(len(row[at]) for row in cells)) for at in shown}
    indent = GAP if any(isinstance(row, Heading) for row in rows) else ""
    others = sum(wide[at] + len(GAP) for at in shown[1:])
    room = max(width - len(indent) - others, 0)
    fits = room >= min(wide[0], NARROWEST)
    wide[0] = min(wide[0], room)
    lines = [_styled(_line([columns[at].title for at in shown], shown, columns, wide), "1", colour)] if fits else []
    body = iter(cells)
    for row in rows:
        if isinstance(row, Heading):
            lines.append(_styled(printable(row.text), "36", colour))
        elif fits:
            cell = next(body)
            is_long = len(cell[0]) > wide[0]
            lines += [indent + cell[0]] if is_long else []
            lines.append(
                indent + _line(["" if is_long else cell[0], *(cell[at] for at in shown[1:])], shown, columns, wide)
            )
        else:
            cell = next(body)
            told = [f"{columns[at].title} {cell[at]}" for at in shown[1:] if cell[at]]
            lines += [indent + cell[0], *_together(told, indent + GAP * 2, width)]
    same = [f"{columns[at].title} {cells[0][at]}" for at, equal in enumerate(is_equal) if equal and cells[0][at]]
    return lines + (_together(same, "each: ", width, GAP) if same else [])


def _line(cells: Sequence[str], shown: Sequence[int], columns: Sequence[Column], wide: dict[int, int]) -> str:
    padded = (cell.rjust(wide[at]) if columns[at].right else cell.ljust(wide[at]) for at, cell in zip(shown, cells))
    return GAP.join(padded).rstrip()


def _together(told: Sequence[str], first: str, width: int, others: str = "") -> list[str]:
    """*told* behind each other, in lines that end between two of them, or at a space of one that is too long."""
    indent = others or first
    wrapper = TextWrapper(width, initial_indent=first, subsequent_indent=indent)
    wrapper.break_long_words = wrapper.break_on_hyphens = False
    room = width - len(indent) - 1
    whole = (item.replace(" ", _STAY) if len(item) <= room else item for item in told)
    return [line.replace(_STAY, " ") for line in wrapper.wrap(", ".join(whole))]


def _styled(line: str, style: str, colour: bool) -> str:
    return f"\x1b[{style}m{line}\x1b[0m" if colour else line
