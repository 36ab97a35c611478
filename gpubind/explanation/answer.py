"""The answer of `gpubind explain`."""

from __future__ import annotations

from typing import Optional

from gpubind.explanation.decisions import Explanation
from gpubind.explanation.messages import FoundMessage
from gpubind.frozen import NamedTuple


class Answer(NamedTuple):
    """The answer: a page, messages, findings that mention the query, decisions of a plan, or every code."""

    asked: Optional[str]
    """The query; None if every code was requested, or a log."""
    messages: tuple[FoundMessage, ...] = ()
    """The messages in the query; the first one is the most likely cause."""
    codes: tuple[str, ...] = ()
    page: Optional[str] = None
    """The page of a code, in Markdown, with the code as its first line."""
    explanation: Optional[Explanation] = None
    """The explanation of a name, or of the library in the first message."""
