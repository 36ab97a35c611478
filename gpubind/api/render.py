"""render: a plan as text for a program."""

from __future__ import annotations

from typing import Optional

from gpubind.api.layout import need_layout, other_layout
from gpubind.api.verb import verb
from gpubind.errors import UsageError, unknown_format
from gpubind.host import Host
from gpubind.host.open import open_host
from gpubind.image.facts import Image
from gpubind.model import Plan
from gpubind.planner.placement import CDI
from gpubind.runtimes.runtime import Start


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
            raise other_layout(plan, f"a document `{form}` has", f"layout=open_layout(host, {form!r})")
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
    need_layout(layout_of(start, image), plan, runtime.name)
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
