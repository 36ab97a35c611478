"""Entry point: run the command line, and turn every error into text and an exit code, in one place.

Modules that report errors are loaded only for an error.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Optional

from gpubind.cli.commands import STARTS
from gpubind.errors import (
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_NOT_STARTED,
    EXIT_OK,
    CommandError,
    GpubindError,
    HostReadError,
    OutputError,
    StdoutClosedError,
    UsageError,
    WrongUseError,
)
from gpubind.machine import system

if TYPE_CHECKING:
    from gpubind.memo.answer import Unfinished


_OCI = "oci-runtime"
OWN_CODES: dict[str, tuple[type[GpubindError], ...]] = {
    **dict.fromkeys(STARTS, (UsageError, CommandError)),
    **dict.fromkeys(("wrap", _OCI), (WrongUseError, CommandError)),
}
"""The commands that start a container, each with the errors that keep their exit codes. All other errors before the
start end with 125, as with docker and podman: any other code, such as 2, may be that of the command in the
container.
"""
_UNLOADED = (MemoryError, ImportError, OSError, SystemError)
"""Errors of importing modules that report errors: too many open files, too little memory (SystemError in CPython)."""


def main(argv: Optional[list[str]] = None, recorder: Optional[AbstractContextManager[object]] = None) -> int:
    """Run `gpubind` with *argv* within *recorder*, and return the exit code. No exception escapes."""
    args = sys.argv[1:] if argv is None else argv

    def run() -> int:
        line = args
        if args[:1] == [_OCI]:
            from gpubind.launch.oci.passing import with_dashes

            line = [_OCI, *with_dashes(args[1:])]
        with recorder or nullcontext():
            from gpubind.cli.reader import run_line
            from gpubind.machine.budget import VARIABLE, one_command, times_of

            with one_command(times_of(system.environ().get(VARIABLE))):
                return run_line(line)

    return _run_reporting_errors(run, args)


def finish(answer: Unfinished, args: list[str]) -> int:
    """Report why *answer* to *args* is incomplete, or do the rest of it; return the exit code."""

    def rest() -> None:
        if answer.start is None:
            from gpubind.cli.output import stdout_error

            raise stdout_error(answer.error) from answer.error
        from gpubind.launch.execute import execute

        path, argv, environ = answer.start
        execute(argv, environ, path)

    return _run_reporting_errors(rest, args)


def _run_reporting_errors(work: Callable[[], Optional[int]], args: list[str]) -> int:
    """Run *work*, report its errors, and return the exit code. No exception escapes."""
    try:
        return work() or EXIT_OK
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except StdoutClosedError as error:
        if sys.stdout is None:  # closed by the caller, not by a reader that ended early
            _complain(f"error: {error.code}: {error.what}\n")
        # Otherwise the interpreter writes the buffer at exit, and reports an error.
        system.drop_output()
        return error.exit_code
    except GpubindError as error:
        return _report(error, args)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: a bug in gpubind, reported without a traceback
        if _is_interrupt(error):
            return EXIT_INTERRUPTED
        if isinstance(error, MemoryError) or _UNMAPPED in str(error):
            return _report_no_memory(error, args)
        gpubind_error = _as_gpubind_error(error) if isinstance(error, OSError) else None
        if gpubind_error is not None:
            return _report(gpubind_error, args)
        _complain(_bug(error), args)
        return EXIT_BUG


_UNMAPPED = "failed to map segment from shared object"
"""The message of ld.so for a library that does not fit into memory."""


def _report_no_memory(error: Exception, args: list[str]) -> int:
    """Report the lack of memory. Without its traceback, *error* holds no objects of the command."""
    error.__traceback__ = None
    no_memory = HostReadError(
        "no-memory",
        "there is too little memory for this command",
        why=str(error) or type(error).__name__,
        hint="give it more: `ulimit -v` shows the limit of the shell, `scontrol show job` that of a job",
    )
    return _report(no_memory, args)


def _as_gpubind_error(error: OSError) -> Optional[GpubindError]:
    """Return *error* as a `GpubindError` if it is about standard output or gpubind's own files; else None."""
    if error.filename is not None:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            error.__traceback__ = None  # closes the command's files: the modules below need descriptors
        from gpubind.machine.answers import inspection_error, missing_from

        if missing_from(error) is None:
            return inspection_error(str(error.filename), error)
    if error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF):  # written by typer itself
        from gpubind.cli.output import stdout_error

        return stdout_error(error)
    return None


def _report(error: GpubindError, args: list[str]) -> int:
    """Report *error*, and return the exit code.

    Tracebacks are dropped first: that closes the files of the failed command, so that file descriptors are free for
    importing the reporter.
    """
    command = next((arg for arg in args if arg != "--"), "")
    if not isinstance(error, OWN_CODES.get(command, GpubindError)):
        error.exit_code = EXIT_NOT_STARTED
    cause: Optional[BaseException] = error
    while cause is not None:
        cause.__traceback__, cause = None, cause.__cause__ or cause.__context__
    try:
        from gpubind.documents.text import render_error

        _complain(render_error(error), args)
    except _UNLOADED:
        system.write_error(f"error: {error.code}: {error.what}\n".encode("ascii", "replace"))
    try:
        _write_error_document(args, error)
    except _UNLOADED:
        pass
    except GpubindError:  # standard output has no reader or no space; the error is on standard error
        system.drop_output()
    return error.exit_code


def _is_interrupt(error: Optional[BaseException]) -> bool:
    """Return whether an interrupt caused *error*: Python before 3.12 wraps what is raised while a class is made."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _write_error_document(args: list[str], error: GpubindError) -> None:
    """Write *error* to standard output if *args* request JSON or a scheduler's line there."""
    from gpubind.cli.output import write_document
    from gpubind.cli.reader import requested_format
    from gpubind.documents.check.slurm import render_slurm_error
    from gpubind.documents.text import render_error_json

    render = {"json": render_error_json, "slurm": render_slurm_error}.get(requested_format(args, system.environ()))
    if render is not None and not isinstance(error, OutputError):
        write_document(render(error), None)


def _complain(text: str, args: Sequence[str] = ()) -> None:
    """Write *text* to standard error; for an OCI runtime, also to its log."""
    from gpubind.cli.output import write_stderr

    write_stderr(text)
    if args[:1] == [_OCI]:
        from gpubind.launch.oci.passing import log, split

        log(split(args[1:])[1], "error", f"gpubind: {'; '.join(' '.join(part.split()) for part in text.splitlines())}")


def _bug(error: Exception) -> str:
    from gpubind.documents.text import render_error

    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    # Several files have one base name.
    where = f"{'/'.join(trace.tb_frame.f_code.co_filename.split('/')[-3:])}:{trace.tb_lineno}" if trace else "?"
    message, why = f"{type(error).__name__}: {error}"[:300], "this is a mistake in gpubind, not in what you did"
    hint = "please report it, with the output of `gpubind record`"
    return render_error(GpubindError("bug", message, where=where, why=why, hint=hint))
