"""explain: codes, messages, logs and names."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Sequence
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
    from gpubind.api.explain import ExplainRequest, explain_any
    from gpubind.cli.output import progress, reporter, table_width, width, write_document
    from gpubind.documents.explanation import render_json, render_text

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
                _standard_input() if query == "-" or (not asked and _has_log()) else None,
                is_full=json or verbose > 0,
                report=reporter(quiet=False, verbose=False),
            )
            answer = explain_any(request)
            columns = width() if answer.explanation is None or answer.messages else table_width(None)
            text = render_json(answer) if json else render_text(answer, columns, verbose=verbose > 0)
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
    from gpubind.planner.planning import plan_host

    host = open_host_of(options)
    return plan_host(host, query_of(options, like), open_image_of(image, host))


def _has_log() -> bool:
    """Return whether standard input is a file, a pipe or /dev/null. A caller may leave any other open by accident."""
    try:
        stdin_stat = system.OpenFile("standard input", 0).facts()
    except OSError:
        return False
    is_null = stat.S_ISCHR(stdin_stat.st_mode) and stdin_stat.st_rdev == os.makedev(1, 3)
    return is_null or stat.S_ISREG(stdin_stat.st_mode) or stat.S_ISFIFO(stdin_stat.st_mode)


def _standard_input() -> BinaryIO:
    return io.BytesIO() if sys.stdin is None else sys.stdin.buffer


def _every_code() -> Sequence[str]:
    from gpubind.explanation.codes import codes

    return [code for code, _ in codes()]


EXPLAIN = Subcommand(
    explain,
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
            "A soname, file name, path, device node or pattern; a code; a variable; lines that a program printed, "
            "with quotes or without; the file of a log (./FILE if it is also called like a code or a file of the "
            "driver); or - for a log on standard input. [a log that is redirected to standard input; else every "
            "code]",
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
