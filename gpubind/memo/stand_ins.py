"""What stands where functions of the machine's stand while a recorder looks on: each tells the trace what it is asked.

Each stand-in takes what the function takes, and gives and raises what it does.
"""

from __future__ import annotations

import builtins
import os
import pwd
from collections.abc import Callable
from typing import Any, Optional

from gpubind.memo.questions import ask, facts
from gpubind.memo.trace import Trace

CHANGES = ("chmod", "chown", "fchmod", "fchown", "link", "mkdir", "remove", "rename", "rmdir", "symlink", "unlink")
"""What changes something: an answer that did more than to answer is not kept."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class StandIns:
    """All of them, for one trace."""

    def __init__(self, told: Trace) -> None:
        self.told = told
        self._here = os.getcwd()
        self._opened: dict[int, str] = {}
        """The path by which each descriptor was opened: the kernel would say where that file is by now."""
        self._replaced: list[tuple[Any, str, Any]] = []

    def begin(self) -> None:
        real = {name: getattr(os, name) for name in STAND_INS}
        for name, make in STAND_INS.items():
            self._put(os, name, make(self, real[name]))
        self._put(os, "environ", self.told.environ)
        self._put(os.path, "samefile", _samefile_of(self, os.path.samefile))
        self._put(builtins, "open", _open_of(self, builtins.open))
        self._put(pwd, "getpwuid", _getpwuid_of(self, pwd.getpwuid))

    def end(self) -> None:
        """Put the functions themselves back."""
        for module, name, value in reversed(self._replaced):
            setattr(module, name, value)
        for one in _SUPPORTS:
            one.difference_update([function for function in one if getattr(function, "is_stand_in", False)])
        self._replaced.clear()

    def _put(self, module: Any, name: str, value: Any) -> None:
        old = getattr(module, name)
        self._replaced.append((module, name, old))
        setattr(module, name, value)
        for one in _SUPPORTS:
            if callable(old) and old in one:
                value.is_stand_in = True
                one.add(value)

    def path(self, path: Any, dir_fd: Optional[int] = None) -> Optional[str]:
        """*path* as an absolute one; None for a file that is open already."""
        if isinstance(path, int):
            return None
        text = os.fsdecode(path)
        if text.startswith("/"):
            return text
        base = self._here if dir_fd is None else self.path_of(dir_fd)
        return None if base is None else f"{base.rstrip('/')}/{text}"

    def path_of(self, descriptor: int) -> Optional[str]:
        """The path by which the directory *descriptor* was opened; None, and nothing is kept, where nobody knows."""
        found = self._opened.get(descriptor)
        if found is None:
            self.told.refuse("below a directory that was opened in some other way")
        return found

    def has_opened(self, path: Optional[str], descriptor: int) -> None:
        """*path* is open now, as *descriptor*."""
        self.has_closed(descriptor)
        if path is not None:
            self._opened[descriptor] = path

    def has_closed(self, descriptor: int) -> None:
        """*descriptor* may be any other file from now on."""
        self._opened.pop(descriptor, None)


def _looks_of(kind: str) -> Callable[[StandIns, Any], Any]:
    def make(stand: StandIns, real: Any) -> Any:
        def look(path: Any, *, dir_fd: Optional[int] = None, follow_symlinks: bool = True) -> os.stat_result:
            follows = follow_symlinks and kind == "stat"
            named = stand.path(path, dir_fd)
            words = {"dir_fd": dir_fd} if kind == "lstat" else {"dir_fd": dir_fd, "follow_symlinks": follows}
            try:
                found: os.stat_result = real(path, **words)
            except OSError as error:
                if named is not None:
                    stand.told.note("stat" if follows else "lstat", named, error.errno or 0)
                raise
            if named is not None:
                stand.told.note("stat" if follows else "lstat", named, facts(found))
            return found

        return look

    return make


def _readlink_of(stand: StandIns, real: Any) -> Any:
    def readlink(path: Any, *, dir_fd: Optional[int] = None) -> Any:
        named = stand.path(path, dir_fd)
        try:
            target = real(path, dir_fd=dir_fd)
        except OSError as error:
            stand.told.note("link", named, error.errno or 0)  # if it has no name, nothing is kept
            raise
        stand.told.note("link", named, os.fsdecode(target))
        return target

    return readlink


def _listing_of(stand: StandIns, real: Any) -> Any:
    def listing(path: Any = ".") -> Any:
        named = stand.path_of(path) if isinstance(path, int) else stand.path(path)
        if named is not None:
            stand.told.listed(named)
        return real(path)

    return listing


class _Entries:
    """What `os.scandir` gives: an iterator, and a context manager."""

    def __init__(self, entries: list[os.DirEntry[Any]]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> os.DirEntry[Any]:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def close(self) -> None:
        pass


def _scan_of(stand: StandIns, real: Any) -> Any:
    """As a listing; but an entry says, too, whether a link in there leads to a directory."""
    listing = _listing_of(stand, real)

    def scan(path: Any = ".") -> Any:
        with listing(path) as entries:
            found = [*entries]
        for entry in found:
            if entry.is_symlink():
                named = stand.path(entry.path, path if isinstance(path, int) else None)
                if named is not None:
                    stand.told.note("stat", named, ask("stat", named))
        return _Entries(found)

    return scan


def _access_of(stand: StandIns, real: Any) -> Any:
    def access(
        path: Any,
        mode: int,
        *,
        dir_fd: Optional[int] = None,
        effective_ids: bool = False,
        follow_symlinks: bool = True,
    ) -> bool:
        answer = bool(real(path, mode, dir_fd=dir_fd, effective_ids=effective_ids, follow_symlinks=follow_symlinks))
        named = stand.path(path, dir_fd)
        if named is None or not follow_symlinks:
            stand.told.refuse("access of an open file or a link")
        else:
            stand.told.note("access", (named, mode, effective_ids), answer)
        return answer

    return access


def _os_open_of(stand: StandIns, real: Any) -> Any:
    def open_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: Optional[int] = None) -> int:
        named, told = stand.path(path, dir_fd), stand.told
        if named == os.devnull:
            pass
        elif flags & _WRITES:
            told.refuse(f"written: {named}")
        elif named is not None:
            follows = not flags & os.O_NOFOLLOW
            if not follows:
                told.note("lstat", named, ask("lstat", named))
            if not flags & os.O_PATH:
                told.opened(named)
            elif follows:
                told.note("stat", named, ask("stat", named))
        descriptor: int = real(path, flags, mode, dir_fd=dir_fd)
        stand.has_opened(named, descriptor)
        return descriptor

    return open_file


def _close_of(stand: StandIns, real: Any) -> Any:
    def close(descriptor: int) -> None:
        stand.has_closed(descriptor)
        real(descriptor)

    return close


def _open_of(stand: StandIns, real: Any) -> Any:
    def open_file(file: Any, mode: str = "r", *arguments: Any, **words: Any) -> Any:
        named = stand.path(file)
        if named is not None and set(mode) & set("wax+"):
            stand.told.refuse(f"written: {named}")
        elif named is not None:
            stand.told.opened(named)
        return real(file, mode, *arguments, **words)

    return open_file


def _samefile_of(stand: StandIns, real: Any) -> Any:
    def samefile(one: Any, other: Any) -> bool:
        first, second = stand.path(one), stand.path(other)
        if first is None or second is None:
            stand.told.refuse("open files are compared")
            return bool(real(one, other))
        answer = ask("same", (first, second))
        stand.told.note("same", (first, second), answer)
        if isinstance(answer, bool):
            return answer
        raise OSError(answer, os.strerror(answer))

    return samefile


def _change_of(name: str) -> Callable[[StandIns, Any], Any]:
    def make(stand: StandIns, real: Any) -> Any:
        def change(*arguments: Any, **words: Any) -> Any:
            stand.told.refuse(f"something is changed: {name}")
            return real(*arguments, **words)

        return change

    return make


def _terminal_size_of(stand: StandIns, real: Any) -> Any:
    def get_terminal_size(descriptor: int = 1) -> Any:
        try:
            size = real(descriptor)
        except OSError as error:
            stand.told.note("terminal", descriptor, error.errno or 0)
            raise
        stand.told.note("terminal", descriptor, tuple(size))
        return size

    return get_terminal_size


def _getpwuid_of(stand: StandIns, real: Any) -> Any:
    def getpwuid(uid: int) -> Any:
        try:
            answer = real(uid)
        except KeyError:
            stand.told.note("user", uid, None)
            raise
        stand.told.note("user", uid, tuple(answer))
        return answer

    return getpwuid


STAND_INS: dict[str, Callable[[StandIns, Any], Any]] = {
    "stat": _looks_of("stat"),
    "lstat": _looks_of("lstat"),
    "readlink": _readlink_of,
    "listdir": _listing_of,
    "scandir": _scan_of,
    "access": _access_of,
    "open": _os_open_of,
    "close": _close_of,
    "get_terminal_size": _terminal_size_of,
    **{name: _change_of(name) for name in CHANGES},
}
"""By the names of the functions of `os`; each is made of the one that it stands for."""
_SUPPORTS = (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks)
