"""The answer of `gpubind explain`."""

from __future__ import annotations

from typing import Optional

from gpubind.explanation.decisions import Explanation
from gpubind.explanation.messages import FoundMessage
from gpubind.frozen import NamedTuple


class Answer(NamedTuple):
    """The answer: a page, messages, findings that mention the query, decisions of a plan, or every code."""

    asked: Optional[str]
    """The query; None: every code, or a log."""
    messages: tuple[FoundMessage, ...] = ()
    """The messages of the query, the first cause first."""
    codes: tuple[str, ...] = ()
    page: Optional[str] = None
    """The page of a code, in Markdown, with the code as its first line."""
    explanation: Optional[Explanation] = None
    """About a name, or the library of the first message."""
