"""Prepare a start: `prepare` plans it, writes its generated files and makes its arguments.

`read_start_facts` (caller) -> `plan_start` -> `write_start_files` -> `PreparedStart`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Optional, Union

from gpubind.errors import CheckError, RuntimeLimitError, UsageError
from gpubind.formats.driver.gpu_names import GPU_VARIABLES, LIBRARY_VARIABLES, ZE_VARIABLES
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.launch.caller import read_start_facts, writable_files
from gpubind.launch.execute import callers_environ, find_program
from gpubind.model import CAPABILITIES, ContainerPath, HostPath, ImageFacts, Plan, Request, RootedPath
from gpubind.planner.placement import Layout
from gpubind.planner.planning import PlanQuery, plan_host, plan_or_empty
from gpubind.runtimes.runtime import PreparedStart, Runtime, Stage, Start

if TYPE_CHECKING:
    from gpubind.image.facts import Image

_WITHOUT_GPU = (
    "driver-mismatch",
    "driver-not-loaded",
    "gpu-forbidden",
    "no-libcuda",
    "nouveau",
    "visible-devices-unknown",
)
"""Codes of errors that mean that no GPU works in a container."""


def make_start(host: Host, runtime: Runtime, arguments: tuple[str, ...], *, allow_writable: bool = False) -> Start:
    """Return a start by *runtime* on *host*, with the facts of this machine if the host is this machine."""
    environ = environ_of(host)
    program = find_program(runtime.name, environ) if host.local is not None else None
    return read_start_facts(runtime, program, arguments, environ, host, allow_writable=allow_writable)


def environ_of(host: Host) -> Mapping[str, str]:
    """Return the environment of the task that is planned; empty for another machine."""
    if host.task is not None:
        return host.task
    return callers_environ() if host.local is not None else {}


def layout_of(start: Start, image: Union[Image, ImageFacts, None]) -> Layout:
    """Return the layout of a plan for *start*, with or without a known *image*."""
    return start.runtime.layout(start, is_blind=image is None)


def host_for(host: Host, start: Start, image: Optional[Image]) -> Host:
    """Return *host*, without the caller's variables that choose GPUs if other values choose in the container.

    As with --nv, the user's `--env CUDA_VISIBLE_DEVICES=1`, or an environment file of the image, refers to all GPUs of
    the host by number, so the container must have all of them. The same holds for each command that enters an instance.
    If the image sets Level Zero's variables, these replace the caller's, and so determine what the numbers mean. With
    --cleanenv, the caller's variables do not reach the container.
    """
    facts = image.facts if image is not None else None
    image_variables = {*facts.env, *facts.undecided} if facts is not None else set[str]()
    if host.local is None:
        return host
    if start.is_entered or any(start.runtime.hides_caller_variable(start, name) for name in GPU_VARIABLES):
        return without_gpu_variables(host)
    if image_variables.intersection(LIBRARY_VARIABLES):
        return without_gpu_variables(host)
    ze_names = image_variables.intersection(ZE_VARIABLES)
    return without_gpu_variables(host, ze_names) if ze_names else host


def without_gpu_variables(host: Host, names: Container[str] = GPU_VARIABLES) -> Host:
    """Return a copy of *host* without the caller's variables *names*."""
    copy = host.copy()
    copy.environ = {name: value for name, value in host.environ.items() if name not in names}
    return copy


class FilePolicy(NamedTuple):
    """Where generated files are written, and how long they must last."""

    write: bool = True
    """False: no file is written, and a placeholder stands for each path."""
    kept_as: Optional[str] = None
    """The format of a document that outlives the command, and so may not refer to private or temporary files."""
    stage_dir: Optional[str] = None
    """The directory for files that stay, if the user names one."""
    environ: Optional[Mapping[str, str]] = None
    """The variables that determine the caller's cache; None: those of the start."""


def write_generated(
    contents: Mapping[ContainerPath, str], environ: Mapping[str, str], files: FilePolicy
) -> Mapping[ContainerPath, HostPath]:
    """Return the paths of the generated files with these *contents*, after writing them.

    Errors: `OutputError`; `RuntimeLimitError` (code `no-stage-dir`) for a lasting document without a directory.
    """
    if not files.write:
        return {target: HostPath(f"<generated>{target}") for target in contents}
    if not contents and files.stage_dir is None:
        return {}
    from gpubind.launch.stage import stage, stage_in  # few plans have such files

    if files.stage_dir is not None:
        return stage_in(contents, files.stage_dir)
    if files.kept_as is not None:
        raise RuntimeLimitError(
            "no-stage-dir",
            f"--format {files.kept_as} needs generated files, and --stage-dir does not name a directory for them",
            where=", ".join(sorted(contents)),
            why="the document outlives your cache, which may be cleared and which other users cannot read",
            hint="--stage-dir DIR: a directory that only you may write to, that everybody may read, and that stays",
        )
    return stage(contents, environ)


