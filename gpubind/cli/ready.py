"""What `exec` and `wrap` have in common: a start is looked at, planned and checked.

No `from __future__ import annotations`: see options.py.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Optional, TypeVar

from gpubind.cli.declarations import PlanOptions
from gpubind.cli.options import open_host_of, query_of
from gpubind.cli.output import complain, report, warn
from gpubind.errors import (
    BoundError,
    CheckError,
    CommandError,
    FormatError,
    GpubindError,
    HostReadError,
    NotStoredError,
    UnseenError,
    UsageError,
)
from gpubind.model.answers import exists, is_directory, is_file, lexists

if TYPE_CHECKING:
    from gpubind.host import Host
    from gpubind.image import Image
    from gpubind.model import Plan
    from gpubind.planner.placement import Layout
    from gpubind.rules.preflight import Preflight
    from gpubind.runtimes.edits import Words
    from gpubind.runtimes.runtime import Runtime, Start

WITHOUT_GPU = ("driver-mismatch", "driver-not-loaded", "gpu-forbidden", "no-libcuda", "visible-devices-unknown")
"""Errors with which no GPU works in a container."""

DAMAGE = (BoundError, FormatError, UnseenError)
"""What keeps gpubind from looking at an image that its runtime may start all the same."""


class StartRequest(NamedTuple):
    """How a container is to be started. The names are the options'."""

    backend: str
    arguments: tuple[str, ...]
    dry_run: bool
    require_gpu: bool
    check: bool
    quiet: bool
    verbose: int
    allow_writable: bool
    own: Mapping[str, str] = MappingProxyType({})
    """The runtime's own options, before its subcommand."""


class Looked(NamedTuple):
    """What is to be started, once it was looked at."""

    runtime: "Runtime"
    """As the user names it."""
    program: str
    """Its path; its name, where it is not there and only to be printed."""
    host: "Host"
    image: Optional["Image"]
    """None where its files are not to be seen."""
    more: tuple[str, ...] = ()
    """Options of the runtime's, behind those of the plan: the image that was looked at is the one to be started."""

    def close(self) -> None:
        """Give back what it took to look: an image of an engine's store is mounted for that."""
        if self.image is not None:
            self.image.close()


class Ready(NamedTuple):
    """A start with its plan."""

    runtime: "Runtime"
    """What the program is, whatever it is called."""
    host: "Host"
    start: "Start"
    plan: "Plan"
    words: "Words"
    has_arguments: bool
    """Whether the user's own options are among the words."""


def need_this_machine(options: PlanOptions, *, dry_run: bool) -> None:
    """Errors: `UsageError` (code `host-to-start`) where something is to be started on a recorded host."""
    if options.host is not None and not dry_run:
        what, hint = "--host names a record: nothing can be started there", "add --dry-run, or leave --host out"
        raise UsageError("host-to-start", what, hint=hint)


def look_at(
    options: PlanOptions,
    image: Optional[str],
    runtime: "Runtime",
    wanted: StartRequest,
    environ: Mapping[str, str],
    program: str,
) -> Looked:
    """Return the host, *image*, and *program*, a name or a path, of *runtime*. Errors: what opening them raises."""
    from gpubind.launch.execute import find_program, need_program

    if "/" not in program:
        is_there = not wanted.dry_run or find_program(program, environ) is not None
        program = need_program(program, environ) if is_there else program
    host = open_host_of(options)
    if image is None:
        return Looked(runtime, program, host, None)
    if not _is_stored(image, runtime):
        return Looked(runtime, program, host, _look_at(image, runtime, wanted, host))
    return _look_into_store(image, Looked(runtime, program, host, None), wanted, environ)


T = TypeVar("T")


def all_the_same(looked: Looked, wanted: StartRequest, make: Callable[[Looked], T]) -> T:
    """Return what *make* makes of *looked*: without its image where looking at that costs too much, or finds damage.

    The runtime itself may well start such an image. One that cannot be planned for blindly, a directory, is looked at
    whatever it costs. With --check the error stays: nothing could be said of the start.
    """
    from gpubind.model.budget import TIMES_LIMIT, renew

    try:
        return make(looked)
    except DAMAGE as error:
        if looked.image is None or wanted.check:
            raise
        is_blind = _can_be_blind(looked.runtime)
        if not (is_blind or isinstance(error, BoundError)):
            raise
        renew(1 if is_blind else TIMES_LIMIT)
        made = make(looked._replace(image=None) if is_blind else looked)
        if is_blind and not wanted.quiet:
            warn(error)
        return made


