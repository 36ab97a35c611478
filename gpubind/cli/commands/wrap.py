"""wrap: a runtime's own command line, with the plan in the place of its GPU flags."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gpubind.cli import declarations as declared
from gpubind.cli.declarations import Argument, PlanOptions, Subcommand
from gpubind.cli.output import progress, warn, write_document

HELP = """Start a runtime's own command line, with the plan in it.

The plan takes the place of the runtime's GPU flags. A line that asks for no GPU is started as it is.
"""


def wrap(
    options: PlanOptions,
    *,
    line: Sequence[str],
    dry_run: bool,
    quiet: bool,
    **asked: Any,
) -> None:
    """Read the line, and start what it comes to. Errors: 125 for whatever keeps the runtime from being started."""
    from gpubind.cli.starting import not_started, start_request
    from gpubind.launch.execute import callers_environ
    from gpubind.launch.start import written
    from gpubind.launch.wrap.command import moved, parse_command, printed
    from gpubind.launch.wrap.passing import site_switches
    from gpubind.launch.wrap.start import wrapped_command
    from gpubind.launch.wrap.unread import without_plan

    words = tuple(line)
    with not_started():
        environ = callers_environ()
        parsed = parse_command(words, environ, site_switches(words))
        if parsed is None:
            warning = None if quiet else without_plan(words, environ)
            if warning is not None:
                warn(warning)
            _become(words, environ, dry_run=dry_run)
            return
        if not parsed.is_here:
            _become(moved(parsed, _gpubind(len(words))), environ, dry_run=dry_run)
            return
        request = start_request(options, dry_run=dry_run, quiet=quiet, **asked)
        with progress(quiet=quiet):
            command = wrapped_command(request, parsed)
        if command is None:
            _become(words, environ, dry_run=dry_run)  # as it is: the program's own flag goes on, too
        elif dry_run:
            write_document(printed(parsed, command.argv), None)
        else:
            _become(written(command), command.environ, dry_run=False)


def _gpubind(length: int) -> tuple[str, ...]:
    """Return the words that start this gpubind with its options, up to the line of *length* words.

    An installed program is named by its path: PATH may be another one after `sudo` or on another machine.
    """
    program, *own = (word for word in sys.argv[: len(sys.argv) - length] if word != "--dry-run")
    is_module = os.path.basename(program) in ("__main__.py", "-c", "-m")
    mine = (sys.executable, "-m", "gpubind") if is_module else (os.path.abspath(program),)
    return (*mine, *own, *(() if own[-1:] == ["--"] else ("--",)))


def _become(words: Sequence[str], environ: Mapping[str, str], *, dry_run: bool) -> None:
    if dry_run:
        import shlex

        write_document(shlex.join(words) + "\n", None)
    else:
        from gpubind.launch.execute import execute_line

        execute_line(words, environ)


COMMANDS = {
    "wrap": Subcommand(
        "wrap",
        wrap,
        HELP,
        (
            declared.ALLOW_WRITABLE,
            declared.CHECK_FIRST,
            declared.REQUIRE_GPU,
            declared.DRY_RUN._replace(help="Print the command line instead."),
            declared.QUIET,
            declared.VERBOSE,
        ),
        (Argument("line", "-- RUNTIME ARGS...", "The command line: apptainer exec --nv IMAGE CMD...", many=True),),
        common=("--nv", "--gpus", "--caps", "--check", "--dry-run"),
        examples=(
            ("start an existing command line", "gpubind wrap -- singularity exec --nv app.sif python train.py"),
            ("at every prompt", "alias singularity='gpubind wrap -- singularity'"),
        ),
        exit_codes=declared.STARTS_CODES,
        starts=True,
    )
}
