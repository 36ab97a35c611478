"""Open the host and the image of a start: `with_target`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Optional, TypeVar

from gpubind.errors import BoundError, FormatError, GpubindError, HostReadError, NotStoredError, UnseenError
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.image.reference import DIRECTORY_FORMS, FILE_FORMS, ImageForm, ImageReference
from gpubind.launch.caller import find_remote_daemon, texts_of
from gpubind.launch.execute import VersionProbe, find_program, need_program, run_in_foreground
from gpubind.machine import system
from gpubind.machine.answers import is_file, lexists
from gpubind.machine.budget import TIMES_LIMIT, renew, report_progress
from gpubind.model.environ import changed
from gpubind.model.notice import Message, Notice, ignore
from gpubind.planner.planning import PlanQuery
from gpubind.runtimes.runtime import PullCommand, PullPolicy, Runtime

if TYPE_CHECKING:
    from gpubind.image.facts import Image
    from gpubind.rules.outcome import Reasons, Severities

_Result = TypeVar("_Result")
UNREADABLE_IMAGE_ERRORS = (BoundError, FormatError, UnseenError)
"""Errors that mean that gpubind cannot inspect an image. The runtime may still start it."""
_PREFIXES = {"oci-layout": "oci", "oci-archive": "oci-archive", "docker-archive": "docker-archive"}
_FORMS: Mapping[ImageForm, str] = MappingProxyType(
    {
        "reference": "the images of its own store",
        "directory": "directories",
        "bundle": "OCI bundles",
        "sif": "SIF files",
        "squashfs": "squashfs files",
        "container": "containers of its own, by their names",
    }
)
"""The forms of images that an error names."""


class StartRequest(NamedTuple):
    """A request for a start."""

    open_host: Callable[[], Host]
    query: PlanQuery
    environ: Mapping[str, str]
    """The caller's environment."""
    arguments: tuple[str, ...] = ()
    """The user's options for the runtime."""
    global_options: Mapping[str, str] = MappingProxyType({})
    """The options before its subcommand."""
    elsewhere: bool = False
    """Whether the start is planned for another machine."""
    dry_run: bool = False
    require_gpu: bool = False
    check: bool = False
    log_start: bool = False
    """Whether the system log gets a line about the start."""
    allow_writable: bool = False
    is_entered: bool = False
    """As in `Start`."""
    container: Literal["removed", "kept", "created"] = "removed"
    """What happens to the container unless the user's options decide it: it is removed at its end; it is kept; or
    it is only created, and a later command starts it.
    """
    keeps_line: bool = False
    """Whether the user's own command line starts unchanged if its image is unreadable."""
    reasons: Reasons = MappingProxyType({})
    """Why a check ignores findings."""
    severities: Severities = MappingProxyType({})
    """The severities that the site sets."""
    report: Callable[[Message], None] = ignore

    @property
    def names_gpu(self) -> bool:
        """Whether GPUs are requested by name. If they are missing, nothing is started."""
        gpus = self.query.request.gpus
        return gpus is not None and gpus.strip().lower() not in ("all", "none")

    @property
    def demands_plan(self) -> bool:
        """Whether a line must not start without a plan, even if it would work without one."""
        request = self.query.request
        has_gpus = request.gpus is not None and request.gpus.strip().lower() != "none"
        return self.check or self.require_gpu or has_gpus or bool(request.cdi_devices)


class StartTarget(NamedTuple):
    """A runtime with its image, on a host."""

    runtime: Runtime
    """As the user names it."""
    program: str
    """The path of its program; the name if a dry run does not find it."""
    host: Host
    image: Optional[Image]
    """None if its files could not be inspected."""
    options: tuple[str, ...] = ()
    """Options of the runtime that follow those of the plan: they make it start exactly the image that was inspected."""
    is_unread: bool = False
    """Whether no plan is possible, because the image could not be read. A message has reported that."""
    is_unknown: bool = False
    """Whether the plan is made without the image, because it could not be read. A message has reported that."""
    probe: Optional[VersionProbe] = None
    """The query of the program's version."""

    def close(self) -> None:
        if self.image is not None:
            self.image.close()


def _open_target(
    request: StartRequest, runtime: Runtime, program: str, image: Optional[ImageReference], probe: VersionProbe
) -> StartTarget:
    """Open the host, and *image* as *runtime* would start it by *program*, a name or a path. Start *probe*.

    If an image is unreadable and the runtime may still start it, a message reports that; with `check`, it is an error.
    Errors: those of opening the host and the image, and of pulling the image.
    """
    if "/" not in program:
        is_there = not request.dry_run or find_program(program, request.environ) is not None
        program = need_program(program, request.environ) if is_there else program
    if program.startswith("/") and runtime.needs_version:
        probe.start(program)
    target = StartTarget(runtime, program, request.open_host(), None, probe=probe)
    if image is None:
        return target
    if image.store is not None:
        return _open_from_store(request, target, image)
    if runtime.hides_images and not image.is_path:
        text = f"gpubind does not read the images of {runtime.title}, and the plan is made without {image.text}"
        checked, unknown = Notice("warning", "image-not-checked", text), Notice("note", "image-unknown", text)
        request.report(checked if request.check else unknown)
        return target
    try:
        return target._replace(image=_open_path(request, target, _in_storage(request, target, image)))
    except (HostReadError, *UNREADABLE_IMAGE_ERRORS) as error:
        if not request.keeps_line:
            raise
        text = f"{error.where}: {error.what}{f': {error.why}' if error.why else ''}; started without a plan"
        start_as_written(request, error, Notice("note", "image-unknown", text))
        return target._replace(is_unread=True)


