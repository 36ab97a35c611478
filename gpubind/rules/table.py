"""The table of rules. To add one: write a function, add its row; docs/errors.md explains its code.

A rule is asked only when what it needs is there. What planning finds on its way (no module loaded, two versions, nodes
that are stale or forbidden, libraries that the image cannot load) is in the plan's findings already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, Optional

from gpubind.errors import NothingToBindError
from gpubind.image import Image
from gpubind.model import Finding, Plan
from gpubind.planner import finding_order
from gpubind.rules import host, image

Needs = Literal["host", "image"]


class Rule(NamedTuple):
    """One thing that can be wrong."""

    code: str
    needs: Needs
    """`host`: the plan alone; `image`: also an open image."""
    find: Callable[[Plan, Optional[Image]], Iterable[Finding]]


RULES = (
    Rule("uvm-missing", "host", host.uvm_missing),
    Rule("control-node-missing", "host", host.control_node_missing),
    Rule("driver-in-image", "image", image.driver_in_image),
)


def check_plan(plan: Plan, opened: Optional[Image]) -> tuple[Finding, ...]:
    """Everything to be said about *plan* (and the image it is for): errors first, then by code and subject."""
    findings = list(plan.findings)
    for rule in RULES:
        if rule.needs == "host" or opened is not None:
            findings += rule.find(plan, opened)
    return tuple(sorted(findings, key=finding_order))


def check_nothing(error: NothingToBindError) -> tuple[Finding, ...]:
    """The one finding about a host that has no driver and no device."""
    return (Finding(error.code, "error", None, "host", error.what, error.where, error.why, error.hint),)
