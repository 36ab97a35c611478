"""The answer of `gpubind explain`."""

from __future__ import annotations

from typing import Optional

from gpubind.explanation.decisions import Explanation
from gpubind.explanation.messages import FoundMessage
from gpubind.frozen import NamedTuple


class Answer(NamedTuple):
    """The answer: a page, messages, findings that mention what was asked, decisions of a plan, or every code."""

    asked: Optional[str]
    """None: every code, or a log."""
    messages: tuple[FoundMessage, ...] = ()
    """The messages of what was asked, the first cause first."""
    codes: tuple[str, ...] = ()
    page: Optional[str] = None
    """The page of a code, in Markdown, with the code as its first line."""
    explanation: Optional[Explanation] = None
    """Of a name; or of the library that the first message is about."""
