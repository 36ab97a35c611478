"""Read the files of this machine below a root, with the rights of this process or of another user."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, Union, cast

from gpubind.errors import HostReadError, closed_error
from gpubind.files.facts import ELF, FileFact
from gpubind.files.opened import OpenedTree
from gpubind.machine import answers, system
from gpubind.machine.listener import mark_uncacheable
from gpubind.machine.regular import open_regular
from gpubind.machine.system import OpenDirectory, OpenFile
from gpubind.model import HostPath, Missing, RootedPath, Stat
from gpubind.model.files import FORBIDDEN, FileKind

if TYPE_CHECKING:
    from gpubind.files.blob import Blob

READ, SEARCH = 4, 1
DIRECTORIES_LIMIT = 128
"""The limit of directories that a tree keeps open."""
_DIRECTORIES_LEAST = 4
_NO_ACL = (errno.ENODATA, errno.EOPNOTSUPP)
"""The errors of a file without an access control list, and of a file system without support for them."""
_SHARE = 16
"""A tree may use 1/16 of the process's descriptors for directories, because several trees are open at a time."""

T = TypeVar("T")
Question = TypeVar("Question", bound=Callable[..., Any])


def missing_on_error(question: Question) -> Question:
    """Make *question*, a method of a tree about a path, return an `OSError` as an answer."""

    @wraps(question)
    def ask(tree: LiveTree, path: str, *more: Any) -> Any:
        try:
            return question(tree, path, *more)
        except (OSError, ValueError) as error:
            return tree.answer_after(error, lambda: question(tree, path, *more), path)

    return cast("Question", ask)