def prepare(
    host: Host,
    query: PlanQuery,
    start: Start,
    image: Optional[Image],
    files: FilePolicy,
    *,
    or_empty: bool = False,
    require_gpu: bool = False,
    in_line: bool = False,
) -> PreparedStart:
    """Return *start* of *image* with its plan, its generated files and its arguments.

    *or_empty*: the plan is empty if there is nothing to bind. *in_line*: the arguments are for the user's own command
    line, whose options are those of *start*. Errors: as `plan_host`, `write_generated`; `CheckError` (code
    `gpu-required`); `RuntimeLimitError` for what the runtime does not support.
    """
    host, plan = plan_start(host, query, start, image, or_empty=or_empty)
    if require_gpu:
        _need_gpu(plan)
    return prepare_with_plan(host, plan, start, image, files, in_line=in_line)


def plan_start(
    host: Host, query: PlanQuery, start: Start, image: Optional[Image], *, or_empty: bool
) -> tuple[Host, Plan]:
    """Return the host as *start* sees it, and the plan. *or_empty*: as in `plan_or_empty`.

    Errors: as `plan_host`; `UsageError` (code `like-in-words`) for the plan of another program.
    """
    if query.request.like is not None:
        problem = f"{query.option_name('like')} shows what a program would bind, and starts no container"
        raise UsageError("like-in-words", problem, hint="leave it out")
    host = host_for(host, start, image)
    start = in_image(start, image)
    query = query._replace(request=_requested(host, query.request, start))
    return host, (plan_or_empty if or_empty else plan_host)(host, query, image, layout_of(start, image))


def _requested(host: Host, request: Request, start: Start) -> Request:
    """Return *request* with the capabilities and directories that the site's and the user's settings add to the
    runtime's own GPU flag.
    """
    paths = (RootedPath(path) for path in start.runtime.site_library_path(start))
    existing_paths = tuple(path for path in paths if host.driver.has(path))
    caps = CAPABILITIES if request.caps is None and start.runtime.wants_compat32(start) else request.caps
    return request._replace(caps=caps, library_path=(*request.library_path, *existing_paths))


def prepare_with_plan(
    host: Host, plan: Plan, start: Start, image: Optional[Image], files: FilePolicy, *, in_line: bool = False
) -> PreparedStart:
    """Return *start* with *plan*, its generated files and its arguments. Errors: as `prepare`."""
    start = in_image(start, image)
    stage = write_start_files(plan, start, files)
    if host.local is None and start.bundle is not None:
        start = start._replace(bundle=start.bundle._replace(is_writable=True))  # a record lists no writers
    arguments = (start.runtime.arguments_in_line if in_line else start.runtime.arguments)(plan, start, stage)
    if arguments is None:
        problem = "the format edits the configuration of an image, and no image is named"
        raise UsageError("format-without-image", problem, hint=f"give --image: {start.runtime.image_hint}")
    return PreparedStart(arguments, start, host, plan, image, in_line and start.runtime.inserts_into_line)


def in_image(start: Start, image: Optional[Image]) -> Start:
    """Return *start* with the tree and the bundle of *image*, if the image is known."""
    return start if image is None else start._replace(tree=image.tree, bundle=image.bundle)


def write_start_files(plan: Plan, start: Start, files: FilePolicy) -> Stage:
    """Return the paths of the generated files of the plan and of the runtime, written as *files* specifies."""
    contents = {**plan.generated, **start.runtime.generated_files(plan, start)}
    mount_points = start.runtime.mount_point_files(plan, start)
    environ = start.caller.environ if files.environ is None else files.environ
    places = write_generated(contents, environ, files)
    skeleton = HostPath("<generated>") if mount_points else None
    if mount_points and files.write:
        from gpubind.launch.stage import stage_skeleton

        skeleton = stage_skeleton(mount_points, environ)
    asks = start.caller.on_host and start.runtime.limits.no_read_only_bind
    writable = writable_files(plan) if asks else frozenset()
    return Stage(places, skeleton, writable)


def _need_gpu(plan: Plan) -> None:
    """Errors: `CheckError` (code `gpu-required`) if no GPU would work in the container."""
    stops = [finding for finding in plan.findings if finding.severity == "error" and finding.code in _WITHOUT_GPU]
    is_linux = all(planned.driver.kind == "linux" for planned in plan.drivers)
    if stops or (is_linux and not any(gpu.chosen for gpu in plan.gpus)):
        why = "; ".join(f"{finding.code}: {finding.what}" for finding in stops)
        raise CheckError(
            "gpu-required",
            "no GPU would work in the container, and one is required",
            findings=stops,
            why=why or "no GPU is chosen, or none is here",
            hint="`gpubind check` says what is wrong with this host; ask the scheduler for a GPU",
        )
