"""What the commands that start a container have in common: their request, and their exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Optional

from gpubind.cli.declarations import PlanOptions
from gpubind.cli.options import open_host_of, query_of
from gpubind.cli.output import report_memo, reporter
from gpubind.cli.settings import ignored_findings, site_severities
from gpubind.errors import EXIT_NOT_STARTED, CommandError, GpubindError, UsageError
from gpubind.launch.execute import callers_environ
from gpubind.launch.target import StartRequest


def start_request(
    options: PlanOptions,
    *,
    dry_run: bool,
    require_gpu: bool,
    check: bool,
    allow_writable: bool,
    quiet: bool,
    verbose: int,
    backend_arg: Optional[Sequence[str]] = None,
) -> StartRequest:
    """Return the request that the options ask for. Errors: `UsageError` (code `host-to-start`) for a recorded host."""
    if options.host is not None and not dry_run:
        what, hint = "--host names a record: nothing can be started there", "add --dry-run, or leave --host out"
        raise UsageError("host-to-start", what, hint=hint)
    report_memo(wanted=verbose > 1)
    return StartRequest(
        open_host=partial(open_host_of, options),
        query=query_of(options),
        environ=callers_environ(),
        arguments=tuple(backend_arg or ()),
        elsewhere=options.host is not None,
        dry_run=dry_run,
        require_gpu=require_gpu,
        check=check,
        allow_writable=allow_writable,
        reasons=ignored_findings(()) if check else {},
        severities=site_severities() if check else {},
        report=reporter(quiet=quiet, verbose=verbose > 0),
    )


@contextmanager
def not_started(*kept: type[GpubindError]) -> Iterator[None]:
    """Give errors inside the exit code 125, as docker and podman do: a command in the container may end with 2, too.

    Errors that are *kept*, and those about the command in the container, have their own.
    """
    try:
        yield
    except GpubindError as error:
        if not isinstance(error, (CommandError, *kept)):
            error.exit_code = EXIT_NOT_STARTED
        raise
