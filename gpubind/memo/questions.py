"""The kinds of questions of a trace, and how each is asked again, as cheaply as possible.

Until a memo is known to serve, nothing is imported that the interpreter does not load by itself.
"""

from __future__ import annotations

import os
import posix  # `os` may be a recorder's
import stat

try:
    from _blake2 import blake2b  # hashlib would load OpenSSL
except ImportError:
    from hashlib import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

TEXT_LIMIT = 1 << 20
"""The limit of a file compared by content, in bytes."""
OWN_ENVIRON = "/proc/self/environ"
"""The environment at the start of the interpreter."""
DIGEST_SIZE = 20
OWN_FILES = "/proc/self/fd"
"""The open files of this process, as links that show their paths."""
_OWN = "/proc/self/"
_OUTPUT_LIMIT = 16 << 20
"""The limit of a program's output, in bytes."""
_OUTPUT_MS = 10_000
"""The limit of a pause in its output."""
_ELSEWHERE = -1
"""An error number that equals no answer. It means that the path now leads elsewhere."""
_READ_ONLY = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def digest(data: bytes, key: bytes = b"") -> bytes:
    """Return a short hash of *data*, keyed by *key*."""
    return blake2b(data, digest_size=DIGEST_SIZE, key=key).digest()


def hash_of(value: Optional[str]) -> Optional[bytes]:
    """Return the value of a variable as a trace stores it: as a hash, so that no secret gets into a memo."""
    return value if value is None else digest(value.encode("utf-8", "surrogateescape"))


def facts(stat_result: os.stat_result) -> tuple[int, ...]:
    """Return the type, owner, permissions and size of a file; no times, and no size of a directory."""
    size = 0 if stat.S_ISDIR(stat_result.st_mode) else stat_result.st_size
    return stat_result.st_mode, stat_result.st_uid, stat_result.st_gid, stat_result.st_rdev, size


def signature(stat_result: os.stat_result) -> tuple[int, ...]:
    """Return values that change whenever a file is written or replaced."""
    return (
        *(stat_result.st_dev, stat_result.st_ino, stat_result.st_mode, stat_result.st_uid, stat_result.st_gid),
        *(stat_result.st_size, stat_result.st_mtime_ns, stat_result.st_ctime_ns),
    )


def run_query(kind: str, question: Any) -> Any:
    """Return the current answer to *question*; the error number if it cannot be answered."""
    try:
        return ASKED[kind](question)
    except OSError as error:
        return error.errno or 0


def first_change(trace: dict[str, Any]) -> Optional[str]:
    """Return the first question of *trace* whose answer has changed; None if there is none."""
    for kind, questions in trace.items():
        if kind not in ASKED:  # another version of gpubind wrote it
            return kind
        for question, answer in questions.items():
            if run_query(kind, question) != answer:
                return f"{question}"
    return None


def _require_path(file: int, path: str) -> None:
    """Errors: `OSError` unless the opened *file* is at *path*. If it is not, a link on the way was followed."""
    expected = path
    if path.startswith(_OWN):
        expected = f"/proc/{posix.readlink(_OWN[:-1])}/{path[len(_OWN) :]}"
    if posix.readlink(f"{OWN_FILES}/{file}") != expected:
        raise OSError(_ELSEWHERE, "a link leads elsewhere")


def _open(path: str, *, by_name: bool = False) -> int:
    """Return the regular file *path*, opened. Errors: `OSError`, also if *path* contains a link, as no path of a trace
    does.

    The file is checked before it is opened, so that a device, a FIFO, or a file elsewhere to which another user has
    meanwhile put a link, is never opened. *by_name*: on a network file system, facts are accurate only after that.
    """
    seen = posix.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _require_path(seen, path)
        if not stat.S_ISREG(posix.fstat(seen).st_mode):
            raise OSError(_ELSEWHERE, "it is not a regular file")
        if not by_name:
            return posix.open(f"{OWN_FILES}/{seen}", _READ_ONLY)
        file = posix.open(path, _READ_ONLY | os.O_NOFOLLOW)
    finally:
        posix.close(seen)
    try:
        _require_path(file, path)
    except OSError:
        posix.close(file)
        raise
    return file


def _opened(path: str) -> tuple[int, ...]:
    """Return the signature of *path*, opened: on a network file system, the times are accurate only then."""
    file = _open(path, by_name=True)
    try:
        return signature(posix.fstat(file))
    finally:
        posix.close(file)


