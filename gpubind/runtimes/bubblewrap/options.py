"""The mounts and variables of the user's options for bubblewrap, by bubblewrap's rules.

Source: bwrap(1) 0.12.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gpubind.frozen import NamedTuple
from gpubind.loader.namespace import UserBind
from gpubind.model import ContainerPath, HostPath
from gpubind.runtimes.cmdline.programs import ALL_ACTIONS, RuntimeProgram, StartSubcommand
from gpubind.runtimes.cmdline.reader import FIXED_COUNT, ParsedCommandLine

_UNREADABLE_OPTIONS = (
    *("args", "bind-data", "bind-fd", "file", "overlay", "overlay-src", "ro-bind-data", "ro-bind-fd"),
    *("ro-overlay", "symlink", "tmp-overlay", "tmpfs"),
)
"""Options that change the container's files in ways that gpubind cannot inspect."""
BINDS = ("bind", "bind-try", "dev-bind", "dev-bind-try", "ro-bind", "ro-bind-try")
"""The options that bind a path of the host."""
_OPTIONS = """
    add-seccomp-fd= args= argv0= as-pid-1 assert-userns-disabled bind-data=2 bind-fd=2 bind-try=2 bind=2 block-fd=
    cap-add= cap-drop= chdir= chmod=2 clearenv dev-bind-try=2 dev-bind=2 dev= die-with-parent dir= disable-userns
    exec-label= file-label= file=2 gid= help hostname= info-fd= json-status-fd= level-prefix lock-file= mqueue=
    new-session not-a-security-boundary overlay-src= overlay=3 perms= pidns= proc= remount-ro= ro-bind-data=2
    ro-bind-fd=2 ro-bind-try=2 ro-bind=2 ro-overlay= seccomp= setenv=2 share-net size= symlink=2 sync-fd= tmp-overlay=
    tmpfs= uid= unsetenv= unshare-all unshare-cgroup unshare-cgroup-try unshare-ipc unshare-net unshare-pid unshare-user
    unshare-user-try unshare-uts userns-block-fd= userns2= userns= version
"""


def _root(line: ParsedCommandLine) -> Optional[str]:
    """Return the root of the container, if it is a single directory."""
    root: Optional[str] = None
    layers: list[str] = []
    for option in line.options:
        if option.name == "overlay-src":
            layers.append(option.value)
        elif layers and option.name in ("overlay", "tmp-overlay", "ro-overlay"):
            if option.args[-1] == "/":
                root = layers[0] if len(layers) == 1 else None
            layers = []
        elif option.name in BINDS and option.args[2:3] == ("/",):
            root = option.args[1]
    return root


PROGRAM = RuntimeProgram(
    FIXED_COUNT,
    {(): StartSubcommand(_OPTIONS, "rootfs", needs_command=True, actions=ALL_ACTIONS)},
    root_of=_root,
    option_files=("args",),
)


class UserBwrapOptions(NamedTuple):
    """The mounts and variables of a user's options for bubblewrap."""

    binds: tuple[UserBind, ...] = ()
    """The binds, in the order of the options."""
    env: tuple[tuple[str, Optional[str]], ...] = ()
    """The variables that they set or, with None, remove. The last option about a variable takes effect."""
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
    for name, _, (option, *values), _ in PROGRAM.read(args).options:
        if name in BINDS:
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
