"""plan: what a container needs of a host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional

from gpubind.cli.declarations import (
    ALLOW_WRITABLE,
    BACKEND_ARGUMENTS,
    EXIT_CODES,
    IMAGE,
    JSON,
    LIKE,
    MEMO_HELP,
    OUTPUT,
    QUIET,
    STRICT,
    VERBOSE,
    Option,
    PlanOptions,
    Subcommand,
)
from gpubind.cli.options import open_host_of, open_image_of, plan_of
from gpubind.documents import FORMATS, LASTING, PLAN_DOCUMENTS
from gpubind.errors import EXIT_FINDING, UsageError, one_of
from gpubind.runtimes import KEPT, PLAN_FORMATS, QUOTABLE

if TYPE_CHECKING:
    from gpubind.model import Plan


def plan(
    options: PlanOptions,
    *,
    like: Optional[str],
    image: Optional[str],
    format_: Optional[Sequence[str]],
    json: bool,
    backend_arg: Optional[Sequence[str]],
    allow_writable: bool,
    cdi_hook: Optional[str],
    stage_dir: Optional[str],
    output: Optional[str],
    strict: bool,
    quiet: bool,
    verbose: int,
) -> None:
    """Say what a container needs of this host, and why.

    That is: files and sockets to bind, device nodes, and variables. Of each vendor whose driver is found, unless
    --nv or --rocm name one.
    """
    from gpubind.cli.output import report, report_folded, tell_of_memo, waiting, write_document

    tell_of_memo(wanted=verbose > 1)
    chosen, quoted = _format(format_ or [], json)
    _need_fitting(chosen, bool(backend_arg), cdi_hook, like)
    with waiting(quiet=quiet):
        if chosen in LASTING:
            from gpubind.cli.lasting import DocumentRequest, plan_to_last

            made, text = plan_to_last(options, DocumentRequest(chosen, image, cdi_hook, stage_dir))
        elif chosen in PLAN_FORMATS:
            from gpubind.cli.words import WordsOf, plan_in_words

            words = WordsOf(chosen, quoted, tuple(backend_arg or ()), allow_writable, stage_dir)
            made, text = plan_in_words(options, image, words)
        else:
            host = open_host_of(options)
            made = plan_of(options, host, like=like, image=open_image_of(image, host))
            text = _render(made, chosen, output, verbose=bool(verbose))
    write_document(text, output)
    if not quiet and chosen != "json":
        (report if verbose else report_folded)(made.findings)
    if strict:
        _need_no_error(options, made, quiet=quiet)


def _need_no_error(options: PlanOptions, made: Plan, *, quiet: bool) -> None:
    """Exit with 1 on an error finding, of the plan or of the check of its host, which is reported then."""
    from gpubind.api import check
    from gpubind.cli.output import report

    errors = [finding for finding in check(open_host_of(options), made) if finding.severity == "error"]
    if not quiet:
        report(finding for finding in errors if finding not in made.findings)
    if errors or any(finding.severity == "error" for finding in made.findings):
        raise SystemExit(EXIT_FINDING)


def _format(formats: Sequence[str], json: bool) -> tuple[str, bool]:
    """The one document that is asked for, and whether its words are to be quoted for a shell."""
    chosen = [name for name in formats if name != "sh"]
    if (json and chosen not in ([], ["json"])) or len(chosen) > 1:
        raise UsageError("two-formats", "--json and --format, or two formats, exclude each other")
    name = "json" if json else chosen[0] if chosen else "table"
    if name not in (*FORMATS, *PLAN_FORMATS):
        known = one_of((*FORMATS, *PLAN_FORMATS), name)
        raise UsageError(
            "unknown-format", f"unknown format `{name}`", hint=f"{known}, and sh beside the name of a runtime"
        )
    quoted = "sh" in formats
    if quoted and name not in QUOTABLE:
        raise UsageError("two-formats", f"--format sh quotes a runtime's arguments; `{name}` has none")
    return name, quoted


def _need_fitting(chosen: str, has_arguments: bool, cdi_hook: Optional[str], like: Optional[str]) -> None:
    """Errors: `UsageError` for options that say nothing to the format *chosen*."""
    if has_arguments and chosen not in PLAN_FORMATS:
        raise UsageError(
            "argument-without-runtime", "--backend-arg is only for formats that print a runtime's arguments"
        )
    if cdi_hook is not None and chosen != "cdi":
        raise UsageError("hook-without-cdi", "--cdi-hook is only for --format cdi")
    if like is not None and (chosen in LASTING or chosen in PLAN_FORMATS):
        what = f"--like shows what a program would bind; it is not for --format {chosen}"
        raise UsageError("like-in-words", what)


def _render(plan: Plan, chosen: str, output: Optional[str], *, verbose: bool) -> str:
    if chosen in PLAN_DOCUMENTS:
        return PLAN_DOCUMENTS[chosen].render(plan, verbose=verbose)
    from gpubind.cli.output import has_colour, table_width
    from gpubind.cli.render import render_tables
    from gpubind.documents.tables import plan_tables
    from gpubind.documents.text import summary

    tables = plan_tables(plan, verbose=verbose)
    return render_tables(tables, table_width(output), summary(plan), colour=has_colour(output))


COMMANDS = {
    "plan": Subcommand(
        "plan",
        plan,
        plan.__doc__ or "",
        (
            LIKE,
            IMAGE,
            BACKEND_ARGUMENTS,
            ALLOW_WRITABLE,
            Option(
                "--cdi-hook FILE",
                "With --format cdi: where nvidia-cdi-hook is on the host. The hook adds the libraries to the "
                "container's ld cache.",
                "Launch",
            ),
            Option(
                "--stage-dir DIR",
                f"With --format {', '.join((*LASTING, *KEPT))}: where generated files may stay, for all who use "
                "the document.",
                "Launch",
                preset="variable",
            ),
            STRICT._replace(help="Check the host, too, and exit 1 on an error finding."),
            Option(
                "--format FORMAT",
                f"What to print: {', '.join((*FORMATS, *PLAN_FORMATS))}; add --format sh to quote arguments for "
                "a shell. [table]",
                "Output",
                repeats=True,
                preset="settings",
                choices=(*FORMATS, *PLAN_FORMATS, "sh"),
            ),
            JSON,
            OUTPUT,
            QUIET._replace(help="Do not report findings on standard error."),
            VERBOSE._replace(help=f"Also show what was left out, and why. {MEMO_HELP}"),
        ),
        common=("--nv", "--caps", "--gpus", "--image", "--format"),
        examples=(
            ("see what a job would get", "gpubind plan --nv --host debian13-nvidia550"),
            ("use it in your own command line", "apptainer exec $(gpubind plan --nv --format apptainer) IMAGE CMD"),
        ),
        exit_codes=(("0", "done"), ("1", "an error finding, with --strict"), *EXIT_CODES),
    )
}
