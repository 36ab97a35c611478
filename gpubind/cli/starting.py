"""The request of the commands that start a container."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Optional

from gpubind.cli.declarations import PlanOptions
from gpubind.cli.options import open_host_of, query_of
from gpubind.cli.output import report_memo, reporter
from gpubind.cli.settings import configured_severities, ignored_findings
from gpubind.errors import UsageError
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
    log_start: bool = False,
    backend_arg: Optional[Sequence[str]] = None,
) -> StartRequest:
    """Return the request of the options. Errors: `UsageError` (code `host-to-start`) for a recorded host."""
    if options.host is not None and not dry_run:
        message, hint = "--host names a record: nothing can be started there", "add --dry-run, or leave --host out"
        raise UsageError("host-to-start", message, hint=hint)
    report_memo(is_requested=verbose > 1)
    return StartRequest(
        open_host=partial(open_host_of, options),
        query=query_of(options),
        environ=callers_environ(),
        arguments=tuple(backend_arg or ()),
        elsewhere=options.host is not None,
        dry_run=dry_run,
        require_gpu=require_gpu,
        check=check,
        log_start=log_start,
        allow_writable=allow_writable,
        reasons=ignored_findings(()) if check else {},
        severities=configured_severities() if check else {},
        report=reporter(quiet=quiet, verbose=verbose > 0),
    )
