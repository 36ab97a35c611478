"""Paths of three kinds, and a tree's answers about them."""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Literal, NewType, Optional, TypeVar, Union

from gpubind.frozen import NamedTuple

_T = TypeVar("_T")

RootedPath = NewType("RootedPath", str)
"""A path as seen inside a root (driver root, dev root): `/usr/lib64/libcuda.so.1`."""
HostPath = NewType("HostPath", str)
"""A real path on this host, root included: the source of a bind."""
ContainerPath = NewType("ContainerPath", str)
"""A path inside the container."""

FileKind = Literal["file", "dir", "link", "char", "block", "socket", "fifo"]
_FILE_KINDS: dict[int, FileKind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "link",
    stat.S_IFCHR: "char",
    stat.S_IFBLK: "block",
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "fifo",
}


class Missing(NamedTuple):
    """Why a path has no content or facts. For a path that could not be inspected see `gpubind.machine.answers`.

    `unreadable`: the file exists but cannot be used: it is damaged, too large or of another kind, or a device attribute
    that the kernel does not report. `unrecorded`: a record does not cover the path.
    """

    why: Literal["absent", "forbidden", "loop", "unreadable", "unrecorded"]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.why}: {self.detail}" if self.detail else self.why


ABSENT = Missing("absent")
FORBIDDEN = Missing("forbidden", "permission denied")
LOOP = Missing("loop", "too many levels of symbolic links")
ANSWERS: dict[int, Missing] = {
    errno.ENOENT: ABSENT,
    errno.ENOTDIR: ABSENT,
    errno.ENAMETOOLONG: ABSENT,
    errno.ELOOP: LOOP,
    errno.EACCES: FORBIDDEN,
    errno.EPERM: FORBIDDEN,
}
"""The errors of the kernel that are answers. Every other error means that the file could not be inspected."""
LINKS_LIMIT = 40
"""The limit of links on the way to one file. Source: Linux, fs/namei.c, MAXSYMLINKS."""

NOUNS: dict[FileKind, str] = {
    "file": "a regular file",
    "dir": "a directory",
    "link": "a link",
    "char": "a character device",
    "block": "a block device",
    "socket": "a socket",
    "fifo": "a FIFO",
}
"""The kinds of files in English."""


class Stat(NamedTuple):
    """The facts of lstat(2) that a plan needs."""

    kind: FileKind
    mode: int
    """Permission bits with set-id and sticky, e.g. 0o644."""
    uid: int
    gid: int
    size: int
    """Bytes; 0 unless it is a regular file."""
    major: int = 0
    minor: int = 0
    acl: str = ""
    """The access control list of a device node: `user::rw-,user:1000:rw-,group::---,mask::rw-,other::---`."""

    @classmethod
    def from_lstat(cls, mode: int, uid: int, gid: int, size: int, rdev: tuple[int, int]) -> Stat:
        """Return the facts in these fields of `os.lstat`."""
        kind = _FILE_KINDS.get(stat.S_IFMT(mode), "fifo")
        return cls(kind, stat.S_IMODE(mode), uid, gid, size if kind == "file" else 0, *rdev)

    def rights(self) -> tuple[tuple[str, int, int], ...]:
        """Return the permission bits of each `user`, `group` and `other`, with its number. The owner is first.

        Source: acl(5): with an access control list, the group's bits of the mode limit all entries but the owner's and
        that of `other`.
        """
        of_owner, limit, of_others = (self.mode >> shift & 7 for shift in (6, 3, 0))
        entries = [("user", self.uid, of_owner)]
        for entry in (self.acl or "group::rwx").split(","):
            tag, number, letters = entry.split(":")
            bits = limit & sum(bit for letter, bit in (("r", 4), ("w", 2), ("x", 1)) if letter in letters)
            if tag == "group" or (tag == "user" and number):
                entries.append((tag, int(number or self.gid), bits))
        return (*entries, ("other", -1, of_others))

    def permission_bits(self, uid: int, groups: tuple[int, ...]) -> int:
        """Return the three permission bits of user *uid* with *groups*; root is not treated specially."""
        rights = self.rights()
        of_user = next((bits for tag, number, bits in rights if tag == "user" and number == uid), None)
        if of_user is not None:
            return of_user
        of_groups = [bits for tag, number, bits in rights if tag == "group" and number in groups]
        return reduce(or_, of_groups) if of_groups else rights[-1][2]


class ResolvedFile(NamedTuple):
    """A resolved path and its facts."""

    path: RootedPath
    """The path, without links in it."""
    stat: Stat


def or_none(answer: Union[_T, Missing]) -> Optional[_T]:
    """Return *answer*, or None where it is missing for any reason."""
    return None if isinstance(answer, Missing) else answer


class Link(NamedTuple):
    """A symbolic link that is met while a path is followed."""

    target: str


def walk_path(
    path: str,
    current: _T,
    root: _T,
    step: Callable[[_T, str], Union[_T, Link, Missing]],
    up: Callable[[_T], _T],
    is_directory: Callable[[_T], bool] = lambda here: True,
) -> tuple[Union[_T, Missing], _T, list[str]]:
    """Return the result of following *path* from *current*, the last position, and the names not followed.

    It is followed name by name, as by the kernel (path_resolution(7)). *step* looks up a name in a directory, *up*
    returns the parent directory. Absolute links start at *root*.
    """
    todo = path.split("/")[::-1]
    links = 0
    while todo:
        name = todo.pop()
        if not is_directory(current):
            return ABSENT, current, [name, *reversed(todo)]
        if name in ("", "."):
            continue
        if name == "..":
            current = up(current)
            continue
        result = step(current, name)
        if isinstance(result, Link):
            links += 1
            if links <= LINKS_LIMIT:
                current = root if result.target.startswith("/") else current
                todo.extend(result.target.split("/")[::-1])
                continue
            result = LOOP
        if isinstance(result, Missing):
            return result, current, [name, *reversed(todo)]
        current = result
    return current, current, []
