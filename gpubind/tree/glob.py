"""Wildcards in absolute paths of a tree."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from typing import Optional

from gpubind.budget import BOUNDS, current
from gpubind.errors import FormatError
from gpubind.model import Missing, RootedPath
from gpubind.tree.base import Tree

GLOB_LIMIT = 4096  # directories that one pattern may list: a list file must not make gpubind walk the whole disk

_WILDCARDS = re.compile(r"[*?\[]")


def glob(tree: Tree, pattern: str) -> tuple[RootedPath, ...]:
    """The existing paths that match absolute *pattern* (fnmatch in each component), sorted; links are not resolved.

    A tree works a pattern out once, and answers the same ever after. Errors: `FormatError` (code `wide-glob`) when it
    would list more than `GLOB_LIMIT` directories, or all patterns of one command more than its budget has.
    """
    found = tree.globs.get(pattern)
    if found is None:
        found = _matches(tree, pattern)
        if found is None:
            in_all = BOUNDS["listings"].amount
            why = f"it matches in more than {GLOB_LIMIT} directories, or all patterns in more than {in_all}"
            raise FormatError("wide-glob", f"the pattern `{pattern}` is too wide", place=pattern, why=why)
        tree.globs[pattern] = found
    return found


def _matches(tree: Tree, pattern: str) -> Optional[tuple[RootedPath, ...]]:
    """What matches; None if too many directories would have to be listed to know it."""
    heads = [""]
    listed = 0
    for part in pattern.split("/"):
        if not part:
            continue
        if not _WILDCARDS.search(part):
            heads = [f"{head}/{part}" for head in heads]
            continue
        listed += len(heads)
        budget = current()
        if listed > GLOB_LIMIT or not (budget is None or budget.take("listings", len(heads))):
            return None
        matches, hidden = _matcher(part), part.startswith(".")  # a hidden name has to be asked for
        names = ((head, name) for head in heads for name in tree.names(head or "/") if matches(name))
        heads = [f"{head}/{name}" for head, name in names if hidden or not name.startswith(".")]
    found = (RootedPath(head or "/") for head in sorted(heads))
    return tuple(path for path in found if not isinstance(tree.lstat(path), Missing))


def _matcher(pattern: str) -> Callable[[str], bool]:
    """fnmatch for one component. No regular expression where `*` is all there is: compiling one costs 0.2 ms."""
    if "?" in pattern or "[" in pattern:
        try:
            compiled = re.compile(translate(pattern)).match
        except re.error:  # a range that runs backwards: it matches nothing, but Python before 3.10.6 fails
            return lambda name: False
        return lambda name: compiled(name) is not None
    first, *middle, last = pattern.split("*")

    def matches(name: str) -> bool:
        at, end = len(first), len(name) - len(last)
        if at > end or not (name.startswith(first) and name.endswith(last)):
            return False
        for part in middle:
            at = name.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True

    return matches
