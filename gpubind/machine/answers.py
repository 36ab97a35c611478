"""The kernel's answers about a file: it exists, it is absent, it is forbidden, or it could not be inspected.

A file that could not be inspected is never treated as absent. Every handler of an `OSError` uses this table.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Optional, TypeVar

from gpubind.errors import HostReadError, UnseenError
from gpubind.machine import system
from gpubind.machine.listener import mark_uncacheable
from gpubind.machine.system import OpenFile
from gpubind.model.files import ABSENT, ANSWERS, Missing

PASSING = (errno.EINTR, errno.EAGAIN, errno.ESTALE)
"""The transient errors: a second try may succeed."""
_MOMENT_S = 0.05
"""The pause before the second try."""
ATTRIBUTES = ("/proc/", "/sys/")
_OF_A_DEVICE = (errno.EIO, errno.ENXIO, errno.ENODEV, errno.EINVAL, errno.EBUSY, errno.ENODATA, errno.EOPNOTSUPP)
"""The errors of an attribute that the device does not report. A plan can do without it, and a finding names it.

Source: Linux, Documentation/filesystems/sysfs.rst, "a negative errno".
"""
OF_DEVICES = ("/dev", "/proc/driver/nvidia/gpus", "/sys/class/kfd/kfd/topology/nodes")
"""Directories that list devices. If one is forbidden, there may still be devices."""
CHANGED = "it was changed while it was read"

CHUNK = 1 << 20

T = TypeVar("T")


def missing_from(error: Exception) -> Optional[Missing]:
    """Return *error* as an answer; None if the file could not be inspected. A path with a NUL byte is absent."""
    return ANSWERS.get(error.errno or 0) if isinstance(error, OSError) else ABSENT


def inspection_error(
    path: str, error: Exception, message: str = "a file cannot be read", hint: str = ""
) -> HostReadError:
    """Return the error that ends the command after *error* about *path*, which must be readable."""
    kind = HostReadError
    if missing_from(error) is None:
        kind = UnseenError
        mark_uncacheable(f"nobody could look at {path}")
    return kind("unreadable-file", message, where=path, why=reason(error), hint=hint)


def reason(error: Exception) -> str:
    """Return the kernel's message."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def why_unusable(error: Exception) -> str:
    """Return why a path that the user named cannot be used."""
    return "it does not exist" if missing_from(error) == ABSENT else reason(error)


def is_optional(path: str, error: Exception) -> bool:
    """Return whether a plan can do without the content of *path*, whose read failed with *error*."""
    return isinstance(error, OSError) and error.errno in _OF_A_DEVICE and path.startswith(ATTRIBUTES)


def changed() -> OSError:
    """Return the error for a file that changed while it was read."""
    return OSError(errno.ESTALE, CHANGED)


def retry_transient(query: Callable[[], T]) -> T:
    """Return the result of *query*, which is repeated once after a transient error. Errors: those of *query*."""
    try:
        return query()
    except OSError as error:
        if not wait_if_transient(error):
            raise
        return query()


def wait_if_transient(error: Exception) -> bool:
    """Return whether *error* is transient; if so, pause before returning."""
    if not (isinstance(error, OSError) and error.errno in PASSING):
        return False
    import time

    time.sleep(_MOMENT_S)
    return True


def read_up_to(size: int, file: OpenFile) -> bytes:
    """Return at most *size* bytes of the open *file*; fewer only at its end. Errors: `OSError`."""
    chunks: list[bytes] = []
    while size > 0 and (chunk := file.read(min(size, CHUNK))):
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def read_unchanged(size: int, file: OpenFile, path: str) -> bytes:
    """Return at most *size* bytes of *file*, called *path*. Errors: `OSError`, also if the file changes meanwhile.

    Attributes in /proc and /sys are not compared by size or time, because theirs are not true.
    """
    before = file.facts()
    data = read_up_to(size, file)
    is_whole = len(data) >= min(size, before.st_size) and file.facts().st_mtime_ns == before.st_mtime_ns
    if not is_whole and not path.startswith(ATTRIBUTES):
        raise changed()
    return data


def facts(path: str, *, follow: bool = True) -> Optional[os.stat_result]:
    """Return the facts of *path*; None if absent or forbidden. Errors: `HostReadError` (code `unreadable-file`)."""
    try:
        return retry_transient(lambda: (system.stat if follow else system.lstat)(path))
    except (OSError, ValueError) as error:
        if missing_from(error) is None:
            raise inspection_error(path, error) from error
        return None


def why_no_facts(path: str) -> str:
    """Return why *path* has no facts; empty if it has some."""
    try:
        system.stat(path)
    except (OSError, ValueError) as error:
        return why_unusable(error)
    return ""


def exists(path: str) -> bool:
    """Return `os.path.exists`. Errors: as `facts`."""
    return facts(path) is not None


def lexists(path: str) -> bool:
    """Return `os.path.lexists`. Errors: as `facts`."""
    return facts(path, follow=False) is not None


def is_file(path: str) -> bool:
    """Return `os.path.isfile`. Errors: as `facts`."""
    stat_result = facts(path)
    return stat_result is not None and stat.S_ISREG(stat_result.st_mode)


def is_directory(path: str) -> bool:
    """Return `os.path.isdir`. Errors: as `facts`."""
    stat_result = facts(path)
    return stat_result is not None and stat.S_ISDIR(stat_result.st_mode)


def has_access(path: str, mode: int, *, effective: bool = False) -> bool:
    """Return `os.access`, which hides its error: a refusal is verified by a second call. Errors: as `facts`."""
    for _ in range(2):
        if system.access(path, mode, effective=effective):
            return True
        if not exists(path):
            break
    return False


def real_path(path: str) -> str:
    """Return `os.path.realpath`, but fail if a link on the way could not be read.

    Errors: as `facts`; `FileNotFoundError` for an empty path, which here does not mean the current directory.
    """
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    resolved = system.real_path(path)
    at = ""
    for name in resolved.split("/")[1:]:
        at = f"{at}/{name}"
        stat_result = facts(at, follow=False)
        if stat_result is None:
            break
        if stat.S_ISLNK(stat_result.st_mode) and exists(at):
            raise inspection_error(at, changed())
    return resolved
