"""render: a plan as the arguments of a runtime, or as a document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from gpubind.api.layout import need_layout, other_layout
from gpubind.api.verb import verb
from gpubind.documents import FORMATS, PERSISTENT_DOCUMENTS, PLAN_DOCUMENTS
from gpubind.errors import UsageError, unknown_format
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.host.open import open_host
from gpubind.image.facts import Image
from gpubind.launch.caller import read_start_facts
from gpubind.launch.execute import callers_environ, find_program
from gpubind.launch.prepare import (
    FilePolicy,
    layout_of,
    make_start,
    prepare,
    prepare_with_plan,
    without_gpu_variables,
    write_generated,
)
from gpubind.model import ContainerPath, Finding, HostPath, Plan
from gpubind.planner.placement import CDI_LAYOUT_NAME, cdi_layout
from gpubind.planner.planning import PlanQuery, plan_host, plan_or_empty
from gpubind.runtimes import (
    DOCUMENT_FORMATS,
    ENV_RUNTIMES,
    PLAN_FORMATS,
    RUNTIMES,
    format_fits_runtime,
    runtime_of_format,
)
from gpubind.runtimes.runtime import PreparedStart, Start

_PLACES = ("HOME", "TMPDIR", "XDG_CACHE_HOME")
"""The variables that determine where generated files are written: those of the caller, for any host."""


class PrintForm(NamedTuple):
    """The format of a plan for another program, and its options."""

    name: str
    """The format, of `PLAN_FORMATS` or `PERSISTENT_DOCUMENTS`."""
    arguments: tuple[str, ...] = ()
    """The user's arguments for the runtime."""
    allow_writable: bool = False
    quoted: bool = False
    """Whether to quote for a shell's `eval`."""
    stage_dir: Optional[str] = None
    """The directory for the generated files of a persistent document."""
    cdi_hook: Optional[str] = None
    """The path of nvidia-cdi-hook, if it is used."""
    allow_none: bool = False
    """Whether a host without a GPU has a document without mounts."""


def print_plan(form: PrintForm, host: Host, query: PlanQuery, image: Optional[Image]) -> tuple[Plan, str]:
    """Return the plan and its text. Errors: as `prepare` and `_render_start`."""
    if form.name in PLAN_FORMATS:
        return _for_runtime(form, host, query, image)
    if PERSISTENT_DOCUMENTS[form.name].content == "variables":
        return _as_variables(form, host, query, image)
    layout = cdi_layout(host.uname.machine, image.facts.loader_directories if image is not None else None)
    if form.cdi_hook is not None:
        layout = layout._replace(libdir=ContainerPath("/.gpubind/libs"), more_libdirs=(), searched=False)
    plan = (plan_or_empty if form.allow_none else plan_host)(host, _for_every_job(query), image, layout)
    if not plan.drivers:
        plan = plan._replace(findings=tuple(finding._replace(severity="note") for finding in plan.findings))
    return plan, _render_mounts(form, plan)


def _for_runtime(form: PrintForm, host: Host, query: PlanQuery, image: Optional[Image]) -> tuple[Plan, str]:
    runtime = runtime_of_format(form.name)
    callers = callers_environ()
    if host.local is None:  # the text for a recorded host is the same for every caller
        callers = {name: value for name, value in callers.items() if name in _PLACES}
    environ = runtime.render_environ(form.name, callers)
    program = find_program(runtime.name, environ) if host.local is not None else None
    start = read_start_facts(runtime, program, form.arguments, environ, host, allow_writable=form.allow_writable)
    return _render_start(form, prepare(host, query, start, image, files_of(form)))


def _render_start(form: PrintForm, prepared: PreparedStart) -> tuple[Plan, str]:
    """Return the plan of *prepared* with all findings, and its text for a runtime. Errors: as `Runtime.render`."""
    runtime = runtime_of_format(form.name)  # the start may be by another program of the same kind
    prepared = _with_findings(prepared, runtime.format_findings(form.name, prepared))
    return prepared.plan, runtime.render(form.name, prepared, quoted=form.quoted)


def _with_findings(prepared: PreparedStart, more: Iterable[Finding] = ()) -> PreparedStart:
    plan = prepared.plan
    return prepared._replace(plan=plan._replace(findings=(*plan.findings, *prepared.arguments.findings, *more)))


