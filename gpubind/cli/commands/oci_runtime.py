"""oci-runtime: gpubind in place of runc or crun, for engines that take a runtime by its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Optional

from gpubind.cli.declarations import PLAN_OPTIONS, Argument, Option, PlanOptions, Subcommand
from gpubind.machine import system

if TYPE_CHECKING:
    from gpubind.host import Host
    from gpubind.model.notice import Message


def oci_runtime(options: PlanOptions, *, line: Sequence[str], runtime: Optional[str]) -> None:
    """Be an engine's OCI runtime: add GPUs, then start runc or crun.

    The engine calls it with the arguments of runc. A container that is created gets its plan at that moment, in its
    config.json. All other calls, and containers that request no GPU, are passed through.
    """
    from gpubind.cli.starting import start_request
    from gpubind.launch.execute import callers_environ, execute
    from gpubind.launch.oci.edit import edit_bundle
    from gpubind.launch.oci.passing import STARTS, bundle_of, config_of, read

    args = tuple(line)
    environ = callers_environ()
    program = _program(runtime, environ)
    request = start_request(
        options, dry_run=False, require_gpu=False, check=False, allow_writable=False, quiet=True, verbose=0
    )
    subcommand, values = read(args)
    if subcommand in STARTS:
        request = request._replace(report=partial(_report, args))
        edit_bundle(request, bundle_of(values), config_of(values), program, partial(_open_host, options))
    execute((program, *args), environ)


def _program(runtime: Optional[str], environ: Mapping[str, str]) -> str:
    """Errors: `RuntimeLimitError` (code `no-runtime`)."""
    from gpubind.launch.execute import need_program
    from gpubind.launch.oci.passing import RUNTIMES, find_runtime

    if runtime is not None and "/" in runtime:
        return system.absolute(runtime)
    return find_runtime(runtime or "") or need_program(runtime or RUNTIMES[0], environ)


def _open_host(options: PlanOptions, variables: Mapping[str, str]) -> Host:
    """Return this machine for a container with *variables*. Of the engine's variables, only PATH is used."""
    from gpubind.host.open import open_host

    path_variable = {name: system.environ()[name] for name in ("PATH",) if name in system.environ()}
    return open_host(None, options.root, options.dev_root, environ={**path_variable, **variables})


def _report(line: Sequence[str], message: Message) -> None:
    """Write warnings and errors to the runtime's log, and errors also to standard error.

    An engine shows the log only if the start fails. Standard error is that of the container.
    """
    from gpubind.cli.output import write_stderr
    from gpubind.documents.text import render_line
    from gpubind.launch.oci.passing import log
    from gpubind.model import Finding

    if isinstance(message, Finding) and message.severity != "note":
        text = render_line(message)
        log(line, "warning", text.rstrip())
        if message.severity == "error":
            write_stderr(text)


_DECIDED = ("--nv", "--rocm", "--intel", "--caps", "--gpus", "--cdi-device", "--host", "--libdir")
"""Options that the container or the runtime decides."""
OCI_RUNTIME = Subcommand(
    oci_runtime,
    (Option("--runtime PROGRAM", "The runtime that takes over. [runc, or else crun, in PATH]", "Launch"),),
    (Argument("line", "-- ARGS...", "The arguments of the runtime: create --bundle DIR ID...", takes_rest=True),),
    common=("--runtime", "--root"),
    examples=(
        ("in the place of runc", "gpubind oci-runtime -- create --bundle DIR ID"),
        ("in the place of crun", "gpubind oci-runtime --runtime crun -- create --bundle DIR ID"),
    ),
    exit_codes=(
        ("125", "gpubind could not start the container"),
        ("other", "the exit code of the runtime"),
    ),
    shared=tuple(option for option in PLAN_OPTIONS if option.name not in _DECIDED),
    starts=True,
)
