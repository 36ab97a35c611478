"""exec, run and shell: start a container with its plan. wrap: the same for a command line of a runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

from gpubind.api.verb import verb
from gpubind.errors import GpubindError, UsageError
from gpubind.host import Host, ListFile
from gpubind.host.open import open_host
from gpubind.model import Finding, Request
from gpubind.planner.planning import PlanQuery

if TYPE_CHECKING:
    from gpubind.launch.target import StartRequest
    from gpubind.model.notice import Message
    from gpubind.runtimes.cmdline.programs import Action
    from gpubind.runtimes.runtime import Command


@verb
def start(
    image: str,
    command: Sequence[str] = (),
    *,
    backend: str = "auto",
    arguments: Sequence[str] = (),
    request: Request = Request(),  # noqa: B008 - a frozen value
    listfile: Optional[ListFile] = None,
    host: Optional[Host] = None,
    require_gpu: bool = False,
    check: bool = False,
    allow_writable: bool = False,
    dry_run: bool = False,
) -> Command:
    """Replace this process by a container of *image* that runs *command*, or the image's default command.

    *backend* is the name of a runtime, or `auto`: the first in PATH that starts such an image. *arguments* are those of
    the runtime. *check*: start nothing if there is an error finding. Findings and warnings go to the logger `gpubind`.
    With *dry_run*, nothing is started or written: the command is returned, with a placeholder for each generated file.
    Errors: `UsageError` (`unknown-backend`, `host-to-start` for a recorded host); `CheckError` (`check-failed`,
    `gpu-required`), whose `findings` are the reasons; `CommandError` for a program that the image lacks;
    `RuntimeLimitError`; `StartError`; those of `open_image` and `plan`.
    """
    from gpubind.launch.choose import parse_start
    from gpubind.launch.start import become, make_command

    host = host or open_host()
    start_request, findings = _make_request(
        host,
        PlanQuery(request, listfile),
        dry_run=dry_run,
        arguments=tuple(arguments),
        require_gpu=require_gpu,
        check=check,
        allow_writable=allow_writable,
    )
    action: Action = "exec" if command else "run"
    line = parse_start(action, (image, *command), backend, start_request.environ, elsewhere=start_request.elsewhere)
    result = make_command(start_request, action, line)
    if not dry_run:
        become(result)
    return result._replace(findings=tuple(findings))


@verb
def wrap(
    argv: Sequence[str],
    *,
    environ: Optional[Mapping[str, str]] = None,
    host: Optional[Host] = None,
    request: Request = Request(),  # noqa: B008 - a frozen value
    listfile: Optional[ListFile] = None,
    require_gpu: bool = False,
    check: bool = False,
    allow_writable: bool = False,
    dry_run: bool = False,
) -> Command:
    """Return *argv*, the command line of a runtime, with the plan in place of its GPU flags. Nothing is started.

    `changed` is false for a line that `gpubind wrap` would start unchanged. *environ* is the environment of the start
    on this machine; without it, that of *host*, or of this process. A missing image is pulled, and generated files are
    written, unless *dry_run*. Findings and warnings are `findings` of the result; all messages also go to the logger
    `gpubind`. Errors: `UsageError` (`wrong-use` for both *host* and *environ*; `host-to-start`; those of a line that
    cannot be parsed); those of `start`.
    """
    from gpubind.launch.execute import this_package
    from gpubind.launch.start import write_command_file
    from gpubind.launch.wrap.start import command_of_line

    if host is not None and environ is not None:
        hint = "give the environment to the host: open_host(environ=...)"
        raise UsageError("wrong-use", "wrap is given both a host and an environment", hint=hint)
    host = host or open_host(environ=environ)
    start_request, findings = _make_request(
        host,
        PlanQuery(request, listfile),
        dry_run=dry_run,
        require_gpu=require_gpu,
        check=check,
        allow_writable=allow_writable,
    )
    args = tuple(argv)

    def again() -> Sequence[str]:
        if request != Request() or listfile is not None or require_gpu or check or allow_writable:
            what = "the line starts its runtime in another environment, where gpubind is only a command line"
            hint = "wrap the arguments after that program, or leave the request to GPUBIND_... variables"
            raise UsageError("wrap-elsewhere", what, where=" ".join(args[:1]), hint=hint)
        return (*this_package(), "wrap", "--")

    result, _ = command_of_line(args, start_request.environ, lambda: start_request, again, start_request.report)
    return result._replace(argv=result.argv if dry_run else write_command_file(result), findings=tuple(findings))


def _make_request(host: Host, query: PlanQuery, *, dry_run: bool, **more: Any) -> tuple[StartRequest, list[Finding]]:
    """Errors: `UsageError` (code `host-to-start`)."""
    from gpubind.launch.prepare import environ_of
    from gpubind.launch.target import StartRequest
    from gpubind.model.notice import collecting

    findings: list[Finding] = []
    elsewhere = host.local is None
    if elsewhere and not dry_run:
        raise UsageError("host-to-start", "nothing can be started on a recorded host", hint="add dry_run=True")
    environ = environ_of(host)
    request = StartRequest(
        lambda: host, query, environ, elsewhere=elsewhere, dry_run=dry_run, report=collecting(findings, _log), **more
    )
    return request, findings


def _log(message: Message) -> None:
    import logging

    from gpubind.documents.text import printable, render_line

    severity = "warning" if isinstance(message, GpubindError) else message.severity
    if isinstance(message, Finding):
        text = render_line(message).rstrip()
    else:
        text = printable(str(message) if isinstance(message, GpubindError) else f"{message.code}: {message.text}")
    level = {"error": logging.ERROR, "warning": logging.WARNING}.get(severity, logging.INFO)
    logger = logging.getLogger("gpubind")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())  # without a handler, logging writes warnings to standard error
    logger.log(level, "%s", text)
