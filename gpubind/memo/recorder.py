"""Write down each question that a command asks of this machine, with the signature of its answer.

The recorder replaces some functions of `os`, `os.environ`, `open` and `pwd.getpwuid`, from when the command line begins
to run until the answer is there, or until anything fails: so a module need not know of it, and one that is written next
year cannot forget it. Each replacement takes what the function takes, and returns and raises what it does. Nothing is
replaced unless `gpubind` is the program that runs: `import gpubind` loads none of this. tests/memo/test_asked.py lists
every function of the machine's that gpubind calls, and why each of them is recorded, asks nothing, or ends the
recording: with any other, it fails.

A file that is opened below an open directory is noted by the whole path that the directory was opened by.
A command that writes, removes or renames anything is not kept.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import pwd
import stat
from collections.abc import Callable, Iterator
from typing import Any, Optional, Union

from gpubind.machine import listener
from gpubind.memo.filesystems import Question
from gpubind.memo.questions import ask, facts
from gpubind.memo.trace import Trace

UNSIGNED = (
    *("chmod", "chown", "fchmod", "fchown", "link", "mkdir", "remove", "rename", "rmdir", "symlink", "unlink"),
    "scandir",
)
"""Functions that change something, or that answer too much: the answer of a command that calls one is not kept."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Recorder(Trace):
    """The questions of one command, and its answer so far. A context manager: within it, everything is recorded."""

    def __init__(self, done: Callable[[int], None]) -> None:
        super().__init__()
        self.printed: list[Union[str, bytes]] = []
        self.why = ""
        """Why no memo served."""
        self.verbose = False
        self.command: Optional[tuple[str, ...]] = None
        """The words at the end of the line that are the command in the container; None if there are none."""
        self.looks_at_program = False
        self.become: Optional[tuple[str, tuple[str, ...], Any]] = None
        self._done = done
        self._here = os.getcwd()
        self.paths: dict[int, str] = {}
        """The path by which each descriptor was opened: the kernel would say where that file is by now."""
        self._replaced: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Recorder:
        """Replace the functions."""
        for name, make in REPLACEMENTS.items():
            self._replace(os, name, make)
        self._replace(builtins, "open", _unsigned("open"))
        self._replace(pwd, "getpwuid", _noted(lambda _, uid: ("user", uid), tuple))
        self._replace(os, "environ", lambda *_: self.environ)
        listener.recorder = self
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *exception: object) -> None:
        if kind is not None and not issubclass(kind, SystemExit):
            self.refuse("it failed")
        self.stop()

    def finish(self, status: int) -> None:
        """End the recording: the answer is complete, with exit code *status*."""
        self.stop()
        self._done(status)

    def stop(self) -> None:
        """Put the functions themselves back."""
        listener.recorder = None
        for module, name, value in reversed(self._replaced):
            setattr(module, name, value)
        for one in _SUPPORTS:
            one.difference_update([function for function in one if getattr(function, "is_replacement", False)])
        self._replaced.clear()

    def _replace(self, module: Any, name: str, make: Callable[[Recorder, Any], Any]) -> None:
        old = getattr(module, name)
        value = make(self, old)
        self._replaced.append((module, name, old))
        setattr(module, name, value)
        for one in _SUPPORTS:
            if callable(old) and old in one:
                value.is_replacement = True
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

        Below an open directory it has none; and no other process can change those of /proc/self.
        """
        named = self.path(path, dir_fd)
        if named is None or dir_fd is not None or named.startswith("/proc/self/"):
            return named
        directory, name = os.path.split(named.rstrip("/"))
        if follows or not name:
            return os.path.realpath(named)
        return os.path.join(os.path.realpath(directory), name)

    def path_of(self, descriptor: int) -> Optional[str]:
        """Return the path that the directory *descriptor* was opened by; if it is unknown, nothing is kept."""
        found = self.paths.get(descriptor)
        if found is None:
            self.refuse("below a directory that was opened in some other way")
        return found

    @contextlib.contextmanager
    def hears(self, what: Any) -> Iterator[None]:
        """Record what fails within, unless the error says what is there."""
        try:
            yield
        except OSError as error:
            self.failed(error.errno, what)
            raise

    def has_opened(self, path: Optional[str], descriptor: int) -> None:
        """Note that *path* is open now, as *descriptor*."""
        self.has_closed(descriptor)
        if path is not None:
            self.paths[descriptor] = path

    def has_closed(self, descriptor: int) -> None:
        """Forget *descriptor*, which may be another file from now on."""
        self.paths.pop(descriptor, None)


def _noted(
    question_of: Callable[..., Optional[Question]], signature_of: Callable[[Any], Any]
) -> Callable[[Recorder, Any], Any]:
    """Return what replaces a function that answers one question: the answer is noted, and so is the error.

    *question_of* gets the arguments; it returns None for those about a file that is open already.
    """

    def make(recorder: Recorder, real: Any) -> Any:
        def ask_and_note(*arguments: Any, **named: Any) -> Any:
            question = question_of(recorder, *arguments, **named)
            try:
                answer = real(*arguments, **named)
            except (OSError, KeyError) as error:
                if question is not None:
                    recorder.note(*question, (error.errno or 0) if isinstance(error, OSError) else None)
                raise
            if question is not None:
                recorder.note(*question, signature_of(answer))
            return answer

        return ask_and_note

    return make


def _about(kind: str) -> Callable[..., Optional[Question]]:

    def question_of(
        recorder: Recorder, path: Any, *, dir_fd: Optional[int] = None, follow_symlinks: bool = True
    ) -> Optional[Question]:
        named = recorder.path(path, dir_fd)
        return None if named is None else (kind if follow_symlinks else "lstat", named)

    return question_of


def _attribute(recorder: Recorder, path: Any, name: str, *, follow_symlinks: bool = True) -> Optional[Question]:
    if follow_symlinks:  # as it is for an open file
        recorder.refuse("an attribute of an open file or behind a link")
        return None
    return "attribute", (recorder.path(path), name)


def _listing_of(recorder: Recorder, real: Any) -> Any:
    def listing(path: Any = ".") -> Any:
        named = recorder.path_of(path) if isinstance(path, int) else recorder.place(path)
        if named is not None:
            recorder.listed(named)
        with recorder.hears(named):
            return real(path)

    return listing


def _access_of(recorder: Recorder, real: Any) -> Any:
    def access(
        path: Any,
        mode: int,
        *,
        dir_fd: Optional[int] = None,
        effective_ids: bool = False,
        follow_symlinks: bool = True,
    ) -> bool:
        answer = bool(real(path, mode, dir_fd=dir_fd, effective_ids=effective_ids, follow_symlinks=follow_symlinks))
        named = recorder.path(path, dir_fd)
        if named is None or not follow_symlinks:
            recorder.refuse("access of an open file or a link")
        else:
            recorder.note("access", (named, mode, effective_ids), answer)
        return answer

    return access


def _os_open_of(recorder: Recorder, real: Any) -> Any:
    def open_file(path: Any, flags: int, mode: int = 0o777, *, dir_fd: Optional[int] = None) -> int:
        if flags & _WRITES:
            if path != os.devnull:
                recorder.refuse(f"written: {path}")
            written: int = real(path, flags, mode, dir_fd=dir_fd)
            recorder.has_closed(written)
            return written
        follows = not flags & os.O_NOFOLLOW
        named = recorder.place(path, dir_fd, follows=follows)
        looks = None if named is None else _looked_at(recorder, named, follows=follows)
        if looks and not flags & (os.O_PATH | os.O_DIRECTORY) and not stat.S_ISLNK(looks[0]):
            recorder.opened(str(named))
        try:
            descriptor: int = real(path, flags, mode, dir_fd=dir_fd)
        except OSError as error:
            recorder.not_opened(named, looks, error)
            raise
        if named is not None and looks is None:
            recorder.refuse(f"changed meanwhile: {named}")
        recorder.has_opened(named, descriptor)
        return descriptor

    return open_file


def _looked_at(recorder: Recorder, path: str, *, follows: bool) -> Optional[tuple[int, ...]]:
    """Note and return the facts of the file that is to be opened; None if it is missing."""
    kind = "stat" if follows else "lstat"
    looks = ask(kind, path)
    recorder.note(kind, path, looks)
    return None if isinstance(looks, int) else looks


def _close_of(recorder: Recorder, real: Any) -> Any:
    def close(descriptor: int) -> None:
        recorder.has_closed(descriptor)
        real(descriptor)

    return close


def _file_of(recorder: Recorder) -> type[io.FileIO]:
    """Return a class of files that record when they cannot be read to their end."""

    class RecordedFile(io.FileIO):
        def readinto(self, buffer: Any) -> Optional[int]:
            with recorder.hears(self.name):
                return super().readinto(buffer)

        def read(self, size: Optional[int] = -1) -> Any:
            with recorder.hears(self.name):
                return super().read(-1 if size is None else size)

        def readall(self) -> Any:
            with recorder.hears(self.name):
                return super().readall()

    return RecordedFile


def _fdopen_of(recorder: Recorder, real: Any) -> Any:
    kind = _file_of(recorder)

    def fdopen(descriptor: int, mode: str = "rb") -> Any:
        return io.BufferedReader(kind(descriptor)) if mode == "rb" else real(descriptor, mode)

    return fdopen


def _heard_of(recorder: Recorder, real: Any) -> Any:
    """Return a function that reads of a descriptor: when it fails, the content is not known."""

    def read(descriptor: int, *arguments: Any) -> Any:
        with recorder.hears(recorder.paths.get(descriptor)):
            return real(descriptor, *arguments)

    return read


def _unsigned(name: str) -> Callable[[Recorder, Any], Any]:
    """Return what replaces the function *name*, after which the answer is not kept."""

    def make(recorder: Recorder, real: Any) -> Any:
        def call(*arguments: Any, **words: Any) -> Any:
            recorder.refuse(f"nothing signs what was done: {name}{arguments[:1]}")
            return real(*arguments, **words)

        return call

    return make


REPLACEMENTS: dict[str, Callable[[Recorder, Any], Any]] = {
    "stat": _noted(_about("stat"), facts),
    "lstat": _noted(_about("lstat"), facts),
    "readlink": _noted(_about("link"), os.fsdecode),
    "listdir": _listing_of,
    "access": _access_of,
    "getxattr": _noted(_attribute, bytes),
    "open": _os_open_of,
    "close": _close_of,
    "fdopen": _fdopen_of,
    **dict.fromkeys(("fstat", "pread", "read"), _heard_of),
    "get_terminal_size": _noted(lambda _, descriptor=1: ("terminal", descriptor), tuple),
    **{name: _unsigned(name) for name in UNSIGNED},
}
"""By the names of the functions of `os`; each is made of the one that it stands for."""
_SUPPORTS = (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks)
