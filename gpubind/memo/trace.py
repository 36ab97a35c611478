"""Write down each question that a command asks of this machine, with the signature of its answer.

The recorder stands where some functions of `os`, `os.environ`, `open` and `pwd.getpwuid` stand, from when the command
line begins to run until the answer is there, or until anything fails: so a module need not know of it, and one that is
written next year cannot forget it. Nothing stands there unless `gpubind` is the program that runs: `import gpubind`
loads none of this. tests/memo/test_asked.py lists every function of the machine's that gpubind calls, and why each
of them is recorded, is no question, or ends the recording: with any other, it fails.

What is asked is signed before it is read, and all of it is asked again in the end: what was read in between was true.
A file that is opened below an open directory is noted by the whole path that the directory was opened by.
A command that writes, removes or renames anything is not kept.
"""

from __future__ import annotations

import builtins
import io
import os
import posix
import stat
import time
from collections.abc import Callable
from typing import Any, Optional, Union

from gpubind.memo import asked, reading
from gpubind.memo.asked import AskedEnviron
from gpubind.memo.filesystems import FileSystems

YOUNG_NS = 20_000_000
"""A file that was written less than this before it was signed could be written again without showing: file systems
count time in steps of up to 10 ms. git calls such an entry racily clean."""
COARSE_NS = 2_000_000_000
"""The same where the file system counts whole seconds."""
SMALL = 64 << 10
"""A young file of up to so many bytes is compared by content."""
CHANGES = ("chmod", "chown", "fchmod", "fchown", "link", "mkdir", "remove", "rename", "rmdir", "symlink", "unlink")
"""What changes something: an answer that did more than to answer is not kept."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Recorder:
    """The questions of one command, and what it has answered so far. A context manager: within, everything is seen."""

    def __init__(self, done: Callable[[int], None]) -> None:
        self.questions: dict[str, dict[Any, Any]] = {kind: {} for kind in reading.ASKED}
        self.printed: list[Union[str, bytes]] = []
        self.refused: Optional[str] = None
        """Why the answer cannot be kept."""
        self.why = ""
        """Why no memo served."""
        self.verbose = False
        self.command: Optional[tuple[str, ...]] = None
        """The end of the user's words that is for the container; None if they have no such end."""
        self.looks_at_program = False
        self.become: Optional[tuple[str, tuple[str, ...], Any]] = None
        self._done = done
        self._callers = dict(os.environ)
        self.environ = AskedEnviron(self._callers, self)
        self._here = os.getcwd()
        self._opened: dict[int, str] = {}
        """The path by which each descriptor was opened: the kernel would say where that file is by now."""
        self._file_systems = FileSystems()
        self._kept: list[tuple[Any, str, Any]] = []

    def finish(self, status: int) -> None:
        """The answer is there, with exit code *status*: nothing is looked at any more."""
        self.stop()
        self._done(status)

    def refuse(self, why: str) -> None:
        self.refused = self.refused or why

    # The questions.

    def note(self, kind: str, question: Any, answer: Any) -> None:
        known = self.questions[kind].setdefault(question, answer)
        if known != answer:
            self.refuse(f"changed meanwhile: {question}")

    def variable(self, name: str) -> None:
        if name not in self.questions["variable"]:
            self.note("variable", name, reading.hash_of(self._callers.get(name)))

    def variables(self) -> None:
        self.note("variables", "", tuple(sorted(self._callers)))

    def own_locale(self) -> bool:
        """Whether Python has set LC_CTYPE for itself. The rest of the environment does not count."""
        answer = reading.ask_own_locale("")
        self.note("locale", "", answer)
        return answer

    def program(self, path: str) -> None:
        """A program that says its version. Of a script, others say it."""
        self.opened(path)
        try:
            with io.open_code(path) as file:
                if file.read(4) != b"\x7fELF":
                    self.refuse(f"a script says its version: {path}")
        except OSError:
            self.refuse(f"not readable: {path}")

    def opened(self, path: str) -> None:
        """The file or directory *path* is about to be read."""
        if path in self.questions["written"] or path in self.questions["opened"] or path in self.questions["content"]:
            return
        now = time.time_ns()
        try:
            found = posix.stat(path)
        except OSError as error:
            self.note("stat", path, error.errno or 0)
            return
        if stat.S_ISDIR(found.st_mode):
            self.note("stat", path, reading.facts(found))
            return
        if not stat.S_ISREG(found.st_mode):
            self.refuse(f"no regular file: {path}")
            return
        trust = self._file_systems.trust(path, found.st_dev)
        young = is_young(found, now)
        if trust == "none" or (young and found.st_size <= SMALL):
            answer = reading.ask_content(path)
            if answer == ():
                self.refuse(f"no honest times, and too large to be compared: {path}")
            self.note("content", path, answer)
        elif young:
            self.refuse(f"just written: {path}")
        elif trust == "opened":
            self.note("opened", path, reading.ask_opened(path))
        else:
            self.note("written", path, reading.signature(found))

    def listed(self, path: str) -> None:
        """The directory *path* is about to be listed."""
        if path in self.questions["names"] or path in self.questions["written"]:
            return
        now = time.time_ns()
        try:
            found = posix.stat(path)
        except OSError as error:
            self.note("names", path, error.errno or 0)
            return
        if self._file_systems.trust(path, found.st_dev) != "times" or is_young(found, now):
            self.note("names", path, reading.ask_names(path))
        else:
            self.note("written", path, reading.signature(found))

    # Standing where `os` stands.

    def __enter__(self) -> Recorder:
        real = {name: getattr(os, name) for name in _STANDS_FOR}
        for name, make in _STANDS_FOR.items():
            self._put(os, name, make(self, real[name]))
        self._put(os, "environ", self.environ)
        self._put(os.path, "samefile", self._samefile)
        self._put(builtins, "open", _open_of(self, builtins.open))
        import pwd

        self._put(pwd, "getpwuid", _getpwuid_of(self, pwd.getpwuid))
        asked.recorder = self
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *exception: object) -> None:
        if kind is not None and not issubclass(kind, SystemExit):
            self.refuse("it failed")
        self.stop()

    def stop(self) -> None:
        """Stand there no longer."""
        asked.recorder = None
        for module, name, value in reversed(self._kept):
            setattr(module, name, value)
        for one in _SUPPORTS:
            one.difference_update([function for function in one if getattr(function, "is_recorders", False)])
        self._kept.clear()

    def _put(self, module: Any, name: str, value: Any) -> None:
        old = getattr(module, name)
        self._kept.append((module, name, old))
        setattr(module, name, value)
        for one in _SUPPORTS:
            if callable(old) and old in one:
                value.is_recorders = True
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
            self.refuse("below a directory that was opened in some other way")
        return found

    def has_opened(self, path: Optional[str], descriptor: int) -> None:
        """*path* is open now, as *descriptor*."""
        self._opened.pop(descriptor, None)
        if path is not None:
            self._opened[descriptor] = path

    def _samefile(self, one: Any, other: Any) -> bool:
        first, second = self.path(one), self.path(other)
        if first is None or second is None:
            self.refuse("open files are compared")
            return os.path.samestat(posix.stat(one), posix.stat(other))
        answer = reading.ask_same((first, second))
        self.note("same", (first, second), answer)
        if isinstance(answer, bool):
            return answer
        raise OSError(answer, os.strerror(answer))


