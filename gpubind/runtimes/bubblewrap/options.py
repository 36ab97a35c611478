"""The user's own options for bubblewrap, read as bubblewrap reads them: their mounts and variables.

Source: bwrap(1) 0.12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.loader.namespace import UserBind
from gpubind.model import ContainerPath, HostPath
from gpubind.runtimes.cmdline.programs import BWRAP_BINDS, PROGRAMS

_UNREADABLE_OPTIONS = (
    *("args", "bind-data", "bind-fd", "file", "overlay", "overlay-src", "ro-bind-data", "ro-bind-fd"),
    *("ro-overlay", "symlink", "tmp-overlay", "tmpfs"),
)
"""Options that change the container's files in ways that paths do not tell."""


class UserBwrapOptions(NamedTuple):
    """The mounts and variables of a user's options for bubblewrap."""

    binds: tuple[UserBind, ...] = ()
    """In their order."""
    env: tuple[tuple[str, Optional[str]], ...] = ()
    """Each variable that they set or, with None, take away; as the last word on it says."""
    clears_env: bool = False
    """Whether they take all variables of the caller away."""
    working_directory: Optional[ContainerPath] = None
    unreadable_options: tuple[str, ...] = ()
    """Options that bring what cannot be looked at, each with its words."""


def read_options(words: Sequence[str]) -> UserBwrapOptions:
    """Return what *words* mean to bubblewrap. Never raises: bubblewrap itself says what is wrong with them."""
    binds: list[UserBind] = []
    env: dict[str, Optional[str]] = {}
    cleared = False
    directory: Optional[ContainerPath] = None
    unseen: list[str] = []
    for name, _, (option, *rest), _ in PROGRAMS["bwrap"].read(words).options:
        if name in BWRAP_BINDS:
            binds.append(UserBind(HostPath(rest[0]), ContainerPath(rest[1])))
        elif name == "setenv":
            env[rest[0]] = rest[1]
        elif name == "unsetenv":
            env[rest[0]] = None
        elif name == "clearenv":
            env, cleared = {}, True
        elif name == "chdir":
            directory = ContainerPath(rest[0])
        elif name in _UNREADABLE_OPTIONS:
            unseen.append(" ".join((option, *rest)))
    return UserBwrapOptions(tuple(binds), tuple(env.items()), cleared, directory, tuple(unseen))
