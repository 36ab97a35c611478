"""`plan --format` of a runtime's words. No `from __future__ import annotations`: see options.py."""

from typing import TYPE_CHECKING, NamedTuple, Optional

from gpubind.cli.options import PlanOptions, make_plan, open_host_of, open_image_of
from gpubind.errors import UsageError

if TYPE_CHECKING:
    from gpubind.model import Plan


class WordsOf(NamedTuple):
    """How a plan is to be said."""

    chosen: str
    """The format, one of `PLAN_FORMATS`."""
    quoted: bool
    """Whether for a shell's `eval`."""
    arguments: tuple[str, ...]
    """The user's own, for the runtime."""
    allow_writable: bool
    stage_dir: Optional[str]
    """Where the generated files of a document may stay, an absolute path."""


def plan_in_words(options: PlanOptions, image: Optional[str], wanted: WordsOf) -> tuple["Plan", str]:
    """The plan, and its words for the runtime that a format names, beside the user's arguments for it."""
    from gpubind.caller import begin
    from gpubind.execute import callers_environ, find_program
    from gpubind.preparation import NOT_LATER, Later, host_for, layout_of, staged, words_of
    from gpubind.runtimes import KEPT, runtime_of_format
    from gpubind.runtimes.record import Printed

    runtime = runtime_of_format(wanted.chosen)
    form = runtime.forms[wanted.chosen]
    render = form.quoted if wanted.quoted and form.quoted else form.render
    host = open_host_of(options)
    opened = open_image_of(image, host)
    environ = form.environ_of(callers_environ())
    program = find_program(runtime.name, environ) if options.host is None else None
    start = begin(runtime, program, wanted.arguments, environ, host)._replace(allow_writable=wanted.allow_writable)
    host = host_for(host, start, opened)
    made = make_plan(options, host=host, image=opened, layout=layout_of(start, host, opened))
    later = Later(wanted.chosen, wanted.stage_dir) if wanted.chosen in KEPT else NOT_LATER
    start = staged(start, made, opened, write=True, later=later)
    if host.local is None and start.bundle is not None:
        start = start._replace(bundle=start.bundle._replace(is_writable=True))  # by whom, a record does not tell
    words = words_of(start, made, opened)
    if words is None:
        what = f"--format {wanted.chosen} edits what an image has, and no such image is given"
        raise UsageError("format-without-image", what, hint=f"give --image: {runtime.image_hint}")
    made = made._replace(findings=(*made.findings, *words.findings))
    return made, render(Printed(words, start, host, made))
