"""The report of a comparison: the reference, and how each other group of hosts differs from it."""

from __future__ import annotations

from typing import Optional

from gpubind.documents import Made
from gpubind.documents.diff.comparison import PRESENCE, Comparison, Difference, EqualHosts, Fold, HostsWith
from gpubind.documents.diff.images import change_text, differences_without, sentences_of, unchanged_text
from gpubind.documents.diff.text import CAUSES, NO_DRIVER, value_text
from gpubind.documents.report.groups import Card, render_groups
from gpubind.documents.tables import Row, always_shown, make_table
from gpubind.model import shorten_list
from gpubind.model.findings import with_count

_COLUMNS = always_shown("what", "name", "of it", "reference", "here")


def render_diff_html(comparison: Comparison, fold: Fold = shorten_list, made: Optional[Made] = None) -> str:
    """Return the page of *comparison*. *fold* makes one short name of the names of several hosts."""
    reference, *others = comparison.groups
    title = with_count(sum(len(group.hosts) for group in comparison.groups), "host")
    summary = (
        f"{len(reference.hosts)} as {reference.hosts[0]}, and {with_count(len(others), 'group')} different from it"
    )
    equal = (
        ("unchanged", "Each image has one verdict on all")
        if reference.images
        else ("equal", "A container would get the same of each")
    )
    verdict, summary = ("different", summary) if others else equal
    unchanged = unchanged_text(comparison)
    summary += f"; {unchanged}" if unchanged else ""
    cards = [card_of(number, comparison, fold) for number in range(len(comparison.groups))]
    return render_groups("diff", verdict, title, summary, cards, made=made)


def card_of(number: int, comparison: Comparison, fold: Fold) -> Card:
    """Return the card of the group with this *number*; that of the reference is 0."""
    group = comparison.groups[number]
    drivers = tuple(_driver(each, group, fold) for each in group.drivers)
    if number == 0:
        return Card("g0", "ok", "the reference", fold(group.hosts), group.hosts, drivers)
    changes = dict(sentences_of(comparison, group, fold))
    rows = [_row(difference) for difference in differences_without(changes, group)]
    return Card(
        f"g{number}",
        "warning",
        "different",
        fold(group.hosts),
        group.hosts,
        drivers,
        images=tuple((change.image, change_text(change), sentence) for change, sentence in changes.items()),
        table=make_table(_COLUMNS, rows),
        folded=tuple((f"following from {CAUSES[cause]}", tuple(names)) for cause, names in group.consequences.items()),
    )


def _driver(each: HostsWith, group: EqualHosts, fold: Fold) -> str:
    driver = each.driver or NO_DRIVER
    return driver if len(group.drivers) == 1 else f"{driver}: {fold(each.hosts)}"


def _row(difference: Difference) -> Row:
    field = "" if difference.field == PRESENCE else difference.field
    return difference.section, difference.name, field, value_text(difference.before), value_text(difference.after)
