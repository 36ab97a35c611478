"""Give the answer that was given before, if each question that it was made from still has the same answer.

This module runs before any other of gpubind's, and imports nothing that the interpreter does not load by itself.
A memo that cannot be read, is damaged, or belongs to somebody else is as good as none, and nothing is said of it.
"""

from __future__ import annotations

import marshal
import os
import posix  # `os` may be a recorder's
import stat
import sys

try:
    from _blake2 import blake2b  # hashlib would load OpenSSL
except ImportError:
    from hashlib import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, NoReturn, Optional, Union

    Start = tuple[str, tuple[str, ...], dict[str, str]]
    """A program's path, words and environment."""

COMMANDS = ("plan", "check", "exec", "run", "shell", "wrap")
SWITCH = "GPUBIND_MEMO"
MAGIC = b"gpubind memo 1\n"
SIZE_LIMIT = 8 << 20
WORDS_LIMIT = 64
"""How many words of a command line a stored beginning may have."""
TEXT_LIMIT = 1 << 20
"""Bytes of a file that are compared by content."""
OWN_ENVIRON = "/proc/self/environ"
"""The environment as the interpreter got it."""
_DIGEST_SIZE = 20
_SIGPIPE, _SIGXFSZ = 13, 25
_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "PATH", "HOME", "PWD", "LD_LIBRARY_PATH"),
)
"""What often differs between starts on one machine: each value finds a memo of its own. The trace has what counts."""


def memo_keys(words: Sequence[str]) -> tuple[str, ...]:
    """The names under which a memo for *words* may lie: one for each beginning of them, and last the one for all.

    None where there can be no memo: for another command, or where it is turned off.
    """
    if not words or words[0] not in COMMANDS or not is_on():
        return ()
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read(64)
        here = os.getcwd()
    except OSError:
        return ()
    facts = (
        *(MAGIC, _code(), sys.version, sys.executable, sys.argv[0], here, boot, tuple(os.uname())),
        *(os.getuid(), os.getgid(), tuple(os.getgroups()), sys.flags.utf8_mode, sys.getfilesystemencoding()),
        tuple(getattr(stream, "encoding", None) for stream in (sys.stdout, sys.stderr)),
        tuple(_is_terminal(descriptor) for descriptor in (0, 1, 2)),
        tuple(os.environ.get(name) for name in _VARIABLES),
    )
    hashed = digest(marshal.dumps(facts, 2))
    names = []
    for number, word in enumerate(words):
        hashed = digest(hashed + word.encode("utf-8", "surrogateescape"))
        if number < WORDS_LIMIT or number == len(words) - 1:
            names.append(hashed.hex())
    return tuple(names)


def is_on() -> bool:
    """Whether anything is kept: the user may turn it off, and a program with rights of others keeps nothing."""
    is_own = os.getuid() == os.geteuid() and os.getgid() == os.getegid()
    return is_own and os.environ.get(SWITCH, "").lower() not in ("off", "0", "no", "false")


def serve(words: Sequence[str], keys: tuple[str, ...]) -> Union[int, bytes, str, Start]:
    """Answer *words* by a memo: the exit code, or no return at all where another program takes over.

    A document that cannot be printed is given back, and so is a program that cannot be started. Where no memo serves:
    why not, in words.
    """
    why = "nothing is kept for this command line"
    for directory in directories():
        place = open_directory(directory)
        if place is None:
            continue
        try:
            for number, key in enumerate(keys):
                memo = read_memo(place, key)
                if memo is None:
                    continue
                rest = tuple(words[number + 1 :]) if number < WORDS_LIMIT else ()
                if not _is_for(memo, rest):
                    continue
                changed = first_change(memo["trace"])
                if changed is None:
                    os.close(place)
                    place = None
                    return _answer(memo, rest)
                why = f"changed: {changed}"
        finally:
            if place is not None:
                os.close(place)
        break
    return why


# Where memos lie.


def directories() -> Iterator[str]:
    """Where memos may lie, the best place first. Root's lie where nobody else may write, whatever the environment."""
    if os.geteuid() == 0:
        yield "/run/gpubind/memo"
        return
    own = f"gpubind-{os.geteuid()}/memo"
    places = (
        ("XDG_RUNTIME_DIR", "gpubind/memo"),
        ("TMPDIR", own),
        (None, f"/tmp/{own}"),
        ("XDG_CACHE_HOME", "gpubind/memo"),
        ("HOME", ".cache/gpubind/memo"),
    )
    for variable, below in places:
        base = "" if variable is None else os.environ.get(variable, "")
        if variable is None:
            yield below
        elif base.startswith("/"):
            yield f"{base}/{below}"