def is_young(found: os.stat_result, now: int) -> bool:
    last = max(found.st_ctime_ns, found.st_mtime_ns if found.st_mtime_ns <= now else 0)
    return last > now - (YOUNG_NS if found.st_ctime_ns % 1_000_000_000 else COARSE_NS)


def _looks_of(kind: str) -> Callable[[Recorder, Any], Any]:
    def make(told: Recorder, real: Any) -> Any:
        def look(path: Any, *, dir_fd: Optional[int] = None, follow_symlinks: bool = True) -> os.stat_result:
            follows = follow_symlinks and kind == "stat"
            named = told.path(path, dir_fd)
            words = {"dir_fd": dir_fd} if kind == "lstat" else {"dir_fd": dir_fd, "follow_symlinks": follows}
            try:
                found: os.stat_result = real(path, **words)
            except OSError as error:
                if named is not None:
                    told.note("stat" if follows else "lstat", named, error.errno or 0)
                raise
            if named is not None:
                told.note("stat" if follows else "lstat", named, reading.facts(found))
            return found

        return look

    return make


def _readlink_of(told: Recorder, real: Any) -> Any:
    def readlink(path: Any, *, dir_fd: Optional[int] = None) -> Any:
        named = told.path(path, dir_fd)
        try:
            target = real(path, dir_fd=dir_fd)
        except OSError as error:
            told.note("link", named, error.errno or 0)  # if it has no name, nothing is kept
            raise
        told.note("link", named, os.fsdecode(target))
        return target

    return readlink


