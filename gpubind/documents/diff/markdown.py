"""`diff --format markdown`: a comparison for a ticket, or for the users of images before an upgrade."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpubind.documents.check.markdown import as_code, as_text
from gpubind.documents.diff.comparison import PRESENCE, Comparison, Difference, EqualHosts, Fold
from gpubind.documents.diff.images import change_text, differences_without, sentences_of, unchanged_text
from gpubind.documents.diff.text import CAUSES, NO_DRIVER, value_text
from gpubind.model import shorten_list


def render_diff_markdown(comparison: Comparison, fold: Fold = shorten_list) -> str:
    """Return the groups with their drivers, then their differences, with a sentence for each changed verdict."""
    reference, *others = comparison.groups
    equal = "no verdict changes" if reference.images else "equal"
    lines = [f"## gpubind diff: {'different' if others else equal}", ""]
    lines += ["| hosts | number | driver |", "| --- | --- | --- |"]
    lines += [
        f"| {_cell(fold(each.hosts))} | {len(each.hosts)} | {_cell(each.driver or NO_DRIVER)} |"
        for group in comparison.groups
        for each in group.drivers
    ]
    for group in others:
        title = f"### {as_code(fold(group.hosts))} compared with {as_code(fold(reference.hosts))}"
        lines += ["", title, "", *_group(comparison, group, fold)]
    unchanged = unchanged_text(comparison)
    lines += ["", as_text(f"{unchanged[:1].upper()}{unchanged[1:]}.")] if unchanged else []
    return "\n".join(lines) + "\n"


def _group(comparison: Comparison, group: EqualHosts, fold: Fold) -> Iterator[str]:
    changes = dict(sentences_of(comparison, group, fold))
    for change, sentence in changes.items():
        yield f"- {as_code(change.image)}: **{as_text(change_text(change))}**. {as_text(sentence)}"
    rows = [*_rows(differences_without(changes, group))]
    if rows:
        yield from (*([""] if changes else []), "| what | name | of it | reference | here |", "| --- " * 5 + "|", *rows)
    for cause, names in group.consequences.items():
        yield from ("", f"Following from {CAUSES[cause]}: {', '.join(map(as_code, names))}")


def _rows(differences: Iterable[Difference]) -> Iterator[str]:
    for change in differences:
        field = "" if change.field == PRESENCE else change.field
        values = (_cell(value_text(value)) for value in (change.before, change.after))
        yield f"| {change.section} | {as_code(change.name, in_table=True)} | {_cell(field)} | {' | '.join(values)} |"


def _cell(text: str) -> str:
    return as_code(text, in_table=True) if text else ""
