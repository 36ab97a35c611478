"""bubblewrap's own options, read as bubblewrap reads them: what a user's words bring into the container.

Source: bwrap(1) 0.12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gpubind.loader.brought import UserBind
from gpubind.model import ContainerPath, HostPath
from gpubind.runtimes.cmdline import tables
from gpubind.runtimes.cmdline.flags import listed

_BINDS = frozenset(f"--{kind}{also}" for kind in ("bind", "dev-bind", "ro-bind") for also in ("", "-try"))
_UNSEEN = (
    *("--args", "--bind-data", "--bind-fd", "--file", "--overlay", "--overlay-src", "--ro-bind-data", "--ro-bind-fd"),
    *("--ro-overlay", "--symlink", "--tmp-overlay", "--tmpfs"),
)
"""What changes the container's files in ways that paths do not tell."""
_COUNTS = {f"--{names[0]}": takes for names, _, takes in listed(tables.BWRAP)}
"""How many words each option takes."""


class BubblewrapOptions(NamedTuple):
    """What a user's options for bubblewrap say."""

    binds: tuple[UserBind, ...] = ()
    """In their order."""
    env: tuple[tuple[str, Optional[str]], ...] = ()
    """Each variable that they set or, with None, take away; as the last word on it says."""
    cleared: bool = False
    """Whether they take all variables of the caller away."""
    working_directory: Optional[ContainerPath] = None
    unseen: tuple[str, ...] = ()
    """Options that bring what cannot be looked at, each with its words."""


def read_options(words: Sequence[str]) -> BubblewrapOptions:
    """Return what *words* mean to bubblewrap. Never raises: bubblewrap itself says what is wrong with them."""
    binds: list[UserBind] = []
    env: dict[str, Optional[str]] = {}
    cleared = False
    directory: Optional[ContainerPath] = None
    unseen: list[str] = []
    for option, *rest in split_options(words):
        if len(rest) < _COUNTS.get(option, 0):
            break  # bubblewrap says what is missing
        if option in _BINDS:
            binds.append(UserBind(HostPath(rest[0]), ContainerPath(rest[1])))
        elif option == "--setenv":
            env[rest[0]] = rest[1]
        elif option == "--unsetenv":
            env[rest[0]] = None
        elif option == "--clearenv":
            env, cleared = {}, True
        elif option == "--chdir":
            directory = ContainerPath(rest[0])
        elif option in _UNSEEN:
            unseen.append(" ".join((option, *rest)))
    return BubblewrapOptions(tuple(binds), tuple(env.items()), cleared, directory, tuple(unseen))


def split_options(words: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return *words* as options, each with the words that it takes."""
    options: list[tuple[str, ...]] = []
    at = 0
    while at < len(words):
        count = _COUNTS.get(words[at], 0)
        options.append(tuple(words[at : at + 1 + count]))
        at += 1 + count
    return tuple(options)
