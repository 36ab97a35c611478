"""What a check could not look at, and what that leaves of an error: something that seems missing may be there.

A program or library that the user brings from where nothing can be looked at (an overlay, an image file, a value that
only a shell can tell) makes a job run that would not run without it. Such a job must not be stopped.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpubind.model import Finding
from gpubind.rules.preflight import ImagePreflight

NAMED_LIMIT = 4
"""Things that a message names."""


def unseen_libraries(preflight: ImagePreflight) -> tuple[str, ...]:
    """Return what may bring a library that is not found, in words."""
    return _unseen(preflight, "LD_LIBRARY_PATH")


def unseen_programs(preflight: ImagePreflight, name: str) -> tuple[str, ...]:
    """Return what may bring program *name* where it is not found, in words."""
    is_set = any(v.name == "PATH" and v.op == "set" for v in (preflight.brought.env if preflight.brought else ()))
    return preflight.container.unseen if "/" in name or is_set else _unseen(preflight, "PATH")


def softened(finding: Finding, things: Iterable[str]) -> Finding:
    """*finding*, but a warning if *things* could not be looked at, which it names then."""
    names = tuple(dict.fromkeys(things))
    if not names or finding.severity != "error":
        return finding
    more = f" and {len(names) - NAMED_LIMIT} more" if len(names) > NAMED_LIMIT else ""
    told = ", ".join(names[:NAMED_LIMIT]) + more
    return finding._replace(severity="warning", what=f"{finding.what}; not looked at: {told}")


def _unseen(preflight: ImagePreflight, variable: str) -> tuple[str, ...]:
    undecided = (f"the image's {variable}",) if variable in preflight.image.facts.undecided else ()
    return (*preflight.container.unseen, *undecided)
