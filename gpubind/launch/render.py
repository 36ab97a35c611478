"""Print a plan for another program: as a runtime's arguments, or as a document that is read later."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from gpubind.documents import LASTING
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.image.facts import Image
from gpubind.launch.caller import begin
from gpubind.launch.execute import callers_environ, find_program
from gpubind.launch.prepare import Files, prepare, without_choice, write_generated
from gpubind.model import ContainerPath, Finding, HostPath, Plan
from gpubind.planner.placement import cdi_layout
from gpubind.planner.planning import Query, plan_host, plan_or_empty
from gpubind.runtimes import BY_VARIABLES, KEPT, PLAN_FORMATS, RUNTIMES, runtime_of_format
from gpubind.runtimes.runtime import Prepared

_PLACES = ("HOME", "TMPDIR", "XDG_CACHE_HOME")
"""Where generated files are written: the caller's, whichever host is planned for."""


class PrintForm(NamedTuple):
    """How a plan is printed for another program."""

    name: str
    """The format, of `PLAN_FORMATS` or `LASTING`."""
    arguments: tuple[str, ...] = ()
    """The user's own, for the runtime."""
    allow_writable: bool = False
    quoted: bool = False
    """Whether for a shell's `eval`."""
    stage_dir: Optional[str] = None
    """The directory for the generated files of a document that is kept."""
    cdi_hook: Optional[str] = None
    """The path of nvidia-cdi-hook, if it is to be used."""
    allow_none: bool = False
    """Whether a host without a GPU has a document that brings nothing."""


def print_plan(form: PrintForm, host: Host, query: Query, image: Optional[Image]) -> tuple[Plan, str]:
    """Return the plan, and its text. Errors: as `prepare` and `render_start`."""
    if form.name in PLAN_FORMATS:
        return _for_runtime(form, host, query, image)
    if LASTING[form.name].says == "variables":
        return _as_variables(form, host, query, image)
    layout = cdi_layout(host.uname.machine, image.facts.loader_directories if image is not None else None)
    if form.cdi_hook is not None:
        layout = layout._replace(libdir=ContainerPath("/.gpubind/libs"), more_libdirs=(), searched=False)
    plan = (plan_or_empty if form.allow_none else plan_host)(host, _for_every_job(query), image, layout)
    if not plan.drivers:
        plan = plan._replace(findings=tuple(one._replace(severity="note") for one in plan.findings))
    return plan, render_mounts(form, plan)


def _for_runtime(form: PrintForm, host: Host, query: Query, image: Optional[Image]) -> tuple[Plan, str]:
    runtime = runtime_of_format(form.name)
    callers = callers_environ()
    if host.local is None:  # the text for a recorded host is the same for every caller
        callers = {name: value for name, value in callers.items() if name in _PLACES}
    environ = runtime.environ_of(form.name, callers)
    program = find_program(runtime.name, environ) if host.local is not None else None
    start = begin(runtime, program, form.arguments, environ, host).allowing(form.allow_writable)
    return render_start(form, prepare(host, query, start, image, files_of(form)))


def render_start(form: PrintForm, prepared: Prepared) -> tuple[Plan, str]:
    """Return the plan of *prepared* with all findings, and its text for a runtime. Errors: as `Runtime.render`."""
    runtime = runtime_of_format(form.name)  # that of the start may be another program of the same kind
    prepared = _with_findings(prepared, runtime.findings_of(form.name, prepared))
    return prepared.plan, runtime.render(form.name, prepared, quoted=form.quoted)


def _with_findings(prepared: Prepared, more: Iterable[Finding] = ()) -> Prepared:
    plan = prepared.plan
    return prepared._replace(plan=plan._replace(findings=(*plan.findings, *prepared.words.findings, *more)))


def render_mounts(form: PrintForm, plan: Plan) -> str:
    """Return *plan* as a document of mounts. Its libraries are where every loader searches: it can add no directory."""
    more = (HostPath(form.cdi_hook),) if form.cdi_hook is not None else ()
    return LASTING[form.name].document.render(plan, write_generated(plan.generated, {}, files_of(form)), *more)


def files_of(form: PrintForm) -> Files:
    """Return where the generated files of a text in *form* are written."""
    if form.name in KEPT or (form.name in LASTING and LASTING[form.name].is_kept):
        return Files(kept_as=form.name, stage_dir=form.stage_dir)
    return Files(stage_dir=form.stage_dir if form.name in LASTING else None)


def _as_variables(form: PrintForm, host: Host, query: Query, image: Optional[Image]) -> tuple[Plan, str]:
    """Return the plan for the Apptainer or SingularityCE of this host, and the variables that it reads."""
    row = LASTING[form.name]
    callers = callers_environ()
    programs = {name: find_program(name, callers) for name in BY_VARIABLES if host.local is not None}
    name = next((name for name, program in programs.items() if program), BY_VARIABLES[0])
    # A module is for every caller: it depends on no variable of this one's.
    environ = {} if row.is_kept else RUNTIMES[name].environ_of(f"{name}-env", callers)
    start = begin(RUNTIMES[name], programs.get(name), (), environ, host)
    if row.is_kept:
        query, host = _for_every_job(query), without_choice(host)  # each job keeps its own
    prepared = _with_findings(prepare(host, query, start, image, files_of(form)._replace(environ=callers)))
    return prepared.plan, row.document.render(prepared, callers)


def _for_every_job(query: Query) -> Query:
    """Return *query* for a document for every job: the variables that choose GPUs for this one are ignored."""
    request = query.request
    if request.gpus is not None or request.cdi_devices:
        return query
    return query._replace(request=request._replace(gpus="all"))