def _content(path: str) -> tuple[Any, ...]:
    file = _open(path)
    try:
        stat_result, data = posix.fstat(file), b""
        while len(data) <= TEXT_LIMIT:
            more = posix.read(file, TEXT_LIMIT)
            if not more:
                return (digest(data), stat_result.st_mode, stat_result.st_uid, stat_result.st_gid)
            data += more
        return ()
    finally:
        posix.close(file)


def _names(path: str) -> bytes:
    place = posix.open(path, _READ_ONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _require_path(place, path)
        names = sorted(posix.listdir(place))
    finally:
        posix.close(place)
    return digest("\n".join(names).encode("utf-8", "surrogateescape"))


def _mounted(question: tuple[str, str]) -> bool:
    """Source: proc_pid_mountinfo(5)."""
    from gpubind.machine.mounts import MOUNTS, read_unrecorded  # rarely needed

    head, tail = (part.encode("utf-8", "surrogateescape") for part in question)
    return any(line.endswith(tail) and head in line for line in read_unrecorded(MOUNTS).split(b"\n"))


def _owner(path: str) -> tuple[bool, ...]:
    from gpubind.machine.mounts import with_owner

    return with_owner(path)[1:]


def _user(uid: int) -> Optional[tuple[Any, ...]]:
    import pwd

    try:
        return tuple(pwd.getpwuid(uid))
    except KeyError:
        return None


def _is_locale_of_python(_: str) -> bool:
    """Return whether Python has set LC_CTYPE for itself (PEP 538): no container may inherit that."""
    if os.environ.get("LC_CTYPE") != "C.UTF-8":
        return False
    from gpubind.machine.mounts import read_unrecorded

    try:
        return b"\0LC_CTYPE=" not in b"\0" + read_unrecorded(OWN_ENVIRON)
    except OSError:
        return False


def _output(question: tuple[str, tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]) -> Optional[bytes]:
    """Return the hash of a program's output; None if it fails. It must be the last question: it uses the current
    variables.

    Errors: `OSError`, also if it takes too long.
    """
    from _signal import SIGKILL, SIGPIPE, SIGXFSZ  # type: ignore[import-not-found]  # `signal` is slow
    from select import POLLIN, poll

    program, argv, passed, added = question
    environ = {name: os.environ[name] for name in passed if name in os.environ}
    environ.update(added)
    read, write = posix.pipe()
    try:
        try:
            actions = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, write, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ]
            child = posix.posix_spawn(program, argv, environ, file_actions=actions, setsigdef=(SIGPIPE, SIGXFSZ))
        finally:
            posix.close(write)
        data, waiting, is_whole = b"", poll(), False
        waiting.register(read, POLLIN)
        try:
            while len(data) <= _OUTPUT_LIMIT and waiting.poll(_OUTPUT_MS):
                more = posix.read(read, _OUTPUT_LIMIT)
                if not more:
                    is_whole = True
                    break
                data += more
        finally:
            if not is_whole:
                posix.kill(child, SIGKILL)
            status = posix.waitpid(child, 0)[1]
        return digest(data) if is_whole and status == 0 else None
    finally:
        posix.close(read)


ASKED: dict[str, Callable[[Any], Any]] = {
    "lstat": lambda path: facts(posix.lstat(path)),
    "stat": lambda path: facts(posix.stat(path)),
    "link": lambda path: posix.readlink(path),  # noqa: PLW0108 - looked up at each call
    "written": lambda path: signature(posix.stat(path)),
    "inode": lambda path: (posix.stat(path).st_ino,),
    "mounted": _mounted,
    "device": lambda path: (posix.lstat(path).st_dev,),
    "owner": _owner,
    "opened": _opened,
    "content": _content,
    "names": _names,
    "access": lambda question: posix.access(*question[:2], effective_ids=question[2]),
    "attribute": lambda question: posix.getxattr(*question, follow_symlinks=False),
    "variable": lambda name: hash_of(os.environ.get(name)),
    "variables": lambda _: tuple(sorted(os.environ)),
    "user": _user,
    "terminal": lambda descriptor: tuple(posix.get_terminal_size(descriptor)),
    "locale": _is_locale_of_python,
    "output": _output,
}
"""The kinds of questions, and the function that asks each again. "written": the times of a file or directory, if the
file system keeps true ones; "inode" and "mounted": whether it is still the same file system. "device" and "owner":
whether a user's FUSE file system reports the owner of a file. "output" is last: a program is run again only if it and
its inputs are unchanged."""
