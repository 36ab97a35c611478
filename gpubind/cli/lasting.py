"""`plan --format` of documents that somebody reads later. No `from __future__ import annotations`: see options.py."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Optional

from gpubind.cli.declarations import PlanOptions
from gpubind.cli.options import open_host_of, open_image_of, query_of
from gpubind.documents import LASTING
from gpubind.errors import HostReadError, UsageError
from gpubind.model import ContainerPath, HostPath
from gpubind.model.answers import may

if TYPE_CHECKING:
    from gpubind.model import Plan


class DocumentRequest(NamedTuple):
    """What `plan` is asked for, beside the options of every plan."""

    format: str
    """One of `LASTING`."""
    image: Optional[str]
    cdi_hook: Optional[str]
    """Where nvidia-cdi-hook is, if it is to be used."""
    stage_dir: Optional[str]
    """Where generated files may stay, as the user wrote it."""


def plan_to_last(options: PlanOptions, asked: DocumentRequest) -> tuple["Plan", str]:
    """Return the plan, and the document that says it."""
    if LASTING[asked.format].says == "variables":
        return _as_variables(options, asked)
    return _as_mounts(options, asked)


def _as_mounts(options: PlanOptions, asked: DocumentRequest) -> tuple["Plan", str]:
    """Return a plan whose libraries lie where every loader looks: the document can add to no search path."""
    from gpubind.planner.placement import cdi_layout
    from gpubind.planner.planning import plan_host

    hook = asked.cdi_hook
    if options.libdir is not None and hook is None:
        is_spec = asked.format == "cdi"
        what = f"--libdir cannot move the libraries of {'a CDI spec' if is_spec else f'--format {asked.format}'}"
        why = f"{'a spec' if is_spec else 'it'} cannot add to a search path, and no loader looks there by itself"
        hint = "give --cdi-hook, too, where nvidia-cdi-hook is installed" if is_spec else "leave --libdir out"
        raise UsageError("fixed-libdir", what, why=why, hint=hint)
    if hook is not None:
        _need_hook(hook)
    options = _for_every_job(options)
    host = open_host_of(options)
    opened = open_image_of(asked.image, host)
    layout = cdi_layout(host.uname.machine, opened.facts.loader_directories if opened else None)
    if hook is not None:
        where = ContainerPath("/.gpubind/libs")
        layout = layout._replace(libdir=where, more_libdirs=(), searched=False)
    made = plan_host(host, query_of(options), opened, layout)
    more = (HostPath(hook),) if hook else ()
    return made, LASTING[asked.format].document.render(made, _staged(made.generated, asked, {}), *more)


def _need_hook(hook: str) -> None:
    """Errors: `HostReadError` (code `no-cdi-hook`) for one that no runtime could run, or that root's should not."""
    from gpubind.files.trust import is_obeyed

    hint = "leave --cdi-hook out: libraries then lie where every loader looks"
    if not (os.path.isabs(hook) and may(hook, os.X_OK)):
        raise HostReadError("no-cdi-hook", "there is no such program", where=hook, hint=hint)
    if not is_obeyed(hook):
        why = "users other than root could change it, and every container's runtime would run it as root"
        raise HostReadError("no-cdi-hook", "others than root can change the program", where=hook, why=why, hint=hint)


def _as_variables(options: PlanOptions, asked: DocumentRequest) -> tuple["Plan", str]:
    """Return a plan for the Apptainer or SingularityCE of this host, as variables that it reads."""
    from gpubind.launch.caller import begin
    from gpubind.launch.execute import callers_environ, find_program
    from gpubind.launch.preparation import host_for, layout_of, without_choice
    from gpubind.planner.planning import plan_host
    from gpubind.runtimes import BY_VARIABLES, RUNTIMES
    from gpubind.runtimes.runtime import Printed, Stage

    row = LASTING[asked.format]
    callers = callers_environ()
    programs = {name: find_program(name, callers) for name in BY_VARIABLES if options.host is None}
    name = next((name for name, program in programs.items() if program), BY_VARIABLES[0])
    # A module is for every caller: what this one's environment says is not in it.
    environ = {} if row.is_kept else RUNTIMES[name].environ_of(f"{name}-env", callers)
    host = open_host_of(options)
    start = begin(RUNTIMES[name], programs.get(name), (), environ, host)
    opened = open_image_of(asked.image, host)
    if row.is_kept:
        options, host = _for_every_job(options), without_choice(host)  # each job's own stay as they are
    else:
        host = host_for(host, start, opened)
    made = plan_host(host, query_of(options), opened, layout_of(start, opened))
    start = start._replace(tree=opened.tree if opened else None)
    contents = {**made.generated, **start.runtime.generated(made, start)}
    start = start._replace(stage=Stage(_staged(contents, asked, callers)))
    words = start.runtime.words(made, start)
    assert words is not None
    made = made._replace(findings=(*made.findings, *words.findings))
    return made, row.document.render(Printed(words, start, host, made), callers)


def _for_every_job(options: PlanOptions) -> PlanOptions:
    """*options* for a document that is for every job: what chooses GPUs in this one's does not count."""
    return options._replace(gpus="all") if options.gpus is None and not options.cdi_device else options


def _staged(
    contents: Mapping[ContainerPath, str], asked: DocumentRequest, environ: Mapping[str, str]
) -> Mapping[ContainerPath, HostPath]:
    """Return where the generated files of a document are now. Errors: as `write_generated`."""
    from gpubind.launch.preparation import Later, write_generated

    kept_as = asked.format if LASTING[asked.format].is_kept else None
    return write_generated(contents, environ, Later(kept_as, asked.stage_dir))
