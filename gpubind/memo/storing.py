"""Run a command without a memo, and store its answer with its trace."""

from __future__ import annotations

import contextlib
import os
import posix  # `os` may be a recorder's
import stat
import sys
import time
from collections.abc import Callable
from typing import Any, Optional, Union

from gpubind.machine.mounts import read_unrecorded
from gpubind.memo import files
from gpubind.memo.answer import ARGS_LIMIT
from gpubind.memo.filesystems import exists, is_young
from gpubind.memo.questions import first_change
from gpubind.memo.recorder import Recorder
from gpubind.memo.trace import CallersEnviron, Trace
from gpubind.model.data import READ

Main = Callable[[list[str], Optional[Recorder]], int]
"""A function that runs a command line within a recorder."""

FILES_LIMIT = 256
BYTES_LIMIT = 32 << 20


def run_and_keep(main: Main, args: list[str], keys: tuple[str, ...], why: str) -> int:
    """Run the command line *args*, and store its answer under one of *keys*. *why*: the reason why no memo served."""

    def done(status: int) -> None:
        with contextlib.suppress(Exception):  # such as a full disk: the answer itself is complete
            why_not = keep(recorder, args, keys, status)
            if why_not is not None and recorder.verbose:
                sys.stderr.write(f"memo: not kept: {why_not.encode('unicode_escape').decode()}\n")

    try:
        recorder = Recorder(done)
    except OSError:
        return main(args, None)
    recorder.why = why
    status = main(args, recorder)
    if status in (0, 1) and any(isinstance(text, bytes) for text in recorder.printed):
        recorder.finish(status)
    return status


def keep(recorder: Recorder, args: list[str], keys: tuple[str, ...], status: int) -> Optional[str]:
    """Store the answer; return the reason if that is impossible."""
    memo = _memo_of(recorder, args, status)
    if isinstance(memo, str):
        return memo
    number = len(args) - (len(_free_args(recorder, args) or ()))
    if number > len(keys):
        return "too many words"
    return write(keys[number - 1] if number <= ARGS_LIMIT else keys[-1], memo)


def _memo_of(recorder: Recorder, args: list[str], status: int) -> Union[dict[str, Any], str]:
    if recorder.refused:
        return str(recorder.refused)
    become = None
    free = _free_args(recorder, args)
    if recorder.become is not None:
        path, argv, environ = recorder.become
        change = _environ_changes(recorder, environ)
        if change is None:
            return "the environment is another one"
        if free and tuple(argv[-len(free) :]) != free:
            return "the command does not end the words"
        become = (path, tuple(argv[: -len(free)] if free else argv), *change)
    note_modules(recorder)
    if recorder.refused:
        return str(recorder.refused)
    trace = {kind: questions for kind, questions in recorder.questions.items() if questions}
    changed = first_change(trace)
    if changed is not None:
        return f"changed meanwhile: {changed}"
    return {
        "trace": trace,
        "printed": recorder.printed,
        "verbose": recorder.verbose,
        "status": status,
        "become": become,
        "rest": True if free else None,
    }


def _free_args(recorder: Recorder, args: list[str]) -> Optional[tuple[str, ...]]:
    """Return the end of *args* on which the answer does not depend: the command, or, if its program was checked,
    the rest of it.
    """
    command = recorder.command
    if recorder.become is None or not command or tuple(args[-len(command) :]) != command:
        return None
    free: tuple[str, ...] = command[1:] if recorder.looks_at_program else command
    if not free or free[0] == "--" or len(args) - len(free) > ARGS_LIMIT:
        return None
    return free


def _environ_changes(recorder: Recorder, environ: Any) -> Optional[tuple[tuple[str, ...], dict[str, str]]]:
    """Return the names unset from the caller's environment, and the values changed or added in *environ*.

    Return None if *environ* is not a copy of the caller's.
    """
    if not isinstance(environ, CallersEnviron):
        return None
    callers, variables = recorder.callers, environ.plain()
    unset = tuple(sorted(name for name in environ.changed_names if name not in variables))
    values = {name: variables[name] for name in sorted(environ.changed_names) if name in variables}
    return unset, {name: value for name, value in values.items() if value != callers.get(name)}


