"""Why a file is in a plan or not: the Decisions about one name."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from posixpath import basename

from gpubind.formats.driver.liblist import library_stem
from gpubind.frozen import NamedTuple
from gpubind.model import Decision, Plan


class Explanation(NamedTuple):
    """The Decisions of a plan about one name."""

    name: str
    subjects: tuple[tuple[str, tuple[Decision, ...]], ...]
    """The matching subjects, each with its Decisions; empty if no source names one."""
    searched: tuple[str, ...]
    """The searched directories of libraries, in order; empty for programs, nodes and other files."""


def explain(plan: Plan, name: str) -> Explanation:
    """Return every Decision of *plan* about *name*: a soname, a file name, a path, or a pattern of these.

    Only the closest kind of match is returned: the exact name or path; else names that start with it; else names that
    contain it; else the list entries for it (`libcuda.so` for `libcuda.so.1`).
    """
    matchers: list[Callable[[str], bool]] = [lambda text: text == name]
    if re.search(r"[*?\[]", name):
        matchers = [lambda text: fnmatchcase(text, name)]
    else:
        matchers += [lambda text: text.startswith(name), lambda text: name in text]
        if "." in name:  # the list entries for a name that no file has
            matchers += [lambda text: text == library_stem(name), lambda text: fnmatchcase(name, basename(text))]
    subjects: dict[str, list[Decision]] = {}
    for matches in matchers:
        for decision in plan.decisions:
            paths = [path for path in (decision.path, decision.target) if path]
            if any(map(matches, (decision.subject, *paths, *map(basename, paths)))):
                subjects.setdefault(decision.subject, []).append(decision)
        if subjects:
            break
    is_library = not subjects or any(".so" in subject for subject in subjects)
    searched = tuple(place for driver in plan.drivers for place in driver.searched) if is_library else ()
    return Explanation(name, tuple((subject, tuple(decisions)) for subject, decisions in subjects.items()), searched)
