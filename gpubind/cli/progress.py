"""A line on a terminal that shows the progress of a long read: it appears after a second, and is erased at the end.

One line needs no thread and no hidden cursor, so it loads no module, and an interrupt leaves nothing to repair.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Optional

from gpubind.documents.text import printable
from gpubind.machine import system
from gpubind.machine.budget import report_progress_to

PATIENCE_S = 1.0
"""The line appears after this time."""
INTERVAL_S = 0.1
_ERASE = "\r\x1b[K"


@contextmanager
def progress_line() -> Iterator[None]:
    """Show the progress of long reads within the context."""
    next_s, is_shown = time.monotonic() + PATIENCE_S, False

    def show(line: str) -> None:
        nonlocal is_shown
        if line or is_shown:
            is_shown = bool(line)
            with suppress(OSError, UnicodeError):
                sys.stderr.write(_ERASE + line)
                sys.stderr.flush()

    def watch(label: str, bytes_read: int, total: Optional[int]) -> None:
        nonlocal next_s
        if not label:
            show("")
        elif time.monotonic() >= next_s and _is_in_front():
            next_s = time.monotonic() + INTERVAL_S
            show(format_progress(label, bytes_read, total, system.columns(2) - 1))

    try:
        with report_progress_to(watch):
            yield
    finally:
        show("")


def format_progress(label: str, bytes_read: int, total: Optional[int], width: int) -> str:
    """Return the progress of reading *label* in *width* columns: `reading app.tar: 1.2 of 20.0 GiB`."""
    shift, unit = (30, "GiB") if (bytes_read if total is None else total) >> 30 else (20, "MiB")
    amount = f"{bytes_read / (1 << shift):.1f}" + (f" of {total / (1 << shift):.1f}" if total is not None else "")
    head, tail, name = "reading ", f": {amount} {unit}", printable(label)
    room = max(0, width - len(head) - len(tail))
    if len(name) > room:
        name = "..." + name[len(name) - room + 3 :] if room > 3 else ""
    return (head + name + tail)[:width]


def _is_in_front() -> bool:
    """Return whether this command is in the foreground of its terminal. git has the same test."""
    try:
        return system.is_in_front(2)
    except OSError:
        return True
