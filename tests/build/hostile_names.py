"""Names that a file may have, and that a careless reader takes for something else."""

from __future__ import annotations

HOSTILE = [
    "a b",
    "a:b",
    "a,b",
    'a"b',
    "a'b",
    "a\\b",
    "${HOME}",
    "$x",
    "a#b",
    "- a",
    "ä",
    "\U0001f600",
    "\u2028",
    "{{a}}",
]
"""What every document can say."""

UNSAYABLE = ["a\nb", "a\x01", "a\x1b[2J", "a\x7f", "a\x85", "a\udcff"]
"""Control characters, and what is not UTF-8."""
