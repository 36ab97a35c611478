"""The report of a comparison: the reference, and what each other group of hosts has otherwise."""

from __future__ import annotations

from gpubind.documents.diff.comparison import PRESENCE, Comparison, Difference, EqualHosts, Fold
from gpubind.documents.diff.text import CAUSES, value_text
from gpubind.documents.report.groups import Card, render_groups
from gpubind.documents.tables import Column, Row, table_of
from gpubind.model import named
from gpubind.model.findings import counted

_COLUMNS = [Column(title, kept=True) for title in ("what", "name", "of it", "reference", "here")]


def render_diff_html(comparison: Comparison, fold: Fold = named) -> str:
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
    rows = [_row(difference) for difference in group.direct]
    folded = tuple((f"following from {CAUSES[cause]}", tuple(names)) for cause, names in group.consequences.items())
    card = Card(f"g{number}", "warning", "different", fold(group.hosts), group.hosts, folded=folded)
    return card._replace(table=table_of(_COLUMNS, rows))


def _row(difference: Difference) -> Row:
    """Return the difference as a row: what kind of thing it is, which, what of it, there and here."""
    field = "" if difference.field == PRESENCE else difference.field
    return difference.section, difference.name, field, value_text(difference.before), value_text(difference.after)
