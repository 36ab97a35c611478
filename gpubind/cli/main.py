"""Entry point: run the application, and turn every error into text and an exit code, in one place.

What tells an error is loaded where there is one: a command line that `wrap` passes through shall not wait for it.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Optional

from gpubind.errors import EXIT_BUG, EXIT_UNREADABLE, GpubindError, StdoutClosedError


def main(argv: Optional[list[str]] = None, recorder: Optional[AbstractContextManager[object]] = None) -> int:
    """Run `gpubind` with *argv*, while *recorder* looks on; the exit code. Never lets an exception out."""

    def run() -> None:
        words = sys.argv[1:] if argv is None else argv
        if words[:1] == ["wrap"]:
            from gpubind.cli.passing import pass_through

            pass_through(words)
        if words == ["--version"]:  # who asks for that needs no parser
            from gpubind.cli.output import write_version

            write_version()
            return
        from gpubind.cli.app import application

        with recorder or nullcontext():
            application(words)(args=argv, prog_name="gpubind")

    return _guarded(run)


def print_again(data: bytes) -> int:
    """Print the document *data*, which could not be printed a moment ago, and tell why not; the exit code."""

    def write() -> None:
        from gpubind.cli.output import write_document

        write_document(data.decode("utf-8", "surrogateescape"), None)

    return _guarded(write)


def _guarded(work: Callable[[], None]) -> int:
    """Do *work*; the exit code. Every error is told here, and none gets out."""
    try:
        work()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except StdoutClosedError as error:
        # What is still buffered goes nowhere; without this the interpreter complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return error.exit_code
    except GpubindError as error:
        from gpubind.cli.output import render_error

        _complain(render_error(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF):
            _complain(_bug(error))
            return EXIT_BUG
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # help is written by typer itself
        _complain(f"error: unwritable-file: standard output cannot be written\n  why:   {error.strerror}\n")
        return EXIT_UNREADABLE
    except Exception as error:  # noqa: BLE001 - the last resort: a bug in gpubind, told without a traceback
        _complain(_bug(error))
        return EXIT_BUG
    return 0


def _complain(text: str) -> None:
    from gpubind.cli.output import complain

    complain(text)


def _bug(error: Exception) -> str:
    from gpubind.documents.text import printable

    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{_from_package(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else "?"
    return (
        f"error: bug: {type(error).__name__}: {printable(str(error))[:300]}\n"
        f"  where: {place}\n"
        "  why:   this is a mistake in gpubind, not in what you did\n"
        "  hint:  please report it, with the output of `gpubind record`\n"
    )


def _from_package(path: str) -> str:
    """*path* from its package on, `gpubind/tree/base.py`: several files have one base name."""
    packages = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    above = [
        directory.rstrip("/") for directory in (packages, *sys.path) if path.startswith(f"{directory.rstrip('/')}/")
    ]
    return os.path.relpath(path, max(above, key=len)) if above else os.path.basename(path)
