"""Remember the facts of content that never changes, under a name that identifies the content.

They are believed under the same conditions as a memo, as long as gpubind's own code is the same.
"""

from __future__ import annotations

import contextlib
import posix  # `os` may be a recorder's
from typing import Any

from gpubind.memo import files
from gpubind.memo.questions import digest, first_change
from gpubind.memo.storing import note_modules, write
from gpubind.memo.trace import Trace


def content_name(text: str) -> str:
    """Return the name under which the facts of the content that *text* identifies are remembered."""
    return f"content-{digest(text.encode('utf-8', 'surrogateescape')).hex()}"


def known_content(name: str) -> dict[str, Any]:
    """Return the facts remembered under *name*; empty if there are none."""
    opened = files.open_place()
    if opened is None:
        return {}
    place, secret = opened
    try:
        memo = files.read_memo(place, name, secret)
        if memo is None or first_change(memo["trace"]) is not None:
            return {}
        with contextlib.suppress(OSError):
            posix.utime(name, dir_fd=place)  # the oldest are removed first
        content: dict[str, Any] = memo["known"]
        return content
    finally:
        posix.close(place)


def keep_content(name: str, content: dict[str, Any]) -> None:
    """Remember *content* under *name*, merged with what other commands have stored meanwhile. Errors: `OSError`."""
    trace = Trace()
    note_modules(trace, with_packages=False)  # packages unpack to the same content in each version
    if trace.refused is not None:
        return
    others = known_content(name)
    merged = {kind: {**others.get(kind, {}), **content.get(kind, {})} for kind in {**others, **content}}
    write(name, {"trace": {kind: answers for kind, answers in trace.questions.items() if answers}, "known": merged})
