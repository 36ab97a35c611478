"""Write the file of `-o` completely, or not at all. Links and files that another user planted are not used.

The kernel protects a shell's `>` (fs.protected_symlinks, fs.protected_regular), but not a file that a rename replaces.
So this module applies the kernel's rules to each link on the way. Root follows no link of another user.
Source: Documentation/admin-guide/sysctl/fs.rst.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Optional, Union

from gpubind.machine import system
from gpubind.machine.answers import exists, is_directory
from gpubind.machine.system import OpenDirectory
from gpubind.machine.trust import acts_as_root
from gpubind.machine.writing import replace
from gpubind.model.files import LOOP, Link, Missing, walk_path

_STICKY_FOR_ALL = stat.S_ISVTX | stat.S_IWOTH
_WRITE = os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC
_THEIR_LINK = "a link of somebody else's is on the way, and is not followed"
_THEIR_FILE = "it belongs to somebody else, in a directory where everybody may write"


def write_file(path: str, data: bytes, mode: Optional[int] = None) -> None:
    """Write *data* to the file *path*. A device, a pipe and an open file such as /dev/stdout are written in place.

    A file that exists keeps its owner and, without *mode*, its permissions, except setuid and setgid. A file never has
    wider permissions than *mode*. Errors: `OSError`, also for a link, a file or a pipe that another user planted.
    """
    resolved = _resolve(path)
    directory, name = os.path.dirname(resolved), os.path.basename(resolved)
    if not name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with system.open_directory(directory, os.O_PATH | os.O_NOFOLLOW) as place:
        if system.readlink(f"/proc/self/fd/{place.descriptor}") != directory:
            raise PermissionError(errno.EACCES, "a directory on the way was replaced meanwhile")
        _write(place, name, data, mode, is_open=directory.startswith("/proc/"))


def _resolve(path: str) -> str:
    """Return *path* without links. Only a link below /proc to an open file is kept."""

    def step(directory: str, name: str) -> Union[str, Link]:
        entry = os.path.join(directory, name)
        status = _facts(entry)
        if status is None or not stat.S_ISLNK(status.st_mode):
            return entry
        _require_own_file(status, system.stat(directory), _THEIR_LINK, everywhere=acts_as_root())
        return entry if directory.startswith("/proc/") and directory.endswith("/fd") else Link(system.readlink(entry))

    start = "/" if path.startswith("/") else system.current_directory()
    place, reached, _ = walk_path(path, start, "/", step, os.path.dirname, is_directory)
    if isinstance(place, Missing):
        number = errno.ELOOP if place == LOOP else errno.ENOTDIR if exists(reached) else errno.ENOENT
        raise OSError(number, os.strerror(number))
    return place


def _write(place: OpenDirectory, name: str, data: bytes, mode: Optional[int], *, is_open: bool) -> None:
    """Write the file *name* in the directory *place*. *is_open*: *name* is a link to an open file."""
    status = _facts(name, place)
    if status is None:
        replace(place, name, data, mode)
        return
    if not is_open:
        _require_own_file(status, place.facts(), _THEIR_FILE)
    with place.open(name, _WRITE | (os.O_APPEND if is_open else 0), follow=is_open) as file:
        status = file.facts()
        if is_open or not stat.S_ISREG(status.st_mode):
            file.write(data)
            return
        _require_own_file(status, place.facts(), _THEIR_FILE)
    mode = stat.S_IMODE(status.st_mode) & 0o777 if mode is None else mode
    replace(place, name, data, mode, owner=(status.st_uid, status.st_gid))


def _facts(path: str, place: Optional[OpenDirectory] = None) -> Optional[os.stat_result]:
    try:
        return system.lstat(path) if place is None else place.lstat(path)
    except FileNotFoundError:
        return None


def _require_own_file(status: os.stat_result, directory: os.stat_result, why: str, *, everywhere: bool = False) -> None:
    """Errors: `PermissionError` for a file of another user: *everywhere*, or in a *directory* where everybody may
    write.

    In such a directory, the directory's owner may put any file.
    """
    is_shared = directory.st_mode & _STICKY_FOR_ALL == _STICKY_FOR_ALL and status.st_uid != directory.st_uid
    if status.st_uid != system.effective_user() and (everywhere or is_shared):
        raise PermissionError(errno.EACCES, why)