def _render_mounts(form: PrintForm, plan: Plan) -> str:
    """Return *plan* as a document of mounts. It cannot extend the loader's path: libraries are in standard
    directories.
    """
    more = (HostPath(form.cdi_hook),) if form.cdi_hook is not None else ()
    return PERSISTENT_DOCUMENTS[form.name].document.render(
        plan, write_generated(plan.generated, {}, files_of(form)), *more
    )


def files_of(form: PrintForm) -> FilePolicy:
    if form.name in DOCUMENT_FORMATS or (
        form.name in PERSISTENT_DOCUMENTS and PERSISTENT_DOCUMENTS[form.name].outlives_command
    ):
        return FilePolicy(kept_as=form.name, stage_dir=form.stage_dir)
    return FilePolicy(stage_dir=form.stage_dir if form.name in PERSISTENT_DOCUMENTS else None)


def _as_variables(form: PrintForm, host: Host, query: PlanQuery, image: Optional[Image]) -> tuple[Plan, str]:
    """Return the plan for the Apptainer or SingularityCE of this host, and the variables that it reads."""
    row = PERSISTENT_DOCUMENTS[form.name]
    callers = callers_environ()
    programs = {name: find_program(name, callers) for name in ENV_RUNTIMES if host.local is not None}
    name = next((name for name, program in programs.items() if program), ENV_RUNTIMES[0])
    # A module is for every caller: it depends on no variable of this caller.
    environ = {} if row.outlives_command else RUNTIMES[name].render_environ(f"{name}-env", callers)
    start = read_start_facts(RUNTIMES[name], programs.get(name), (), environ, host)
    if row.outlives_command:
        query, host = _for_every_job(query), without_gpu_variables(host)  # each job keeps its own
    prepared = _with_findings(prepare(host, query, start, image, files_of(form)._replace(environ=callers)))
    return prepared.plan, row.document.render(prepared, callers)


def _for_every_job(query: PlanQuery) -> PlanQuery:
    """Return *query*, for all GPUs if it names none: variables that choose GPUs are those of one job."""
    request = query.request
    if request.gpus is not None or request.cdi_devices:
        return query
    return query._replace(request=request._replace(gpus="all"))


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
    Generated files are written to the caller's cache, those of a persistent document to *stage_dir*.
    Errors: `UsageError` (codes `unknown-format`; `other-layout` for a plan with another layout than that of the form;
    `other-runtime` for a *start* by another runtime; `format-without-image`); `RuntimeLimitError` for a
    plan that the runtime cannot express, or `no-stage-dir`; `OutputError`.
    """
    if form in PLAN_DOCUMENTS:
        return PLAN_DOCUMENTS[form].render(plan)
    if form in PERSISTENT_DOCUMENTS and PERSISTENT_DOCUMENTS[form].content == "mounts":
        if plan.layout != CDI_LAYOUT_NAME:
            raise other_layout(plan, f"a document `{form}` has", f"layout=open_layout(host, {form!r})")
        return _render_mounts(PrintForm(form, stage_dir=stage_dir), plan)
    if form not in PLAN_FORMATS:
        raise _not_rendered(form)
    host = host or open_host()
    runtime = runtime_of_format(form)
    if start is not None and not format_fits_runtime(start.runtime.name, form):
        what = f"`{form}` is not a format of {start.runtime.name}, which the start is by"
        hint = f"plan and render with start=open_runtime(host, {runtime.name!r})"
        raise UsageError("other-runtime", what, hint=hint)
    start = start or make_start(host, runtime, ())
    need_layout(layout_of(start, image), plan, runtime.name)
    printed = PrintForm(form, stage_dir=stage_dir)
    return _render_start(printed, prepare_with_plan(host, plan, start, image, files_of(printed)))[1]


def _not_rendered(form: str) -> UsageError:
    if form in FORMATS:
        why = "it is for people" if form == "table" else "it depends on the environment of the caller"
        hint = "`tsv` has the same in columns" if form == "table" else f"`gpubind plan --format {form}`"
        return UsageError("unknown-format", f"`{form}` is printed only by the command line", why=why, hint=hint)
    mounts = (name for name, lasting in PERSISTENT_DOCUMENTS.items() if lasting.content == "mounts")
    return unknown_format(form, (*PLAN_DOCUMENTS, *mounts, *PLAN_FORMATS))
