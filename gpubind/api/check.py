"""check: what will not work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from gpubind.api.layout import need_layout
from gpubind.api.verb import verb
from gpubind.errors import UsageError
from gpubind.host import Host
from gpubind.model import Finding, Plan

if TYPE_CHECKING:
    from gpubind.image.facts import Image
    from gpubind.launch.choose import StartLine


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

        need_layout(layout_of(found.start, image), plan, line.runtime.name)
        found = found.with_trial(try_start(found, line.image))
    return Findings(apply_rules(found))


def _trial(host: Host, image: Optional[Image], backend: Optional[str]) -> StartLine:
    """Return how *image* is started on *host* to try it. Errors: as `need_to_try` and `read_trial`."""
    from gpubind.launch.prepare import environ_of
    from gpubind.launch.trial import need_to_try, read_trial

    label = image.facts.label if image is not None else None
    return read_trial(need_to_try(label, is_recorded=host.local is None), backend, environ_of(host))


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
