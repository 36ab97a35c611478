"""LiveTree: the files of this machine, below a root."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, Union

from gpubind.blob.regular import open_regular
from gpubind.errors import HostReadError, closed
from gpubind.formats.elf import ElfFacts
from gpubind.model import HostPath, Missing, RootedPath, Stat
from gpubind.tree.base import ABSENT, FORBIDDEN, LOOP
from gpubind.tree.opened import OpenedTree

if TYPE_CHECKING:
    from gpubind.blob.base import Blob

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
DIRECTORIES_LIMIT = 128
"""Directories that a tree keeps open. A process has 1,024 descriptors mostly, and a tree is not alone in it."""


class LiveTree(OpenedTree):
    """The files below directory *root* (a real path; links in it are resolved now).

    The root is opened once, each directory below the one that it is in, and a file below its own: whatever somebody
    renames or exchanges meanwhile, nothing outside the root is opened.
    Errors: `HostReadError` (code `no-root`) if *root* is no readable directory.
    """

    def __init__(self, root: str = "/") -> None:
        try:
            real = os.path.realpath(root)
            descriptor = os.open(real, os.O_PATH | _DIRECTORY)
        except (OSError, ValueError) as error:
            raise _no_root(root, error) from error
        super().__init__(HostPath(real))
        self._root = descriptor
        self._directories: dict[str, int] = {}

    def __del__(self) -> None:
        if hasattr(self, "_directories"):
            self.close()

    def close(self) -> None:
        self._close_directories()
        if not self.is_closed:
            os.close(self._root)
        super().close()

    def open(self, path: RootedPath, label: str = "") -> Union[Blob, Missing]:
        from gpubind.blob.base import open_blob

        try:
            place, name = self._place_of(path)
        except (OSError, ValueError) as error:
            return _missing(error)
        return open_blob(name, label or self.real(path), place)

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        try:
            place, name = self._place_of(path)
            found = os.stat(name, dir_fd=place, follow_symlinks=False)
        except (OSError, ValueError) as error:
            return _missing(error)
        rdev = (os.major(found.st_rdev), os.minor(found.st_rdev)) if found.st_rdev else (0, 0)
        return Stat.of(found.st_mode, found.st_uid, found.st_gid, found.st_size, rdev)

    def _readlink(self, path: str) -> Union[str, Missing]:
        try:
            place, name = self._place_of(path)
            return os.readlink(name, dir_fd=place)
        except (OSError, ValueError) as error:
            return _missing(error)

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        try:
            place, name = self._place_of(path)
            descriptor = os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=place)
        except (OSError, ValueError) as error:
            return _missing(error)
        try:
            return os.listdir(descriptor)
        except OSError as error:
            return _missing(error)
        finally:
            os.close(descriptor)

    def _stream(self, path: str) -> Union[BinaryIO, Missing]:
        descriptor = self._open_file(path)
        return descriptor if isinstance(descriptor, Missing) else os.fdopen(descriptor, "rb")

    def _elf(self, path: str) -> Union[ElfFacts, Missing]:
        try:
            return super()._elf(path)
        except OSError as error:  # while it is read
            return _missing(error)

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        """Files of /proc and /sys come in pieces and say no size."""
        descriptor = self._open_file(path)
        if isinstance(descriptor, Missing):
            return descriptor
        chunks: list[bytes] = []
        try:
            while size > 0:
                chunk = os.read(descriptor, min(size, 1 << 20))
                if not chunk:
                    break
                chunks.append(chunk)
                size -= len(chunk)
        except OSError as error:
            return _missing(error)
        finally:
            os.close(descriptor)
        return b"".join(chunks)

    def _open_file(self, path: str) -> Union[int, Missing]:
        """The regular file *path*, opened: it may be another one than that which was looked at."""
        try:
            place, name = self._place_of(path)
            return open_regular(name, place)
        except (OSError, ValueError) as error:
            return _missing(error)

    def _place_of(self, path: str) -> tuple[int, str]:
        """The open directory of *path*, and its name in there. Errors: `OSError`, `ValueError`; `UsageError` after
        `close`.
        """
        if self.is_closed:
            raise closed(self.root)
        directory, _, name = path.rpartition("/")
        place = self._directories.get(directory) if directory else self._root
        if place is None:
            try:
                place = self._open_directory(directory)
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
                self._close_directories()
                place = self._open_directory(directory)
        return place, name or "."

    def _open_directory(self, path: str) -> int:
        """The directory *path*, opened below the nearest one above it that is open, and kept open."""
        known = path
        while known and known not in self._directories:
            known = known.rpartition("/")[0]
        place = start = self._directories[known] if known else self._root
        for name in path[len(known) + 1 :].split("/"):
            try:
                below = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=place)
            finally:
                if place != start:
                    os.close(place)
            place = below
        if len(self._directories) >= DIRECTORIES_LIMIT:
            self._close_directories()
        self._directories[path] = place
        return place

    def _close_directories(self) -> None:
        for descriptor in self._directories.values():
            os.close(descriptor)
        self._directories.clear()


def _no_root(root: str, error: Exception) -> HostReadError:
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if isinstance(error, NotADirectoryError):
        why = "it is not a directory"
    elif isinstance(error, FileNotFoundError):
        why = "it does not exist"
    return HostReadError("no-root", "the root cannot be read", where=root, why=why, hint="give a directory")


def _missing(error: Exception) -> Missing:
    number = error.errno if isinstance(error, OSError) else errno.EINVAL
    if number in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return ABSENT
    if number in (errno.EACCES, errno.EPERM):
        return FORBIDDEN
    if number == errno.ELOOP:
        return LOOP
    said = error.strerror if isinstance(error, OSError) else None
    return Missing("unreadable", said or os.strerror(number or errno.EIO))
