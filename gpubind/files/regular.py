"""The one way in which a file is opened that anybody may have laid there: a regular one, or none."""

from __future__ import annotations

import errno
import os
import stat
from typing import Optional

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_regular(path: str, place: Optional[int] = None) -> int:
    """Return a descriptor of the regular file *path*. A device is never opened, and a FIFO never waited for.

    *place*: the open directory that it is in; then *path* is its name in there, and no link is followed.
    Errors: `OSError`, with EISDIR for a directory and EINVAL for another kind; `ValueError` for a path that cannot be.
    """
    _need_regular(os.stat(path, dir_fd=place, follow_symlinks=place is None).st_mode)
    descriptor = os.open(path, _FLAGS if place is None else _FLAGS | os.O_NOFOLLOW, dir_fd=place)
    try:
        _need_regular(os.fstat(descriptor).st_mode)  # it may have been replaced in between
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _need_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
