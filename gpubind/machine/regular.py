"""Open and read regular files that may be hostile: never open a device, never wait for a FIFO."""

from __future__ import annotations

import errno
import os
import stat
from typing import Optional

from gpubind.machine import system
from gpubind.machine.answers import has_access, missing_from, read_unchanged, read_up_to, retry_transient
from gpubind.machine.system import OpenDirectory, OpenFile
from gpubind.machine.trust import is_trusted_path
from gpubind.model.files import ABSENT, FORBIDDEN

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_regular(path: str, place: Optional[OpenDirectory] = None) -> OpenFile:
    """Return the regular file *path*, opened.

    *place*: the open directory of the file; then *path* is the name there, and no link is followed.
    Errors: `OSError`, with EISDIR for a directory and EINVAL for another kind; `ValueError` for an impossible path.
    """
    _need_regular((system.stat(path) if place is None else place.lstat(path)).st_mode)
    file = system.open_file(path, _FLAGS) if place is None else place.open(path, _FLAGS)
    try:
        _need_regular(file.facts().st_mode)  # it may have been replaced in between
    except OSError:
        file.close()
        raise
    return file


def _need_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def read_regular(path: str, limit: int) -> bytes:
    """Return the bytes of the regular file *path*.

    Errors: as `open_regular`; `OSError` also for a file of more than *limit* bytes.
    """
    data = retry_transient(lambda: _read(path, limit + 1))
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes")
    return data


def read_beginning(path: str, size: int) -> bytes:
    """Return the first *size* bytes of the regular file *path*. Errors: as `open_regular`."""
    with open_regular(path) as file:
        return read_up_to(size, file)


def _read(path: str, size: int) -> bytes:
    with open_regular(path) as file:
        return read_unchanged(size, file, path)


def read_if_there(path: str, limit: int) -> Optional[bytes]:
    """Return the bytes as `read_regular`; None if there is no such file, or if a command of root must not trust it.

    A file in a directory that must not be entered is treated as absent, because sudo, cron and prologues keep another
    user's HOME.
    """
    try:
        return read_regular(path, limit) if is_trusted_path(path) else None
    except OSError as error:
        answer = missing_from(error)
        is_closed = answer == FORBIDDEN and not has_access(os.path.dirname(path), os.X_OK)
        if answer == ABSENT or is_closed:
            return None
        raise
