"""Why is a file in the plan, or not? All Decisions about a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

from gpubind.model import Decision, Explanation, Plan


def explain(plan: Plan, name: str) -> Explanation:
    """Every Decision of *plan* about *name*: a soname, a file name, a path, or a pattern of those.

    The closest kind of match counts: exactly that name or path, else names that start with it, else names that hold it.
    """
    matchers: list[Callable[[str], bool]] = [lambda text: text == name]
    if re.search(r"[*?\[]", name):
        matchers = [lambda text: fnmatchcase(text, name)]
    else:
        matchers += [lambda text: text.startswith(name), lambda text: name in text]
    for matches in matchers:
        subjects: dict[str, list[Decision]] = {}
        for decision in plan.decisions:
            if any(matches(text) for text in _texts(decision)):
                subjects.setdefault(decision.subject, []).append(decision)
        if subjects:
            break
    else:
        subjects = {}
    searched = tuple(place for driver in plan.drivers for place in driver.searched)
    return Explanation(name, tuple((subject, tuple(found)) for subject, found in subjects.items()), searched)


def _texts(decision: Decision) -> list[str]:
    """The names by which a Decision can be asked for."""
    paths = [path for path in (decision.path, decision.target) if path]
    return [decision.subject, *paths, *(path.rpartition("/")[2] for path in paths)]