def open_directory(path: str) -> Optional[int]:
    """The directory *path*, opened, if it is nobody else's and nobody else may look into it."""
    try:
        place = posix.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    found = posix.fstat(place)
    is_mine = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    if is_mine and all(map(_is_mine_alone, _above(path))):
        return place
    posix.close(place)
    return None


def _above(path: str) -> list[str]:
    """The directory above *path*; for root, all above it, as `gpubind.host.trust` has it."""
    above = [os.path.dirname(path)]
    while os.geteuid() == 0 and above[-1] != "/":
        above.append(os.path.dirname(above[-1]))
    return above


def _is_mine_alone(path: str) -> bool:
    """Whether *path* is no link, and nobody else may write there."""
    try:
        found = posix.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def read_memo(place: int, name: str) -> Optional[dict[str, Any]]:
    """The memo *name*; None if it is not there, not ours, or not whole."""
    try:
        file = posix.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except OSError:
        return None
    try:
        found = posix.fstat(file)
        mine = found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if not stat.S_ISREG(found.st_mode) or not mine or not len(MAGIC) < found.st_size <= SIZE_LIMIT:
            return None
        data = b""
        while len(data) < found.st_size:
            more = posix.read(file, found.st_size - len(data))
            if not more:
                break
            data += more
        return unpacked(data)
    except OSError:
        return None
    finally:
        posix.close(file)


def packed(memo: dict[str, Any]) -> bytes:
    """*memo* as the bytes of its file."""
    body = marshal.dumps(memo, 2)
    return MAGIC + len(body).to_bytes(8, "little") + digest(body) + body


def unpacked(data: bytes) -> Optional[dict[str, Any]]:
    """The memo in *data*; None unless it is whole. marshal believes its input: the checksum comes first."""
    head = len(MAGIC) + 8 + _DIGEST_SIZE
    if len(data) < head or data[: len(MAGIC)] != MAGIC:
        return None
    length = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    body = data[head:]
    if len(body) != length or digest(body) != data[len(MAGIC) + 8 : head]:
        return None
    try:
        memo = marshal.loads(body)
    except (ValueError, EOFError, TypeError):
        return None
    return memo if isinstance(memo, dict) else None


def digest(data: bytes) -> bytes:
    """A short hash of *data*."""
    return blake2b(data, digest_size=_DIGEST_SIZE).digest()


# Whether a trace still holds.


def first_change(trace: dict[str, Any]) -> Optional[str]:
    """The first question of *trace* that has another answer now; None if all have the same."""
    for kind, questions in trace.items():
        ask = ASKED[kind]
        for question, answer in questions.items():
            if ask(question) != answer:
                return f"{question}"
    return None


def facts(found: os.stat_result) -> tuple[int, ...]:
    """What is told of a file by its looks: not when it was written, and of a directory not how large it is."""
    size = 0 if stat.S_ISDIR(found.st_mode) else found.st_size
    return found.st_mode, found.st_uid, found.st_gid, found.st_rdev, size


def signature(found: os.stat_result) -> tuple[int, ...]:
    """What changes whenever a file is written, or replaced by another."""
    return (
        *(found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_gid),
        *(found.st_size, found.st_mtime_ns, found.st_ctime_ns),
    )


def ask_lstat(path: str) -> Union[tuple[int, ...], int]:
    try:
        return facts(posix.lstat(path))
    except OSError as error:
        return error.errno or 0


def ask_stat(path: str) -> Union[tuple[int, ...], int]:
    try:
        return facts(posix.stat(path))
    except OSError as error:
        return error.errno or 0


def ask_link(path: str) -> Union[str, int]:
    try:
        return posix.readlink(path)
    except OSError as error:
        return error.errno or 0


def ask_written(path: str) -> Union[tuple[int, ...], int]:
    """A file or directory by its times, where the file system keeps honest ones."""
    try:
        return signature(posix.stat(path))
    except OSError as error:
        return error.errno or 0


def ask_opened(path: str) -> Union[tuple[int, ...], int]:
    """As `ask_written`, on a network file system: a file that is opened has its true times, others have older ones."""
    try:
        file = posix.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            return signature(posix.fstat(file))
        finally:
            posix.close(file)
    except OSError as error:
        return error.errno or 0


def ask_content(path: str) -> Union[tuple[Any, ...], int]:
    """A file by what is in it: its looks, and the hash of its bytes."""
    try:
        file = posix.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            found, data = posix.fstat(file), b""
            while len(data) <= TEXT_LIMIT:
                more = posix.read(file, TEXT_LIMIT)
                if not more:
                    return (digest(data), found.st_mode, found.st_uid, found.st_gid)
                data += more
            return ()  # too large to be compared: a trace never has this answer
        finally:
            posix.close(file)
    except OSError as error:
        return error.errno or 0


