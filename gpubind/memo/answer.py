"""Give the stored answer of an equal command, if each question of its trace still has the same answer.

This runs before any other part of gpubind. A memo that cannot be read, is damaged, or belongs to another user is
ignored without a message.
"""

from __future__ import annotations

import marshal
import os
import posix
import sys

from gpubind.memo.files import FORM, open_place, read_memo
from gpubind.memo.questions import digest, first_change, run_query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn, Optional, Union

    Start = tuple[str, tuple[str, ...], dict[str, str]]
    """A program's path, arguments and environment."""

COMMANDS = ("plan", "check", "exec", "run", "shell", "wrap")
SWITCH = "GPUBIND_MEMO"
ARGS_LIMIT = 64
"""The maximum number of arguments that may begin a stored command line."""
_SIGPIPE, _SIGXFSZ = 13, 25
_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("AMD_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
    *("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "PATH", "HOME", "PWD", "LD_LIBRARY_PATH"),
)
"""Variables that often differ between starts on one machine. Each of their values has a separate memo; the trace
still decides whether that holds.
"""


class Unfinished:
    """An answer that was given only in part: a document could not be written, or a program could not be started."""

    def __init__(self, error: OSError, start: Optional[Start] = None) -> None:
        self.error = error
        self.start = start


def is_enabled() -> bool:
    """Return whether answers are stored. The user may turn that off; set-user-id and set-group-id programs store
    none.
    """
    is_on = os.environ.get(SWITCH, "").lower() not in ("off", "0", "no", "false")
    return is_on and os.getuid() == os.geteuid() and os.getgid() == os.getegid() and sys.stdout is not None


def memo_keys(args: Sequence[str]) -> tuple[str, ...]:
    """Return the possible names of a memo for *args*: one for each beginning of *args*, and last one for all of them.

    Return none for a command without memos, or if memos are turned off.
    """
    if not args or args[0] not in COMMANDS or not is_enabled():
        return ()
    try:
        facts = (
            *(FORM, _code(), sys.version, sys.executable, tuple(sys.path), sys.argv[0], os.getcwd(), tuple(os.uname())),
            *(_text("/proc/sys/kernel/random/boot_id"), _rights(), os.getuid(), os.getgid(), tuple(os.getgroups())),
            *(sys.flags.utf8_mode, sys.getfilesystemencoding()),
            tuple(getattr(stream, "encoding", None) for stream in (sys.stdout, sys.stderr)),
            tuple(map(os.isatty, (0, 1, 2))),
            tuple(os.environ.get(name) for name in _VARIABLES),
        )
    except OSError:
        return ()
    hashed = digest(marshal.dumps(facts, 2))
    names = []
    for number, arg in enumerate(args):
        hashed = digest(hashed + arg.encode("utf-8", "surrogateescape"))
        if number < ARGS_LIMIT or number == len(args) - 1:
            names.append(hashed.hex())
    return tuple(names)


def serve(args: Sequence[str], keys: tuple[str, ...]) -> Union[int, str, Unfinished]:
    """Answer *args* from a memo, and return the exit code; do not return if another program takes over.

    If no memo serves, return the reason as text.
    """
    opened = open_place()
    if opened is None:
        return "there is no place for memos yet"
    place, secret = opened
    why = "nothing is kept for this command line"
    try:
        for number, key in enumerate(keys):
            memo = read_memo(place, key, secret)
            trailing_args = tuple(args[number + 1 :]) if number < ARGS_LIMIT else ()
            # A memo of a whole line serves only that line; one of a beginning serves any command after it.
            if memo is None or (trailing_args if memo["rest"] is None else trailing_args[:1] in ((), ("--",))):
                continue
            changed = first_change(memo["trace"])
            if changed is None:
                return _answer(memo, trailing_args)
            why = f"changed: {changed}"
    finally:
        posix.close(place)
    return why


def callers_environ() -> dict[str, str]:
    """Return the environment of this process without the LC_CTYPE that Python sets for itself at its start."""
    environ = dict(os.environ)
    if run_query("locale", ""):
        del environ["LC_CTYPE"]
    return environ


def replace_process(path: str, argv: tuple[str, ...], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the program *path*, with the two signals restored that Python ignores.

    Errors: `OSError`.
    """
    from _signal import SIG_DFL, signal  # type: ignore[import-not-found]

    for number in (_SIGPIPE, _SIGXFSZ):
        signal(number, SIG_DFL)
    os.execve(path, argv, environ)


def _answer(memo: dict[str, Any], trailing_args: tuple[str, ...]) -> Union[int, Unfinished]:
    try:
        for text in (*(["memo: served\n"] if memo["verbose"] else []), *memo["printed"]):
            _replay_output(text)
    except OSError as error:
        return Unfinished(error)
    if memo["become"] is None:
        return int(memo["status"])
    path, argv, unset, variables = memo["become"]
    environ = {name: value for name, value in os.environ.items() if name not in unset}
    environ.update(variables)
    start = path, (*argv, *trailing_args), environ
    try:
        replace_process(*start)
    except OSError as error:
        return Unfinished(error, start)


def _replay_output(text: Union[str, bytes]) -> None:
    if isinstance(text, bytes):
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
    elif sys.stderr is not None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, UnicodeError):
            pass


def _text(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1 << 14)


def _rights() -> tuple[bytes, ...]:
    lines = _text("/proc/self/status").split(b"\n")
    return tuple(line for line in lines if line.startswith((b"Cap", b"NoNewPrivs", b"Seccomp:")))


def _code() -> tuple[Any, ...]:
    from gpubind import __version__

    try:
        stat_result = posix.stat(os.path.dirname(__file__))
    except OSError:  # in a zip file
        return __version__, __file__
    return __version__, __file__, stat_result.st_dev, stat_result.st_ino
