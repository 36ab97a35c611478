"""The page of many machines: a card for each group of equal ones, with a square for each machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Optional

from gpubind.documents import Made
from gpubind.documents.report.matrix import FindingLocations
from gpubind.documents.report.page import render
from gpubind.documents.tables import Table
from gpubind.frozen import NamedTuple

SQUARES_MIN = 13
"""The least number of machines for which squares and a search are shown: people can read a shorter list."""

Level = Literal["ok", "warning", "error", "lost"]
"""The colour of a group; `lost`: its machines did not answer."""
LEVELS: tuple[Level, ...] = ("error", "lost", "warning", "ok")
"""The levels, the worst first."""


class Card(NamedTuple):
    """A group of equal machines."""

    id: str
    level: Level
    status: str
    """Its state in a word or two: `error`, `timed out`, `the reference`."""
    title: str
    """Its machines, as one short text."""
    names: tuple[str, ...]
    lines: tuple[str, ...] = ()
    """Facts about it."""
    images: tuple[tuple[str, str, str], ...] = ()
    """Images whose verdict differs from the largest group's: each with both verdicts, and a sentence for its users."""
    table: Optional[Table] = None
    """Its differences from the largest group."""
    folded: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The consequences of these differences, by cause."""


def render_groups(
    kind: str,
    verdict: str,
    title: str,
    summary: str,
    cards: Sequence[Card],
    listed: Optional[Sequence[FindingLocations]] = None,
    made: Optional[Made] = None,
) -> str:
    """Return the page of *cards*. *listed*: the findings, each with its cards; None if nodes did not look for any."""
    has_squares = sum(len(card.names) for card in cards) >= SQUARES_MIN
    with_findings = {cell for finding in listed or () for cell in finding.cells}
    values = {"kind": kind, "verdict": verdict, "title": title, "what": summary, "cards": cards, "found": listed}
    return render("groups.html", made=made, facts=(), has_squares=has_squares, with_findings=with_findings, **values)