def start_as_written(request: StartRequest, error: GpubindError, message: Optional[Message] = None) -> None:
    """Report that the user's own command line starts unchanged because of *error*: by *message*, or else as a warning.

    Errors: *error*, if the user's options for gpubind demand a plan.
    """
    if request.demands_plan:
        raise error
    if message is None:
        error.why = "; ".join(filter(None, (error.why, "the line starts as it is, without a plan")))
    request.report(error if message is None else message)


def _in_storage(request: StartRequest, target: StartTarget, image: ImageReference) -> ImageReference:
    """Return *image* with its directory as the path, if it names an image in the runtime's own storage.

    Such a name takes precedence over a path, and the runtime accepts no path into its storage. If the runtime starts no
    other directories, every name is that of an image in its storage.
    """
    runtime, environ = target.runtime, request.environ
    options, texts = runtime.user_option_values(request.arguments, environ), texts_of(runtime, environ, target.host)
    place = runtime.stored_image(image, options, changed(environ, values={"UID": str(system.effective_user())}), texts)
    is_stored = place is not None and ("directory" not in runtime.image_forms or lexists(place))
    return image if place is None or not is_stored else ImageReference(place, "container")


def with_target(
    request: StartRequest,
    runtime: Runtime,
    program: str,
    image: Optional[ImageReference],
    make: Callable[[StartTarget], _Result],
) -> _Result:
    """Return the result of *make* for the opened target.

    If the image is damaged, *make* is called a second time: without the image, which a message reports, or with larger
    limits. Errors: as `_open_target` and *make*. The damage itself is an error with `check`, or if a retry would fail.
    """
    with closing(VersionProbe()) as probe, closing(_open_target(request, runtime, program, image, probe)) as target:
        try:
            return make(target)
        except UNREADABLE_IMAGE_ERRORS as error:
            is_blind = _can_be_blind(runtime)
            if target.image is None or request.check or not (is_blind or isinstance(error, BoundError)):
                raise
            renew(1 if is_blind else TIMES_LIMIT)
            result = make(target._replace(image=None) if is_blind else target)
            if is_blind:
                request.report(error)
            return result


def _can_be_blind(runtime: Runtime) -> bool:
    return runtime.can_pull or runtime.store is not None


def _open_from_store(
    request: StartRequest, target: StartTarget, image: ImageReference, *, may_pull: bool = True
) -> StartTarget:
    """Return *target* with *image* from the runtime's store. It is pulled first if the runtime itself would pull it."""
    runtime, name = target.runtime, image.name
    has_other_store = request.global_options.keys() & set(runtime.store_options)
    if has_other_store or find_remote_daemon(runtime, request.environ) is not None:
        return target
    pull = runtime.pull(runtime.user_option_values(request.arguments, request.environ), request.global_options, name)
    when = pull.policy if may_pull and not request.dry_run else "never"
    if when == "newer":
        when, name, more = _newer(pull, target.program, name, request.environ)
        target = target._replace(options=more)
    elif when == "always":
        name = _pull(pull, target.program, name, request.environ)
        target = target._replace(options=pull.no_repeat_options)
    try:
        return target._replace(image=_open_image(request, target, image._replace(name=name), UNREADABLE_IMAGE_ERRORS))
    except HostReadError as error:
        if when == "missing" and isinstance(error, NotStoredError):
            name = _pull(pull, target.program, name, request.environ)
            target = target._replace(options=pull.no_repeat_options)
            return _open_from_store(request, target, image._replace(name=name), may_pull=False)
        if request.check:
            raise
        text = f"{error.where} could not be inspected, and the plan is made without it: {error.why}"
        request.report(Notice("note", "image-unknown", text))
        return target._replace(options=(), is_unknown=True)


def _pull(pull: PullCommand, program: str, image: str, environ: Mapping[str, str]) -> str:
    """Pull *image* with *program* in the caller's terminal, and return its name or ID in the store.

    Errors: `HostReadError` (code `image-store`), `StartError`.
    """
    report_progress("")  # the program uses the terminal now
    status, printed = run_in_foreground((program, *pull.args), environ, keeps_output=pull.prints_name)
    names = printed.decode("utf-8", "surrogateescape").split()
    if status == 0:
        return names[-1] if names else image
    # The options are left out: they may include credentials.
    why = f"`{program} pull` ended with exit status {status}; its own message stands above"
    raise HostReadError("image-store", "the image cannot be pulled", where=image, why=why)


