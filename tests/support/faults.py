"""A bad day of a machine: one call that fails, or too few descriptors, while a command runs."""

from __future__ import annotations

import builtins
import contextlib
import errno
import os
import posix
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

NUMBERS = (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT)
CALLS = ("access", "fstat", "listdir", "lstat", "open", "pread", "read", "readlink", "scandir", "stat")
"""Functions of `os` and of `posix`, under which the memo looks by itself."""
MOST = 500
"""About as many calls as a command makes."""


@contextlib.contextmanager
def one_error(rng: random.Random) -> Iterator[None]:
    """Within, one call fails with an error that does not say what is there."""
    number, left = rng.choice(NUMBERS), [rng.randrange(1, MOST)]

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **words: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(number, os.strerror(number))
            return real(*arguments, **words)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            if name != "access":  # it says no, whatever is wrong
                patch.setattr(os, name, failing(getattr(os, name)))
            patch.setattr(posix, name, failing(getattr(posix, name)))
        patch.setattr(builtins, "open", failing(open))
        yield


@contextlib.contextmanager
def few_descriptors(rng: random.Random) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (rng.randrange(8, 64), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


FAULTS: tuple[Callable[[random.Random], AbstractContextManager[None]], ...] = (one_error, one_error, few_descriptors)
