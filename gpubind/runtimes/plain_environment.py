"""The environment of a container whose runtime reads nothing in the image: every value is known before the start.

LD_LIBRARY_PATH is what the user says, then the plan's, then the image's own; each without empty elements, which would
mean the current directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

from gpubind.model import Plan

FIRST = "LD_LIBRARY_PATH"


class Values(NamedTuple):
    """What a container would have without a plan."""

    said: Mapping[str, str]
    """What the user says for the container."""
    passed: Mapping[str, str]
    """What of the caller's environment comes in anyway."""
    default: Mapping[str, str]
    """What the runtime sets where nobody says anything."""


def compose(plan: Plan, values: Values) -> dict[str, Optional[str]]:
    """Return the value of each variable of *plan*, in the plan's order; None: the container is not to have it.

    The user's own word wins, but for lists of directories, which are kept whole.
    """
    made: dict[str, Optional[str]] = {}
    for variable in plan.env:
        name, value = variable.name, variable.value or ""
        there = made.get(name) or values.said.get(name) or values.passed.get(name) or values.default.get(name, "")
        if (name == FIRST and variable.op != "unset") or variable.op == "append":
            made[name] = _joined(there, value)
        elif variable.op == "prepend":
            made[name] = _joined(value, there)
        elif name not in values.said and not (variable.op == "default" and there):
            made[name] = variable.value
    if made.get(FIRST) and plan.image is not None:
        made[FIRST] = _joined(made[FIRST] or "", plan.image.env.get(FIRST, ""))
    return made


def known(env: Mapping[str, Optional[str]]) -> tuple[tuple[str, str], ...]:
    """Return those variables of *env* that the container is to have."""
    return tuple((name, value) for name, value in env.items() if value is not None)


def _joined(*lists: str) -> str:
    return ":".join(part for one in lists for part in one.split(":") if part)
