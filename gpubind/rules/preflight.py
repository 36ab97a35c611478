"""What a rule may look at, and what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Optional

from gpubind.host import Host
from gpubind.image import Image
from gpubind.model import Finding, Plan, Severity

Needs = Literal["host", "image", "runtime"]


class Preflight(NamedTuple):
    """A job that is about to start, as far as files tell."""

    host: Host
    plan: Plan
    """What its container would get; nothing where the host has nothing to bind."""
    image: Optional[Image] = None
    backend: Optional[str] = None
    """The runtime that will start it, by name."""


class Rule(NamedTuple):
    """One thing that can be wrong. docs/findings.md has a section for each code."""

    code: str
    severities: tuple[Severity, ...]
    """What its findings may be, worst first."""
    needs: Needs
    """`host`: the host and the plan; `image`: also an open image; `runtime`: also the runtime's name."""
    find: Optional[Callable[[Preflight], Iterable[Finding]]] = None
    """None: planning itself comes across it, and it is in the plan's findings already."""
