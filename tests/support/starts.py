"""Starts by a runtime, with the facts that a test is about."""

from __future__ import annotations

from typing import Any, Optional

from gpubind.files import Tree
from gpubind.model import Plan
from gpubind.runtimes import RUNTIMES
from gpubind.runtimes.edits import Words
from gpubind.runtimes.runtime import Start


def start_by(name: str, **facts: Any) -> Start:
    """Return a start by the runtime called *name*; *facts* are fields of `Start`."""
    return Start(RUNTIMES[name], **facts)


def start(*arguments: str, program: str = "apptainer", **facts: Any) -> Start:
    """Return a start with the user's *arguments*, read as the runtime reads them."""
    begun = start_by(program, **{"version": (1, 4, 5), **facts, "arguments": arguments})
    return begun._replace(options=begun.runtime.options_of(arguments, begun.environ))


def words(plan: Plan, start: Start, image: Optional[Tree] = None) -> Words:
    """Return *plan* in the words of the runtime of *start*, which needs no other image."""
    made = start.runtime.words(plan, start, image)
    assert made is not None
    return made
