"""The budget of one command for reading an image and a host.

Each reader has bounds for one file, one directory or one layer. A thousand of them, each within its bounds, must not
cost minutes or gigabytes. So every reader spends from the budget of the command, and an error that names the exceeded
bound ends the command. Outside of a command there is no budget, and only the readers' bounds apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Callable, Optional

from gpubind.errors import BoundError
from gpubind.frozen import NamedTuple

VARIABLE = "GPUBIND_BOUNDS"
"""The variable that multiplies the bounds of a command."""
TIMES_LIMIT = 1000


class Bound(NamedTuple):
    """A limit on one kind of work of a command."""

    amount: int
    what: str
    """The text in messages."""
    each: int = 0
    """How much it grows for each KiB of the image's files, because a large image may cost more than a small one."""


BOUNDS = {
    "read": Bound(1 << 30, "bytes are read", 40 << 10),
    "unpacked": Bound(256 << 20, "bytes are unpacked", 40 << 10),
    "entries": Bound(100_000, "files are listed in layers", 4),
    "lookups": Bound(200_000, "paths are looked up"),
    "listings": Bound(20_000, "directories are listed for patterns"),
    "facts": Bound(200_000, "names and versions are read from ELF files"),
    "codes": Bound(1_000_000, "entries of GPU code are read"),
    "texts": Bound(64 << 20, "bytes of names are kept", 2 << 10),
    "copied": Bound(64 << 30, "bytes are copied from standard input"),
    "milliseconds": Bound(60_000, "milliseconds are waited for helper programs"),
}
"""Using up a bound takes about three seconds, or 200 MB; the last two take minutes, `copied` also disk space."""


class Budget:
    """The remainder of each bound."""

    def __init__(self, times: int = 1) -> None:
        self.times = times
        self._left = {name: bound.amount * times for name, bound in BOUNDS.items()}
        self._granted: set[object] = set()

    def left(self, name: str) -> int:
        """Return the remainder of the bound *name*."""
        return self._left[name]

    def take(self, name: str, amount: int) -> bool:
        """Spend *amount*; return False and spend nothing if less is left."""
        remaining = self._left[name] - amount
        if remaining < 0:
            return False
        self._left[name] = remaining
        return True

    def grant(self, file: object, size: int) -> None:
        """Raise the bounds for *file*, an image's file of *size* bytes; only the first call for it has an effect."""
        if file not in self._granted:
            self._granted.add(file)
            for name, bound in BOUNDS.items():
                self._left[name] += bound.each * self.times * (size >> 10)


_current: ContextVar[Optional[Budget]] = ContextVar("budget", default=None)


ProgressCallback = Callable[[str, int, Optional[int]], None]
"""A function of the name of the input, the bytes read, and the total bytes, if known."""

_watcher: ContextVar[Optional[ProgressCallback]] = ContextVar("watcher", default=None)


@contextmanager
def report_progress_to(watcher: ProgressCallback) -> Iterator[None]:
    """Report the progress of the reads inside to *watcher*."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def report_progress(label: str, bytes_done: int = 0, bytes_total: Optional[int] = None) -> None:
    """Report that *bytes_done* of *bytes_total* bytes of *label* are read. An empty *label* clears the line."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(label, bytes_done, bytes_total)


@contextmanager
def one_command(times: int = 1) -> Iterator[None]:
    """Run everything inside with one budget, *times* as large as usual. An enclosing budget stays in force instead."""
    token = _current.set(Budget(times)) if _current.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _current.reset(token)


def renew(times: int = 1) -> None:
    """Give the running command a new budget, with at least *times* the usual bounds."""
    budget = _current.get()
    if budget is not None:
        _current.set(Budget(max(times, budget.times)))


def current() -> Optional[Budget]:
    """Return the budget of the running command; None outside of one."""
    return _current.get()


def spend(name: str, amount: int = 1) -> None:
    """Spend *amount* of the bound *name*. Errors: `BoundError` (code `over-bounds`) if less is left."""
    budget = _current.get()
    if budget is not None and not budget.take(name, amount):
        bound, times = BOUNDS[name], budget.times
        grown = f" (and {bound.each * times} for each KiB of the image)" if bound.each else ""
        raise BoundError(
            "over-bounds",
            "the image or the host costs more to look at than any that is known",
            where=f"bound `{name}`",
            why=f"more than {bound.amount * times} {bound.what}{grown}",
            hint=f"if it is right all the same: `{VARIABLE}={10 * times}` gives a command ten times as much",
        )


def times_of(value: Optional[str]) -> int:
    """Return the factor of each bound for the *value* of `VARIABLE`: 1 if it is not a number."""
    is_number = value is not None and value.isascii() and value.isdigit() and len(value) < 5
    return max(1, min(int(value or 1), TIMES_LIMIT)) if is_number else 1