class LiveTree(OpenedTree):
    """The files below the directory *root*. Links in the path *root* are resolved when the tree is created.

    Each directory and file is opened below its open parent, so that nothing outside the root is opened, whatever is
    renamed meanwhile. Errors: `HostReadError` (code `no-root`) if *root* is not a readable directory.
    """

    directories_kept = DIRECTORIES_LIMIT
    with_acls: tuple[FileKind, ...] = ("char", "block")
    """The kinds of files whose access control lists are read."""

    def __init__(self, root: str = "/") -> None:
        try:
            real_root = answers.real_path(root)
            # O_PATH opens even a directory that may not be searched.
            answers.retry_transient(lambda: system.stat(os.path.join(real_root, ".")))
            opened = answers.retry_transient(lambda: system.open_directory(real_root, os.O_PATH | os.O_NOFOLLOW))
        except (OSError, ValueError) as error:
            message = "the root cannot be read"
            if answers.missing_from(error) is None:
                raise answers.inspection_error(root, error, message) from error
            why = "it is not a directory" if isinstance(error, NotADirectoryError) else answers.why_unusable(error)
            raise HostReadError("no-root", message, where=root, why=why, hint="give a directory") from error
        super().__init__(HostPath(real_root))
        self._root = opened
        self._directories: dict[str, OpenDirectory] = {}
        descriptors = system.descriptors_limit()
        if descriptors > 0:
            self.directories_kept = min(self.directories_kept, max(_DIRECTORIES_LEAST, descriptors // _SHARE))

    def __del__(self) -> None:
        if hasattr(self, "_directories"):
            self.close()

    def close(self) -> None:
        self._close_directories()
        if not self.is_closed:
            self._root.close()
        super().close()

    @missing_on_error
    def open(self, path: RootedPath, label: str = "") -> Union[Blob, Missing]:
        from gpubind.files.blob import FileBlob

        return FileBlob(self._open_file(path), label or self.real(path))

    @missing_on_error
    def _lstat(self, path: str) -> Union[Stat, Missing]:
        place, name = self._open_parent(path)
        stat_result = place.lstat(name)
        rdev = (os.major(stat_result.st_rdev), os.minor(stat_result.st_rdev)) if stat_result.st_rdev else (0, 0)
        facts = Stat.from_lstat(stat_result.st_mode, stat_result.st_uid, stat_result.st_gid, stat_result.st_size, rdev)
        return facts._replace(acl=self._acl(path)) if facts.kind in self.with_acls else facts

    def _acl(self, path: str) -> str:
        from gpubind.formats.driver.kernel import ACL_ATTRIBUTE, parse_acl  # most trees have no devices

        try:
            return parse_acl(system.get_xattr(self.real(RootedPath(path)), ACL_ATTRIBUTE))
        except OSError as error:
            if error.errno in _NO_ACL:
                return ""
            raise

    @missing_on_error
    def _readlink(self, path: str) -> Union[str, Missing]:
        place, name = self._open_parent(path)
        return place.readlink(name)

    @missing_on_error
    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        place, name = self._open_parent(path)
        with place.directory(name) as directory:
            return directory.names()

    @missing_on_error
    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        with self._open_file(path) as file:  # files of /proc and /sys have no size
            try:
                return answers.read_unchanged(size, file, path)
            except OSError as error:
                if answers.is_optional(path, error):
                    mark_uncacheable(f"{path} could not be read")
                    return Missing("unreadable", answers.reason(error))
                raise

    @missing_on_error
    def _stream(self, path: str) -> Union[BinaryIO, Missing]:
        return self._open_file(path).stream()

    @missing_on_error
    def _fact(self, path: str, fact: FileFact[Any]) -> Any:
        result = super()._fact(path, fact)
        # A short read looks like a damaged file: a second read decides.
        again = fact is ELF and isinstance(result, Missing) and result.why == "unreadable"
        return super()._fact(path, fact) if again else result

    def _open_file(self, path: str) -> OpenFile:
        """Errors: `OSError`. The file may have been replaced since its `lstat`."""
        place, name = self._open_parent(path)
        return open_regular(name, place)

    def answer_after(self, error: Exception, again: Callable[[], T], path: str) -> Union[T, Missing]:
        """Return *error* about *path* as an answer, or the result of *again* if the error is transient.

        Errors: `HostReadError` (code `unreadable-file`) for an error that is not an answer.
        """
        answer = answers.missing_from(error)
        if answer is None and (self._gives_back(error) or answers.wait_if_transient(error)):
            try:
                return again()
            except (OSError, ValueError) as second:
                error, answer = second, answers.missing_from(second)
        if answer is None:
            hint = "gpubind takes nothing for absent that it could not look at; try again, or look at the file system"
            raise answers.inspection_error(self.real(RootedPath(path)), error, hint=hint) from error
        return answer

    def _gives_back(self, error: Exception) -> bool:
        """If *error* means too many open files, close the kept directories. Return whether there were any."""
        if not (isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE) and self._directories):
            return False
        self._close_directories()
        return True

    def _open_parent(self, path: str) -> tuple[OpenDirectory, str]:
        """Return the open directory of *path*, and the name there. Errors: `OSError`, `ValueError`, `UsageError`."""
        if self.is_closed:
            raise closed_error(self.root)
        directory, _, name = path.rpartition("/")
        place = self._directories.get(directory) if directory else self._root
        return self._open_directory(directory) if place is None else place, name or "."

    def _open_directory(self, path: str) -> OpenDirectory:
        ancestor = path
        while ancestor and ancestor not in self._directories:
            ancestor = ancestor.rpartition("/")[0]
        place = start = self._directories[ancestor] if ancestor else self._root
        for name in path[len(ancestor) + 1 :].split("/"):
            try:
                below = place.directory(name, os.O_PATH)
            finally:
                if place is not start:
                    place.close()
            place = below
        if len(self._directories) >= self.directories_kept:
            self._close_directories()
        self._directories[path] = place
        return place

    def _close_directories(self) -> None:
        for directory in self._directories.values():
            directory.close()
        self._directories.clear()


class PermittedTree(LiveTree):
    """The files below *root* that the user *uid* with *groups* may open, by their modes and access control lists."""

    with_acls = ("file", "dir", "char", "block")

    def __init__(self, root: str, uid: int, groups: tuple[int, ...]) -> None:
        super().__init__(root)
        self._uid, self._groups = uid, groups
        self._searched: dict[str, bool] = {}

    def _open_file(self, path: str) -> OpenFile:
        if not self._may(READ, path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return super()._open_file(path)

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        return super()._list(path) if self._may(READ, path) else FORBIDDEN

    def _open_parent(self, path: str) -> tuple[OpenDirectory, str]:
        if not self._may_search(path.rpartition("/")[0]):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return super()._open_parent(path)

    def _may(self, bit: int, path: str) -> bool:
        """Return whether *bit* is allowed on *path*, or *path* does not exist."""
        stat = self._lstat(path)
        return isinstance(stat, Missing) or bool(stat.permission_bits(self._uid, self._groups) & bit)

    def _may_search(self, directory: str) -> bool:
        if not directory:
            return True
        if directory not in self._searched:
            above = self._may_search(directory.rpartition("/")[0])
            self._searched[directory] = above and self._may(SEARCH, directory)
        return self._searched[directory]
