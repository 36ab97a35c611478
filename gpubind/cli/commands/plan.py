"""plan: what a container needs of a host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from gpubind.cli import declarations as declared
from gpubind.cli.declarations import Option, PlanOptions, Subcommand
from gpubind.cli.options import open_host_of, open_image_of, query_of
from gpubind.documents import ALLOW_NONE_FORMATS, FORMATS, PERSISTENT_DOCUMENTS, PLAN_DOCUMENTS
from gpubind.errors import EXIT_FINDING, HostReadError, NothingToBindError, UsageError
from gpubind.machine import system
from gpubind.machine.answers import has_access
from gpubind.runtimes import ARGUMENT_FORMATS, DOCUMENT_FORMATS, PLAN_FORMATS

if TYPE_CHECKING:
    from gpubind.host import Host
    from gpubind.model import Finding, Plan


def plan(
    options: PlanOptions,
    *,
    like: Optional[str],
    image: Optional[str],
    format_: Optional[Sequence[str]],
    backend_arg: Optional[Sequence[str]],
    allow_writable: bool,
    cdi_hook: Optional[str],
    allow_none: bool,
    stage_dir: Optional[str],
    output: Optional[str],
    strict: bool,
    quiet: bool,
    verbose: int,
) -> None:
    """Say what a container needs of this host, and why.

    That is: files and sockets to bind, device nodes, and variables. The plan has those of each vendor whose driver is
    found, unless --nv, --rocm or --intel name one.
    """
    from gpubind.cli.output import progress, report, report_folded, report_memo, write_document
    from gpubind.planner.planning import plan_host

    report_memo(is_requested=verbose > 1)
    chosen, quoted = _format(format_ or [])
    _require_matching_options(chosen, bool(backend_arg), cdi_hook, like, allow_none=allow_none)
    with progress(quiet=quiet):
        host = open_host_of(options)
        opened, query = open_image_of(image, host), query_of(options, like)
        if chosen in PERSISTENT_DOCUMENTS or chosen in PLAN_FORMATS:
            from gpubind.api.render import PrintForm, print_plan

            form = PrintForm(chosen, tuple(backend_arg or ()), allow_writable, quoted, stage_dir, cdi_hook, allow_none)
            planned, text = print_plan(form, host, query, opened)
        else:
            planned = plan_host(host, query, opened)
            text = _render(planned, chosen, output, verbose=bool(verbose))
    errors = _errors_of_host(options, host, planned) if strict else []
    if not (errors and output is not None):  # a plan with errors is never written to a file
        if chosen == "links" and output not in (None, "-"):
            _write_links(planned, output or "", quiet=quiet)
        else:
            write_document(text, output)
    if not quiet and chosen != "json":
        (report if verbose else report_folded)(planned.findings)
    if errors:
        if not quiet:
            report(finding for finding in errors if finding not in planned.findings)
        raise SystemExit(EXIT_FINDING)


def _write_links(planned: Plan, directory: str, *, quiet: bool) -> None:
    from gpubind.cli.output import write_stderr
    from gpubind.documents.links import links_of, usage_text
    from gpubind.launch.links import put_links

    links = links_of(planned)
    if not links:
        message = "the plan has no library, so the directory is not changed"
        raise NothingToBindError("nothing-to-bind", message, where=directory)
    place = system.absolute(directory)  # before `put_links`, which may replace the working directory
    put_links(links, directory)
    if not quiet:
        write_stderr(usage_text(planned, place))


def _errors_of_host(options: PlanOptions, host: Host, planned: Plan) -> list[Finding]:
    from gpubind.api.check import errors_of
    from gpubind.cli.settings import configured_expectation, site_check

    site = configured_expectation() if options.host is None else None
    return errors_of(host, planned, site_check()._replace(expected=() if site is None else (site,)))


def _format(formats: Sequence[str]) -> tuple[str, bool]:
    """Return the requested format, and whether its arguments are quoted for a shell. Errors: `UsageError`."""
    chosen = [name for name in dict.fromkeys(formats) if name != "sh"]
    if len(chosen) > 1:
        raise UsageError("two-formats", f"--format {' and --format '.join(chosen)} exclude each other")
    name = chosen[0] if chosen else "table"
    quoted = "sh" in formats
    if quoted and name not in ARGUMENT_FORMATS:
        raise UsageError("two-formats", f"--format sh quotes a runtime's arguments; `{name}` has none")
    return name, quoted


def _require_matching_options(
    chosen: str, has_arguments: bool, cdi_hook: Optional[str], like: Optional[str], *, allow_none: bool
) -> None:
    """Errors: `UsageError` for options that have no effect on the format *chosen*; as `_need_hook`."""
    if has_arguments and chosen not in PLAN_FORMATS:
        raise UsageError(
            "argument-without-runtime", "--backend-arg is only for formats that print a runtime's arguments"
        )
    if cdi_hook is not None and chosen != "cdi":
        raise UsageError("hook-without-cdi", "--cdi-hook is only for --format cdi")
    if allow_none and chosen not in ALLOW_NONE_FORMATS:
        raise UsageError("none-in-format", f"--allow-none is only for --format {' or '.join(ALLOW_NONE_FORMATS)}")
    if like is not None and (chosen in PERSISTENT_DOCUMENTS or chosen in PLAN_FORMATS):
        message = f"--like shows what a program would bind; it is not for --format {chosen}"
        raise UsageError("like-in-words", message)
    if cdi_hook is not None:
        _need_hook(cdi_hook)


def _need_hook(hook: str) -> None:
    """Errors: `HostReadError` (code `no-cdi-hook`) for a hook that is not a program, or that others can change."""
    from gpubind.machine.trust import is_trusted_path

    hint = "leave --cdi-hook out: libraries then lie where every loader looks"
    if not (os.path.isabs(hook) and has_access(hook, os.X_OK)):
        raise HostReadError("no-cdi-hook", "there is no such program", where=hook, hint=hint)
    if not is_trusted_path(hook):
        why = "users other than root could change it, and every container's runtime would run it as root"
        raise HostReadError("no-cdi-hook", "others than root can change the program", where=hook, why=why, hint=hint)


def _render(plan: Plan, chosen: str, output: Optional[str], *, verbose: bool) -> str:
    if chosen in PLAN_DOCUMENTS:
        return PLAN_DOCUMENTS[chosen].render(plan, verbose=verbose)
    from gpubind.cli.output import tables_as_text
    from gpubind.documents.tables import plan_tables

    return tables_as_text(plan_tables(plan, verbose=verbose), output, plan.summary)


PLAN = Subcommand(
    plan,
    (
        declared.LIKE,
        declared.IMAGE,
        declared.BACKEND_ARGUMENTS,
        declared.ALLOW_WRITABLE,
        Option(
            "--cdi-hook FILE",
            "With --format cdi: where nvidia-cdi-hook is on the host. The hook adds the libraries to the "
            "container's ld cache.",
            "Launch",
        ),
        Option(
            "--allow-none",
            f"With --format {' or '.join(ALLOW_NONE_FORMATS)}: without a GPU here, write a document "
            "that brings nothing.",
            "Launch",
        ),
        Option(
            "--stage-dir DIR",
            f"With --format {', '.join((*PERSISTENT_DOCUMENTS, *DOCUMENT_FORMATS))}: where generated files "
            "may stay, for all who use the document.",
            "Launch",
            preset="variable",
        ),
        declared.STRICT._replace(help="Check the host, too. On an error finding, exit 1, and write no file."),
        declared.format_option((*FORMATS, *PLAN_FORMATS, "sh"))._replace(
            help=f"What to print: {', '.join((*FORMATS, *PLAN_FORMATS))}; add --format sh to quote arguments for "
            "a shell. [table]",
            is_repeatable=True,
            preset="settings",
        ),
        declared.JSON,
        declared.OUTPUT._replace(
            help="Write to a file; with --format links, make this directory of links. [standard output]"
        ),
        declared.QUIET._replace(help="Do not report findings on standard error."),
        declared.VERBOSE._replace(help=f"Also show what was left out, and why. {declared.MEMO_HELP}"),
    ),
    common=("--nv", "--caps", "--gpus", "--image", "--format"),
    examples=(
        ("see what a job would get", "gpubind plan --nv --host debian13-nvidia550"),
        (
            "use it in your own command line",
            "apptainer exec $(gpubind plan --nv --format apptainer) IMAGE CMD",
        ),
    ),
    exit_codes=(("0", "done"), ("1", "an error finding, with --strict"), *declared.EXIT_CODES),
)