def ask_names(path: str) -> Union[bytes, int]:
    """A directory by the names in it, each with whether it is a directory or a link."""
    try:
        with posix.scandir(path) as entries:
            names = sorted(f"{one.name}\0{one.is_dir(follow_symlinks=False)}{one.is_symlink()}" for one in entries)
    except OSError as error:
        return error.errno or 0
    return digest("\n".join(names).encode("utf-8", "surrogateescape"))


def ask_access(question: tuple[str, int, bool]) -> bool:
    path, mode, effective = question
    return posix.access(path, mode, effective_ids=effective)


def ask_variable(name: str) -> Optional[bytes]:
    """A variable, by the hash of its value: a memo holds no secret that the answer does not."""
    return hash_of(os.environ.get(name))


def hash_of(value: Optional[str]) -> Optional[bytes]:
    return value if value is None else digest(value.encode("utf-8", "surrogateescape"))


def ask_variables(_: str) -> tuple[str, ...]:
    """The names of all variables."""
    return tuple(sorted(os.environ))


def ask_same(question: tuple[str, str]) -> Union[bool, int]:
    """Whether two paths are one file."""
    try:
        one, other = posix.stat(question[0]), posix.stat(question[1])
        return one.st_ino == other.st_ino and one.st_dev == other.st_dev
    except OSError as error:
        return error.errno or 0


def ask_user(uid: int) -> Optional[tuple[Any, ...]]:
    """What the user database says of *uid*."""
    import pwd

    try:
        return tuple(pwd.getpwuid(uid))
    except KeyError:
        return None


def ask_terminal_size(descriptor: int) -> Union[tuple[int, int], int]:
    try:
        return tuple(posix.get_terminal_size(descriptor))  # type: ignore[return-value]
    except (OSError, ValueError) as error:
        return getattr(error, "errno", None) or 0


def ask_own_locale(_: str) -> bool:
    """Whether Python has set LC_CTYPE for itself (PEP 538), which no container is to inherit."""
    if os.environ.get("LC_CTYPE") != "C.UTF-8":
        return False
    try:
        file, data = posix.open(OWN_ENVIRON, os.O_RDONLY | os.O_CLOEXEC), b"\0"
    except OSError:
        return False
    try:
        while more := posix.read(file, TEXT_LIMIT):
            data += more
        return b"\0LC_CTYPE=" not in data
    except OSError:
        return False
    finally:
        posix.close(file)


ASKED: dict[str, Callable[[Any], Any]] = {
    "lstat": ask_lstat,
    "stat": ask_stat,
    "link": ask_link,
    "written": ask_written,
    "opened": ask_opened,
    "content": ask_content,
    "names": ask_names,
    "access": ask_access,
    "variable": ask_variable,
    "variables": ask_variables,
    "same": ask_same,
    "user": ask_user,
    "terminal": ask_terminal_size,
    "locale": ask_own_locale,
}
"""Every kind of question, and how it is asked again."""


# The answer.


def _is_for(memo: dict[str, Any], rest: tuple[str, ...]) -> bool:
    """Whether *memo* is for a command line that goes on with *rest*: one without the same words, or any command."""
    if memo["rest"] is None:
        return not rest
    return bool(rest) and rest[0] != "--"


def _answer(memo: dict[str, Any], rest: tuple[str, ...]) -> Union[int, bytes, Start]:
    """Give the answer of *memo*: what was printed, then the exit code or the program that takes over; the document
    if it cannot be printed, the program if it cannot be started.
    """

    try:
        for text in (*(["memo: served\n"] if memo["verbose"] else []), *memo["printed"]):
            _print(text)
    except (OSError, ValueError, AttributeError):
        return b"".join(text for text in memo["printed"] if isinstance(text, bytes))
    if memo["become"] is None:
        return int(memo["status"])
    path, argv, unset, variables = memo["become"]
    environ = {name: value for name, value in os.environ.items() if name not in unset}
    environ.update(variables)
    start = path, (*argv, *rest), environ
    try:
        become(*start)
    except OSError:
        return start


def become(path: str, argv: tuple[str, ...], environ: dict[str, str]) -> NoReturn:
    """Replace this process by the program *path*. Python ignores two signals for itself, and the program shall not.

    Errors: `OSError`.
    """
    from _signal import SIG_DFL, signal  # type: ignore[import-not-found]

    for number in (_SIGPIPE, _SIGXFSZ):
        signal(number, SIG_DFL)
    os.execve(path, argv, environ)


def _print(text: Union[str, bytes]) -> None:
    """Write a document to standard output, as bytes; or a line to standard error, where that can be written."""
    if isinstance(text, bytes):
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
    elif sys.stderr is not None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, UnicodeError):
            pass


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def _code() -> tuple[str, str]:
    """Which gpubind this is."""
    from gpubind import __version__

    return __version__, __file__
