"""The input of a check: `make_preflight` plans a start as `prepare` does, and writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Union

from gpubind.errors import RuntimeLimitError, UsageError
from gpubind.files import Tree
from gpubind.host import Host
from gpubind.model import EnvVar, Plan
from gpubind.planner.planning import PlanQuery, plan_or_empty
from gpubind.rules.preflight import Preflight, preflight
from gpubind.runtimes import RUNTIMES

if TYPE_CHECKING:
    from gpubind.image.facts import Image
    from gpubind.loader.namespace import UserMounts
    from gpubind.model.requirements import Expectation
    from gpubind.runtimes.runtime import Runtime, Start

DEFAULT_RUNTIME = next(iter(RUNTIMES))
"""The runtime that stands for an unknown one, because it resembles the others most."""


def make_preflight(
    host: Host,
    plan_or_query: Union[PlanQuery, Plan],
    image: Optional[Image] = None,
    runtime: Optional[Runtime] = None,
    arguments: tuple[str, ...] = (),
    *,
    allow_writable: bool = False,
    program: Optional[str] = None,
    expected: tuple[Expectation, ...] = (),
    looks_at_gpu_code: bool = True,
) -> Preflight:
    """Return the input of the rules for a start by *runtime* on *host*. Nothing is written.

    *host* may lack the program of *runtime*. *plan_or_query* is the plan, or the request for one. Errors: as
    `plan_host`; `UsageError` (code `other-host`).
    """
    start = None
    if runtime is not None and plan_or_query.request.like is None:
        from gpubind.launch.prepare import make_start

        start = make_start(host, runtime, arguments, allow_writable=allow_writable)
    host, plan = _planned(host, plan_or_query, start, image)
    if program is not None and image is None:
        return _without_container(host, plan, runtime, program, expected, looks_at_gpu_code=looks_at_gpu_code)
    own_mounts = _default_mounts(plan, host) if program is not None and runtime is None else None
    stage = None
    if start is not None:
        from gpubind.launch.prepare import FilePolicy, in_image, write_start_files

        start = _with_daemon_answer(in_image(start, image), image)
        stage = write_start_files(plan, start, FilePolicy(write=False))
        own_mounts = start.runtime.base_mounts(plan, start) if host.local is not None else None
    return preflight(
        host,
        plan,
        image,
        backend=None if runtime is None else runtime.name,
        start=start,
        stage=stage,
        program=program,
        own_mounts=own_mounts,
        limit=_missing_runtime(start) if host.local is not None and start is not None else None,
        expected=expected,
        may_be_library=True,
        looks_at_gpu_code=looks_at_gpu_code,
    )


def _planned(
    host: Host, plan_or_query: Union[PlanQuery, Plan], start: Optional[Start], image: Optional[Image]
) -> tuple[Host, Plan]:
    """Return the host as *start* sees it, and the plan. Errors: as `make_preflight`."""
    if isinstance(plan_or_query, Plan):
        _require_matching_host(host, plan_or_query)
        return host, plan_or_query
    if start is None:
        return host, plan_or_empty(host, plan_or_query, image)
    from gpubind.launch.prepare import plan_start

    return plan_start(host, plan_or_query, start, image, or_empty=True)


def _without_container(
    host: Host,
    plan: Plan,
    runtime: Optional[Runtime],
    program: str,
    expected: tuple[Expectation, ...],
    *,
    looks_at_gpu_code: bool,
) -> Preflight:
    """Return the input of the rules for *program* on this machine, in the caller's environment, without a container.

    Errors: `UsageError` (code `program-without-image`) for another machine, a *runtime*, or the plan of `--like`.
    """
    from gpubind.image.open import host_as_image
    from gpubind.launch.caller import working_directory
    from gpubind.launch.prepare import environ_of
    from gpubind.runtimes.edits import make_base_mounts

    tree = local_programs(host)
    if runtime is not None or plan.request.like is not None or tree is None:
        raise program_without_image("--program needs --image here")
    environ = environ_of(host)
    mounts = make_base_mounts((), environ, working_directory(environ) or "")
    home = EnvVar("HOME", "set", environ.get("HOME", ""), None, "caller")
    return preflight(
        host,
        plan._replace(mounts=(), env=()),
        host_as_image(tree, environ.get("LD_LIBRARY_PATH", "")),
        program=program,
        own_mounts=mounts._replace(env=(*mounts.env, home)),
        expected=expected,
        may_be_library=True,
        looks_at_gpu_code=looks_at_gpu_code,
    )


def local_programs(host: Host) -> Optional[Tree]:
    """Return the files of this machine; None if *host* is another machine, or if its driver is below another root."""
    return host.local if host.local is not None and host.local.root == host.driver.root else None


def program_without_image(problem: str) -> UsageError:
    """Return the error for a program that was given without an image, but cannot be looked for on this machine."""
    why = "without an image, a program is looked for on this machine, where it runs without a container"
    return UsageError("program-without-image", problem, why=why)


def _missing_runtime(start: Start) -> Optional[RuntimeLimitError]:
    from gpubind.launch.execute import find_program

    if find_program(start.runtime.name, start.caller.environ):
        return None
    return RuntimeLimitError("no-runtime", "it is not in PATH", hint="install it, or name another with --backend")


def _with_daemon_answer(start: Start, image: Optional[Image]) -> Start:
    """Return *start* with the answer of its daemon, unless the daemon is remote, or has just provided the image."""
    store = start.runtime.store if start.runtime.has_daemon else None
    is_known = image is not None and image.facts.kind == store
    if store is None or is_known or not start.caller.on_host or start.facts.remote is not None:
        return start
    from gpubind.image.engine import why_silent

    return start._replace(facts=start.facts._replace(silence=why_silent(store)))


def _require_matching_host(host: Host, plan: Plan) -> None:
    """Errors: `UsageError` (code `other-host`) if a required file of *plan* is known to be missing from *host*."""
    for mount in plan.mounts:
        path = host.driver.rooted(mount.source) if mount.required and mount.source is not None else None
        if path is not None and host.lenient.driver.lacks(path):
            problem, why = "the plan was made for another host, or before this host changed", "it does not exist here"
            raise UsageError("other-host", problem, where=path, why=why, hint="plan again on this host")


def _default_mounts(plan: Plan, host: Host) -> Optional[UserMounts]:
    """Return the mounts of the `DEFAULT_RUNTIME` here: home, working directory and /tmp; None for another machine."""
    if host.local is None:
        return None
    from gpubind.launch.caller import read_start_facts
    from gpubind.launch.prepare import environ_of

    environ = environ_of(host)
    places: dict[str, str] = {name: environ[name] for name in ("HOME", "PWD") if name in environ}
    usual = RUNTIMES[DEFAULT_RUNTIME]
    return usual.base_mounts(plan, read_start_facts(usual, None, (), places, host))
