"""Write documents to standard output or a file, and messages to standard error."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Optional

from gpubind.documents.text import printable, render_error, render_finding, render_line, without_surrogates
from gpubind.errors import GpubindError, OutputError, StdoutClosedError, UsageError
from gpubind.machine import system
from gpubind.machine.budget import report_progress
from gpubind.machine.listener import mark_uncacheable, report_printed, why_not_served
from gpubind.model import Finding

if TYPE_CHECKING:
    from gpubind.documents import Made, Renderer
    from gpubind.documents.tables import Table
    from gpubind.model.notice import Message

_COLUMNS_LIMIT = 10_000
_PIPE_WIDTH = 200
"""Columns of a table outside a terminal: each row fits into one line, for grep."""


def write_document(text: str, path: Optional[str]) -> None:
    """Write *text* to the file *path*, or to standard output if that is None or `-`.

    Errors: `OutputError` (code `unwritable-file`), `StdoutClosedError`.
    """
    data = text.encode("utf-8", "surrogateescape")
    if path is not None and path != "-":
        mark_uncacheable("a file is written")
        _to_file(data, path)
        return
    if sys.stdout is None:
        raise StdoutClosedError("stdout-closed", "standard output is closed")
    report_printed(data)
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
    except OSError as error:
        raise stdout_error(error) from error


def load_renderer(document: Renderer) -> Callable[..., str]:
    """Return the renderer of *document*; that of a page knows where and when the page is made.

    Errors: as `Renderer.load`; `UsageError` for a SOURCE_DATE_EPOCH that is malformed.
    """
    return partial(document.load(), made=_made()) if document.is_page else document.load()


def _made() -> Made:
    """Return this machine and the time, which SOURCE_DATE_EPOCH replaces for a reproducible page.

    Source: reproducible-builds.org, SOURCE_DATE_EPOCH 1.1: seconds since 1970, and a malformed value is an error.
    """
    from gpubind.documents import Made

    epoch = system.environ().get("SOURCE_DATE_EPOCH")
    if epoch is None:
        mark_uncacheable("the time is on the page")
    elif not (epoch.isascii() and epoch.isdigit() and len(epoch) < 12):
        hint = "set it to seconds since 1970, or unset it"
        raise UsageError("wrong-use", f"SOURCE_DATE_EPOCH is not a number of seconds: `{epoch[:100]}`", hint=hint)
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time.time() if epoch is None else int(epoch)))
    return Made(system.uname().nodename, date)


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def width(widest: int = 100) -> int:
    """Return the columns of running text: those of the terminal, from 40 to *widest*."""
    return max(40, min(widest, _columns()))


def table_width(path: Optional[str]) -> int:
    """Return the columns of a table in the file *path*, or on standard output if that is None."""
    return _columns() if path is None and is_terminal() else _PIPE_WIDTH


def _columns() -> int:
    """Return COLUMNS, or else the columns of the terminal; 80 if neither is known."""
    try:
        columns = int(system.environ().get("COLUMNS", ""))
    except ValueError:  # also for more digits than Python converts
        columns = 0
    return min(columns if columns > 0 else system.columns(1), _COLUMNS_LIMIT)


def tables_as_text(tables: Iterable[Table], output: Optional[str], last: str = "") -> str:
    """Return *tables*, then the line *last*, as text for the file *output* or a terminal. Errors: of importing rich."""
    from gpubind.cli.tables import render_tables

    return render_tables(tables, table_width(output), last, colour=has_colour(output))


def has_colour(path: Optional[str]) -> bool:
    """Return whether text in the file *path*, or on standard output if that is None, has colours."""
    if system.environ().get("NO_COLOR"):  # https://no-color.org: if it is not empty
        return False
    is_shown = path is None and is_terminal() and system.environ().get("TERM") != "dumb"
    return is_shown or bool(system.environ().get("FORCE_COLOR"))


def write_stderr(text: str) -> None:
    """Write *text* to standard error, if there is one."""
    text = without_surrogates(text)
    report_printed(text)
    _write_message(text)


def report_memo(*, is_requested: bool) -> None:
    """Report why no memo answered, if -vv requests it. A memo that answers reports that itself."""
    why = why_not_served() if is_requested else None
    if why is not None:
        _write_message(f"memo: not served: {printable(why)}\n")


def progress(*, quiet: bool) -> AbstractContextManager[None]:
    """Show the progress of long reads within the context on a terminal, unless *quiet*."""
    if quiet or not _has_terminal():
        return nullcontext()
    from gpubind.cli.progress import progress_line

    return progress_line()


def count_progress(label: str, total: int) -> AbstractContextManager[Callable[[], None]]:
    """Show on a terminal how many of *total* things are done. Call the context's value for each."""
    if not _has_terminal():
        return nullcontext(lambda: None)
    from gpubind.cli.tables import progress_counter

    return progress_counter(label, total)


