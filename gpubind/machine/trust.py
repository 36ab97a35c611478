"""Decide which files a command of root trusts in HOME, XDG_*, TMPDIR and PATH: those that only root can change.

A FUSE file system that a user has mounted can report any owner, so no file on it is trusted as root's. A command of an
ordinary user has only that user's rights, and trusts all files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Optional, Union

from gpubind.machine import system
from gpubind.machine.answers import CHUNK, changed, inspection_error, missing_from, read_up_to, retry_transient
from gpubind.machine.listener import noted
from gpubind.machine.mounts import with_owner
from gpubind.model.files import ABSENT, Link, Missing, walk_path

UID_MAP = "/proc/self/uid_map"
_ALL_USERS = [b"0", b"0", b"4294967295"]
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def acts_as_root() -> bool:
    """Return whether this process is root on this machine, not only in a user namespace. Source: user_namespaces(7)."""
    if system.effective_user() != 0:
        return False
    try:
        return retry_transient(_uid_map).split() == _ALL_USERS
    except OSError as error:
        if missing_from(error) is None:
            raise inspection_error(UID_MAP, error) from error
        return True


def _uid_map() -> bytes:
    with system.open_file(UID_MAP) as file:
        return read_up_to(CHUNK, file)


def is_trusted_path(path: str) -> bool:
    """Return whether this process may use *path*. Root may use it only if others cannot change it."""
    return not acts_as_root() or writable_by_others(path) is None


def trusted_environ(names: Iterable[str]) -> dict[str, str]:
    """Return the variables *names* of this process; for root, without paths that others could change."""
    environ = system.environ()
    variables = {name: environ[name] for name in names if name in environ}
    return {name: value for name, value in variables.items() if not value.startswith("/") or is_trusted_path(value)}


def writable_by_others(path: str, root: str = "", *, within: bool = False) -> Optional[str]:
    """Return the first directory, link or file on the way to *path*, below *root*, that users other than root can
    change.

    *within*: whether *path* is a directory whose files will be used, so that it must not be a sticky directory either.
    """
    parts = _parts(path, root)
    for part, stat_result in parts:
        if stat_result is None or stat_result.st_uid != 0:
            return part
        # In a sticky directory users may only rename and remove their own files.
        if _is_open_to_all(stat_result) and not (
            stat.S_ISDIR(stat_result.st_mode) and stat_result.st_mode & stat.S_ISVTX
        ):
            return part
    end, stat_result = parts[-1]
    return end if within and stat_result is not None and _is_open_to_all(stat_result) else None


def unreadable_by_others(path: str, root: str = "") -> Optional[str]:
    """Return the first directory on the way to *path*, below *root*, or *path*, that only some users may enter or read.

    A user who sets a variable of root's command, as by `sudo -E`, can read the answer, but perhaps not the file.
    """
    stat_result: Optional[os.stat_result] = None
    part = path
    for part, stat_result in _parts(path, root):
        if stat_result is None or (stat.S_ISDIR(stat_result.st_mode) and not stat_result.st_mode & stat.S_IXOTH):
            return part
    return part if stat_result is not None and not stat_result.st_mode & stat.S_IROTH else None


def why_not_shareable(path: str) -> Optional[str]:
    """Return why the containers of all users cannot keep using files in the directory *path*; None if they can.

    Only root may write to *path* and to each directory above it (so *path* is not below /tmp), and all users may enter
    them.
    """
    for part, stat_result in _parts(path):
        if stat_result is None or stat_result.st_uid != 0 or _is_open_to_all(stat_result):
            return f"users other than root may write to {part}"
        if stat.S_ISDIR(stat_result.st_mode) and not stat_result.st_mode & stat.S_IXOTH:
            return f"not everybody may enter {part}"
    return None


def _is_open_to_all(stat_result: os.stat_result) -> bool:
    """Return whether others may write to it. The mode of a link has no meaning."""
    return bool(stat_result.st_mode & _OTHERS_MAY_WRITE) and not stat.S_ISLNK(stat_result.st_mode)


def _true_facts(path: str, stat_result: os.stat_result, trusted_devices: set[int]) -> Optional[os.stat_result]:
    """Return the current facts of *path*, whose earlier facts are *stat_result*; None if a user can forge its owner.

    *trusted_devices*: devices whose owners are believed; that of *path* is added. Without /proc, none is added. Errors:
    `HostReadError` (code `unreadable-file`).
    """
    noted("device", path, (stat_result.st_dev,))
    if stat_result.st_dev in trusted_devices:
        return stat_result
    try:
        now, is_true = retry_transient(lambda: with_owner(path))
    except OSError as error:
        if missing_from(error) is None:
            raise inspection_error(path, error) from error
        noted("owner", path, error.errno)
        return None
    noted("owner", path, (is_true,))
    if now.st_dev != stat_result.st_dev:
        raise inspection_error(path, changed())
    if not is_true:
        return None
    trusted_devices.add(now.st_dev)
    return now


def _parts(path: str, root: str = "") -> list[tuple[str, Optional[os.stat_result]]]:
    """Return each directory, link and file on the way to *path*, with its facts.

    The facts are None if they are forbidden or a user can forge them. Links are followed as for a process whose root
    directory is *root*.
    """
    parts: list[tuple[str, Optional[os.stat_result]]] = _parts(root) if root else [("/", system.lstat("/"))]
    trusted_devices = {system.lstat("/").st_dev}
    top = parts[-1]

    def step(at: str, name: str) -> Union[str, Link, Missing]:
        entry_path = f"{at}/{name}"
        full_path = root + entry_path
        try:
            stat_result = retry_transient(lambda: system.lstat(full_path))
            target = retry_transient(lambda: system.readlink(full_path)) if stat.S_ISLNK(stat_result.st_mode) else None
        except (OSError, ValueError) as error:
            answer = missing_from(error)
            if answer is None:
                raise inspection_error(full_path, error) from error
            if answer != ABSENT:
                parts.append((full_path, None))
            return answer
        parts.append((full_path, _true_facts(full_path, stat_result, trusted_devices)))
        return entry_path if target is None else Link(target)

    def up(at: str) -> str:
        above = at.rpartition("/")[0]
        parts.append(next((part for part in parts if above and part[0] == root + above), top))
        return above

    walk_path(path, "", "", step, up)
    return parts
