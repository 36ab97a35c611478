"""What only root can do to a process: own mounts, and rights that it gives away."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Optional

from tests.support.apart import apart

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS = 0x00020000
_READ_ONLY, _REMOUNT, _BIND, _ALL, _PRIVATE = 1, 32, 4096, 1 << 14, 1 << 18
"""Source: mount(2), linux/mount.h."""
_DETACH = 2
_CAPABILITIES = 0x20080522
"""Version 3 of the sets of capabilities. Source: capget(2)."""
_OVERRIDES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: whom no mode and no list refuses anything."""


def _tried(call: Callable[..., int], *arguments: object) -> None:
    """Errors: `OSError`."""
    if call(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), call.__name__)


def leave_mounts() -> None:
    """Give this process and its children mounts of their own. Errors: `OSError`."""
    _tried(_LIBC.unshare, _NEW_MOUNTS)
    _tried(_LIBC.mount, b"none", b"/", None, _ALL | _PRIVATE, None)


def mount_read_only(path: str) -> None:
    """Mount the directory *path* on itself, read-only. Errors: `OSError`."""
    there = os.fsencode(path)
    _tried(_LIBC.mount, there, there, None, _BIND | _ALL, None)
    _tried(_LIBC.mount, None, there, None, _BIND | _REMOUNT | _READ_ONLY, None)


def remount_writable(path: str) -> None:
    """Let a mounted *path* be written. Errors: `OSError`."""
    _tried(_LIBC.mount, None, os.fsencode(path), None, _BIND | _REMOUNT, None)


def unmount(path: str) -> None:
    """Errors: `OSError`."""
    _tried(_LIBC.umount2, os.fsencode(path), _DETACH)


def why_no_mounts(base: Path) -> Optional[str]:
    """Return why a process can mount nothing on directories in *base*; None if it can."""

    def mount() -> Optional[str]:
        try:
            leave_mounts()
            mount_read_only(str(base))
        except OSError as error:
            return str(error)
        return None

    return apart(mount)


def obey_permissions() -> None:
    """Give up the rights by which root ignores modes and access control lists. Errors: `OSError`."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
    sets = (ctypes.c_uint32 * 6)()
    _tried(_LIBC.capget, header, sets)
    for at in range(3):  # effective, permitted, inheritable: the lower 32 of each
        sets[at] &= ~_OVERRIDES
    _tried(_LIBC.capset, header, sets)
