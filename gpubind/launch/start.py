"""Start a container: `make_command` returns the command that `become` executes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Optional

from gpubind.errors import BoundError, CheckError, CommandError, GpubindError, UnseenError
from gpubind.launch.caller import read_start_facts
from gpubind.launch.choose import StartArguments
from gpubind.launch.execute import execute, need_program
from gpubind.launch.lasting import restart_severity, use_cdi_devices
from gpubind.launch.prepare import FilePolicy, prepare
from gpubind.launch.target import StartRequest, StartTarget, with_target
from gpubind.machine import system
from gpubind.machine.listener import mark_uncacheable, report_command
from gpubind.model import with_count
from gpubind.model.notice import Notice, ignore
from gpubind.runtimes.cmdline.programs import Action
from gpubind.runtimes.runtime import STAGED_DIRECTORY, Command, PreparedStart, Runtime, StartCall

if TYPE_CHECKING:
    from gpubind.model import Finding
    from gpubind.rules.preflight import Preflight

_JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "FLUX_JOB_ID")
"""Variables with the number of the job, of Slurm, PBS, LSF, Grid Engine and Flux."""
FALLBACK_ERRORS = (BoundError, UnseenError)
"""Errors that mean that gpubind cannot inspect the host. The runtime's own flag may still provide its GPUs."""


def make_command(request: StartRequest, action: Action, line: StartArguments) -> Command:
    """Return the command of the runtime for *line*, with the plan.

    Errors: `CheckError`, `CommandError`, and those of opening, planning and preparing.
    """
    runtime, argv = line.runtime, line.argv
    is_entered = line.image.prefix == "instance"
    request = request._replace(arguments=(*request.arguments, *line.options), is_entered=is_entered)
    try:
        command = with_target(
            request, runtime, runtime.name, line.image, lambda target: _plan_command(request, action, line, target)
        )
    except FALLBACK_ERRORS as error:
        report_builtin_flag(request, error, has_gpu_flag=bool(runtime.gpu_flags))
        program = runtime.name if request.dry_run else need_program(runtime.name, request.environ)
        args = (*request.arguments, *_builtin_gpu_flags(request, runtime), line.image.word, *argv)
        command = Command((program, action, *args), request.environ)
    report_command(argv, is_looked_at=request.check or runtime.limits.hides_missing_command)
    return command


def become(command: Command) -> NoReturn:
    """Replace this process by *command*. Errors: `OutputError`, `StartError`."""
    execute(write_command_file(command), command.environ)


def write_command_file(command: Command) -> tuple[str, ...]:
    """Write the file of *command*, and return its arguments. Errors: `OutputError` (code `unwritable-file`)."""
    if command.file is None:
        return command.argv
    from gpubind.launch.stage import stage_single_file

    place = stage_single_file(command.file.name, command.file.content, command.environ)
    return tuple(place if arg == STAGED_DIRECTORY else arg for arg in command.argv)


def _plan_command(request: StartRequest, action: Action, line: StartArguments, target: StartTarget) -> Command:
    prepared = prepare_start(request, target)
    prepared = use_cdi_devices(request, target, prepared)
    token = "ID" if request.dry_run else system.token()
    call = StartCall(target.program, action, line.image.word, line.argv, token, system.is_terminal(0))
    command = prepared.start.runtime.start_command(call, prepared.start, prepared.arguments)
    if not request.dry_run and any(token in arg for arg in command.argv):
        mark_uncacheable("the container has a name for this start only")
    inspect_start(request, target, prepared, line.argv[0] if action == "exec" else None)
    log_start(request, prepared, line.image.word)
    return command


def prepare_start(request: StartRequest, target: StartTarget, *, in_line: bool = False) -> PreparedStart:
    """Return the start of *target* with its plan, which is empty if there is nothing to bind.

    *in_line*: its arguments are for the user's own command line. Errors: `CheckError` (code `gpu-required`); as
    `prepare`.
    """
    runtime, image, query = target.runtime, target.image, request.query
    begun = read_start_facts(
        runtime,
        target.program,
        request.arguments,
        request.environ,
        target.host,
        request.global_options,
        allow_writable=request.allow_writable,
        probe=target.probe,
    )
    start = begun._replace(is_entered=request.is_entered, restarts=restart_severity(begun, request.container))
    if image is None and runtime.store is not None and query.request.userspace == "auto":
        # Bind only the nodes of AMD and Intel GPUs, as these programs do by themselves.
        query = query._replace(request=query.request._replace(userspace="image"))
    prepared = prepare(
        target.host,
        query,
        start,
        image,
        FilePolicy(write=not request.dry_run),
        or_empty=not (request.require_gpu or request.names_gpu),
        require_gpu=request.require_gpu,
        in_line=in_line,
    )
    plan, arguments = prepared.plan, prepared.arguments
    if not (plan.drivers or request.check):
        plan = plan._replace(findings=tuple(finding._replace(severity="warning") for finding in plan.findings))
    return prepared._replace(plan=plan, arguments=arguments._replace(options=(*arguments.options, *target.options)))


def inspect_start(request: StartRequest, target: StartTarget, prepared: PreparedStart, program: Optional[str]) -> None:
    """Check *prepared* if requested, look for *program* in the image, and report findings.

    Errors: `CheckError` (code `check-failed`); `CommandError` for a program that is missing from the image, if the exit
    code of the runtime would not show it.
    """
    plan, arguments, image = prepared.plan, prepared.arguments, prepared.image
    # gpubind does not know which files the user's own line adds to the container.
    hides = target.runtime.limits.hides_missing_command and not prepared.includes_user_options
    if request.check:
        _require_check_passes(request, preflight_of(prepared, target.runtime, program))
        return
    missing: Optional[CommandError] = None
    order: tuple[Finding, ...] = ()
    if image is not None and (hides or request.report is not ignore):
        from gpubind.rules.image.image import order_findings

        preflight = preflight_of(prepared, target.runtime, program if hides else None)
        missing, order = _missing_command(preflight) if hides else None, order_findings(preflight)
    if missing is None or not plan.drivers:
        for finding in (*plan.findings, *arguments.findings, *order):
            if not (target.is_unknown and finding.code == "image-unknown"):
                request.report(finding)
    if missing is not None:
        raise missing


