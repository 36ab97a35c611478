"""explain: codes, messages, logs and names."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Optional

from gpubind.cli.declarations import (
    EXIT_CODES,
    IMAGE,
    JSON,
    LIKE,
    VERBOSE,
    Argument,
    Option,
    PlanOptions,
    Subcommand,
    format_option,
)
from gpubind.cli.options import open_host_of, open_image_of, query_of
from gpubind.errors import UsageError
from gpubind.machine import system

if TYPE_CHECKING:
    from gpubind.model import Plan


def explain(
    options: PlanOptions,
    *,
    asked: Optional[Sequence[str]],
    like: Optional[str],
    image: Optional[str],
    tree: bool,
    format_: Optional[str],
    json: bool,
    verbose: int,
) -> None:
    """Say what a code or message means, or why a file is in the plan."""
    from gpubind.api.explain import ExplainRequest, LogFiles, LogInput, explain_any
    from gpubind.cli.output import progress, reporter, table_width, width, write_document
    from gpubind.documents import explanation

    query = " ".join(asked or ())
    if format_ is not None and not tree:
        raise UsageError("unknown-format", f"--format {format_} is a form of --tree", hint="add --tree")
    if json and format_ not in (None, "json"):
        raise UsageError("two-formats", f"--format json and --format {format_} exclude each other")
    with progress(quiet=False):
        if tree:
            text = _tree(options, query, like, image, "json" if json else format_ or "text")
        else:
            request = ExplainRequest(
                query,
                partial(_plan, options, like, image),
                LogFiles(_is_log_file, _log_file),
                LogInput("standard input", _standard_input()) if query == "-" or (not asked and _has_log()) else None,
                is_full=json or verbose > 0,
                report=reporter(quiet=False, verbose=False),
            )
            answer = explain_any(request)
            columns = width() if answer.explanation is None or answer.messages else table_width(None)
            text = (
                explanation.render_json(answer)
                if json
                else explanation.render_text(answer, columns, verbose=verbose > 0)
            )
    write_document(text, None)


def _tree(options: PlanOptions, program: str, like: Optional[str], image: Optional[str], form: str) -> str:
    """Errors: as `links`."""
    from gpubind.api.links import LinksRequest, links
    from gpubind.documents import TREE_DOCUMENTS
    from gpubind.model import ContainerPath

    host = open_host_of(options)
    request = LinksRequest(program, host, query_of(options, like), open_image_of(image, host), image)
    if image is None and options.root is None and host.local is not None:
        request = request._replace(
            environ=system.environ(), working_directory=ContainerPath(system.current_directory())
        )
    return TREE_DOCUMENTS[form].render(links(request))


def _plan(options: PlanOptions, like: Optional[str], image: Optional[str]) -> Plan:
    from gpubind.api.plan import plan_for

    host = open_host_of(options)
    return plan_for(host, query_of(options, like), open_image_of(image, host)).plan


def _is_log_file(path: str) -> bool:
    """Return whether *path* is a regular file that is not an ELF file. An unreadable one counts as a log."""
    from gpubind.machine.answers import is_file
    from gpubind.machine.regular import open_regular

    if "\n" in path or not is_file(path):
        return False
    try:
        with open_regular(path).stream() as file:
            return file.read(len(_PROGRAM)) != _PROGRAM
    except OSError:
        return True  # `_log_file` reports why it is unreadable


def _log_file(path: str) -> Iterator[bytes]:
    """Errors: `HostReadError` (code `unreadable-file`)."""
    from gpubind.image.open import suggest_path
    from gpubind.machine.answers import inspection_error, lexists
    from gpubind.machine.regular import open_regular

    try:
        with open_regular(path).stream() as file:
            yield from _blocks(file, path)
    except OSError as error:
        unread = inspection_error(path, error, "a log cannot be read")
        unread.hint = unread.hint if lexists(path) else suggest_path(path)
        raise unread from error


def _has_log() -> bool:
    """Return whether standard input is a file, a pipe or /dev/null. A caller may leave any other open by accident."""
    try:
        stdin_stat = system.OpenFile("standard input", 0).facts()
    except OSError:
        return False
    is_null = stat.S_ISCHR(stdin_stat.st_mode) and stdin_stat.st_rdev == _NULL_DEVICE
    return is_null or stat.S_ISREG(stdin_stat.st_mode) or stat.S_ISFIFO(stdin_stat.st_mode)


def _standard_input() -> Iterator[bytes]:
    from gpubind.machine.answers import inspection_error

    try:
        yield from () if sys.stdin is None else _blocks(sys.stdin.buffer, "standard input")
    except OSError as error:
        raise inspection_error("standard input", error, "a log cannot be read") from error


def _blocks(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield blocks of whole lines. A line that is longer than a block is split."""
    from gpubind.cli.output import write_stderr

    remainder = b""
    for _ in range(_LONGEST_LOG // _BLOCK):
        data = file.read(_BLOCK)
        if not data:
            break
        block, end, remainder = (remainder + data).rpartition(b"\n")
        yield block + end if end else remainder
        remainder = remainder if end else b""
    else:
        write_stderr(f"warning: not-looked-at: {name}: only its first {_LONGEST_LOG >> 20} MiB were read\n")
    if remainder:
        yield remainder


_BLOCK = 1 << 20
_PROGRAM = b"\x7fELF"
"""The first bytes of an ELF file."""
_NULL_DEVICE = os.makedev(1, 3)
_LONGEST_LOG = 64 << 20
"""Maximum bytes of a log that are read."""


def _every_code() -> Sequence[str]:
    from gpubind.explanation.codes import codes

    return [code for code, _ in codes()]


COMMANDS = {
    "explain": Subcommand(
        "explain",
        explain,
        explain.__doc__ or "",
        (
            LIKE,
            IMAGE,
            Option(
                "--tree",
                "Show what the program or library NAME is linked with: whose copy, which rule of the loader finds it, "
                "and what is missing; on the host, or in --image with the plan in place.",
                "Output",
            ),
            format_option(("text", "json", "dot"))._replace(help="Of --tree: text, json, or dot for Graphviz. [text]"),
            VERBOSE._replace(help="Show every message of a log in full."),
            JSON._replace(help="Print gpubind.explain/1, with --tree gpubind.tree/1.", expands_to=""),
        ),
        (
            Argument(
                "asked",
                "[NAME|CODE|MESSAGE|FILE|-]",
                "A soname, file name, path, device node or pattern; a code; lines that a program printed, with quotes "
                "or without; the file of a log (./FILE if it is also called like a code or a file of the driver); or - "
                "for a log on standard input. [a log that is redirected to standard input; else every code]",
                takes_rest=True,
                required=False,
                choices=_every_code,
            ),
        ),
        common=("--nv", "--image", "--tree", "--host", "--json"),
        examples=(
            ("what a program is linked with", "gpubind explain /usr/bin/nvidia-smi --tree"),
            ("why a file is in the plan", "gpubind explain libcuda.so.1"),
            ("what a message means", 'gpubind explain "version GLIBC_2.34 not found"'),
            ("what a job died of", "gpubind explain job.log"),
        ),
        exit_codes=(("0", "done"), *EXIT_CODES[:3]),
    )
}
