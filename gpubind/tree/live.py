"""LiveTree: the files of this machine, below a root."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, Union

from gpubind.errors import HostReadError
from gpubind.formats.elf import ElfFacts
from gpubind.model import HostPath, Missing, RootedPath, Stat
from gpubind.tree.base import ABSENT, FORBIDDEN, LOOP
from gpubind.tree.opened import OpenedTree

if TYPE_CHECKING:
    from gpubind.blob.base import Blob

# Never a terminal, never a FIFO that blocks, never through a link that appeared since it was resolved.
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class LiveTree(OpenedTree):
    """The files below directory *root* (a real path; links in it are resolved now).

    Errors: `HostReadError` (code `no-root`) if *root* is no readable directory.
    """

    def __init__(self, root: str = "/") -> None:
        real = os.path.realpath(root)
        if not os.path.isdir(real):
            why = "it is no directory" if os.path.lexists(real) else "it does not exist"
            raise HostReadError("no-root", "the root cannot be read", where=root, why=why, hint="give a directory")
        super().__init__(HostPath(real))
        self._prefix = real.rstrip("/")

    def open(self, path: RootedPath, label: str = "") -> Union[Blob, Missing]:
        from gpubind.blob.base import open_blob

        return open_blob(self.real(path), label)

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        try:
            found = os.lstat(self._prefix + path)
        except (OSError, ValueError) as error:
            return _missing(error)
        rdev = (os.major(found.st_rdev), os.minor(found.st_rdev)) if found.st_rdev else (0, 0)
        return Stat.of(found.st_mode, found.st_uid, found.st_gid, found.st_size, rdev)

    def _readlink(self, path: str) -> Union[str, Missing]:
        try:
            return os.readlink(self._prefix + path)
        except (OSError, ValueError) as error:
            return _missing(error)

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        try:
            return os.listdir(self._prefix + path)
        except (OSError, ValueError) as error:
            return _missing(error)

    def _stream(self, path: str) -> Union[BinaryIO, Missing]:
        try:
            return os.fdopen(os.open(self._prefix + path, _OPEN_FLAGS), "rb")
        except (OSError, ValueError) as error:
            return _missing(error)

    def _elf(self, path: str) -> Union[ElfFacts, Missing]:
        try:
            return super()._elf(path)
        except OSError as error:  # while it is read
            return _missing(error)

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        """Files of /proc and /sys come in pieces and say no size."""
        try:
            descriptor = os.open(self._prefix + path, _OPEN_FLAGS)
        except (OSError, ValueError) as error:
            return _missing(error)
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


def _missing(error: Exception) -> Missing:
    number = error.errno if isinstance(error, OSError) else errno.EINVAL
    if number in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return ABSENT
    if number in (errno.EACCES, errno.EPERM):
        return FORBIDDEN
    if number == errno.ELOOP:
        return LOOP
    return Missing("unreadable", os.strerror(number or errno.EIO))
