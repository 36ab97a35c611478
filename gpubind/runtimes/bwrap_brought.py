"""What a start with bubblewrap brings into the container beside the plan: binds and search paths.

Source: bwrap(1) 0.8 to 0.12, and bwrap.py, which binds home, working directory and /tmp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import join, normpath

from gpubind.model import Brought, ContainerPath, EnvVar, HostPath, UserBind
from gpubind.runtimes.start import Start

_BINDS = ("--bind", "--bind-try", "--dev-bind", "--dev-bind-try", "--ro-bind", "--ro-bind-try")
_UNSEEN = {
    "--args": 1,
    "--bind-data": 2,
    "--bind-fd": 2,
    "--file": 2,
    "--overlay": 3,
    "--overlay-src": 1,
    "--ro-bind-data": 2,
    "--ro-bind-fd": 2,
    "--ro-overlay": 1,
    "--symlink": 2,
    "--tmp-overlay": 1,
}
"""Words that bring what cannot be looked at, with the number of their arguments."""
_ALONE = re.compile(
    "--(as-pid-1|assert-userns-disabled|clearenv|die-with-parent|disable-userns|new-session|share-net|unshare-.*)"
)
"""Words without an argument; others that are not named here have one."""
_SEARCH_PATHS = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PATH")


def brought(start: Start) -> Brought:
    """What *start* brings beside the plan, in the order in which bubblewrap mounts it."""
    places = [path for path in ("/tmp", *_own(start)) if path]
    binds = [UserBind(HostPath(path), ContainerPath(path)) for path in dict.fromkeys(places)]
    unseen: list[str] = []
    values = {"LD_PRELOAD": start.environ.get("LD_PRELOAD")}  # the caller's environment goes into the container
    here = start.environ.get("PWD", "")
    working = here if any(here == path or here.startswith(f"{path}/") for path in places) else None
    for word, arguments in _words(start.arguments):
        if word in _BINDS and len(arguments) == 2:
            source = normpath(join(start.working_directory or "/", arguments[0]))
            binds.append(UserBind(HostPath(source), ContainerPath(normpath(join("/", arguments[1])))))
        elif word == "--setenv" and len(arguments) == 2:
            values[arguments[0]] = arguments[1]
        elif word == "--chdir" and arguments:
            working = arguments[0] if arguments[0].startswith("/") else None
        elif word in _UNSEEN:
            unseen.append(" ".join((word, *arguments)))
    env = [EnvVar(name, "set", value, ":", "user") for name in _SEARCH_PATHS if (value := values.get(name))]
    return Brought(tuple(binds), tuple(env), None if working is None else ContainerPath(working), tuple(unseen))


def _own(start: Start) -> Iterator[str]:
    """The caller's home and working directory, where they are there and not the root."""
    for path in (start.environ.get("HOME", ""), start.environ.get("PWD", "")):
        if path in start.directories and path != "/":
            yield path


def _words(arguments: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each option of *arguments* with its own arguments."""
    at = 0
    while at < len(arguments):
        word = arguments[at]
        count = 2 if word in (*_BINDS, "--setenv", "--chmod") else 0 if _ALONE.fullmatch(word) else _UNSEEN.get(word, 1)
        yield word, arguments[at + 1 : at + 1 + count]
        at += 1 + count
