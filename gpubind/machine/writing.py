"""Write files that are complete or absent, into directories that no other user can replace meanwhile.

A file has a random name until it is complete. Errors: `OSError`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Optional

from gpubind.machine import system
from gpubind.machine.answers import read_up_to
from gpubind.machine.system import OpenDirectory

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""The errors of a file system without hard links."""


def replace(
    place: OpenDirectory, name: str, data: bytes, mode: Optional[int] = None, owner: Optional[tuple[int, int]] = None
) -> None:
    """Write *data* to the file *name* in the open directory *place*, atomically.

    *mode*: its permissions; None for those of a new file. *owner*: user and group; None for the caller's.
    Errors: `OSError`.
    """
    with _part(place, data, mode, owner) as part:
        place.rename(part, name)


def make_ours(directory: str, mode: int) -> OpenDirectory:
    """Return *directory*, opened. Missing ones are made with *mode*, whatever the umask is. Errors: `OSError`."""
    is_new = False
    if not system.is_directory(directory):
        parent = os.path.dirname(directory)
        if not system.is_directory(parent):
            make_ours(parent, mode).close()
        # If it exists now, another process has just made it, or it is not a directory: then opening it fails.
        with contextlib.suppress(FileExistsError):
            system.mkdir(directory, mode)
            is_new = True
    opened = _open_ours(directory)
    if is_new:
        opened.set_mode(mode)
    return opened


def write_if_missing(directory: str, name: str, data: bytes, mode: int) -> str:
    """Write *data* to the file *name* in *directory* if missing; return its path. *mode* is for a new directory."""
    with make_ours(directory, mode) as place:
        if not _holds(place, name, data):
            with _part(place, data, 0o444) as part:  # whatever the umask is: a container's user may be another one
                _publish(place, part, name, data)
    return f"{directory}/{name}"


def _open_ours(path: str) -> OpenDirectory:
    place = system.open_directory(path, os.O_RDONLY | os.O_NOFOLLOW)
    stat_result = place.facts()
    # Another user may have made a directory in /tmp as a trap.
    if stat_result.st_uid != system.effective_user() or stat_result.st_mode & 0o022:
        place.close()
        raise PermissionError(errno.EACCES, "it belongs to another user, or others may write to it")
    return place


@contextlib.contextmanager
def _part(
    place: OpenDirectory, data: bytes, mode: Optional[int], owner: Optional[tuple[int, int]] = None
) -> Iterator[str]:
    """Yield the random name of a new file with *data* in the directory *place*; remove that name in the end.

    *mode*, *owner*: as for `replace`.
    """
    part = f".{system.random_name()}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    file = place.open(part, flags, 0o666 if mode is None else mode)
    try:
        with file:
            file.write(data)
            stat_result = file.facts()
            if owner is not None and owner != (stat_result.st_uid, stat_result.st_gid):
                file.set_owner(*owner)
            if mode is not None:
                file.set_mode(mode)
            file.sync()  # a full disk may be reported only now
        yield part
    finally:
        with contextlib.suppress(OSError):
            place.unlink(part)


def _publish(place: OpenDirectory, part: str, name: str, data: bytes) -> None:
    try:
        place.link(part, name)
    except OSError as error:
        if error.errno != errno.EEXIST and error.errno not in _NO_LINKS:
            raise
        if not _holds(place, name, data):
            place.rename(part, name)


def _holds(place: OpenDirectory, name: str, data: bytes) -> bool:
    try:
        with place.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) as file:
            stat_result = file.facts()
            is_ours = stat_result.st_uid == system.effective_user() and not stat_result.st_mode & 0o022
            is_whole = stat.S_ISREG(stat_result.st_mode) and stat_result.st_size == len(data)
            return is_ours and is_whole and read_up_to(len(data), file) == data
    except OSError:
        return False
