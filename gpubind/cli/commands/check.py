"""check: the preflight. No `from __future__ import annotations`: see options.py."""

from typing import TYPE_CHECKING, Annotated, Optional

from gpubind.cli.declare import Option
from gpubind.cli.options import (
    HOST_HELP,
    IMAGE_HELP,
    MEMO_HELP,
    AllowWritable,
    BackendArguments,
    Like,
    Output,
    PlanOptions,
    planning,
)
from gpubind.cli.values import check_formats, findings, hosts, runtimes
from gpubind.documents import CHECK_DOCUMENTS, CHECK_FORMATS
from gpubind.errors import EXIT_FINDING, UsageError, one_of
from gpubind.runtimes import RUNTIMES

if TYPE_CHECKING:
    from gpubind.documents.check.report import Report

Texts = Optional[list[str]]
_EACH = " Repeatable: each image is checked on each host."
Backend = Annotated[
    Optional[str],
    Option(
        metavar="RUNTIME",
        envvar="GPUBIND_BACKEND",
        autocompletion=runtimes,
        help="What will start the container: " + ", ".join(RUNTIMES) + ". [not known]",
    ),
]
Format = Annotated[
    Optional[str],
    Option(
        "--format",
        metavar="FORMAT",
        autocompletion=check_formats,
        help="What to print: " + ", ".join(CHECK_FORMATS) + ". [text]",
    ),
]
Only = Annotated[Texts, Option(metavar="CODE", autocompletion=findings, help="Count only these findings. Repeatable.")]
Ignore = Annotated[
    Texts,
    Option(metavar="CODE[:SUBJECT][=REASON]", autocompletion=findings, help="Do not count these findings. Repeatable."),
]


def check(
    options: PlanOptions,
    image: Annotated[Texts, Option(metavar="IMAGE", help=IMAGE_HELP + _EACH)] = None,
    host: Annotated[Texts, Option(metavar="FILE|NAME", autocompletion=hosts, help=HOST_HELP + _EACH)] = None,
    like: Like = None,
    backend: Backend = None,
    backend_arg: BackendArguments = None,
    allow_writable: AllowWritable = False,
    program: Annotated[
        Optional[str],
        Option(metavar="PATH", help="Also check the program that will run, as it is found in the container."),
    ] = None,
    as_user: Annotated[
        Optional[str],
        Option("--as-user", metavar="NAME", help="Whether this user may open the device nodes and files. [you]"),
    ] = None,
    format_: Format = None,
    json: Annotated[bool, Option("--json", help="The same as --format json.")] = False,
    output: Output = None,
    only: Only = None,
    ignore: Ignore = None,
    strict: Annotated[bool, Option("--strict", envvar="GPUBIND_STRICT", help="Exit 1 on a warning, too.")] = False,
    quiet: Annotated[bool, Option("-q", "--quiet", help="Print the verdict and its codes only.")] = False,
    verbose: Annotated[int, Option("-v", "--verbose", count=True, help=f"Show notes in full. {MEMO_HELP}")] = 0,
) -> None:
    """Say before a job starts what will not work, and what to do.

    Without --image: what is wrong with this host. With it: whether the image will run here. Nothing is started.
    """
    from gpubind.cli.checking import asked_of, reports_of
    from gpubind.cli.output import tell_of_memo, waiting, write_document
    from gpubind.documents.check.report import verdict

    tell_of_memo(wanted=verbose > 1)
    chosen = _format(format_, json=json, quiet=quiet)
    if program is not None and not image:
        raise UsageError("program-without-image", "--program needs --image: it is looked for there")
    if program == "":
        raise UsageError("no-program", "--program is empty", hint="give a name, or a path in the container")
    asked = asked_of(backend, backend_arg, allow_writable, program, like, as_user, only, ignore)
    with waiting(quiet=quiet):
        reports = reports_of(options, image or [None], host or [None], asked)
    write_document(_rendered(chosen, reports, output, quiet=quiet, verbose=bool(verbose)), output)
    worst = verdict(finding for report in reports for finding in report.findings)
    if worst == "error" or (strict and worst == "warning"):
        raise SystemExit(EXIT_FINDING)


def _format(asked: Optional[str], *, json: bool, quiet: bool) -> str:
    """The one format that is asked for. Errors: `UsageError`."""
    chosen = "json" if json else asked or "text"
    if asked not in (None, chosen) or (quiet and chosen != "text"):
        raise UsageError("two-formats", "--quiet, --json and another --format exclude each other")
    if chosen not in CHECK_FORMATS:
        raise UsageError("unknown-format", f"unknown format `{chosen}`", hint=one_of(CHECK_FORMATS, chosen))
    return chosen


def _rendered(chosen: str, reports: list["Report"], output: Optional[str], *, quiet: bool, verbose: bool) -> str:
    from gpubind.cli.output import has_colour, is_terminal, width
    from gpubind.documents.check.checked import WIDTH, render_check_text
    from gpubind.documents.check.report import verdict_line

    if len(reports) > 1:
        return _several(chosen, reports, output, quiet=quiet, verbose=verbose)
    (report,) = reports
    if quiet:
        return verdict_line(report)
    if chosen != "text":
        return CHECK_DOCUMENTS[chosen].render(report)
    columns = width() if output is None and is_terminal() else WIDTH
    return render_check_text(report, verbose=verbose, width=columns, colour=has_colour(output))


def _several(chosen: str, reports: list["Report"], output: Optional[str], *, quiet: bool, verbose: bool) -> str:
    from gpubind.cli.output import has_colour, table_width
    from gpubind.documents.check.several import (
        render_several,
        render_several_lines,
        render_several_text,
        render_unchecked,
        verdicts_table,
    )

    if quiet:
        return render_several_lines(reports)
    if chosen != "text":
        return render_several(chosen, reports)
    if verbose:
        return render_several_text(reports, colour=has_colour(output))
    from gpubind.cli.render import render_tables

    table = render_tables([verdicts_table(reports)], table_width(output), colour=has_colour(output))
    return table + render_unchecked(reports) + "-v shows each check in full\n"


COMMANDS = {"check": planning(check)}
