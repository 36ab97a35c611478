"""The report of a fleet: a card for each group of nodes with equal answers, its differences, and all findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from gpubind.documents import Made
from gpubind.documents.diff.comparison import Fold
from gpubind.documents.diff.snapshot import Snapshot
from gpubind.documents.fleet import (
    CheckedNode,
    NodeAnswer,
    NodeError,
    NodeGroup,
    answer_line,
    comparison_of,
    driver_and_digest,
    summary_of,
)
from gpubind.documents.report.diff import card_of
from gpubind.documents.report.groups import LEVELS, Card, render_groups
from gpubind.documents.report.matrix import sort_findings
from gpubind.documents.tables import Row, always_shown, make_table
from gpubind.model import Finding
from gpubind.model.findings import with_count
from gpubind.rules.outcome import verdict

_COLUMNS = always_shown("what", "most nodes", "here")


def render_fleet_html(groups: Sequence[NodeGroup], action: str, fold: Fold, made: Optional[Made] = None) -> str:
    """Return the page of *groups*, the answers to *action*, the largest first."""
    states = [group.answer for group in groups if isinstance(group.answer.result, CheckedNode)]
    others = [group for group in groups if not isinstance(group.answer.result, Snapshot)]
    cards = [_card(f"n{number}", group, states[:1], fold) for number, group in enumerate(others)]
    located: dict[Finding, list[tuple[str, str]]] = {}
    for card, group in zip(cards, others):
        for finding in group.answer.findings:
            located.setdefault(finding, []).append((card.title, card.id))
    comparison = comparison_of(groups)
    if comparison is not None:
        cards += [card_of(number, comparison, fold) for number in range(len(comparison.groups))]
    cards.sort(key=lambda card: LEVELS.index(card.level))
    title = with_count(sum(len(group.nodes) for group in groups), "node")
    worst = {"lost": "error"}.get(cards[0].level, cards[0].level)
    listed = sort_findings(located) if states else None
    return render_groups(f"fleet {action}", worst, title, summary_of(groups), cards, listed, made)


def _card(name: str, group: NodeGroup, reference: Sequence[NodeAnswer], fold: Fold) -> Card:
    answer, card = group.answer, Card(name, "lost", "", fold(group.nodes), group.nodes)
    if isinstance(answer.result, CheckedNode):
        level = answer.result.worst
        rows = [row for first in reference for row in _differences(answer, first)]
        driver, digest = driver_and_digest(answer.result)
        unexplained = "" if level == verdict(answer.findings) else answer_line(answer)
        labelled = (("digest of the plan", digest), ("gpubind", answer.gpubind))
        facts = (unexplained, driver, *(f"{name} {value}" for name, value in labelled if value))
        return card._replace(
            level=level, status=level, lines=tuple(filter(None, facts)), table=make_table(_COLUMNS, rows)
        )
    if isinstance(answer.result, NodeError):
        error = answer.result
        lines = (f"{error.code}: {error.what}", error.where, error.why, error.hint)
        return card._replace(level="error", status=f"exit {answer.exit}", lines=tuple(filter(None, lines)))
    if answer.result is not None:
        return card._replace(level="ok", status=answer_line(answer))
    return card._replace(
        status=answer.status.replace("-", " "), lines=(group.why_unanswered,) if group.why_unanswered else ()
    )


def _differences(answer: NodeAnswer, reference: NodeAnswer) -> Iterator[Row]:
    pairs = zip(*((*driver_and_digest(each.result), each.gpubind) for each in (reference, answer)))
    for label, (before, after) in zip(("driver", "digest of the plan", "gpubind"), pairs):
        if before != after:
            yield label, before or "none", after or "none"
    old, new = (
        {(finding.code, finding.subject): finding.severity for finding in each.findings} for each in (reference, answer)
    )
    for code, subject in dict.fromkeys((*new, *old)):
        if old.get((code, subject)) != new.get((code, subject)):
            yield f"{code} ({subject})", old.get((code, subject), "none"), new.get((code, subject), "none")