UNSEEN = (BoundError, UnseenError)
"""What keeps gpubind from looking at a host whose GPUs the runtime's own flag may bring all the same."""


def need_own_flag(error: GpubindError, options: PlanOptions, wanted: StartRequest, *, has_one: bool) -> None:
    """Tell that the runtime starts with its own GPU flag, because *error* keeps gpubind from looking.

    Errors: *error*, where it has none, or where the user wants more than that flag gives.
    """
    more = wanted.check or wanted.require_gpu or options.host is not None or _asks_by_name(options)
    if more or not has_one:
        raise error
    if not wanted.quiet:
        from gpubind.documents.text import printable

        why = ": ".join(printable(part) for part in (error.where, error.why) if part)
        complain(f"warning: not-looked-at: {why}; started without a plan, with the runtime's own GPU flag\n")


def ready_for(
    options: PlanOptions, looked: Looked, wanted: StartRequest, environ: Mapping[str, str], *, in_line: bool = False
) -> Ready:
    """Return the plan of a start, and its words: for gpubind's own command line, or for one that the user has."""
    from gpubind.launch.caller import begin
    from gpubind.launch.preparation import host_for, layout_of, staged

    image = looked.image
    start = begin(looked.runtime, looked.program, wanted.arguments, environ, looked.host, wanted.own)
    start = start.allowing(wanted.allow_writable)
    if image is None and looked.runtime.store is not None and options.userspace == "auto":
        options = options._replace(userspace="image")  # what these programs give by themselves: AMD's nodes alone
    host = host_for(looked.host, start, image)
    plan = _plan(options, host, image, layout_of(start, image), wanted)
    start = staged(start, plan, image, write=not wanted.dry_run)
    words = start.runtime.in_line(plan, start) if in_line else start.runtime.words(plan, start)
    assert words is not None
    words = words._replace(options=(*words.options, *looked.more))
    return Ready(start.runtime, host, start, plan, words, in_line and start.runtime.reads_line)


def look_into(looked: Looked, ready: Ready, program: Optional[str], wanted: StartRequest) -> None:
    """Look at what the container will hold, if somebody asks: --check, whoever reads findings, and a runtime that does
    not tell a command that is not there. Errors: `CheckError`, `CommandError`.
    """
    # Of a container that the user's own line makes, only the user knows what is in it.
    hides = looked.runtime.limits.hides_missing_command and not ready.has_arguments
    if not (wanted.check or hides or not wanted.quiet):
        return
    from gpubind.rules.image.image import order_findings
    from gpubind.rules.preflight import preflight

    image, plan, words = looked.image, ready.plan, ready.words
    first = program if wanted.check or hides else None
    brought = ready.runtime.brought(plan, ready.start)
    name = looked.runtime.name
    start = ready.start
    made = preflight(ready.host, plan, image, backend=name, start=start, program=first, brought=brought, words=words)
    if wanted.check:
        _checked(made, wanted)
        return
    findings = [*plan.findings, *words.findings, *(order_findings(made) if image is not None else ())]
    if not (plan.drivers or wanted.quiet):
        report(findings, brief=not wanted.verbose)
    if hides:
        _need_command(made)
    if plan.drivers and not wanted.quiet:
        report(findings, brief=not wanted.verbose)


def _plan(
    options: PlanOptions, host: "Host", image: Optional["Image"], layout: "Layout", wanted: StartRequest
) -> "Plan":
    """The plan, or an empty one where there is nothing to bind and nobody needs a GPU. Errors: also `CheckError`."""
    from gpubind.planner.planning import plan_host, plan_or_empty

    if wanted.require_gpu or _asks_by_name(options):
        plan = plan_host(host, query_of(options), image, layout)
    else:
        plan = plan_or_empty(host, query_of(options), image, layout)
    if not (plan.drivers or wanted.check):
        plan = plan._replace(findings=tuple(finding._replace(severity="warning") for finding in plan.findings))
    if wanted.require_gpu:
        _need_gpu(plan)
    return plan


def _need_gpu(plan: "Plan") -> None:
    """Errors: `CheckError` (code `gpu-required`) where the container would have no GPU that works."""
    stops = [finding for finding in plan.findings if finding.severity == "error" and finding.code in WITHOUT_GPU]
    is_linux = all(planned.driver.kind == "linux" for planned in plan.drivers)
    if stops or (is_linux and not any(gpu.chosen for gpu in plan.gpus)):
        why = "; ".join(f"{finding.code}: {finding.what}" for finding in stops)
        raise CheckError(
            "gpu-required",
            "no GPU would work in the container, and --require-gpu was given",
            why=why or "no GPU is chosen, or none is here",
            hint="`gpubind check` says what is wrong with this host; ask the scheduler for a GPU",
        )