def _listing_of(told: Recorder, real: Any) -> Any:
    def listing(path: Any = ".") -> Any:
        named = told.path_of(path) if isinstance(path, int) else told.path(path)
        if named is not None:
            told.listed(named)
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


def _scan_of(told: Recorder, real: Any) -> Any:
    """As a listing; but an entry says, too, whether a link in there leads to a directory."""
    listing = _listing_of(told, real)

    def scan(path: Any = ".") -> Any:
        with listing(path) as entries:
            found = [*entries]
        for entry in found:
            if entry.is_symlink():
                named = told.path(entry.path)
                if named is not None:
                    told.note("stat", named, reading.ask_stat(named))
        return _Entries(found)

    return scan


def _access_of(told: Recorder, real: Any) -> Any:
    def access(
        path: Any,
        mode: int,
        *,
        dir_fd: Optional[int] = None,
        effective_ids: bool = False,
        follow_symlinks: bool = True,
    ) -> bool:
        answer = bool(real(path, mode, dir_fd=dir_fd, effective_ids=effective_ids, follow_symlinks=follow_symlinks))
        named = told.path(path, dir_fd)
        if named is None or not follow_symlinks:
            told.refuse("access of an open file or a link")
        else:
            told.note("access", (named, mode, effective_ids), answer)
        return answer

    return access


def _os_open_of(told: Recorder, real: Any) -> Any:
    def open_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: Optional[int] = None) -> int:
        named = told.path(path, dir_fd)
        if named == os.devnull:
            pass
        elif flags & _WRITES:
            told.refuse(f"written: {named}")
        elif named is not None:
            follows = not flags & os.O_NOFOLLOW
            if not follows:
                told.note("lstat", named, reading.ask_lstat(named))
            if not flags & os.O_PATH:
                told.opened(named)
            elif follows:
                told.note("stat", named, reading.ask_stat(named))
        descriptor: int = real(path, flags, mode, dir_fd=dir_fd)
        told.has_opened(named, descriptor)
        return descriptor

    return open_file


def _open_of(told: Recorder, real: Any) -> Any:
    def open_file(file: Any, mode: str = "r", *arguments: Any, **words: Any) -> Any:
        named = told.path(file)
        if named is not None and set(mode) & set("wax+"):
            told.refuse(f"written: {named}")
        elif named is not None:
            told.opened(named)
        return real(file, mode, *arguments, **words)

    return open_file


def _change_of(name: str) -> Callable[[Recorder, Any], Any]:
    def make(told: Recorder, real: Any) -> Any:
        def change(*arguments: Any, **words: Any) -> Any:
            told.refuse(f"something is changed: {name}")
            return real(*arguments, **words)

        return change

    return make


def _terminal_size_of(told: Recorder, real: Any) -> Any:
    def get_terminal_size(descriptor: int = 1) -> Any:
        told.note("terminal", descriptor, reading.ask_terminal_size(descriptor))
        return real(descriptor)

    return get_terminal_size


def _getpwuid_of(told: Recorder, real: Any) -> Any:
    def getpwuid(uid: int) -> Any:
        try:
            answer = real(uid)
        except KeyError:
            told.note("user", uid, None)
            raise
        told.note("user", uid, tuple(answer))
        return answer

    return getpwuid


_STANDS_FOR: dict[str, Callable[[Recorder, Any], Any]] = {
    "stat": _looks_of("stat"),
    "lstat": _looks_of("lstat"),
    "readlink": _readlink_of,
    "listdir": _listing_of,
    "scandir": _scan_of,
    "access": _access_of,
    "open": _os_open_of,
    "get_terminal_size": _terminal_size_of,
    **{name: _change_of(name) for name in CHANGES},
}
_SUPPORTS = (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks)
