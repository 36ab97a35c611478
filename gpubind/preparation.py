"""A start, from a runtime and its facts to what the rules look at: the steps that a check and a start have in common.

`begin` (caller) -> `layout_of`, `host_for` -> the plan -> `staged` -> `words_of` -> `preflight_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Optional

from gpubind.caller import begin, writable_files
from gpubind.errors import RuntimeLimitError
from gpubind.execute import callers_environ, find_program
from gpubind.formats.gpu_variables import GPU_VARIABLES, LIBRARY_VARIABLES
from gpubind.host import Host
from gpubind.image import Image
from gpubind.ldso.brought import Brought
from gpubind.model import ContainerPath, HostPath, Plan
from gpubind.planner.placement import Layout
from gpubind.rules import Preflight, preflight
from gpubind.runtimes import RUNTIMES
from gpubind.runtimes.edits import Words
from gpubind.runtimes.record import STAGED_DIRECTORY, Command, Runtime
from gpubind.runtimes.start import Start
from gpubind.stage import stage, stage_alone, stage_skeleton
from gpubind.tree import Tree

USUAL = next(iter(RUNTIMES))
"""What a runtime of which nothing is known is mostly like."""


def start_on(host: Host, runtime: Runtime, arguments: tuple[str, ...]) -> Start:
    """A start by *runtime* on *host*, with the facts of this machine; of another machine nothing is known."""
    if host.local is None:
        return begin(runtime, None, arguments, {})
    environ = callers_environ()
    return begin(runtime, find_program(runtime.name, environ), arguments, environ)


def first_installed(environ: Mapping[str, str], *, bundle: bool = False) -> Optional[Runtime]:
    """The runtime that `--backend auto` means: the first whose program is in PATH; None if there is none.

    *bundle*: whether the image is an OCI bundle, which some runtimes alone start, and these start nothing else.
    """
    able = (name for name in RUNTIMES if (RUNTIMES[name].images == ("bundle",)) == bundle)
    return next((RUNTIMES[name] for name in able if find_program(name, environ)), None)


def layout_of(start: Start, host: Host, image: Optional[Image]) -> Layout:
    """Where a plan for *start* lands, and whether the container's /dev will hold the planned nodes alone."""
    runtime = RUNTIMES[start.program]
    if image is None and runtime.blind_layout is not None:
        return runtime.blind_layout(host.uname.machine)
    return runtime.layout(start)


def host_for(host: Host, start: Start, image: Optional[Image]) -> Host:
    """*host* to plan for. Where something else chooses GPUs in the container, the caller's variables choose none.

    As with --nv: the user's `--env CUDA_VISIBLE_DEVICES=1`, or such a line in an environment file of the image's,
    counts among all GPUs, so all of them must be there. With --cleanenv the caller's variables stay outside.
    """
    facts = image.facts if image is not None else None
    images = {*facts.env, *facts.undecided}.intersection(LIBRARY_VARIABLES) if facts is not None else ()
    overrides = RUNTIMES[start.program].overrides
    if host.local is None or not (images or any(overrides(start, name) for name in GPU_VARIABLES)):
        return host
    return without_choice(host)


def without_choice(host: Host) -> Host:
    """*host* without the caller's variables that choose GPUs."""
    made = copy(host)
    made.environ = {name: value for name, value in host.environ.items() if name not in GPU_VARIABLES}
    return made


def staged(start: Start, plan: Plan, image: Optional[Image], *, write: bool) -> Start:
    """*start* with the configuration of *image*, if that is a bundle, and the places of generated files: the plan's and
    its own, which are written if *write*.

    Errors: `OutputError` (code `unwritable-file`).
    """
    runtime = RUNTIMES[start.program]
    contents = {**plan.generated, **runtime.generated(plan, start, _tree(image))}
    places_of_files = runtime.skeleton(plan, start, _tree(image))
    places: Mapping[ContainerPath, HostPath]
    if write:
        places = stage(contents, start.environ)
    else:
        places = {target: HostPath(f"<generated>{target}") for target in contents}
    start = start._replace(staged=places, bundle=image.bundle if image is not None else None)
    if places_of_files:
        made = stage_skeleton(places_of_files, start.environ) if write else HostPath("<generated>")
        start = start._replace(skeleton=made)
    if runtime.limits.no_read_only_bind:
        start = start._replace(writable=writable_files(plan))
    return start


def written(command: Command) -> tuple[str, ...]:
    """The words of *command*, with its file written. Errors: `OutputError` (code `unwritable-file`)."""
    if command.file is None:
        return command.argv
    place = stage_alone(command.file.name, command.file.content, command.environ)
    return tuple(place if word == STAGED_DIRECTORY else word for word in command.argv)


def words_of(start: Start, plan: Plan, image: Optional[Image]) -> Optional[Words]:
    """*plan* in the words of the runtime of *start*; None where an image would be needed to tell them.

    Errors: `RuntimeLimitError` for what the runtime cannot say.
    """
    return RUNTIMES[start.program].words(plan, start, _tree(image))


def line_words_of(start: Start, plan: Plan, image: Optional[Image]) -> tuple[Optional[Words], bool]:
    """*plan* in words for a command line of the user's, whose options are those of *start*; whether these are among
    the words, else they stay in front of them. Errors: as `words_of`.
    """
    in_line = RUNTIMES[start.program].in_line
    if in_line is None:
        return words_of(start, plan, image), False
    return in_line(plan, start, _tree(image)), True


def brought_by(start: Start, plan: Plan, image: Optional[Image]) -> Optional[Brought]:
    """What *start* brings into the container beside *plan*; None if that is not known."""
    return RUNTIMES[start.program].brought(plan, start, _tree(image))


def preflight_of(
    host: Host,
    plan: Plan,
    image: Optional[Image],
    runtime: Optional[Runtime],
    start: Optional[Start],
    program: Optional[str],
) -> Preflight:
    """What the rules look at where nothing is started yet: nothing is written, and *runtime* may be missing here."""
    if runtime is None or start is None:
        name = runtime.name if runtime is not None else None
        is_here = runtime is None and host.local is not None and program is not None
        brought = _usually_brought(plan) if is_here else None
        return preflight(host, plan, image, backend=name, program=program, brought=brought)
    start = staged(start, plan, image, write=False)
    brought = brought_by(start, plan, image) if host.local is not None else None
    made = preflight(host, plan, image, backend=runtime.name, start=start, program=program, brought=brought)
    if host.local is not None and find_program(runtime.name, start.environ) is None:
        hint = "install it, or name another with --backend"
        made = made._replace(limit=RuntimeLimitError("no-runtime", "it is not in PATH", hint=hint))
    return made


def _usually_brought(plan: Plan) -> Optional[Brought]:
    """What a runtime of which nothing is known mostly brings: Apptainer's home, working directory and /tmp."""
    environ = callers_environ()
    places: dict[str, str] = {name: environ[name] for name in ("HOME", "PWD") if name in environ}
    return brought_by(begin(RUNTIMES[USUAL], None, (), places), plan, None)


def _tree(image: Optional[Image]) -> Optional[Tree]:
    return image.tree if image is not None else None
