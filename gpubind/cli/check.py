"""check: the preflight. No `from __future__ import annotations`: see options.py."""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from gpubind.cli.options import (
    ImageOption,
    Like,
    PlanOptions,
    make_plan,
    open_host_of,
    open_image_of,
    takes_plan_options,
)
from gpubind.cli.start import BackendArguments
from gpubind.errors import EXIT_FINDING, NothingToBindError, RuntimeLimitError, UsageError
from gpubind.runtimes import RUNTIMES

if TYPE_CHECKING:
    from gpubind.documents.findings import Report
    from gpubind.model import Brought
    from gpubind.rules import Preflight, Rule

CHECK_FORMATS = ("table", "text", "json", "junit", "github")
OTHER_RUNTIMES = ("podman", "docker")
"""Runtimes that gpubind cannot start yet, of which some rules know."""

Codes = Optional[list[str]]


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
            help="What will start the container: " + ", ".join((*RUNTIMES, *OTHER_RUNTIMES)) + ". [not known]",
        ),
    ] = None,
    backend_arg: BackendArguments = None,
    program: Annotated[
        Optional[str],
        typer.Option(metavar="PATH", help="Also check the program that will run, as it is found in the container."),
    ] = None,
    format_: Annotated[
        Optional[str],
        typer.Option(
            "--format", metavar="FORMAT", help=", ".join(CHECK_FORMATS) + ". [table on a terminal, else text]"
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    output: Annotated[
        Optional[str], typer.Option("-o", "--output", metavar="FILE", help="Write to a file. [standard output]")
    ] = None,
    only: Annotated[Codes, typer.Option(metavar="CODE", help="Report these findings alone. Repeatable.")] = None,
    ignore: Annotated[
        Codes, typer.Option(metavar="CODE[=REASON]", help="Let these findings not count. Repeatable.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", envvar="GPUBIND_STRICT", help="Exit 1 on a warning, too.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print the verdict only.")] = False,
) -> None:
    """Say, before a job starts, what will not work here or in this image, and what to do. Exit 1 on an error."""
    from gpubind.cli.output import is_terminal, write_document
    from gpubind.documents.findings import report_of, verdict
    from gpubind.rules import asked
    from gpubind.rules import check as check_start

    chosen = "json" if json else format_ or ("table" if output is None and is_terminal() else "text")
    if chosen not in CHECK_FORMATS:
        raise UsageError("unknown-format", f"unknown format `{chosen}`", hint="known: " + ", ".join(CHECK_FORMATS))
    if program is not None and image is None:
        raise UsageError("program-without-image", "--program needs --image: it is looked for there")
    if program == "":
        raise UsageError("no-program", "--program is empty", hint="give a name, or a path in the container")
    codes, reasons = _known(only or ()), ignored_codes(ignore or ())
    start = preflight_of(options, image, like, _runtime(backend, options), tuple(backend_arg or ()), program)
    rules = tuple(rule for rule in asked(start) if not codes or rule.code in codes)
    findings = tuple(finding for finding in check_start(start) if not codes or finding.code in codes)
    report = report_of(start.plan, findings, reasons)
    text = verdict(report.findings) + "\n" if quiet else _rendered(chosen, report, rules, output)
    write_document(text, output)
    severities = {finding.severity for finding in report.findings}
    if "error" in severities or (strict and "warning" in severities):
        raise typer.Exit(EXIT_FINDING)


def preflight_of(
    options: PlanOptions,
    image: Optional[str],
    like: Optional[str],
    backend: Optional[str],
    arguments: tuple[str, ...],
    program: Optional[str],
) -> "Preflight":
    """What the rules look at: the plan for these options, or an empty one where there is nothing to bind."""
    from gpubind.cli.start import callers_environ, facts_of, host_for, staged
    from gpubind.execute import find_program
    from gpubind.planner import empty_plan
    from gpubind.planner.placement import GPUBIND, SINGULARITY
    from gpubind.rules import nothing_to_bind, preflight
    from gpubind.runtimes import dispatch

    host = open_host_of(options)
    opened = open_image_of(image, host)
    known = backend if like is None and backend in RUNTIMES else None
    found = find_program(known, os.environ) if known is not None and options.host is None else None
    start = None
    if known is None:
        layout = SINGULARITY if backend in ("apptainer", "singularity") else GPUBIND
    else:
        start = facts_of(known, found, arguments, callers_environ() if options.host is None else {})
        host = host_for(options, host, start, opened)
        layout = dispatch.layout_of(start)
    try:
        plan = make_plan(options, host=host, like=like, image=opened, layout=layout)
    except NothingToBindError as error:
        plan = empty_plan(layout, opened.facts if opened else None)._replace(findings=(nothing_to_bind(error),))
    if start is None:
        is_here = backend is None and options.host is None and program is not None
        mostly = mostly_brought(os.environ) if is_here else None
        return preflight(host, plan, opened, backend=backend, program=program, brought=mostly)
    start = staged(start, plan, opened, write=False)
    brought = dispatch.brought(plan, start, opened.tree if opened else None) if options.host is None else None
    made = preflight(host, plan, opened, backend=backend, start=start, program=program, brought=brought)
    if options.host is None and found is None:
        hint = "install it, or name another with --backend"
        made = made._replace(limit=RuntimeLimitError("no-runtime", "it is not in PATH", hint=hint))
    return made


def mostly_brought(environ: Mapping[str, str]) -> "Brought":
    """What a runtime of which nothing is known mostly brings: Apptainer's home, working directory and /tmp."""
    from gpubind.cli.start import facts_of
    from gpubind.runtimes import singularity_brought

    places = {name: environ[name] for name in ("HOME", "PWD") if name in environ}
    return singularity_brought.brought(facts_of("apptainer", None, (), places))


def ignored_codes(given: Iterable[str]) -> dict[str, str]:
    """Codes that do not count, each with the reason: the site's and the user's, then those *given* as CODE[=REASON]."""
    from gpubind.cli.settings import read_settings

    reasons: dict[str, str] = dict(read_settings().get("ignore", {}))
    for text in given:
        for word in [text] if "=" in text else text.split(","):
            code, _, reason = word.partition("=")
            reasons[code] = reason or "--ignore"
    _known(reasons)
    return reasons


def _known(codes: Iterable[str]) -> tuple[str, ...]:
    from gpubind.rules import RULES

    known = {rule.code for rule in RULES}
    split = tuple(part for code in codes for part in code.split(","))
    for code in split:
        if code not in known:
            raise UsageError("unknown-code", f"no finding has the code `{code}`", hint="docs/findings.md has them all")
    return split


def _runtime(backend: Optional[str], options: PlanOptions) -> Optional[str]:
    from gpubind.execute import find_program

    known = (*RUNTIMES, *OTHER_RUNTIMES)
    if backend == "auto":
        if options.host is not None:
            return None
        return next((name for name in RUNTIMES if find_program(name, os.environ)), None)
    if backend is not None and backend not in known:
        raise UsageError(
            "unknown-backend", f"unknown runtime `{backend}`", hint="known: " + ", ".join((*known, "auto"))
        )
    return backend


def _rendered(chosen: str, report: "Report", rules: "tuple[Rule, ...]", output: Optional[str]) -> str:
    from gpubind.cli.output import is_terminal
    from gpubind.documents import findings

    if chosen == "json":
        return findings.render_check_json(report)
    if chosen == "junit":
        from gpubind.documents.junit import render_junit

        return render_junit(report, tuple((rule.code, rule.needs) for rule in rules))
    if chosen == "github":
        return findings.render_check_github(report)
    if chosen == "table":
        from gpubind.cli.render import render_findings

        return render_findings(report, colour=output is None and is_terminal())
    return findings.render_check_text(report)
