"""Why is a file in the plan, or not? All Decisions about a name. And what does a finding mean? Its page."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import NamedTuple, Optional

from gpubind.data import read_data
from gpubind.model import Decision, Plan


class Explanation(NamedTuple):
    """What a plan has to say about one name."""

    name: str
    subjects: tuple[tuple[str, tuple[Decision, ...]], ...]
    """Each thing that matches, with everything decided about it; empty if no source names it."""
    searched: tuple[str, ...]
    """Where files were looked for, in order."""


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


def explain_code(code: str) -> Optional[str]:
    """The section of docs/findings.md about *code*, or the row of docs/errors.md; None if there is neither."""
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code):
        return None
    page = read_data("docs/findings.md").decode("utf-8")
    match = re.search(rf"^## {code}\n.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if match:
        return match.group().rstrip()[len("## ") :] + "\n"
    page = read_data("docs/errors.md").decode("utf-8")
    row = re.search(rf'^\| <a id="{code}"></a>`{code}` \| (\d+) \| (.*) \|$', page, re.MULTILINE)
    return f"{code}\n\nan error, exit {row[1]}\n\n{row[2]}\n" if row else None


def nearest_code(name: str) -> Optional[str]:
    """The code of a finding or an error that *name* was probably to be; None if it is like none."""
    from difflib import get_close_matches  # only where a name means nothing

    codes = re.findall(r"^## ([a-z].*)$", read_data("docs/findings.md").decode("utf-8"), re.MULTILINE)
    codes += re.findall(r'^\| <a id="([^"]*)"', read_data("docs/errors.md").decode("utf-8"), re.MULTILINE)
    return next(iter(get_close_matches(name, codes, n=1, cutoff=0.75)), None)


def _texts(decision: Decision) -> list[str]:
    """The names by which a Decision can be asked for."""
    paths = [path for path in (decision.path, decision.target) if path]
    return [decision.subject, *paths, *(path.rpartition("/")[2] for path in paths)]
