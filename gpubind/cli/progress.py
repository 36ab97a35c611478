"""A line on a terminal that shows the progress of a long read: it appears after a second, and is erased at the end.

One line needs no thread and no hidden cursor, so nothing is loaded for it, and an interrupt leaves nothing to repair.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Optional

from gpubind.documents.text import printable
from gpubind.model.budget import watched_by

PATIENCE_S = 1.0
"""How long no progress is shown."""
EVERY_S = 0.1
_ERASE = "\r\x1b[K"


class ProgressLine:
    """`with ProgressLine():` shows what is read inside, if it takes long."""

    def __init__(self) -> None:
        self._next = time.monotonic() + PATIENCE_S
        self._is_shown = False
        self._watched = watched_by(self._tell)

    def __enter__(self) -> None:
        self._watched.__enter__()

    def __exit__(self, *error: object) -> None:
        self._watched.__exit__(None, None, None)
        self._say("")

    def _tell(self, what: str, done: int, whole: Optional[int]) -> None:
        if not what:
            self._say("")
        elif time.monotonic() >= self._next and _is_in_front():
            self._next = time.monotonic() + EVERY_S
            self._say(line_of(what, done, whole, _columns() - 1))

    def _say(self, line: str) -> None:
        """Show *line* in the place of the one that is shown."""
        if line or self._is_shown:
            self._is_shown = bool(line)
            try:
                sys.stderr.write(_ERASE + line)
                sys.stderr.flush()
            except (OSError, UnicodeError):
                pass


def line_of(what: str, done: int, whole: Optional[int], width: int) -> str:
    """Return how far the read of *what* is, in *width* columns: `reading app.tar: 1.2 of 20.0 GiB`."""
    shift, unit = (30, "GiB") if (done if whole is None else whole) >> 30 else (20, "MiB")
    amount = f"{done / (1 << shift):.1f}" + (f" of {whole / (1 << shift):.1f}" if whole is not None else "")
    head, tail, name = "reading ", f": {amount} {unit}", printable(what)
    room = max(0, width - len(head) - len(tail))
    if len(name) > room:
        name = "..." + name[len(name) - room + 3 :] if room > 3 else ""
    return (head + name + tail)[:width]


def _columns() -> int:
    """Return the columns of the terminal; 80 if it does not report them."""
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80


def _is_in_front() -> bool:
    """Return whether this command is in the foreground of its terminal, as git asks."""
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:
        return True
