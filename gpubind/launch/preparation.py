"""A start, from a runtime and its facts to what the rules look at: the steps that a check and a start have in common.

`begin` (caller) -> `layout_of`, `host_for` -> the plan -> `staged` -> `Runtime.words` -> `preflight_of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, NamedTuple, Optional, Union

from gpubind.errors import HostReadError, RuntimeLimitError, UsageError
from gpubind.formats.driver.gpu_names import GPU_VARIABLES, LIBRARY_VARIABLES
from gpubind.host import Host
from gpubind.image import Image
from gpubind.image.open import nearest
from gpubind.launch.caller import begin, image_form, writable_files
from gpubind.launch.execute import callers_environ, find_program
from gpubind.launch.stage import stage, stage_alone, stage_in, stage_skeleton
from gpubind.loader.namespace import Brought
from gpubind.model import ContainerPath, Finding, HostPath, ImageFacts, Plan
from gpubind.model.answers import why_absent
from gpubind.planner.placement import Layout
from gpubind.runtimes import RUNTIMES, runtime_of_format
from gpubind.runtimes.runtime import STAGED_DIRECTORY, STORES, Command, ImageForm, Printed, Runtime, Stage, Start

if TYPE_CHECKING:
    from gpubind.rules.preflight import Preflight

WORDS_OF_FORMS: Mapping[Optional[ImageForm], str] = {
    "directory": "a directory",
    "file": "a file",
    "bundle": "an OCI bundle",
    "layout": "an OCI layout",
    "archive": "an archive of images",
    "reference": "an image of a store",
    "registry": "an image of a registry",
    "source": "an image of such a source",
    None: "images",
}
USUAL = next(iter(RUNTIMES))
"""What a runtime of which nothing is known is mostly like."""


def start_on(host: Host, runtime: Runtime, arguments: tuple[str, ...]) -> Start:
    """Return a start by *runtime* on *host*, with the facts of this machine; of another machine nothing is known."""
    environ = _environ_of(host)
    program = find_program(runtime.name, environ) if host.local is not None else None
    return begin(runtime, program, arguments, environ, host)


def _environ_of(host: Host) -> Mapping[str, str]:
    """Return the environment of the task that is planned for; of another machine's, nothing is known."""
    if host.task is not None:
        return host.task
    return callers_environ() if host.local is not None else {}


class ChosenRuntime(NamedTuple):
    """What `--backend auto` comes to."""

    runtime: Runtime
    image: str
    """As the runtime takes it."""
    why: str


def choose_runtime(image: str, environ: Mapping[str, str], *, elsewhere: bool = False) -> ChosenRuntime:
    """The first runtime of the table whose program is in PATH and that starts such an *image*; *elsewhere*, on another
    machine, the first of the table where none is.

    `podman:NAME` and `docker:NAME` are of those programs' own stores. Any other name that is nothing here may be a
    mistake: where no program with a store is there either, whoever is there says so in its own words.
    Errors: `RuntimeLimitError` (code `no-runtime`), `HostReadError` (code `no-image`).
    """
    form = image_form(image)
    store, _, name = image.partition(":")
    if form == "reference" and store in STORES:
        found = RUNTIMES[store] if elsewhere else _first_of([store], image, environ)
        return ChosenRuntime(found, name, "whose store is named with the image")
    if form == "reference" and not any(find_program(other, environ) for other in _starting(form)):
        form = None
    try:
        found = _first_of(_starting(form), image, environ)
    except RuntimeLimitError:
        if not elsewhere:
            raise
        why = f"the usual one for {WORDS_OF_FORMS[form]}: none is in PATH here"
        return ChosenRuntime(RUNTIMES[next(_starting(form))], image, why)
    if image_form(image) is None and found.store is not None and "file" not in found.images:
        # Its store would look for an image that is called so, and blame the network.
        why = f"{why_absent(image)}, and {found.name} starts no files"
        near = nearest(image)
        hint = near or f"look at the path; an image of {found.name}'s store has a name without a path"
        raise HostReadError("no-image", "the image cannot be read", where=image, why=why, hint=hint)
    is_name = form == "directory" and found.store is not None and not image.startswith(("/", "."))
    why = f"the first in PATH of those that start {WORDS_OF_FORMS[form]}"
    return ChosenRuntime(found, f"./{image}" if is_name else image, why)


