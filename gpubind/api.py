"""The functions of the library: `plan`, `check`, `needs`, `diff`, `words`, `render`, `start`, `wrap`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

from gpubind.errors import GpubindError, UsageError, one_of, unknown_format
from gpubind.formats.driver.gpu_names import GPU_VARIABLES
from gpubind.host import Host, ListFile
from gpubind.host.open import open_host
from gpubind.model import Finding, Plan, Request
from gpubind.model.verb import verb
from gpubind.planner.placement import CDI, Layout
from gpubind.planner.planning import Query, plan_host

if TYPE_CHECKING:
    from gpubind.documents.diff.comparison import Comparison
    from gpubind.image.facts import Image
    from gpubind.image.needs import ImageNeeds
    from gpubind.launch.choose import StartLine
    from gpubind.launch.target import Message, StartRequest
    from gpubind.runtimes.cmdline.programs import Action
    from gpubind.runtimes.edits import RuntimeArguments
    from gpubind.runtimes.runtime import Command, Start

__all__ = [
    "check",
    "check_document",
    "diff",
    "needs",
    "open_host",
    "open_layout",
    "open_runtime",
    "plan",
    "render",
    "start",
    "words",
    "wrap",
]


@verb
def open_runtime(host: Host, backend: str, arguments: Sequence[str] = ()) -> Start:
    """Return a start by the runtime called *backend* on *host*, with the user's *arguments* for it.

    It holds the version and the configuration of the runtime, and the environment: that of the task that *host* was
    opened for, or of this process; none for a recorded host without a task. Errors: `UsageError` for an unknown
    runtime, or for arguments that end in the middle of an option; `HostReadError`.
    """
    from gpubind.launch.prepare import start_on
    from gpubind.runtimes import known_runtime

    return start_on(host, known_runtime(backend), tuple(arguments))


@verb
def open_layout(host: Host, form: str, image: Optional[Image] = None) -> Layout:
    """Return the layout of a plan for a document of mounts: *form* is `cdi`, `compose` or `kubernetes`.

    `render` prints a plan with this layout in that form. Errors: `UsageError` (code `unknown-format`).
    """
    from gpubind.documents import LASTING
    from gpubind.planner.placement import cdi_layout

    known = [name for name, lasting in LASTING.items() if lasting.says == "mounts"]
    if form not in known:
        what = f"`{form}` is not a document with a layout of its own"
        raise UsageError("unknown-format", what, hint=one_of(known, form))
    return cdi_layout(host.uname.machine, image.facts.loader_directories if image is not None else None)


@verb
def plan(
    host: Host,
    request: Request,
    listfile: Optional[ListFile] = None,
    image: Optional[Image] = None,
    layout: Optional[Layout] = None,
    *,
    start: Optional[Start] = None,
) -> Plan:
    """Return the plan for containers on *host*, of *image* if one is given.

    *layout* places the files in the container; without it, the runtime of *start* does, or they are below /.gpubind.
    *listfile* replaces the list file in force. Errors: as `gpubind.planner.planning.plan_host`.
    """
    if start is not None:
        from gpubind.launch.prepare import host_for, layout_of

        host, layout = host_for(host, start, image), layout or layout_of(start, image)
    return plan_host(host, Query(request, listfile), image, layout)


def _plan_html(plan: Plan) -> str:
    from gpubind.documents.notebook import plan_html

    return plan_html(plan)


Plan._repr_html_ = _plan_html  # type: ignore[attr-defined]  # the model itself knows no documents


@verb
def words(plan: Plan, start: Start, image: Optional[Image] = None) -> Optional[RuntimeArguments]:
    """Return *plan* in the arguments of the runtime of *start*: options, binds, variables, and Decisions.

    Generated files are written to the caller's cache first, as the arguments name them. None where a runtime needs an
    image for its arguments. Errors: `UsageError` (code `other-layout`) for a plan with another layout than that of the
    start, or whose variables would choose other GPUs there; `RuntimeLimitError` for a plan that the runtime cannot
    express; `OutputError`.
    """
    from gpubind.launch.prepare import Files, layout_of, staged

    _held_against(layout_of(start, plan.image), plan, start.runtime.name)
    return start.runtime.words(plan, staged(plan, start, image, Files()))


@verb
def render(
    plan: Plan,
    form: str,
    *,
    image: Optional[Image] = None,
    start: Optional[Start] = None,
    host: Optional[Host] = None,
    stage_dir: Optional[str] = None,
) -> str:
    """Return *plan* as `gpubind plan --format FORM` prints it: `tsv`, `json`, `paths`, the arguments for a runtime
    (`apptainer`, `podman`, `apptainer-env`, `oci`), or a document of mounts (`cdi`, `compose`, `kubernetes`).

    *image* and *start* are those of the plan; without *start*, it is one of that runtime on *host*, or on this machine.
    Generated files are written to the caller's cache, those of a document that is kept to *stage_dir*.
    Errors: `UsageError` (codes `unknown-format`; `other-layout` for a plan with another layout than that of the form;
    `other-runtime` for a *start* by another runtime; `format-without-image`); `RuntimeLimitError` for a
    plan that the runtime cannot express, or `no-stage-dir`; `OutputError`.
    """
    from gpubind.documents import LASTING, PLAN_DOCUMENTS
    from gpubind.runtimes import PLAN_FORMATS, is_of_kind, runtime_of_format

    if form in PLAN_DOCUMENTS:
        return PLAN_DOCUMENTS[form].render(plan)
    from gpubind.launch.prepare import layout_of, start_on, with_words
    from gpubind.launch.render import PrintForm, files_of, render_mounts, render_start

    if form in LASTING and LASTING[form].says == "mounts":
        if plan.layout != CDI:
            raise _other_layout(plan, f"a document `{form}` has", f"layout=open_layout(host, {form!r})")
        return render_mounts(PrintForm(form, stage_dir=stage_dir), plan)
    if form not in PLAN_FORMATS:
        raise _not_rendered(form)
    host = host or open_host()
    runtime = runtime_of_format(form)
    if start is not None and not is_of_kind(start.runtime.name, form):
        what = f"`{form}` is not a format of {start.runtime.name}, which the start is by"
        hint = f"plan and render with start=open_runtime(host, {runtime.name!r})"
        raise UsageError("other-runtime", what, hint=hint)
    start = start or start_on(host, runtime, ())
    _held_against(layout_of(start, image), plan, runtime.name)
    printed = PrintForm(form, stage_dir=stage_dir)
    return render_start(printed, with_words(host, plan, start, image, files_of(printed)))[1]


def _not_rendered(form: str) -> UsageError:
    from gpubind.documents import FORMATS, LASTING, PLAN_DOCUMENTS
    from gpubind.runtimes import PLAN_FORMATS

    if form in FORMATS:
        why = "it is for people" if form == "table" else "it depends on the environment of the caller"
        hint = "`tsv` has the same in columns" if form == "table" else f"`gpubind plan --format {form}`"
        return UsageError("unknown-format", f"`{form}` is printed only by the command line", why=why, hint=hint)
    mounts = (name for name, lasting in LASTING.items() if lasting.says == "mounts")
    return unknown_format(form, (*PLAN_DOCUMENTS, *mounts, *PLAN_FORMATS))


def _other_layout(plan: Plan, whose: str, hint: str) -> UsageError:
    what = f"the plan is for the layout `{plan.layout}`, and {whose} another"
    return UsageError("other-layout", what, hint=f"plan with {hint}")


def _held_against(layout: Layout, plan: Plan, name: str) -> None:
    """Errors: `UsageError` (code `other-layout`) where the runtime called *name* has *layout*, and *plan* another."""
    if layout.name != plan.layout:
        raise _other_layout(plan, f"containers of {name} have", f"start=open_runtime(host, {name!r})")
    if layout.isolated != plan.isolated and any(variable.name in GPU_VARIABLES for variable in plan.env):
        nodes = ("those of all GPUs", "the planned nodes alone")
        what = f"the plan is for a /dev with {nodes[plan.isolated]}, and this start's has {nodes[layout.isolated]}"
        why = "the variables that choose GPUs would name others"
        raise UsageError("other-layout", what, why=why, hint=f"plan with start=open_runtime(host, {name!r}, ...)")


@verb
def start(
    image: str,
    command: Sequence[str] = (),
    *,
    backend: str = "auto",
    arguments: Sequence[str] = (),
    request: Request = Request(),  # noqa: B008 - a frozen value
    listfile: Optional[ListFile] = None,
    host: Optional[Host] = None,
    require_gpu: bool = False,
    check: bool = False,
    allow_writable: bool = False,
    dry_run: bool = False,
) -> Command:
    """Replace this process by a container of *image* that runs *command*, or what the image runs by default.

    *backend* is the name of a runtime, or `auto`: the first in PATH that starts such an image. *arguments* are the
    runtime's own. *check*: start nothing on an error finding. Findings and warnings go to the logger `gpubind`.
    With *dry_run*, nothing is started or written: the command is returned, with a placeholder for each generated file.
    Errors: `UsageError` (`unknown-backend`, `host-to-start` for a recorded host); `CheckError` (`check-failed`,
    `gpu-required`), whose `findings` are the reasons; `CommandError` for a program that the image lacks;
    `RuntimeLimitError`; `StartError`; those of `open_image` and `plan`.
    """
    from gpubind.launch.choose import read_start
    from gpubind.launch.start import become, make_command

    host = host or open_host()
    asked, found = _asked(
        host,
        Query(request, listfile),
        dry_run=dry_run,
        arguments=tuple(arguments),
        require_gpu=require_gpu,
        check=check,
        allow_writable=allow_writable,
    )
    action: Action = "exec" if command else "run"
    line = read_start(action, (image, *command), backend, asked.environ, elsewhere=asked.elsewhere)
    result = make_command(asked, action, line)
    if not dry_run:
        become(result)
    return result._replace(findings=tuple(found))


@verb
def wrap(
    argv: Sequence[str],
    *,
    environ: Optional[Mapping[str, str]] = None,
    host: Optional[Host] = None,
    request: Request = Request(),  # noqa: B008 - a frozen value
    listfile: Optional[ListFile] = None,
    require_gpu: bool = False,
    check: bool = False,
    allow_writable: bool = False,
    dry_run: bool = False,
) -> Command:
    """Return *argv*, the command line of a runtime, with the plan in the place of its GPU flags. Nothing is started.

    `changed` is false for a line that `gpubind wrap` would start as it is. *environ* is the environment of the start
    on this machine; without it, that of *host*, or of this process. An image that is missing is pulled, and generated
    files are written, unless *dry_run*. Findings and warnings are `findings` of the result; all messages also go to the
    logger `gpubind`. Errors: `UsageError` (`wrong-use` for both *host* and *environ*; `host-to-start`; those of a line
    that cannot be read); those of `start`.
    """
    from gpubind.launch.execute import this_package
    from gpubind.launch.start import written
    from gpubind.launch.wrap.start import command_of_line

    if host is not None and environ is not None:
        hint = "give the environment to the host: open_host(environ=...)"
        raise UsageError("wrong-use", "wrap is given both a host and an environment", hint=hint)
    host = host or open_host(environ=environ)
    asked, found = _asked(
        host,
        Query(request, listfile),
        dry_run=dry_run,
        require_gpu=require_gpu,
        check=check,
        allow_writable=allow_writable,
    )
    words = tuple(argv)

    def again() -> Sequence[str]:
        if request != Request() or listfile is not None or require_gpu or check or allow_writable:
            what = "the line starts its runtime in another environment, where gpubind is only a command line"
            hint = "wrap the arguments after that program, or leave the request to GPUBIND_... variables"
            raise UsageError("wrap-elsewhere", what, where=" ".join(words[:1]), hint=hint)
        return (*this_package(), "wrap", "--")

    result, _ = command_of_line(words, asked.environ, lambda: asked, again, asked.report)
    return result._replace(argv=result.argv if dry_run else written(result), findings=tuple(found))


def _asked(host: Host, query: Query, *, dry_run: bool, **more: Any) -> tuple[StartRequest, list[Finding]]:
    """Return the request for a start on *host*, and the list to which its messages go as findings.

    Errors: `UsageError` (code `host-to-start`).
    """
    from gpubind.launch.prepare import environ_of
    from gpubind.launch.target import StartRequest, collecting

    found: list[Finding] = []
    elsewhere = host.local is None
    if elsewhere and not dry_run:
        raise UsageError("host-to-start", "nothing can be started on a recorded host", hint="add dry_run=True")
    environ = environ_of(host)
    request = StartRequest(
        lambda: host, query, environ, elsewhere=elsewhere, dry_run=dry_run, report=collecting(found, _log), **more
    )
    return request, found


def _log(message: Message) -> None:
    """Give *message*, about a start, to the logger `gpubind`."""
    import logging

    from gpubind.documents.text import printable, render_line

    severity = "warning" if isinstance(message, GpubindError) else message.severity
    if isinstance(message, Finding):
        text = render_line(message).rstrip()
    else:
        text = printable(str(message) if isinstance(message, GpubindError) else f"{message.code}: {message.text}")
    level = {"error": logging.ERROR, "warning": logging.WARNING}.get(severity, logging.INFO)
    logger = logging.getLogger("gpubind")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())  # without any, logging writes warnings to standard error
    logger.log(level, "%s", text)


@verb
def check(
    host: Host,
    plan: Plan,
    image: Optional[Image] = None,
    *,
    backend: Optional[str] = None,
    arguments: Sequence[str] = (),
    allow_writable: bool = False,
    program: Optional[str] = None,
    try_: bool = False,
) -> tuple[Finding, ...]:
    """Return what will not work with *plan* on *host*, in *image* if one is given: errors first, then by code.

    *backend* is the name of the runtime that will start it, with the user's own *arguments* for it: the plan should be
    one for that runtime (see `open_runtime`). *allow_writable*: a runtime without a read-only bind will do. *program*
    is what will run, as the image has it. *try_*: a container is started by that runtime, or by the first that starts
    such an image, and what its loader and the driver say there is compared with what is predicted.
    Errors: `UsageError` (codes `program-without-image`, `try-without-image`, `unknown-backend`, `incomplete-argument`;
    `other-host` for a plan whose driver is not on *host*; with *try_* `host-to-start`, and `other-layout` as in
    `words`); with *try_* also `RuntimeLimitError` for a runtime that is missing, or cannot express the plan.
    """
    if program is not None and image is None:
        raise UsageError("program-without-image", "a program is looked for in an image, and none is given")
    from gpubind.documents.notebook import Findings
    from gpubind.launch.prepare import layout_of, preflight_on
    from gpubind.rules.table import check as apply_rules
    from gpubind.runtimes import known_runtime

    runtime = known_runtime(backend) if backend is not None else None
    line = _trial(host, image, backend) if try_ else None
    words = tuple(arguments)
    found = preflight_on(
        host,
        plan,
        image,
        line.runtime if line is not None else runtime,
        words,
        allow_writable=allow_writable,
        program=program,
    )
    if line is not None and found.start is not None:
        from gpubind.launch.trial import try_start

        _held_against(layout_of(found.start, image), plan, line.runtime.name)
        found.trial = try_start(found, line.image)
    return Findings(apply_rules(found))


def _trial(host: Host, image: Optional[Image], backend: Optional[str]) -> StartLine:
    """Return how *image* is started on *host* to try it. Errors: as `need_to_try` and `read_trial`."""
    from gpubind.launch.prepare import environ_of
    from gpubind.launch.trial import need_to_try, read_trial

    label = image.facts.label if image is not None else None
    return read_trial(need_to_try(label, is_recorded=host.local is None), backend, environ_of(host))


@verb
def needs(image: Image, program: Optional[str] = None) -> ImageNeeds:
    """Return what *image* asks of a host, or what *program* in it does: a path, or a name in the image's PATH.

    Errors: `HostReadError` (code `program-not-found`).
    """
    from gpubind.image.needs import read_needs

    return read_needs(image, program)


@verb
def check_document(
    plan: Plan,
    findings: Sequence[Finding],
    image: Optional[Image] = None,
    *,
    host: Optional[str] = None,
    reference: Optional[str] = None,
    program: Optional[str] = None,
    backend: Optional[str] = None,
) -> dict[str, Any]:
    """Return the document `gpubind.check/1` of the *findings* of `check`: that of `gpubind check --json`.

    *host* and *reference*, of the image, are the names by which people know them. Its `gpu_code` is that of the
    frameworks in the image.
    """
    from gpubind.documents.check.report import check_document as document
    from gpubind.image.gpucode import read_gpu_code
    from gpubind.rules.outcome import checked_in, report_of

    named = {"host": host, "image": reference, "program": program, "runtime": backend}
    report = report_of(plan, findings, {}, checked=checked_in(image, **named))
    return document(report._replace(gpu_code=() if image is None else read_gpu_code(image)))


@verb
def diff(plans: Mapping[str, Plan]) -> Comparison:
    """Return the groups of equal *plans*, by the names of their hosts, and in what the others differ.

    What is compared is what `gpubind diff` compares of documents of plans.
    """
    from gpubind.documents.diff.comparison import compare
    from gpubind.documents.diff.snapshot import snapshot_of

    return compare(snapshot_of(name, plan) for name, plan in plans.items())
