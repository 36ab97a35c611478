"""A directory that changes while it is read."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.support.trees import Item, make_tree

AT_FDCWD, RENAME_EXCHANGE = -100, 2
SECRET = "/SECRET-OF-ANOTHER"
ENVIRONMENT: dict[str, Item] = {"/.singularity.d/env/10-a.sh": "export LD_LIBRARY_PATH=/own\n"}
LEVELS = ("/.singularity.d", "/.singularity.d/env", "/.singularity.d/env/10-a.sh")
"""What of `ENVIRONMENT_DIRECTORY` is exchanged for a link to the secret in its place."""


@contextlib.contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """A process that exchanges *one* and *other* all the time, each time in one step (renameat2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    assert libc.renameat2(*words) == 0, os.strerror(ctypes.get_errno())
    child = os.fork()
    if child == 0:
        while os.getppid() != 1:
            libc.renameat2(*words)
        os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@contextlib.contextmanager
def racing(directory: Path, level: str) -> Iterator[str]:
    """An image in *directory* of which *level* is exchanged for a link out of it, to where `SECRET` is."""
    secret: dict[str, Item] = {path: str(text).replace("/own", SECRET) for path, text in ENVIRONMENT.items()}
    make_tree(directory / "priv", secret)
    make_tree(directory / "image", ENVIRONMENT)
    trap = directory / "image" / "trap"
    trap.symlink_to(f"{directory}/priv{level}")
    with exchanging(Path(f"{directory}/image{level}"), trap):
        yield f"{directory}/image"
