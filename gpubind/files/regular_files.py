"""Small files of users and sites: regular ones alone, and no more of them than a limit."""

from __future__ import annotations

import errno
import os
from typing import Optional

from gpubind.files.regular import open_regular
from gpubind.files.trust import is_obeyed
from gpubind.model.answers import ABSENT, FORBIDDEN, answer_in, may, read_steady, tried


def read_regular(path: str, limit: int) -> bytes:
    """Return the bytes of the regular file *path*. A pipe is never waited for, and a device never opened.

    Errors: `OSError`, also for what is no regular file or is larger than *limit* bytes; `ValueError` for a path that
    cannot be.
    """
    data = tried(lambda: _read(path, limit + 1))
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes")
    return data


def _read(path: str, size: int) -> bytes:
    descriptor = open_regular(path)
    try:
        return read_steady(size, descriptor, path)
    finally:
        os.close(descriptor)


def read_if_there(path: str, limit: int) -> Optional[bytes]:
    """As `read_regular`; None if there is no such file, or if root is not to believe it.

    One in a directory that may not be entered counts as absent: sudo, cron, a job's prologue keep somebody else's HOME.
    """
    try:
        return read_regular(path, limit) if is_obeyed(path) else None
    except OSError as error:
        answer = answer_in(error)
        is_closed = answer == FORBIDDEN and not may(os.path.dirname(path), os.X_OK)
        if answer == ABSENT or is_closed:
            return None
        raise