def log_start(request: StartRequest, prepared: PreparedStart, image: str) -> None:
    """Write the line about a start of *image* with a plan to the system log, if requested."""
    if not request.log_start or request.dry_run or not prepared.plan.drivers:
        return
    from gpubind.documents.text import printable

    mark_uncacheable("each start has its line in the system log")
    fields = {
        "job": next((request.environ[name] for name in _JOB_VARIABLES if request.environ.get(name)), "-"),
        "uid": prepared.host.identity.euid,
        "runtime": prepared.start.runtime.name,
        "image": image,
        "gpus": sum(gpu.chosen for gpu in prepared.plan.gpus),
        "plan": prepared.plan.digest,
    }
    try:
        system.write_system_log(printable(" ".join(("start", *(f"{name}={value}" for name, value in fields.items())))))
    except OSError as error:
        text = f"the system log has no line about this start: {error.strerror or error}"
        request.report(Notice("warning", "start-not-logged", text))


def preflight_of(prepared: PreparedStart, runtime: Runtime, program: Optional[str] = None) -> Preflight:
    """Return the input of the rules for *prepared*."""
    from gpubind.rules.preflight import preflight

    return preflight(
        prepared.host,
        prepared.plan,
        prepared.image,
        backend=runtime.name,
        start=prepared.start,
        program=program,
        own_mounts=prepared.start.runtime.base_mounts(prepared.plan, prepared.start),
        arguments=prepared.arguments,
    )


def report_builtin_flag(request: StartRequest, error: GpubindError, *, has_gpu_flag: bool) -> None:
    """Report that the runtime starts with its own GPU flag, because *error* prevents gpubind from inspecting the host.

    Errors: *error*, if the runtime has no such flag, or if the user requests more than the flag gives.
    """
    if request.check or request.require_gpu or request.elsewhere or request.names_gpu or not has_gpu_flag:
        raise error
    why = ": ".join(filter(None, (error.where, error.why)))
    text = f"{why}; started without a plan, with the runtime's own GPU flag"
    request.report(Notice("warning", "not-looked-at", text))


def _builtin_gpu_flags(request: StartRequest, runtime: Runtime) -> tuple[str, ...]:
    """Return the flag of *runtime* for the requested GPUs; for several vendors that of the first: it accepts only
    one.
    """
    gpus, vendors = request.query.request.gpus, request.query.request.vendors
    if gpus is not None and gpus.strip().lower() == "none":
        return ()
    if not vendors:
        is_amd = system.exists("/dev/kfd") and not system.exists("/dev/nvidiactl")
        vendors = ("amd",) if is_amd else ("nvidia",)
    return tuple(runtime.gpu_flags[vendor] for vendor in vendors if vendor in runtime.gpu_flags)[:1]


def _require_check_passes(request: StartRequest, preflight: Preflight) -> None:
    """Report the findings of the check. Errors: `CheckError` (code `check-failed`) for an error that is not ignored."""
    from gpubind.documents.check.report import fold_findings
    from gpubind.rules.outcome import make_report
    from gpubind.rules.table import check

    outcome = make_report(preflight.plan, check(preflight), request.reasons, severities=request.severities)
    for finding in fold_findings(outcome.findings):
        request.report(finding)
    for finding, was, by in outcome.changed:
        text = f"{finding.subject}: {finding.severity}, it was {was} ({by})"
        request.report(Notice("changed", finding.code, text, is_detail=True))
    for finding, reason in outcome.ignored:
        request.report(Notice("ignored", finding.code, f"{finding.what} ({reason})"))
    errors = [finding for finding in outcome.findings if finding.severity == "error"]
    if errors:
        raise CheckError(
            "check-failed",
            f"the check found {with_count(len(errors), 'error')}; nothing was started",
            findings=errors,
            why=", ".join(dict.fromkeys(finding.code for finding in errors)),
            hint="`gpubind explain CODE` says what to do; without --check the container is started all the same",
        )


def _missing_command(preflight: Preflight) -> Optional[CommandError]:
    """Return the error that a shell would report for the program, with exit code 127 or 126; None if unsure."""
    from gpubind.loader.execve import first_program, is_undecided, nearest_program
    from gpubind.rules.preflight import search_path

    if not preflight.has_program:
        return None
    chain, container = preflight.chain, preflight.container
    if len(chain.names) > 1 or container.unreadable_mounts:
        return None
    kind = chain.stop.kind if chain.stop is not None else None
    name = chain.names[0]
    where = search_path(preflight.image, preflight.plan, preflight.own_mounts)
    if kind not in ("missing", "mode", "directory", "special") or is_undecided(container, name, where):
        return None
    code, problem, hint = "not-executable", "is not a program", "look with `gpubind shell`"
    if kind == "missing":
        code, problem = "no-such-command", "is not in the image"
        if first_program(container, name, where):
            hint = "give the arguments without quotes around all of them"
        else:
            hint = nearest_program(container, name, where) + hint
    where = "" if "/" in name else where
    return CommandError(code, f"`{name}` {problem}", found=kind != "missing", where=where, hint=hint)