def note_modules(recorder: Trace, *, with_packages: bool = True) -> None:
    """Note gpubind's own code, its data, and the directories of installed packages.

    They were loaded after this process began. If they are older than the process, the loaded ones are the current ones.
    """
    names = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith("gpubind")]
    began = _began_ns()
    if not all(READ.values()):
        recorder.refuse("gpubind's own data could not be read")
    for path in (*filter(None, names), *map(os.path.abspath, (*READ, *sys.path))):
        try:
            stat_result = posix.stat(path)
        except OSError as error:
            if not path.endswith(".py"):  # one in a zip file, which is in sys.path
                recorder.note("written", path, error.errno)
            continue
        if not with_packages and stat.S_ISDIR(stat_result.st_mode):
            continue
        if is_young(stat_result, began, recorder.trust(path, stat_result.st_dev)):
            recorder.refuse(f"gpubind was changed while it ran: {path}")
        recorder.written(path, stat_result)


def _began_ns() -> int:
    """Return the start time of this process, in ns of the clock of file timestamps. Source: proc_pid_stat(5)."""
    ticks = int(read_unrecorded("/proc/self/stat").rpartition(b")")[2].split()[19])
    age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - age


# The files.


def write(name: str, memo: dict[str, Any]) -> Optional[str]:
    """Store *memo* in the first usable directory, and remove the oldest ones; return the reason if there is none.

    Errors: `OSError`.
    """
    secret = files.read_secret() or _new_secret()
    if secret is None:
        return "there is no place for a secret that is the caller's alone"
    data = files.packed(memo, name, secret)
    if len(data) > files.SIZE_LIMIT:
        return "it is too large"
    for directory in files.directories():
        place = _create(directory)
        if place is not None:
            try:
                _store(place, name, data)
                _drop_oldest(place)
            finally:
                posix.close(place)
            return None
    return "there is no place for memos that is the caller's alone"


def _new_secret() -> Optional[bytes]:
    """Create the user's secret, and replace one that others could read. Return it; None if it cannot be stored
    anywhere.
    """
    path = files.secret_directory()
    place = None if path is None else _create(path, 0o022)
    if place is None:
        return None
    try:
        _store(place, files.SECRET, os.urandom(files.SECRET_SIZE))
    finally:
        posix.close(place)
    return files.read_secret()  # another process may have been faster


def _store(place: int, name: str, data: bytes) -> None:
    part = f".{os.urandom(8).hex()}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = posix.open(part, flags, 0o600, dir_fd=place)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
        posix.rename(part, name, src_dir_fd=place, dst_dir_fd=place)
    except BaseException:
        posix.unlink(part, dir_fd=place)
        raise


def _create(directory: str, others: int = 0o077) -> Optional[int]:
    """Create *directory* with its missing parents, and return it opened; None if that fails, or is not safe.

    *others*: as for `open_directory`.
    """
    missing = [directory]
    while not exists(missing[-1]):
        missing.append(os.path.dirname(missing[-1]))
    if len(missing) > 1 and not files.is_closed(missing[-1]):
        return None
    try:
        for path in reversed(missing[:-1]):
            with contextlib.suppress(FileExistsError):
                posix.mkdir(path, 0o700)
    except OSError:
        return None
    return files.open_directory(directory, others)


def _drop_oldest(place: int) -> None:
    with posix.scandir(place) as entries:
        by_age = sorted((at.stat(follow_symlinks=False).st_mtime_ns, at.name, at.stat().st_size) for at in entries)
    total, count = sum(size for _, _, size in by_age), len(by_age)
    for _, name, size in by_age:
        if count <= FILES_LIMIT and total <= BYTES_LIMIT:
            break
        with contextlib.suppress(OSError):
            posix.unlink(name, dir_fd=place)
        count, total = count - 1, total - size
