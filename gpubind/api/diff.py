"""diff: how hosts differ."""

from __future__ import annotations

from collections.abc import Mapping

from gpubind.api.verb import verb
from gpubind.documents.diff.comparison import Comparison, compare
from gpubind.documents.diff.snapshot import snapshot_of
from gpubind.model import Plan


@verb
def diff(plans: Mapping[str, Plan]) -> Comparison:
    """Return the groups of equal *plans*, by the names of their hosts, and in what the others differ.

    What is compared is what `gpubind diff` compares of documents of plans.
    """
    return compare(snapshot_of(name, plan) for name, plan in plans.items())
