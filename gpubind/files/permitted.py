"""PermittedTree: the files of this machine, as far as another user may open them."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Union

from gpubind.files.live import LiveTree
from gpubind.model import Missing
from gpubind.model.answers import FORBIDDEN

READ, SEARCH = 4, 1


class PermittedTree(LiveTree):
    """The files below *root*, as user *uid* with *groups* may open them: by owner, group and mode.

    Access control lists count only as far as the group's bits in the mode show them.
    """

    def __init__(self, root: str, uid: int, groups: tuple[int, ...]) -> None:
        super().__init__(root)
        self._uid, self._groups = uid, groups
        self._searched: dict[str, bool] = {}

    def _open_file(self, path: str) -> int:
        if not self._may(READ, path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return super()._open_file(path)

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        return super()._list(path) if self._may(READ, path) else FORBIDDEN

    def _place_of(self, path: str) -> tuple[int, str]:
        if not self._may_search(path.rpartition("/")[0]):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return super()._place_of(path)

    def _may(self, bit: int, path: str) -> bool:
        """Return whether *bit* is allowed on *path*; also where it is not there, for that is another answer."""
        found = self._lstat(path)
        return isinstance(found, Missing) or bool(found.bits_for(self._uid, self._groups) & bit)

    def _may_search(self, directory: str) -> bool:
        """Return whether the user gets through *directory*, below the root, and what is above it."""
        if not directory:
            return True
        if directory not in self._searched:
            above = self._may_search(directory.rpartition("/")[0])
            self._searched[directory] = above and self._may(SEARCH, directory)
        return self._searched[directory]
