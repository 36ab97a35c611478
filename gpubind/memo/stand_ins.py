"""What stands where functions of the machine's stand while a recorder looks on: each tells the trace what it is asked.

Each stand-in takes what the function takes, and gives and raises what it does.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import pwd
import stat
from collections.abc import Callable, Iterator
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
        """Return *path* as an absolute one; None for a file that is open already."""
        if isinstance(path, int):
            return None
        text = os.fsdecode(path)
        if text.startswith("/"):
            return text
        base = self._here if dir_fd is None else self.path_of(dir_fd)
        return None if base is None else f"{base.rstrip('/')}/{text}"

    def place(self, path: Any, dir_fd: Optional[int] = None, *, follows: bool = True) -> Optional[str]:
        """Return *path* without links, each of which is a question; but for a last one, unless that *follows*.

        Below an open directory it has none; and nobody else can change those of /proc/self.
        """
        named = self.path(path, dir_fd)
        if named is None or dir_fd is not None or named.startswith("/proc/self/"):
            return named
        directory, name = os.path.split(named.rstrip("/"))
        if follows or not name:
            return os.path.realpath(named)
        return os.path.join(os.path.realpath(directory), name)

    def path_of(self, descriptor: int) -> Optional[str]:
        """The path by which the directory *descriptor* was opened; None, and nothing is kept, where nobody knows."""
        found = self._opened.get(descriptor)
        if found is None:
            self.told.refuse("below a directory that was opened in some other way")
        return found

    @contextlib.contextmanager
    def hears(self, what: Any) -> Iterator[None]:
        """Within, whatever fails is told, unless it says what is there."""
        try:
            yield
        except OSError as error:
            self.told.failed(error.errno, what)
            raise

    def opened_as(self, descriptor: int) -> Optional[str]:
        return self._opened.get(descriptor)

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
        named = stand.path_of(path) if isinstance(path, int) else stand.place(path)
        if named is not None:
            stand.told.listed(named)
        with stand.hears(named):
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
        with listing(path) as entries, stand.hears(path):
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
        told = stand.told
        if flags & _WRITES:
            if path != os.devnull:
                told.refuse(f"written: {path}")
            written: int = real(path, flags, mode, dir_fd=dir_fd)
            stand.has_closed(written)
            return written
        follows = not flags & os.O_NOFOLLOW
        named = stand.place(path, dir_fd, follows=follows)
        looks = None if named is None else _looked_at(told, named, follows=follows)
        if looks and not flags & (os.O_PATH | os.O_DIRECTORY) and not stat.S_ISLNK(looks[0]):
            told.opened(str(named))
        try:
            descriptor: int = real(path, flags, mode, dir_fd=dir_fd)
        except OSError as error:
            told.not_opened(named, looks, error)
            raise
        if named is not None and looks is None:
            told.refuse(f"changed meanwhile: {named}")
        stand.has_opened(named, descriptor)
        return descriptor

    return open_file


def _looked_at(told: Trace, path: str, *, follows: bool) -> Optional[tuple[int, ...]]:
    """The looks of what is to be opened, noted; None if it is not there."""
    kind = "stat" if follows else "lstat"
    looks = ask(kind, path)
    told.note(kind, path, looks)
    return None if isinstance(looks, int) else looks


def _close_of(stand: StandIns, real: Any) -> Any:
    def close(descriptor: int) -> None:
        stand.has_closed(descriptor)
        real(descriptor)

    return close


def _file_of(stand: StandIns) -> type[io.FileIO]:
    """Files of which the trace hears when they cannot be read to their end."""

    class RecordedFile(io.FileIO):
        def readinto(self, buffer: Any) -> Optional[int]:
            with stand.hears(self.name):
                return super().readinto(buffer)

        def read(self, size: Optional[int] = -1) -> Any:
            with stand.hears(self.name):
                return super().read(-1 if size is None else size)

        def readall(self) -> Any:
            with stand.hears(self.name):
                return super().readall()

    return RecordedFile


def _open_of(stand: StandIns, real: Any) -> Any:
    kind = _file_of(stand)

    def open_file(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if set(mode) & set("wax+"):
            if not isinstance(file, int):
                stand.told.refuse(f"written: {file}")
            return real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        named = stand.place(file)
        looks = None if named is None else _looked_at(stand.told, named, follows=True)
        if looks:
            stand.told.opened(str(named))
        try:
            raw = kind(file, "r", closefd, opener)
        except OSError as error:
            stand.told.not_opened(named, looks, error)
            raise
        if buffering == 0:
            return raw
        buffered = io.BufferedReader(raw, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)

    return open_file


def _heard_of(stand: StandIns, real: Any) -> Any:
    """Return a function that reads of a descriptor: when it fails, nobody knows what is there."""

    def read(descriptor: int, *arguments: Any) -> Any:
        with stand.hears(stand.opened_as(descriptor)):
            return real(descriptor, *arguments)

    return read


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
    "fdopen": lambda stand, _: _open_of(stand, io.open),
    **dict.fromkeys(("fstat", "pread", "read"), _heard_of),
    "get_terminal_size": _terminal_size_of,
    **{name: _change_of(name) for name in CHANGES},
}
"""By the names of the functions of `os`; each is made of the one that it stands for."""
_SUPPORTS = (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks)
