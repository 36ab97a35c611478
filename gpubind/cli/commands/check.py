"""check: the preflight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from gpubind.cli import declarations as declared
from gpubind.cli.declarations import Option, PlanOptions, Subcommand
from gpubind.cli.options import query_of, standard_input_for
from gpubind.documents import CHECK_DOCUMENTS, MATRIX_DOCUMENTS
from gpubind.errors import EXIT_FINDING, GpubindError, UsageError
from gpubind.machine import system
from gpubind.model.data import BUNDLED_HOSTS
from gpubind.runtimes import RUNTIMES

if TYPE_CHECKING:
    from gpubind.api.check import CheckRequest
    from gpubind.model.requirements import Expectation
    from gpubind.rules.outcome import Report

Texts = Optional[Sequence[str]]


def check(
    options: PlanOptions,
    *,
    image: Texts,
    host: Texts,
    format_: Optional[str],
    output: Optional[str],
    strict: bool,
    quiet: bool,
    verbose: int,
    **check_options: Any,
) -> None:
    """Say before a job starts what will not work, and what to do.

    With --image: whether the image will run here. Without: what is wrong with this host; with --program, whether that
    program will run on it without a container. Nothing is started, unless --try asks for a container in which the
    image's own loader and the driver say whether that is so.
    """
    from gpubind.api.check import HostRef, check_each
    from gpubind.cli.output import progress, report_memo, write_document
    from gpubind.rules.outcome import verdict

    report_memo(is_requested=verbose > 1)
    chosen, is_one = format_ or "text", max(len(image or ()), len(host or ())) < 2
    if quiet and chosen != "text":
        raise UsageError("two-formats", f"--quiet and --format {chosen} exclude each other")
    if not quiet:
        CHECK_DOCUMENTS[chosen].load()
    if CHECK_DOCUMENTS[chosen].is_single and not is_one:
        hint = "give one image and one host, or another --format"
        raise UsageError("one-check", f"--format {chosen} has the outcome of one check", hint=hint)
    linked = chosen == "html" and is_one
    request = _request(options, image, host, **check_options)._replace(linked=linked, lists_rules=chosen == "junit")
    names = host or (None,)
    hosts = [HostRef(name, options.root, options.dev_root, name or system.uname().nodename) for name in names]
    try:
        with progress(quiet=quiet):
            reports = check_each(request, image or (None,), hosts)
    except GpubindError as error:
        if chosen == "prometheus" and not isinstance(error, UsageError):
            from gpubind.documents.check.prometheus import render_unanswered

            write_document(render_unanswered(error), output)
        raise
    write_document(_render(chosen, reports, output, quiet=quiet, verbose=bool(verbose)), output)
    worst = verdict(finding for report in reports for finding in report.findings)
    if worst == "error" or (strict and worst == "warning"):
        raise SystemExit(EXIT_FINDING)


def _request(
    options: PlanOptions,
    image: Texts,
    host: Texts,
    *,
    like: Optional[str],
    backend: Optional[str],
    backend_arg: Texts,
    allow_writable: bool,
    program: Optional[str],
    try_: bool,
    gpu_code: bool,
    as_user: Optional[str],
    only: Texts,
    ignore: Texts,
    expect: Optional[str],
    require: Optional[str],
) -> CheckRequest:
    """Errors: `UsageError` for options that exclude each other; as `read_expectation`, `read_policy`."""
    from gpubind.api.check import CheckRequest
    from gpubind.cli.settings import configured_severities, ignored_findings
    from gpubind.rules.table import known_codes

    _need_program(program, image, host, like, backend)
    if try_:
        from gpubind.launch.trial import need_to_try

        need_to_try(image[0] if image else None, is_recorded=bool(host), is_like=like is not None, user=as_user)
    request = CheckRequest(
        query=query_of(options, like),
        backend=backend,
        arguments=tuple(backend_arg or ()),
        allow_writable=allow_writable,
        program=program,
        user=as_user,
        only=known_codes(only or ()),
        reasons=ignored_findings(ignore or ()),
        gpu_code=gpu_code,
        severities=configured_severities(),
        expected=_expectations(options, expect, like, is_here=not host) if require is None else (),
        tries=try_,
        standard_input=standard_input_for(image or ()),
    )
    if require is None:
        return request
    if not image:
        raise UsageError("require-without-image", "--require needs --image: images are compared with the policy")
    from gpubind.api.requirements import read_policy

    return request._replace(policy=read_policy(require))


def _need_program(
    program: Optional[str], image: Texts, host: Texts, like: Optional[str], backend: Optional[str]
) -> None:
    """Errors: `UsageError` for a --program that is empty, or for one without an image where that is needed."""
    option = "--host" if host else "--like" if like else "--backend" if backend else None
    if program is not None and not image and option is not None:
        from gpubind.launch.preflight import program_without_image

        raise program_without_image(f"--program with {option} needs --image")
    if program == "":
        raise UsageError("no-program", "--program is empty", hint="give a name, or a path in the container")


def _expectations(
    options: PlanOptions, path: Optional[str], like: Optional[str], *, is_here: bool
) -> tuple[Expectation, ...]:
    """Return the expectations of the file *path* and, for this machine only, of the site."""
    from gpubind.cli.settings import configured_expectation

    if path is not None and like is not None:
        raise UsageError("expect-with-like", "--expect is about what a host has, and --like about what a program takes")
    expectations = [configured_expectation() if is_here and like is None else None]
    if path is not None:
        from gpubind.api.requirements import read_expectation

        expectations.insert(0, read_expectation(path, query_of(options)))
    return tuple(expected for expected in expectations if expected is not None)


def _render(chosen: str, reports: list[Report], output: Optional[str], *, quiet: bool, verbose: bool) -> str:
    from gpubind.cli.output import has_colour, is_terminal, load_renderer, tables_as_text, width

    if len(reports) > 1:
        return _render_matrix(chosen, reports, output, quiet=quiet, verbose=verbose)
    (report,) = reports
    if quiet:
        from gpubind.documents.check.report import verdict_line

        return verdict_line(report)
    if chosen != "text":
        return load_renderer(CHECK_DOCUMENTS[chosen])(report)
    from gpubind.documents.check.text import WIDTH, render_check_text

    columns = width() if output is None and is_terminal() else WIDTH
    text = render_check_text(report, verbose=verbose, width=columns, colour=has_colour(output))
    if report.trial is None:
        return text
    from gpubind.documents.check.trial import trial_line, trial_table

    table = trial_table(report.trial, verbose=verbose)
    return f"{text}\n{tables_as_text([table], output, trial_line(report.trial))}"


def _render_matrix(chosen: str, reports: list[Report], output: Optional[str], *, quiet: bool, verbose: bool) -> str:
    from gpubind.cli.output import has_colour, load_renderer, tables_as_text
    from gpubind.documents.check.several import (
        render_several,
        render_several_lines,
        render_several_text,
        render_unchecked,
        verdicts_table,
    )

    if quiet:
        return render_several_lines(reports)
    if chosen in MATRIX_DOCUMENTS:
        return load_renderer(MATRIX_DOCUMENTS[chosen])(reports)
    if chosen != "text":
        return render_several(chosen, reports)
    if verbose:
        return render_several_text(reports, colour=has_colour(output))
    table = tables_as_text([verdicts_table(reports)], output)
    return table + render_unchecked(reports) + "-v shows each check in full, -q a line of each\n"


def _codes() -> Sequence[str]:
    from gpubind.rules.table import CODES

    return CODES


_EACH = " Repeatable: each image is checked on each host."
CHECK = Subcommand(
    check,
    (
        declared.LIKE,
        Option("--host FILE|NAME", declared.HOST_HELP + _EACH, "Which host", is_repeatable=True, choices=BUNDLED_HOSTS),
        declared.IMAGE._replace(help=declared.IMAGE_HELP + declared.STDIN_HELP + _EACH, is_repeatable=True),
        Option(
            "--program PATH",
            "Also check the program that will run: in the container; without --image, on this machine.",
            "The image",
        ),
        Option(
            "--gpu-code, --no-gpu-code",
            "Whether the image has code for the GPUs: of the program, or of the frameworks that are found. [on]",
            "The image",
            default=True,
        ),
        Option(
            "--try",
            "Start a container by the runtime that `exec` would use, without the program, and compare what its "
            "loader and the driver say with what is predicted.",
            "Launch",
        ),
        Option("--as-user NAME", "Whether this user may open the device nodes and files. [you]", "Launch"),
        declared.BACKEND._replace(
            help=f"What will start the container: {', '.join(RUNTIMES)}. [not known]", default=None
        ),
        declared.BACKEND_ARGUMENTS,
        declared.ALLOW_WRITABLE,
        Option(
            "--only CODE",
            "Count only these findings. Repeatable.",
            "Filtering",
            is_repeatable=True,
            choices=_codes,
            splits_commas=True,
        ),
        Option(
            "--ignore CODE[:SUBJECT][=REASON]",
            "Do not count these findings. Repeatable.",
            "Filtering",
            is_repeatable=True,
            choices=_codes,
            splits_commas=True,
        ),
        Option(
            "--expect FILE",
            "What the host is to have, and what it lacks is an error: a record or plan of a good node, or the file "
            "of `gpubind record --expect`.",
            "Filtering",
        ),
        Option(
            "--require FILE",
            "Compare the image with a policy, what every host has at least, and read no host: TOML with driver, "
            "cuda, rocm, glibc, gpus, arch, capabilities and brings-driver.",
            "The image",
        ),
        declared.STRICT,
        declared.format_option(CHECK_DOCUMENTS),
        declared.JSON,
        declared.OUTPUT,
        declared.QUIET._replace(help="Print the verdict and its codes only."),
        declared.VERBOSE._replace(help=f"Show notes in full. {declared.MEMO_HELP}"),
    ),
    common=("--nv", "--caps", "--gpus", "--image", "--program"),
    examples=(
        ("ask whether an image will run here", "gpubind check --nv --image app.sif --program /opt/app/solve"),
        ("the same for a program without a container", "gpubind check --nv --program python"),
        ("in CI, without a host", "gpubind check --image app.sif --require policy.toml"),
        ("in one line, for a scheduler", "gpubind check --nv --gpus all --format slurm"),
    ),
    exit_codes=(
        ("0", "ok"),
        ("1", "an error; with --strict also a warning"),
        *(declared.EXIT_CODES[at] for at in (0, 2, 3)),
    ),
)
