"""wrap: start a runtime's own command line, with the plan in place of its GPU flags."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from gpubind.cli import declarations as declared
from gpubind.cli.declarations import Argument, PlanOptions, Subcommand
from gpubind.cli.output import progress, reporter, write_document
from gpubind.errors import WrongUseError
from gpubind.model import Finding


def wrap(
    options: PlanOptions,
    *,
    line: Sequence[str],
    dry_run: bool,
    json: bool,
    quiet: bool,
    verbose: int,
    **start_options: Any,
) -> None:
    """Start a runtime's own command line, with the plan in it.

    The plan takes the place of the runtime's GPU flags. A line that asks for no GPU is started as it is.
    """
    from gpubind.cli.starting import start_request
    from gpubind.launch.execute import callers_environ, execute_line
    from gpubind.launch.start import write_command_file
    from gpubind.launch.target import StartRequest
    from gpubind.launch.wrap.start import command_of_line
    from gpubind.model.notice import collecting

    if json and not dry_run:
        raise WrongUseError("wrong-use", "--json prints a line that is not started", hint="add --dry-run")
    args, environ, findings = tuple(line), callers_environ(), list[Finding]()
    report = collecting(findings, reporter(quiet=quiet, verbose=verbose > 0))

    def request() -> StartRequest:
        new_request = start_request(options, dry_run=dry_run, quiet=quiet, verbose=verbose, **start_options)
        return new_request._replace(report=report)

    with progress(quiet=quiet):
        command, parsed = command_of_line(args, environ, request, lambda: _own_command(len(args)), report)
    if json:
        from gpubind.documents.command import render_command_json

        write_document(render_command_json(command._replace(findings=tuple(findings)), environ), None)
    elif dry_run:
        import shlex

        from gpubind.launch.wrap.command import format_command

        write_document(
            shlex.join(command.argv) + "\n" if parsed is None else format_command(parsed, command.argv), None
        )
    else:
        execute_line(write_command_file(command), command.environ)


def _own_command(length: int) -> tuple[str, ...]:
    """Return the arguments of this gpubind. The last *length* of `sys.argv` are the runtime's command line."""
    from gpubind.launch.execute import this_program

    options = [arg for arg in sys.argv[1 : len(sys.argv) - length] if arg not in ("--dry-run", "--json")]
    return (*this_program(), *options, *(() if options[-1:] == ["--"] else ("--",)))


WRAP = Subcommand(
    wrap,
    (
        declared.ALLOW_WRITABLE,
        declared.CHECK_FIRST,
        declared.LOG_START,
        declared.REQUIRE_GPU,
        declared.DRY_RUN._replace(help="Print the command line instead."),
        declared.JSON._replace(help="With --dry-run, print gpubind.command/1.", expands_to=""),
        declared.QUIET,
        declared.VERBOSE,
    ),
    (Argument("line", "-- RUNTIME ARGS...", "The command line: apptainer exec --nv IMAGE CMD...", takes_rest=True),),
    common=("--nv", "--gpus", "--caps", "--check", "--dry-run"),
    examples=(
        ("start an existing command line", "gpubind wrap -- singularity exec --nv app.sif python train.py"),
        ("at every prompt", "alias singularity='gpubind wrap -- singularity'"),
    ),
    exit_codes=declared.STARTS_CODES,
    starts=True,
)