def _has_terminal() -> bool:
    """Return whether standard error is a terminal that can erase a line."""
    return sys.stderr is not None and sys.stderr.isatty() and system.environ().get("TERM", "dumb") != "dumb"


def _write_message(text: str) -> None:
    report_progress("")
    if sys.stderr is not None:
        with suppress(OSError, UnicodeError):
            sys.stderr.write(text)
            sys.stderr.flush()


def warn(error: GpubindError) -> None:
    """Report *error* as a warning: the command continues."""
    write_stderr(render_error(error, "warning"))


def report(findings: Iterable[Finding], *, brief: bool = False) -> None:
    """Write findings to standard error; *brief*: a line each, and none for notes."""
    for finding in findings:
        if not brief:
            write_stderr(render_finding(finding))
        elif finding.severity != "note":
            write_stderr(render_line(finding))


def reporter(*, quiet: bool, verbose: bool) -> Callable[[Message], None]:
    """Return the function that writes messages of a start to standard error."""
    from gpubind.model.notice import ignore

    def write(message: Message) -> None:
        if isinstance(message, Finding):
            report([message], brief=not verbose)
        elif isinstance(message, GpubindError):
            warn(message)
        elif verbose or not message.is_detail:
            parts = (message.severity, message.code, printable(message.text))
            write_stderr(f"{': '.join(filter(None, parts))}\n")

    return ignore if quiet else write


def report_folded(findings: Iterable[Finding]) -> None:
    """Write findings to standard error, notes in one line with their codes."""
    from gpubind.model.findings import with_count

    notes: dict[str, int] = {}
    for finding in findings:
        if finding.severity == "note":
            notes[finding.code] = notes.get(finding.code, 0) + 1
        else:
            write_stderr(render_finding(finding))
    if notes:
        codes = ", ".join(f"{code} ({number})" if number > 1 else code for code, number in notes.items())
        write_stderr(f"{with_count(sum(notes.values()), 'note')}, in full with -v: {codes}\n")


def stdout_error(error: OSError) -> GpubindError:
    """Return *error* of a write to standard output as one of gpubind's."""
    if isinstance(error, BrokenPipeError):
        return StdoutClosedError("stdout-closed", "standard output was closed early")
    # Drop the buffer: the interpreter would write it again at exit, and fail.
    system.drop_output()
    why = error.strerror or str(error)
    return OutputError("unwritable-file", "standard output cannot be written", why=why)


def _to_file(data: bytes, path: str) -> None:
    from gpubind.cli.save import write_file

    try:
        write_file(path, data)
    except OSError as error:
        why, directory = error.strerror or str(error), os.path.dirname(path)
        is_missing = isinstance(error, FileNotFoundError) and directory and not system.exists(directory, follow=False)
        hint = f"`mkdir -p {printable(directory)}` makes its directory" if is_missing else ""
        raise OutputError("unwritable-file", "a file cannot be written", where=path, why=why, hint=hint) from error
