"""`plan --format` of a runtime's words. No `from __future__ import annotations`: see options.py."""

from typing import TYPE_CHECKING, NamedTuple, Optional

from gpubind.cli.declarations import PlanOptions
from gpubind.cli.options import open_host_of, open_image_of, query_of

if TYPE_CHECKING:
    from gpubind.model import Plan


PLACES = ("HOME", "TMPDIR", "XDG_CACHE_HOME")
"""Where generated files go: these are here, whatever host is planned for."""


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
    """The directory where the generated files of a document may stay."""


def plan_in_words(options: PlanOptions, image: Optional[str], wanted: WordsOf) -> tuple["Plan", str]:
    """Return the plan, and its words for the runtime that a format names, beside the user's arguments for it."""
    from gpubind.launch.caller import begin
    from gpubind.launch.execute import callers_environ, find_program
    from gpubind.launch.preparation import NOT_LATER, Later, host_for, layout_of, rendered
    from gpubind.planner.planning import plan_host
    from gpubind.runtimes import KEPT, runtime_of_format

    runtime = runtime_of_format(wanted.chosen)
    host = open_host_of(options)
    opened = open_image_of(image, host)
    callers = callers_environ()
    if options.host is not None:  # the same host, the same words: whoever asks, and wherever
        callers = {name: value for name, value in callers.items() if name in PLACES}
    environ = runtime.environ_of(wanted.chosen, callers)
    program = find_program(runtime.name, environ) if options.host is None else None
    start = begin(runtime, program, wanted.arguments, environ, host).allowing(wanted.allow_writable)
    host = host_for(host, start, opened)
    made = plan_host(host, query_of(options), opened, layout_of(start, opened))
    later = Later(wanted.chosen, wanted.stage_dir) if wanted.chosen in KEPT else NOT_LATER
    return rendered(wanted.chosen, start, host, made, opened, quoted=wanted.quoted, later=later)
