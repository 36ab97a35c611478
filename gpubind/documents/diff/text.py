"""A comparison as text, and as the document `gpubind.diff/1` (data/diff.schema.json)."""

from __future__ import annotations

from typing import Any, Optional

from gpubind.documents.diff.comparison import ABSENT, PRESENCE, Cause, Comparison, Difference, EqualHosts, Fold
from gpubind.documents.diff.images import change_text, differences_without, sentences_of, unchanged_text
from gpubind.documents.text import make_document, printable, wrapped
from gpubind.model import shorten_list
from gpubind.model.plain import dump_document

NO_DRIVER = "no driver"
_WIDEST_NAME = 40
"""Maximum columns of the names of facts. A longer name shifts the rest of its line."""
_UNNAMED_FIELDS = ("number", "severity", "value", "verdict")
"""Fields that need no name, because their section describes them."""
_INDENT = "    "
CAUSES: dict[Cause, str] = {"driver": "the driver", "gpus": "the number of GPUs", "files": "these files"}


def render_diff_text(comparison: Comparison, fold: Fold = shorten_list) -> str:
    """Return the equal hosts, and the differences of each other group, one on each line.

    If images were checked, each group also has its drivers, and a sentence for each image whose verdict changes.
    """
    reference = comparison.groups[0]
    first = f"{printable(reference.hosts[0])}"
    lines = []
    if reference.images:
        drivers = (each for group in comparison.groups for each in group.drivers)
        lines = [printable(f"{fold(each.hosts)}: {each.driver or NO_DRIVER}") for each in drivers]
    elif len(reference.hosts) > 1:
        lines = [f"{printable(fold(reference.hosts))}: equal ({len(reference.hosts)})"]
    for group in comparison.groups[1:]:
        verb = "differs" if len(group.hosts) == 1 else f"({len(group.hosts)}) differ"
        lines += [f"{printable(fold(group.hosts))} {verb} from {first}:", *_lines(comparison, group, fold)]
    lines += filter(None, [printable(unchanged_text(comparison))])
    return "\n".join(lines or [f"{first}: nothing to compare it with"]) + "\n"


def _lines(comparison: Comparison, group: EqualHosts, fold: Fold) -> list[str]:
    changes = dict(sentences_of(comparison, group, fold))
    rows: dict[tuple[str, str, str], list[str]] = {
        _row(difference): [] for difference in differences_without(changes, group)
    }
    for change, sentence in changes.items():
        row = ("image", printable(change.image), printable(change_text(change)))
        rows[row] = wrapped(printable(sentence), 100, _INDENT, _INDENT)
    section_width = max((len(row[0]) for row in rows), default=0)
    name_width = max((len(row[1]) for row in rows if len(row[1]) <= _WIDEST_NAME), default=0)
    lines = []
    for row, below in rows.items():
        lines += [f"  {row[0]:<{section_width}}  {row[1]:<{name_width}}  {row[2]}".rstrip(), *below]
    consequences = group.consequences.items()
    return lines + [
        f"  following from {CAUSES[cause]}: {printable(shorten_list(names))}" for cause, names in consequences
    ]


def _row(difference: Difference) -> tuple[str, str, str]:
    name = printable(difference.name)
    if difference.field == PRESENCE:
        return ("lacks" if difference.after == ABSENT else "has also"), name, ""
    if difference.field == "names":
        return difference.section, name, _names(difference)
    change = f"{value_text(difference.before)} -> {value_text(difference.after)}"
    is_only = difference.field in _UNNAMED_FIELDS or (difference.section, difference.field) == ("driver", "version")
    return difference.section, name, change if is_only else f"{difference.field} {change}"


def _names(difference: Difference) -> str:
    old, new = ((names or "").split() for names in (difference.before, difference.after))
    lost = [f"without the name {printable(name)}" for name in old if name not in new]
    return ", ".join([*lost, *(f"also called {printable(name)}" for name in new if name not in old)])


def value_text(value: Optional[str]) -> str:
    """Return *value* for people."""
    return "none" if value is None else printable(value) or "(empty)"


def render_diff_json(comparison: Comparison, _: Fold = shorten_list) -> str:
    """Return the document, which names every host."""
    return dump_document(diff_document(comparison))


def diff_document(comparison: Comparison) -> dict[str, Any]:
    """Return the document `gpubind.diff/1`: the first of `groups` is the reference."""
    groups = [
        {
            "digest": group.digest,
            "hosts": group.hosts,
            "drivers": [each._asdict() for each in group.drivers],
            "images": [
                {"image": outcome.image, "verdict": outcome.verdict, "findings": outcome.findings}
                for outcome in group.images
            ],
        }
        for group in comparison.groups
    ]
    differences = [
        {
            "hosts": group.hosts,
            "section": difference.section,
            "name": difference.name,
            "field": difference.field,
            "from": difference.before,
            "to": difference.after,
            "follows": difference.follows,
        }
        for group in comparison.groups
        for difference in group.differences
    ]
    return make_document("gpubind.diff/1", {"groups": groups, "differences": differences})
