"""bubblewrap's own options, read as bubblewrap reads them: what a user's words bring into the container.

Source: bwrap(1) 0.12; `bwrap --help` names how many words each option takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Optional

from gpubind.ldso.brought import UserBind
from gpubind.model import ContainerPath, HostPath

_BINDS = frozenset(f"--{kind}{also}" for kind in ("bind", "dev-bind", "ro-bind") for also in ("", "-try"))
_UNSEEN = {
    "--args": 1, "--bind-data": 2, "--bind-fd": 2, "--file": 2, "--overlay": 3, "--overlay-src": 1, "--ro-bind-data": 2,
    "--ro-bind-fd": 2, "--ro-overlay": 1, "--symlink": 2, "--tmp-overlay": 1, "--tmpfs": 1,
}  # fmt: skip
"""What changes the container's files in ways that paths do not tell, and how many words each takes."""
_PLAIN = {
    "--argv0": 1, "--uid": 1, "--gid": 1, "--hostname": 1, "--lock-file": 1, "--sync-fd": 1, "--remount-ro": 1,
    "--exec-label": 1, "--file-label": 1, "--proc": 1, "--dev": 1, "--mqueue": 1, "--dir": 1, "--seccomp": 1,
    "--add-seccomp-fd": 1, "--block-fd": 1, "--userns-block-fd": 1, "--info-fd": 1, "--json-status-fd": 1,
    "--cap-add": 1, "--cap-drop": 1, "--perms": 1, "--size": 1, "--chmod": 2, "--userns": 1, "--userns2": 1,
    "--pidns": 1,
}  # fmt: skip


class Given(NamedTuple):
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


def read_options(words: Sequence[str]) -> Given:
    """What *words* mean to bubblewrap. Never raises: bubblewrap itself says what is wrong with them."""
    binds: list[UserBind] = []
    env: dict[str, Optional[str]] = {}
    cleared = False
    directory: Optional[ContainerPath] = None
    unseen: list[str] = []
    at = 0
    while at < len(words):
        option, rest = words[at], words[at + 1 :]
        if option in _BINDS and len(rest) > 1:
            binds.append(UserBind(HostPath(rest[0]), ContainerPath(rest[1])))
            at += 2
        elif option == "--setenv" and len(rest) > 1:
            env[rest[0]] = rest[1]
            at += 2
        elif option == "--unsetenv" and rest:
            env[rest[0]] = None
            at += 1
        elif option == "--clearenv":
            env, cleared = {}, True
        elif option == "--chdir" and rest:
            directory = ContainerPath(rest[0])
            at += 1
        elif option in _UNSEEN:
            unseen.append(" ".join((option, *rest[: _UNSEEN[option]])))
            at += _UNSEEN[option]
        else:
            at += _PLAIN.get(option, 0)
        at += 1
    return Given(tuple(binds), tuple(env.items()), cleared, directory, tuple(unseen))
