"""Whose word counts. Root does what root's own files say, whatever HOME, XDG_*, TMPDIR and PATH name.

An ordinary user's command can do no more than that user, whoever wrote what it reads; root's can do everything.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Optional, Union

from gpubind.files.links import Link, follow
from gpubind.model import Missing
from gpubind.model.answers import ABSENT, CHUNK, answer_in, could_not_look, read_up_to, tried

UID_MAP = "/proc/self/uid_map"
_ALL_USERS = [b"0", b"0", b"4294967295"]
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def acts_as_root() -> bool:
    """Return whether this process has root's powers over this machine.

    Root of a user namespace has not: outside of it, that is an ordinary user. Source: user_namespaces(7).
    """
    if os.geteuid() != 0:
        return False
    try:
        return tried(_uid_map).split() == _ALL_USERS
    except OSError as error:
        if answer_in(error) is None:
            raise could_not_look(UID_MAP, error) from error
        return True


def _uid_map() -> bytes:
    descriptor = os.open(UID_MAP, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_up_to(CHUNK, descriptor)
    finally:
        os.close(descriptor)


def is_obeyed(path: str) -> bool:
    """Whether this process may use the file or directory *path*: always, but not what others could change, as root."""
    return not acts_as_root() or writable_by_others(path) is None


def obeyed_environ(names: Iterable[str]) -> dict[str, str]:
    """Those variables *names* that this process has; for root's, none that names a file or directory which others could
    change.
    """
    found = {name: os.environ[name] for name in names if name in os.environ}
    return {name: value for name, value in found.items() if not value.startswith("/") or is_obeyed(value)}


def writable_by_others(path: str, root: str = "") -> Optional[str]:
    """Return the first part of the way to *path*, below *root*, that someone other than root could change, links on it
    included; None if none. The way ends where nothing is.
    """
    for part, found in _parts(path, root):
        if found is None or found.st_uid != 0 or (_is_open_to_all(found) and not _is_sticky_directory(found)):
            return part
    return None


def unreadable_by_others(path: str, root: str = "") -> Optional[str]:
    """Return the first part of the way to *path*, below *root*, that only some users may enter or read; None if none.

    Whoever set a variable of root's command may be a user who cannot read what it names, but reads the answer.
    """
    found: Optional[os.stat_result] = None
    part = path
    for part, found in _parts(path, root):
        if found is None or (stat.S_ISDIR(found.st_mode) and not found.st_mode & stat.S_IXOTH):
            return part
    return part if found is not None and not found.st_mode & stat.S_IROTH else None


def why_not_lasting(path: str) -> Optional[str]:
    """Why the directory *path* is no place for what the containers of all users get for months; None if it is one.

    Nobody but root may change it, nor anything above it, nor add to it, as everybody may to /tmp; and everybody may
    enter it.
    """
    for part, found in _parts(path):
        if found is None or found.st_uid != 0 or _is_open_to_all(found):
            return f"users other than root may write to {part}"
        if stat.S_ISDIR(found.st_mode) and not found.st_mode & stat.S_IXOTH:
            return f"not everybody may enter {part}"
    return None


def _is_open_to_all(found: os.stat_result) -> bool:
    """Return whether others may write to it; the mode of a link says nothing."""
    return bool(found.st_mode & _OTHERS_MAY_WRITE) and not stat.S_ISLNK(found.st_mode)


def _is_sticky_directory(found: os.stat_result) -> bool:
    """Return whether nobody may rename or remove there what belongs to somebody else."""
    return stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_ISVTX)


def _look(path: str) -> tuple[os.stat_result, Optional[str]]:
    """Return the facts of *path*, and where it leads, if it is a link."""
    found = os.lstat(path)
    return found, os.readlink(path) if stat.S_ISLNK(found.st_mode) else None


def _parts(path: str, root: str = "") -> list[tuple[str, Optional[os.stat_result]]]:
    """Return each directory, link and file that the absolute *path* leads over, with its facts; None for what cannot be
    looked at. Links are followed as for a process whose root directory is *root*.
    """
    parts: list[tuple[str, Optional[os.stat_result]]] = _parts(root) if root else [("/", os.lstat("/"))]

    def step(at: str, name: str) -> Union[str, Link, Missing]:
        here = f"{at}/{name}"
        real = root + here
        try:
            found, target = tried(lambda: _look(real))
        except (OSError, ValueError) as error:
            answer = answer_in(error)
            if answer is None:
                raise could_not_look(real, error) from error
            if answer != ABSENT:
                parts.append((real, None))
            return answer
        parts.append((real, found))
        return here if target is None else Link(target)

    follow(path, "", "", step, lambda at: at.rpartition("/")[0])
    return parts