def _asks_by_name(options: PlanOptions) -> bool:
    """Return whether --gpus names a GPU: without that one there is no start."""
    return options.gpus is not None and options.gpus.strip().lower() not in ("all", "none")


def _is_stored(image: str, runtime: "Runtime") -> bool:
    """Return whether *image* is a name in the store of *runtime*, whether that has it or not."""
    return runtime.store is not None and not _has_prefix(image, runtime) and not image.startswith(("/", "."))


def _has_prefix(image: str, runtime: "Runtime") -> bool:
    """Return whether *image* begins with a word that says what it is, and *runtime* reads that word."""
    from gpubind.launch.caller import image_form

    form = image_form(image)
    return form in ("layout", "archive", "registry") and form in runtime.images


def _look_into_store(
    image: str, looked: Looked, wanted: StartRequest, environ: Mapping[str, str], *, may_pull: bool = True
) -> Looked:
    """Return *looked* with *image* of the runtime's store, after a pull where the runtime itself would pull it.

    What cannot be looked at is not known, and a note says so; it is left to the runtime. Errors: with --check those of
    opening the image, else those of pulling it.
    """
    from gpubind.cli.pulling import pulled
    from gpubind.documents.text import printable
    from gpubind.launch.caller import remote_of

    runtime = looked.runtime
    more: tuple[str, ...] = ()
    if wanted.own.keys() & set(runtime.other_stores) or remote_of(runtime, environ) is not None:
        return looked
    options = runtime.options_of(wanted.arguments, environ)
    pull = runtime.pull(options, wanted.own, image)
    when = pull.when if may_pull and not wanted.dry_run else "never"
    if when in ("always", "newer"):
        image, more = pulled(pull, looked.program, image, environ), pull.no_more
    try:
        opened = _opened(f"{runtime.store}:{image}", looked.host.uname.machine, runtime, wanted, DAMAGE)
        return looked._replace(image=opened, more=more)
    except HostReadError as error:
        if when == "missing" and isinstance(error, NotStoredError):
            image = pulled(pull, looked.program, image, environ)
            return _look_into_store(image, looked, wanted, environ, may_pull=False)
        if wanted.check:
            raise
        if not wanted.quiet:
            what = f"{error.where} could not be inspected, and the plan is made without it: {error.why}"
            complain(f"note: image-unknown: {printable(what)}\n")
        return looked


def _look_at(image: str, runtime: "Runtime", wanted: StartRequest, host: "Host") -> Optional["Image"]:
    """*image*, if it is on this machine. What a runtime pulls by a reference is the runtime's own to open."""
    from gpubind.launch.caller import image_form

    machine, form = host.uname.machine, image_form(image)
    has_prefix = _has_prefix(image, runtime)
    _need_form(image, runtime)
    if not has_prefix and (is_directory(image) or not runtime.fetches):
        opened = _opened(image, machine, runtime, wanted, DAMAGE)
        if opened is not None:
            _need_kind(opened, image, runtime)
        return opened
    if form in (None, "reference") and not wanted.dry_run and _is_no_path(image, runtime):
        return _opened(image, machine, runtime, wanted, DAMAGE)
    if form not in ("file", "layout", "archive"):
        if wanted.check and not wanted.quiet:
            complain(f"warning: image-not-checked: `{image}` is no file here; the host alone is checked\n")
        return None
    opened = _opened(image, machine, runtime, wanted, (GpubindError,))
    if opened is not None and not has_prefix:
        _need_kind(opened, image, runtime)
    return opened


def _is_no_path(image: str, runtime: "Runtime") -> bool:
    """Whether *image* is a path for *runtime*, and surely one to nothing: the runtime would say so, after the plan.

    A word with a colon may be of a kind that only the runtime knows.
    """
    if "reference" in runtime.images or (":" in image and not image.startswith(("/", "."))):
        return False
    return not lexists(image)


def _opened(
    image: str, machine: str, runtime: "Runtime", wanted: StartRequest, tolerated: tuple[type[GpubindError], ...]
) -> Optional["Image"]:
    """*image*; None, with a warning, where it cannot be looked at for one of the *tolerated* errors.

    What starts directories alone needs to see the image: there it may cost what it wants. With --check every error
    stays.
    """
    from gpubind.image import open_image
    from gpubind.model.budget import TIMES_LIMIT, renew

    try:
        return open_image(image, machine)
    except tolerated as error:
        if wanted.check:
            raise
        if _can_be_blind(runtime):
            renew()
            if not wanted.quiet:
                warn(error)
            return None
        if not isinstance(error, BoundError) or is_file(f"{image}/index.json"):
            raise
        renew(TIMES_LIMIT)
        return open_image(image, machine)


