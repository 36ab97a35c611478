"""The mounts and variables of the user's options for bubblewrap, by bubblewrap's rules.

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
"""Options that change the container's files in ways that gpubind cannot inspect."""


class UserBwrapOptions(NamedTuple):
    """The mounts and variables of a user's options for bubblewrap."""

    binds: tuple[UserBind, ...] = ()
    """In their order."""
    env: tuple[tuple[str, Optional[str]], ...] = ()
    """Each variable that they set or, with None, remove; the last option takes effect."""
    clears_env: bool = False
    """Whether they remove all variables of the caller."""
    working_directory: Optional[ContainerPath] = None
    unreadable_options: tuple[str, ...] = ()
    """The options of `_UNREADABLE_OPTIONS`, each with its values."""


def parse_user_options(args: Sequence[str]) -> UserBwrapOptions:
    """Parse *args*, options for bubblewrap. Never raises: bubblewrap itself reports errors in them."""
    binds: list[UserBind] = []
    env: dict[str, Optional[str]] = {}
    clears_env = False
    directory: Optional[ContainerPath] = None
    unreadable: list[str] = []
    for name, _, (option, *values), _ in PROGRAMS["bwrap"].read(args).options:
        if name in BWRAP_BINDS:
            binds.append(UserBind(HostPath(values[0]), ContainerPath(values[1])))
        elif name == "setenv":
            env[values[0]] = values[1]
        elif name == "unsetenv":
            env[values[0]] = None
        elif name == "clearenv":
            env, clears_env = {}, True
        elif name == "chdir":
            directory = ContainerPath(values[0])
        elif name in _UNREADABLE_OPTIONS:
            unreadable.append(" ".join((option, *values)))
    return UserBwrapOptions(tuple(binds), tuple(env.items()), clears_env, directory, tuple(unreadable))