def _starting(form: Optional[ImageForm]) -> Iterator[str]:
    """The names of the runtimes that start images of *form*, in the order of the table; None: of any but a bundle."""
    for name in RUNTIMES:
        if ("bundle" not in RUNTIMES[name].images) if form is None else form in RUNTIMES[name].images:
            yield name


def _first_of(names: Iterable[str], image: str, environ: Mapping[str, str]) -> Runtime:
    """The first of *names* whose program is in PATH. Errors: `RuntimeLimitError` (code `no-runtime`)."""
    looked = []
    for name in names:
        looked.append(name)
        if find_program(name, environ):
            return RUNTIMES[name]
    why = "such an image is started by " + ", ".join(looked)
    hint = "install one of them, or name another with --backend"
    stores = [name for name in RUNTIMES if RUNTIMES[name].store is not None and find_program(name, environ)]
    if image_form(image) == "registry" and stores:
        hint = f"{stores[0]} starts it by its name: `{image.partition('://')[2]}`"
    raise RuntimeLimitError("no-runtime", "no runtime for this image is in PATH", where=image, why=why, hint=hint)


def layout_of(start: Start, image: Union[Image, ImageFacts, None]) -> Layout:
    """Return where a plan for *start* lands, and whether the container's /dev will hold the planned nodes alone.

    Of *image* it counts only whether one is known.
    """
    return start.runtime.layout(start, is_blind=image is None)


def host_for(host: Host, start: Start, image: Optional[Image]) -> Host:
    """*host* to plan for. Where something else chooses GPUs in the container, the caller's variables choose none.

    As with --nv: the user's `--env CUDA_VISIBLE_DEVICES=1`, or such a line in an environment file of the image's,
    counts among all GPUs, so all of them must be there. With --cleanenv the caller's variables stay outside.
    """
    facts = image.facts if image is not None else None
    images = {*facts.env, *facts.undecided}.intersection(LIBRARY_VARIABLES) if facts is not None else ()
    if host.local is None or not (images or any(start.runtime.overrides(start, name) for name in GPU_VARIABLES)):
        return host
    return without_choice(host)


def without_choice(host: Host) -> Host:
    """Return *host* without the caller's variables that choose GPUs."""
    made = copy(host)
    made.environ = {name: value for name, value in host.environ.items() if name not in GPU_VARIABLES}
    return made


class Later(NamedTuple):
    """Who reads a document later, with the generated files to which it points."""

    kept_as: Optional[str]
    """The format of one that outlives the command: it must not point to what is private, or cleared."""
    stage_dir: Optional[str]
    """The directory where generated files may stay; None where the user names no place."""


NOT_LATER = Later(None, None)


def write_generated(
    contents: Mapping[ContainerPath, str], environ: Mapping[str, str], later: Later = NOT_LATER
) -> Mapping[ContainerPath, HostPath]:
    """Return where the generated files of a start, or of a document, are now.

    Errors: `RuntimeLimitError` (code `no-stage-dir`) for a document that is kept and has no place for them,
    `OutputError`.
    """
    if later.stage_dir is not None:
        return stage_in(contents, later.stage_dir)
    if contents and later.kept_as is not None:
        raise RuntimeLimitError(
            "no-stage-dir",
            f"the document of --format {later.kept_as} needs generated files, and no place is named where they stay",
            where=", ".join(sorted(contents)),
            why="your own cache may be cleared, and nobody else may read it, while the document is still in use",
            hint="--stage-dir DIR: a directory that only you may write to, that everybody may read, and that stays",
        )
    return stage(contents, environ)


def staged(start: Start, plan: Plan, image: Optional[Image], *, write: bool, later: Later = NOT_LATER) -> Start:
    """*start* with the configuration of *image*, if that is a bundle, and the places of generated files: the plan's and
    its own, which are written if *write*.

    Errors: as `write_generated`.
    """
    runtime = start.runtime
    if image is not None:
        start = start._replace(tree=image.tree, bundle=image.bundle)
    contents = {**plan.generated, **runtime.generated(plan, start)}
    places_of_files = runtime.skeleton(plan, start)
    if write:
        places = write_generated(contents, start.caller.environ, later)
    else:
        places = {target: HostPath(f"<generated>{target}") for target in contents}
    skeleton = HostPath("<generated>") if places_of_files else None
    if places_of_files and write:
        skeleton = stage_skeleton(places_of_files, start.caller.environ)
    writable = writable_files(plan) if runtime.limits.no_read_only_bind else frozenset()
    return start._replace(stage=Stage(places, skeleton, writable))