def _can_be_blind(runtime: "Runtime") -> bool:
    """Return whether a start by *runtime* can be planned without a look at the image."""
    return runtime.fetches or runtime.store is not None


_PREFIXES = {"oci-layout": "oci", "oci-archive": "oci-archive", "docker-archive": "docker-archive"}


def _need_kind(opened: "Image", image: str, runtime: "Runtime") -> None:
    """Errors: `HostReadError` (code `no-image`) for what is not of a kind that *runtime* starts by its mere path."""
    kind = opened.facts.kind
    if opened.bundle is None and runtime.images == ("bundle",):
        what = f"{runtime.title} starts only OCI bundles, and this is not one"
        raise HostReadError("no-image", what, where=image, hint=runtime.image_hint)
    if opened.bundle is not None and "bundle" not in runtime.images:
        hint = f"give its root file system, {opened.tree.root}, or use --backend crun or runc"
        raise HostReadError("no-image", f"{runtime.title} starts no OCI bundles", where=image, hint=hint)
    if kind in _PREFIXES and "layout" in runtime.images:
        what = f"{runtime.title} starts this only with a prefix that says what it is"
        raise HostReadError("no-image", what, where=image, hint=f"`{_PREFIXES[kind]}:{image}`")
    if kind not in ("directory", "bundle") and not runtime.fetches:
        raise _no_such_form(image, runtime)


def _need_form(image: str, runtime: "Runtime") -> None:
    """Errors: `HostReadError` (code `no-image`) for a file or a directory that *runtime* does not start."""
    forms = ("file",) if is_file(image) else ("directory", "bundle")
    if not exists(image) or any(form in runtime.images for form in forms):
        return
    raise _no_such_form(image, runtime)


def _no_such_form(image: str, runtime: "Runtime") -> HostReadError:
    only = "directories" if "reference" not in runtime.images else "the images of its own store"
    also = " and directories" if "reference" in runtime.images and "directory" in runtime.images else ""
    return HostReadError("no-image", f"{runtime.title} starts only {only}{also}", where=image, hint=runtime.image_hint)


def _checked(start: "Preflight", wanted: StartRequest) -> None:
    """Report what check says of *start*. Errors: `CheckError` if there is an error finding that counts."""
    from gpubind.cli.settings import ignored_findings
    from gpubind.documents.check.report import report_of
    from gpubind.documents.text import printable
    from gpubind.rules.table import check

    outcome = report_of(start.plan, check(start), ignored_findings(()))
    if not wanted.quiet:
        report(outcome.findings, brief=not wanted.verbose)
        for finding, reason in outcome.ignored:
            complain(f"ignored: {finding.code}: {printable(finding.what)} ({printable(reason)})\n")
    errors = [finding.code for finding in outcome.findings if finding.severity == "error"]
    if errors:
        raise CheckError(
            "check-failed",
            f"the check found {len(errors)} error{'s' if len(errors) > 1 else ''}; nothing was started",
            why=", ".join(dict.fromkeys(errors)),
            hint="`gpubind explain CODE` says what to do; without --check the container is started all the same",
        )


def _need_command(made: "Preflight") -> None:
    """Say 127 or 126 as a shell would, where the runtime itself would not; nothing where not all could be seen."""
    from gpubind.loader.execve import first_program, is_undecided, nearest_program
    from gpubind.rules.preflight import search_path

    chain, container = made.chain, made.container
    if chain is None or container is None or len(chain.names) > 1 or container.unseen:
        return
    kind = chain.stop.kind if chain.stop is not None else None
    name = chain.names[0]
    where = search_path(made.image, made.plan, made.brought)
    if kind not in ("missing", "mode", "directory", "special") or is_undecided(container, name, where):
        return
    code, what = (
        ("no-such-command", "is not in the image") if kind == "missing" else ("not-executable", "is not a program")
    )
    hint = "look with `gpubind shell`"
    if kind == "missing":
        is_line = first_program(container, name, where)
        near = "" if is_line else nearest_program(container, name, where)
        hint = "give the arguments without quotes around all of them" if is_line else near + hint
    where = "" if "/" in name else where
    raise CommandError(code, f"`{name}` {what}", found=kind != "missing", where=where, hint=hint)