def _newer(
    pull: PullCommand, program: str, image: str, environ: Mapping[str, str]
) -> tuple[PullPolicy, str, tuple[str, ...]]:
    """Pull a newer version of *image*, if the store already has one.

    Return when the image must still be pulled, its name or ID in the store, and more options for the start. A failed
    pull is not an error here: *program* itself tries again at its start, and ignores a failure.
    """
    status, _ = run_in_foreground((program, *pull.exists_args), environ, keeps_output=True, is_silent=True)
    if status != 0:
        return "missing", image, ()
    status, printed = run_in_foreground((program, *pull.repull_args), environ, keeps_output=True, is_silent=True)
    names = printed.decode("utf-8", "surrogateescape").split()
    return ("never", names[-1], pull.no_repeat_options) if status == 0 and names else ("never", image, ())


def _open_path(request: StartRequest, target: StartTarget, image: ImageReference) -> Optional[Image]:
    """Return the opened *image*; None if it is not on this machine, so that only a pull can provide it."""
    runtime, form = target.runtime, image.form
    has_prefix = form in ("layout", "archive", "registry") and form in runtime.image_forms
    is_directory = form in DIRECTORY_FORMS
    need_form(image, runtime)
    tolerated: tuple[type[GpubindError], ...] = UNREADABLE_IMAGE_ERRORS
    if has_prefix or (runtime.can_pull and not is_directory and (request.dry_run or not _is_missing(image, runtime))):
        if form not in (*FILE_FORMS, "layout", "archive"):
            if request.check:
                text = f"`{image.text}` is not a file here; only the host is checked"
                request.report(Notice("warning", "image-not-checked", text))
            return None
        tolerated = (GpubindError,)
    opened = _open_image(request, target, image, tolerated)
    if opened is not None and not has_prefix:
        need_kind(opened, image, runtime)
    return opened


def _is_missing(image: ImageReference, runtime: Runtime) -> bool:
    """Return whether *image* does not exist, and *runtime* can only take it for a path.

    A name with a colon is not taken for a path: it may have a prefix that only the runtime knows.
    """
    if image.form not in (None, "reference") or "reference" in runtime.image_forms:
        return False
    return not (":" in image.text and not image.is_path) and not lexists(image.text)


def _open_image(
    request: StartRequest, target: StartTarget, image: ImageReference, tolerated: tuple[type[GpubindError], ...]
) -> Optional[Image]:
    """Return the opened *image*; None, with a message, after one of the *tolerated* errors.

    For a runtime that starts only directories, a plan needs the image, so it is opened once more with the largest
    limits. With `check` every error is raised.
    """
    from gpubind.image.open import open_reference

    runtime, machine = target.runtime, target.host.uname.machine
    try:
        return open_reference(image, machine)
    except tolerated as error:
        if request.check:
            raise
        if _can_be_blind(runtime):
            renew()
            request.report(error)
            return None
        if not isinstance(error, BoundError) or is_file(f"{image.text}/index.json"):
            raise
        renew(TIMES_LIMIT)
        return open_reference(image, machine)


def need_form(image: ImageReference, runtime: Runtime) -> None:
    """Errors: `HostReadError` (code `no-image`) for a file or directory that *runtime* does not support."""
    forms = DIRECTORY_FORMS if image.form in DIRECTORY_FORMS else (image.form,)
    if image.is_local_file and not any(form in runtime.image_forms for form in forms):
        raise _no_such_form(image, runtime)


def need_kind(opened: Image, image: ImageReference, runtime: Runtime) -> None:
    """Errors: `HostReadError` (code `no-image`) for a kind of image that *runtime* does not start by its path."""
    kind = opened.facts.kind
    if opened.bundle is None and runtime.image_forms == ("bundle",):
        problem = f"{runtime.title} starts only OCI bundles, and this is not one"
        raise HostReadError("no-image", problem, where=image.text, hint=runtime.image_hint)
    if opened.bundle is not None and "bundle" not in runtime.image_forms:
        hint = f"give its root file system, {opened.tree.root}, or use --backend crun or runc"
        raise HostReadError("no-image", f"{runtime.title} starts no OCI bundles", where=image.text, hint=hint)
    if kind in _PREFIXES and "layout" in runtime.image_forms:
        problem = f"{runtime.title} starts this only with a prefix that says what it is"
        raise HostReadError("no-image", problem, where=image.text, hint=f"`{_PREFIXES[kind]}:{image.text}`")
    if image.form == "directory" and kind != "directory":
        raise _no_such_form(image, runtime)


def _no_such_form(image: ImageReference, runtime: Runtime) -> HostReadError:
    only = [_FORMS[form] for form in runtime.image_forms if form in _FORMS]
    problem = f"{runtime.title} starts only {' and '.join(only)}"
    return HostReadError("no-image", problem, where=image.text, hint=runtime.image_hint)
