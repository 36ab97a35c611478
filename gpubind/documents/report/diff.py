"""The report of a comparison: the reference, and what each other group of hosts has otherwise."""

from __future__ import annotations

from typing import Optional

from gpubind.documents.diff.comparison import PRESENCE, Comparison, Difference, EqualHosts
from gpubind.documents.diff.text import CAUSES, Fold
from gpubind.documents.report.groups import Card, render_groups
from gpubind.documents.tables import Column, Row, table_of
from gpubind.documents.text import listed
from gpubind.model.findings import counted

_COLUMNS = [Column(title, kept=True) for title in ("what", "name", "of it", "reference", "here")]


def render_diff_html(comparison: Comparison, fold: Fold = listed) -> str:
    """Return the page of *comparison*. *fold* makes one short name of the names of several hosts."""
    reference, *others = comparison.groups
    title = counted(sum(len(group.hosts) for group in comparison.groups), "host")
    what = f"{len(reference.hosts)} as {reference.hosts[0]}, and {counted(len(others), 'group')} different from it"
    cards = [card_of(number, group, fold) for number, group in enumerate(comparison.groups)]
    if not others:
        return render_groups("diff", "equal", title, "A container would get the same of each", cards)
    return render_groups("diff", "different", title, what, cards)


def card_of(number: int, group: EqualHosts, fold: Fold) -> Card:
    """Return the card of the group with this *number*; that of the reference is 0."""
    if number == 0:
        return Card("g0", "ok", "the reference", fold(group.hosts), group.hosts)
    rows = [_row(one) for one in group.differences if one.follows is None]
    named = {cause: [one.name for one in group.differences if one.follows == cause] for cause in CAUSES}
    folded = tuple(
        (f"following from {what}", tuple(dict.fromkeys(named[cause]))) for cause, what in CAUSES.items() if named[cause]
    )
    card = Card(f"g{number}", "warning", "different", fold(group.hosts), group.hosts, folded=folded)
    return card._replace(table=table_of(_COLUMNS, rows))


def _row(difference: Difference) -> Row:
    """Return the difference as a row: what kind of thing it is, which, what of it, there and here."""
    field = "" if difference.field == PRESENCE else difference.field
    return difference.section, difference.name, field, _value(difference.before), _value(difference.after)


def _value(value: Optional[str]) -> str:
    return "none" if value is None else value or "(empty)"
