"""check: the preflight. No `from __future__ import annotations`: see options.py."""

import os
import re
from typing import TYPE_CHECKING, Annotated, NamedTuple, Optional

import typer

from gpubind.cli.options import (
    AllowWritable,
    BackendArguments,
    ImageOption,
    Like,
    PlanOptions,
    make_plan,
    open_host_of,
    open_image_of,
    takes_plan_options,
    vendors_of,
)
from gpubind.documents import CHECK_DOCUMENTS, CHECK_FORMATS
from gpubind.errors import EXIT_FINDING, NothingToBindError, RuntimeLimitError, UsageError, one_of
from gpubind.runtimes import RUNTIMES

if TYPE_CHECKING:
    from gpubind.documents.report import Checked, Report
    from gpubind.rules import Preflight
    from gpubind.runtimes.record import Runtime

Codes = Optional[list[str]]


class Asked(NamedTuple):
    """The start that is asked about."""

    runtime: Optional["Runtime"]
    arguments: tuple[str, ...]
    """The user's own, for the runtime."""
    allow_writable: bool
    program: Optional[str]


def add_to(app: typer.Typer) -> None:
    """Give *app* the command check."""
    app.command()(takes_plan_options(check))


def check(
    options: PlanOptions,
    image: ImageOption = None,
    like: Like = None,
    backend: Annotated[
        Optional[str],
        typer.Option(
            metavar="RUNTIME",
            envvar="GPUBIND_BACKEND",
            help="What will start the container: " + ", ".join(RUNTIMES) + ". [not known]",
        ),
    ] = None,
    backend_arg: BackendArguments = None,
    allow_writable: AllowWritable = False,
    program: Annotated[
        Optional[str],
        typer.Option(metavar="PATH", help="Also check the program that will run, as it is found in the container."),
    ] = None,
    format_: Annotated[
        Optional[str],
        typer.Option("--format", metavar="FORMAT", help=", ".join(CHECK_FORMATS) + ". [text]"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    output: Annotated[
        Optional[str], typer.Option("-o", "--output", metavar="FILE", help="Write to a file. [standard output]")
    ] = None,
    only: Annotated[Codes, typer.Option(metavar="CODE", help="Count these findings alone. Repeatable.")] = None,
    ignore: Annotated[
        Codes,
        typer.Option(metavar="CODE[:SUBJECT][=REASON]", help="Do not count these findings. Repeatable."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", envvar="GPUBIND_STRICT", help="Exit 1 on a warning, too.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print the verdict and its codes only.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show notes in full.")] = False,
) -> None:
    """Say, before a job starts, what will not work here or in this image, and what to do. Exit 1 on an error."""
    from gpubind.cli.output import tell_of_memo, write_document
    from gpubind.cli.settings import ignored_findings, known_codes
    from gpubind.documents.report import report_of, verdict, verdict_line
    from gpubind.rules import applying
    from gpubind.rules import check as check_start

    tell_of_memo(wanted=verbose)
    chosen = _format("json" if json else format_)
    if program is not None and image is None:
        raise UsageError("program-without-image", "--program needs --image: it is looked for there")
    if program == "":
        raise UsageError("no-program", "--program is empty", hint="give a name, or a path in the container")
    codes, reasons = known_codes(only or ()), ignored_findings(ignore or ())
    asked = Asked(_runtime(backend, options, image), tuple(backend_arg or ()), allow_writable, program)
    start = _preflight(options, image, like, asked)
    rules = ((rule.code, rule.needs) for rule in applying(start))
    checked = _checked(options, image, start, program)
    report = report_of(start.plan, check_start(start), reasons, rules, checked=checked, only=codes)
    write_document(verdict_line(report) if quiet else _rendered(chosen, report, output, verbose), output)
    worst = verdict(report.findings)
    if worst == "error" or (strict and worst == "warning"):
        raise typer.Exit(EXIT_FINDING)


def _checked(options: PlanOptions, reference: Optional[str], start: "Preflight", program: Optional[str]) -> "Checked":
    from gpubind.documents.report import Checked
    from gpubind.formats.os_release import parse_os_release

    system = glibc = None
    if start.image is not None:
        system = parse_os_release(start.image.tree.text("/etc/os-release") or "")
        libc = start.image.tree.resolve(start.image.loader.find("libc.so.6") or "/")
        match = re.search(r"/libc-([0-9.]+)\.so$", libc) if isinstance(libc, str) else None
        glibc = match.group(1) if match else None
    return Checked(
        host=options.host or os.uname().nodename,
        image=reference,
        system=system,
        glibc=glibc,
        program=program,
        runtime=start.backend,
    )


def _format(asked: Optional[str]) -> str:
    """The format that is asked for. Errors: `UsageError`."""
    chosen = asked or "text"
    if chosen not in CHECK_FORMATS:
        raise UsageError("unknown-format", f"unknown format `{chosen}`", hint=one_of(CHECK_FORMATS, chosen))
    return chosen


def _preflight(
    options: PlanOptions,
    image: Optional[str],
    like: Optional[str],
    asked: Asked,
) -> "Preflight":
    """What the rules look at: the plan for these options, or an empty one where there is nothing to bind."""
    from gpubind.planner import empty_plan
    from gpubind.planner.placement import GPUBIND
    from gpubind.preparation import host_for, layout_of, preflight_of, start_on
    from gpubind.runtimes.start import Start
    from gpubind.sources.vendors import nothing_to_bind

    start, host, runtime = None, open_host_of(options), asked.runtime
    opened = open_image_of(image, host)
    layout = GPUBIND if runtime is None else runtime.layout(Start(runtime.name))
    if runtime is not None and like is None:
        start = start_on(host, runtime, asked.arguments)._replace(allow_writable=asked.allow_writable)
        host = host_for(host, start, opened)
        layout = layout_of(start, host, opened)
    try:
        plan = make_plan(options, host=host, like=like, image=opened, layout=layout)
    except NothingToBindError as error:
        plan = empty_plan(layout, opened.facts if opened else None, vendors_of(options))
        plan = plan._replace(findings=(nothing_to_bind(error),))
    return preflight_of(host, plan, opened, runtime, start, asked.program)


def _runtime(backend: Optional[str], options: PlanOptions, image: Optional[str]) -> Optional["Runtime"]:
    """The runtime that --backend names; None if there is none, or if nobody can know. Errors: `UsageError`."""
    from gpubind.preparation import choose_runtime
    from gpubind.runtimes import known_runtime

    if backend != "auto":
        return known_runtime(backend) if backend is not None else None
    try:
        return choose_runtime(image or "", os.environ).runtime if options.host is None else None
    except RuntimeLimitError:
        return None


def _rendered(chosen: str, report: "Report", output: Optional[str], verbose: bool) -> str:
    if chosen != "text":
        return CHECK_DOCUMENTS[chosen].render(report)
    from gpubind.cli.output import has_colour, is_terminal, width
    from gpubind.documents.checked import WIDTH, render_check_text

    columns = width() if output is None and is_terminal() else WIDTH
    return render_check_text(report, verbose=verbose, width=columns, colour=has_colour(output))
