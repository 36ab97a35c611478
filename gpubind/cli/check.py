"""check: the preflight. No `from __future__ import annotations`: see options.py."""

from typing import Annotated, Optional

import typer

from gpubind.cli.options import PlanOptions, make_plan, open_host_of, open_image_of, takes_plan_options
from gpubind.errors import EXIT_FINDING, NothingToBindError, UsageError

CHECK_FORMATS = ("table", "text", "json")


def add_to(app: typer.Typer) -> None:
    """Give *app* the command check."""
    app.command()(takes_plan_options(check))


def check(
    options: PlanOptions,
    image: Annotated[
        Optional[str],
        typer.Option(metavar="DIR", help="The image that will be started: a root file system or a sandbox."),
    ] = None,
    format_: Annotated[
        Optional[str],
        typer.Option("--format", metavar="FORMAT", help="table, text or json. [table on a terminal, else text]"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print the verdict only.")] = False,
) -> None:
    """Say, before a job starts, what will not work here or in this image, and what to do. Exit 1 on an error."""
    from gpubind.cli.output import is_terminal, write_document
    from gpubind.documents.findings import render_check_json, render_check_text, verdict
    from gpubind.planner import empty_plan
    from gpubind.rules import Preflight, nothing_to_bind
    from gpubind.rules import check as check_start

    chosen = "json" if json else format_ or ("table" if is_terminal() else "text")
    if chosen not in CHECK_FORMATS:
        raise UsageError("unknown-format", f"unknown format `{chosen}`", hint="known: " + ", ".join(CHECK_FORMATS))
    opened = open_image_of(image)
    host = open_host_of(options)
    try:
        plan = make_plan(options, host=host, image=opened)
    except NothingToBindError as error:
        plan = empty_plan(image=opened.facts if opened else None)
        plan = plan._replace(findings=(nothing_to_bind(error),))
    findings = check_start(Preflight(host, plan, opened))
    if quiet:
        write_document(verdict(findings) + "\n", None)
    elif chosen == "json":
        write_document(render_check_json(plan, findings), None)
    elif chosen == "table":
        from gpubind.cli.render import render_findings

        write_document(render_findings(findings, colour=is_terminal()), None)
    else:
        write_document(render_check_text(findings), None)
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(EXIT_FINDING)
