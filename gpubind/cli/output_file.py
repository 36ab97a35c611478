"""The file of `-o`: it is whole, or stays as it was. A link or file that somebody else laid in the way is not used.

A shell's `>` is protected by the kernel (fs.protected_symlinks, fs.protected_regular); a file that is replaced by a
rename is not. So the way to the file is walked here, part by part, by the kernel's rules. Root follows no link of
anybody else's at all. Source: Documentation/admin-guide/sysctl/fs.rst.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import NamedTuple, Optional

from gpubind.files.trust import acts_as_root
from gpubind.launch.stage import replace, write_all
from gpubind.model.budget import LINKS_LIMIT

_STICKY_FOR_ALL = stat.S_ISVTX | stat.S_IWOTH
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


class Way(NamedTuple):
    """Where a file is, or is to be."""

    place: int
    """Its directory, opened: from here on, nobody can put another in its place."""
    name: str
    is_open: bool
    """Whether it is a name below /proc for what is open already, such as /dev/stdout: nothing can take its place."""


def write_file(path: str, data: bytes) -> None:
    """Write *data* to the file *path*, which is whole, or stays as it was; a device or a pipe is written as it is.

    A file that is there keeps its owner and its permissions, but for setuid and setgid. Errors: `OSError`, also for a
    link, a file or a pipe of somebody else's that lies in wait.
    """
    way = _way_to(path)
    try:
        _write(way, data)
    finally:
        os.close(way.place)


def _way_to(path: str) -> Way:
    todo = path.split("/")[::-1]
    place = os.open("/" if path.startswith("/") else ".", _DIRECTORY)
    links = 0
    try:
        while True:
            name = todo.pop()
            if name in ("", ".") and todo:
                continue
            found = _facts(place, name) if name else None
            if found is not None and stat.S_ISLNK(found.st_mode):
                _need_own_link(place, found)
                if not todo and _is_below_proc(place):
                    return Way(place, name, is_open=True)
                links += 1
                if links > LINKS_LIMIT:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                target = os.readlink(name, dir_fd=place)
                todo.extend(target.split("/")[::-1])
                name = "/" if target.startswith("/") else "."
            elif not todo:
                if name in ("", ".", ".."):
                    raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
                return Way(place, name, is_open=False)
            below = os.open(name, _DIRECTORY, dir_fd=place)
            os.close(place)
            place = below
    except BaseException:
        os.close(place)
        raise


def _write(way: Way, data: bytes) -> None:
    found = None if way.is_open else _facts(way.place, way.name)
    if found is None and not way.is_open:
        replace(way.place, way.name, data)
        return
    if found is not None:
        _need_own_file(way.place, found)
    flags = _WRITE & ~os.O_NOFOLLOW | os.O_APPEND if way.is_open else _WRITE
    file = os.open(way.name, flags, dir_fd=way.place)  # asks whether it may be written at all
    try:
        found = os.fstat(file)
        if way.is_open or not stat.S_ISREG(found.st_mode):
            write_all(file, data)
            return
        _need_own_file(way.place, found)
    finally:
        os.close(file)
    mode = stat.S_IMODE(found.st_mode) & 0o777
    replace(way.place, way.name, data, mode=mode, owner=(found.st_uid, found.st_gid))


def _facts(place: int, name: str) -> Optional[os.stat_result]:
    try:
        return os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_below_proc(place: int) -> bool:
    return os.readlink(f"/proc/self/fd/{place}").startswith("/proc/")


def _need_own_link(place: int, link: os.stat_result) -> None:
    """Errors: `PermissionError` for a link in the directory *place* that is not to be followed."""
    if link.st_uid != os.geteuid() and (acts_as_root() or _is_trap(place, link)):
        raise PermissionError(errno.EACCES, "a link of somebody else's is on the way, and is not followed")


def _need_own_file(place: int, file: os.stat_result) -> None:
    """Errors: `PermissionError` for a file or pipe that somebody else has put where everybody may."""
    if file.st_uid != os.geteuid() and _is_trap(place, file):
        raise PermissionError(errno.EACCES, "it belongs to somebody else, in a directory where everybody may write")


def _is_trap(place: int, found: os.stat_result) -> bool:
    """Whether *found* may be a trap: in a directory where everybody may write, and not of that directory's owner."""
    directory = os.fstat(place)
    return directory.st_mode & _STICKY_FOR_ALL == _STICKY_FOR_ALL and found.st_uid != directory.st_uid
