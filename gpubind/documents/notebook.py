"""HTML for the cell of a notebook: the tables of a terminal, with every text escaped and no style."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from gpubind.documents.tables import RowHeading, Table, always_shown, make_table, plan_tables
from gpubind.documents.text import printable, without_surrogates
from gpubind.model import Finding, Plan

_FINDINGS = always_shown("severity", "code", "subject", "what", "hint", "command")


class Findings(tuple[Finding, ...]):
    """The findings of a check. A notebook shows them as a table, and `print` prints a line for each."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def _repr_html_(self) -> str:
        rows = [(f.severity, f.code, f.subject, f.what, f.hint or "", f.command or "") for f in self]
        return _html([make_table(_FINDINGS, rows)], "" if rows else "no findings")


def plan_html(plan: Plan) -> str:
    """Return the tables of *plan*, and its summary."""
    return _html(plan_tables(plan), plan.summary)


def _html(tables: Iterable[Table], last: str) -> str:
    parts = [_table(table) for table in tables if table.rows]
    return "\n".join([*parts, f"<p>{_text(last)}</p>"] if last else parts)


def _table(table: Table) -> str:
    rows = [
        f'<tr><th colspan="{len(table.columns)}">{_text(row.text)}</th></tr>'
        if isinstance(row, RowHeading)
        else _row("td", row)
        for row in table.rows
    ]
    caption = f"<caption>each: {_text(', '.join(table.common_values))}</caption>" if table.common_values else ""
    return "\n".join(["<table>" + caption, _row("th", [column.title for column in table.columns]), *rows, "</table>"])


def _row(kind: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{kind}>{_text(cell)}</{kind}>' for cell in cells)}</tr>"


def _text(text: str) -> str:
    return without_surrogates(escape(printable(text)))
