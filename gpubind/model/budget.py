"""What one command may spend on looking at an image and a host, in all.

Each reader has bounds of its own for one file, one directory, one layer. A thousand of them, each within its bounds,
must not cost minutes or gigabytes either. So every reader spends here, and the command ends with an error that names
the bound. Outside of a command nothing is spent: there each reader has its own bounds alone.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Callable, NamedTuple, Optional

from gpubind.errors import BoundError

VARIABLE = "GPUBIND_BOUNDS"
"""The variable that gives a command as many times of each bound."""
TIMES_LIMIT = 1000
LINKS_LIMIT = 40
"""Links on the way to one file. Source: Linux, fs/namei.c, MAXSYMLINKS."""


class Bound(NamedTuple):
    """How much there is of something."""

    amount: int
    what: str
    """In the words of a message."""
    each: int = 0
    """How much more for each KiB of the image's files: a large image may cost more than a small one."""


BOUNDS = {
    "read": Bound(1 << 30, "bytes are read", 40 << 10),
    "unpacked": Bound(256 << 20, "bytes are unpacked", 40 << 10),
    "entries": Bound(100_000, "files are listed in layers", 4),
    "lookups": Bound(200_000, "paths are looked up"),
    "listings": Bound(20_000, "directories are listed for patterns"),
    "facts": Bound(200_000, "names and versions are read from ELF files"),
    "texts": Bound(64 << 20, "bytes of names are kept", 2 << 10),
    "milliseconds": Bound(60_000, "milliseconds are waited for helper programs"),
}
"""The only list of them. What it costs to use one up: about three seconds, or 200 MB; the last: a minute."""


class Budget:
    """What is left of each bound."""

    def __init__(self, times: int = 1) -> None:
        self.times = times
        self._left = {name: bound.amount * times for name, bound in BOUNDS.items()}
        self._granted: set[object] = set()

    def left(self, name: str) -> int:
        """Return how much is left of the bound called *name*."""
        return self._left[name]

    def take(self, name: str, amount: int) -> bool:
        """Spend *amount*; False, and nothing is spent, if there is not as much."""
        left = self._left[name] - amount
        if left < 0:
            return False
        self._left[name] = left
        return True

    def grant(self, file: object, size: int) -> None:
        """An image's file of *size* bytes is read; *file* tells it from others, for each counts once."""
        if file not in self._granted:
            self._granted.add(file)
            for name, bound in BOUNDS.items():
                self._left[name] += bound.each * self.times * (size >> 10)


_current: ContextVar[Optional[Budget]] = ContextVar("budget", default=None)


Watcher = Callable[[str, int, Optional[int]], None]
"""Is told what is being read, how far, and how much there is, in bytes, if that is known."""

_watcher: ContextVar[Optional[Watcher]] = ContextVar("watcher", default=None)


class watched_by:  # noqa: N801
    """`with watched_by(watcher):` tells it how far the reads are inside."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def __enter__(self) -> None:
        self._token = _watcher.set(self._watcher)

    def __exit__(self, *error: object) -> None:
        _watcher.reset(self._token)


def tell(what: str, done: int = 0, whole: Optional[int] = None) -> None:
    """*done* bytes of *what* are read, of *whole*; empty: something else is going to be said now."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(what, done, whole)


class one_command:  # noqa: N801  # as `contextlib.suppress` is
    """`with one_command():` gives what is inside one budget, *times* the usual one. Inside another, that one stays."""

    def __init__(self, times: int = 1) -> None:
        self._times = times
        self._token: Optional[Token[Optional[Budget]]] = None

    def __enter__(self) -> None:
        if _current.get() is None:
            self._token = _current.set(Budget(self._times))

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._token is not None:
            _current.reset(self._token)


def renew(times: int = 1) -> None:
    """Let the command that runs begin anew, with *times* the usual bounds at least: the first try came to nothing."""
    budget = _current.get()
    if budget is not None:
        _current.set(Budget(max(times, budget.times)))


def current() -> Optional[Budget]:
    """Return the budget of the command that runs; None outside of one."""
    return _current.get()


def spend(name: str, amount: int = 1) -> None:
    """Spend *amount* of the bound called *name*. Errors: `BoundError` (code `over-bounds`) if there is not as much."""
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
    """Return how many times of each bound the *value* of `VARIABLE` gives: 1 for one that is no such number."""
    is_number = value is not None and value.isascii() and value.isdigit() and len(value) < 5
    return max(1, min(int(value or 1), TIMES_LIMIT)) if is_number else 1