def written(command: Command) -> tuple[str, ...]:
    """Return the words of *command*, with its file written. Errors: `OutputError` (code `unwritable-file`)."""
    if command.file is None:
        return command.argv
    place = stage_alone(command.file.name, command.file.content, command.environ)
    return tuple(place if word == STAGED_DIRECTORY else word for word in command.argv)


def rendered(
    form: str,
    start: Start,
    host: Host,
    plan: Plan,
    image: Optional[Image],
    *,
    quoted: bool = False,
    later: Later = NOT_LATER,
) -> tuple[Plan, str]:
    """Return *plan* as the format *form* of the runtime of *start*, and the plan with what was found on the way.

    *quoted*: for a shell's `eval`. Generated files are written first. Errors: `UsageError` (code
    `format-without-image`); `RuntimeLimitError` for what the runtime cannot say; `OutputError`.
    """
    runtime = runtime_of_format(form)  # that of *start* may be another program of the same kind
    start = staged(start, plan, image, write=True, later=later)
    if host.local is None and start.bundle is not None:
        start = start._replace(bundle=start.bundle._replace(is_writable=True))  # by whom, a record does not tell
    words = start.runtime.words(plan, start)
    if words is None:
        what = f"--format {form} edits what an image has, and no such image is given"
        raise UsageError("format-without-image", what, hint=f"give --image: {runtime.image_hint}")
    plan = plan._replace(findings=(*plan.findings, *words.findings))
    return plan, runtime.render(form, Printed(words, start, host, plan), quoted=quoted)


def preflight_of(
    host: Host,
    plan: Plan,
    image: Optional[Image],
    runtime: Optional[Runtime],
    start: Optional[Start],
    program: Optional[str],
) -> Preflight:
    """What the rules look at where nothing is started yet: nothing is written, and *runtime* may be missing here."""
    from gpubind.rules.preflight import preflight

    if runtime is None or start is None:
        name = runtime.name if runtime is not None else None
        is_here = runtime is None and host.local is not None and program is not None
        brought = _usually_brought(plan, host) if is_here else None
        return preflight(host, plan, image, backend=name, program=program, brought=brought, may_be_library=True)
    start = staged(start, plan, image, write=False)
    brought = start.runtime.brought(plan, start) if host.local is not None else None
    made = preflight(
        host, plan, image, backend=runtime.name, start=start, program=program, brought=brought, may_be_library=True
    )
    if host.local is not None and find_program(runtime.name, start.caller.environ) is None:
        hint = "install it, or name another with --backend"
        made.limit = RuntimeLimitError("no-runtime", "it is not in PATH", hint=hint)
    return made


def check_plan(
    host: Host,
    plan: Plan,
    image: Optional[Image] = None,
    runtime: Optional[Runtime] = None,
    arguments: tuple[str, ...] = (),
    *,
    allow_writable: bool = False,
    program: Optional[str] = None,
) -> tuple[Finding, ...]:
    """Return what will not work with *plan* on *host*; errors first. Errors: `UsageError` (code `other-host`)."""
    from gpubind.rules.table import check

    _need_its_host(host, plan)
    start = None
    if runtime is not None and plan.request.like is None:
        start = start_on(host, runtime, arguments).allowing(allow_writable)
    return check(preflight_of(host, plan, image, runtime, start, program))


def _need_its_host(host: Host, plan: Plan) -> None:
    """Errors: `UsageError` (code `other-host`) where *host* surely lacks a file that *plan* requires."""
    for mount in plan.mounts:
        path = host.driver.rooted(mount.source) if mount.required and mount.source is not None else None
        if path is not None and host.lenient.driver.lacks(path):
            what, why = "the plan is for another host, or for this one as it was", "it does not exist here"
            raise UsageError("other-host", what, where=path, why=why, hint="plan again on this host")


def _usually_brought(plan: Plan, host: Host) -> Optional[Brought]:
    """Return what a runtime of which nothing is known mostly brings: Apptainer's home, working directory and /tmp."""
    environ = _environ_of(host)
    places: dict[str, str] = {name: environ[name] for name in ("HOME", "PWD") if name in environ}
    usual = RUNTIMES[USUAL]
    return usual.brought(plan, begin(usual, None, (), places, host))
