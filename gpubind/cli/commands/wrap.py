"""wrap: a runtime's own command line, with the plan in the place of its GPU flags."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn, Optional

from gpubind.cli.declarations import (
    ALLOW_WRITABLE,
    CHECK_FIRST,
    DRY_RUN,
    QUIET,
    REQUIRE_GPU,
    STARTS_CODES,
    VERBOSE,
    Argument,
    PlanOptions,
    Subcommand,
)
from gpubind.cli.output import tell_of_memo, waiting, warn
from gpubind.cli.ready import (
    UNSEEN,
    Looked,
    StartRequest,
    all_the_same,
    look_at,
    look_into,
    need_own_flag,
    need_this_machine,
    ready_for,
)
from gpubind.errors import EXIT_NOT_STARTED, CommandError, GpubindError, UsageError
from gpubind.observe import has_command

if TYPE_CHECKING:
    from gpubind.launch.wrap.command import Wrapped
    from gpubind.launch.wrap.gpus import GpuRequest
    from gpubind.runtimes.runtime import Action, Command

HELP = """Start a runtime's own command line, with the plan in it.

The plan takes the place of the runtime's GPU flags. A line that asks for no GPU is started as it is.
"""


def wrap(
    options: PlanOptions,
    *,
    line: Sequence[str],
    dry_run: bool,
    require_gpu: bool,
    check: bool,
    quiet: bool,
    verbose: int,
    allow_writable: bool,
) -> None:
    """Read the line, and start what it comes to. Errors: 125 for whatever keeps the runtime from being started."""
    from gpubind.launch.execute import callers_environ
    from gpubind.launch.wrap.command import moved, parse_command
    from gpubind.launch.wrap.passing import site_switches

    words = tuple(line)
    try:
        environ = callers_environ()
        made = parse_command(words, environ, site_switches(words))
        if made is None:
            _become(words, environ, dry_run=dry_run)
        elif not made.is_here:
            _become(moved(made, _gpubind(len(words))), environ, dry_run=dry_run)
        else:
            need_this_machine(options, dry_run=dry_run)
            tell_of_memo(wanted=verbose > 1)
            wanted = StartRequest(made.runtime, (), dry_run, require_gpu, check, quiet, verbose, allow_writable)
            _start(options, made, wanted, environ)
    except CommandError:
        raise
    except GpubindError as error:
        # A command in the container may end with 2, too.
        error.exit_code = EXIT_NOT_STARTED
        raise


_ACTIONS: dict[str, Action] = {"exec": "exec", "shell": "shell"}


def _start(options: PlanOptions, made: Wrapped, wanted: StartRequest, environ: Mapping[str, str]) -> None:
    from gpubind.launch.preparation import written
    from gpubind.launch.wrap.command import arguments_of, printed
    from gpubind.runtimes import RUNTIMES
    from gpubind.runtimes.cmdline.programs import PROGRAMS

    runtime = RUNTIMES[made.runtime]
    wanted = wanted._replace(arguments=arguments_of(made), own=made.own)
    try:
        with (
            waiting(quiet=wanted.quiet),
            closing(
                look_at(options, made.image_place, runtime, wanted, environ, made.words[made.program_at])
            ) as looked,
        ):
            command = all_the_same(looked, wanted, lambda looked: _made(options, made, looked, wanted, environ))
    except UNSEEN as error:
        need_own_flag(error, options, wanted, has_one=made.gpus.asked)
        command = None
    if not PROGRAMS[made.runtime].reader.permutes:  # it would read options among the command's words, too
        has_command(made.command, is_looked_at=wanted.check or runtime.limits.hides_missing_command)
    if command is None:
        _become(made.words, environ, dry_run=wanted.dry_run)  # as it is: the program's own flag goes on, too
    elif wanted.dry_run:
        _print(printed(made, command.argv))
    else:
        _execute(written(command), command.environ)


def _made(
    options: PlanOptions, made: Wrapped, looked: Looked, wanted: StartRequest, environ: Mapping[str, str]
) -> Optional[Command]:
    """As `_planned`; None, with a warning, for a line that brings its GPUs by itself and cannot get a plan."""
    is_wanted = wanted.check or wanted.require_gpu
    if not made.gpus.brings_nodes or is_wanted:
        return _planned(options, made, looked, wanted, environ)
    if looked.image is None:
        return None  # whose ROCm it should use, nobody knows; the nodes are there
    try:
        return _planned(options, made, looked, wanted, environ)
    except GpubindError as error:
        if not wanted.quiet:
            warn(error)
        return None


def _planned(
    options: PlanOptions, made: Wrapped, looked: Looked, wanted: StartRequest, environ: Mapping[str, str]
) -> Optional[Command]:
    """The line with its plan; None where the image asks for no GPU after all, or where there is nothing to bind."""
    from gpubind.launch.caller import remote_of
    from gpubind.launch.wrap.command import rewritten
    from gpubind.launch.wrap.gpus import as_written, with_image
    from gpubind.runtimes.runtime import STAGED_DIRECTORY, Call, Command

    facts = looked.image.facts if looked.image is not None else None
    if made.gpus.image_decides and facts is None and remote_of(looked.runtime, environ, wanted.own) is not None:
        return None  # what the image on that machine says, its own runtime reads
    request = with_image(made.gpus, facts.env if facts is not None else None)
    if request is None:
        return None
    asked = _asked(options, request)
    try:
        ready = ready_for(asked, looked, wanted, environ, in_line=True)
    except UsageError as error:
        raise error if asked.gpus == options.gpus else as_written(error, request) from None
    look_into(looked, ready, made.command[0] if made.subcommand[-1:] == ("exec",) and made.command else None, wanted)
    if not ready.plan.drivers:
        return None
    put_in, without, file = ready.words.options, {option.name for option in made.options}, None
    if not ready.has_arguments:
        action = _ACTIONS.get(made.subcommand[-1] if made.subcommand else "exec", "run")
        image = "" if made.is_rootfs else made.image or ""  # how --rootfs treats it, the line says itself
        call = Call(looked.program, action, image, made.command, terminal=None)
        _, environ, file = ready.runtime.command(call, ready.start, ready.words)
        put_in, without = (put_in, set()) if file is None else (("--bundle", STAGED_DIRECTORY), {"bundle"})
    return Command(rewritten(made, put_in, without=without), environ, file)


def _asked(options: PlanOptions, request: GpuRequest) -> PlanOptions:
    """Return *options* with what the line asks for. What `wrap` itself is told, or its settings say, wins."""
    chosen = options.gpus is not None or options.cdi_device is not None
    by_cdi = not chosen and request.gpus is None and bool(request.cdi)
    return options._replace(
        nv=options.nv or "nvidia" in request.vendors,
        rocm=options.rocm or "amd" in request.vendors,
        gpus=options.gpus if chosen else request.gpus,
        cdi_device=list(request.cdi) if by_cdi else options.cdi_device,
        caps=",".join(request.caps) if options.caps is None and request.caps is not None else options.caps,
    )


def _gpubind(length: int) -> tuple[str, ...]:
    """This very gpubind as words of a command line, with its options, up to the line of *length* words.

    An installed program is named by its path: PATH may be another one behind `sudo` or on another machine.
    """
    program, *own = (word for word in sys.argv[: len(sys.argv) - length] if word != "--dry-run")
    is_module = os.path.basename(program) in ("__main__.py", "-c", "-m")
    mine = (sys.executable, "-m", "gpubind") if is_module else (os.path.abspath(program),)
    return (*mine, *own, *(() if own[-1:] == ["--"] else ("--",)))


def _become(words: Sequence[str], environ: Mapping[str, str], *, dry_run: bool) -> None:
    if dry_run:
        import shlex

        _print(shlex.join(words) + "\n")
    else:
        _execute(words, environ)


def _execute(words: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    from gpubind.launch.execute import execute_line

    execute_line(words, environ)


def _print(text: str) -> None:
    from gpubind.cli.output import write_document

    write_document(text, None)


COMMANDS = {
    "wrap": Subcommand(
        "wrap",
        wrap,
        HELP,
        (
            ALLOW_WRITABLE,
            CHECK_FIRST,
            REQUIRE_GPU,
            DRY_RUN._replace(help="Print the command line instead."),
            QUIET,
            VERBOSE,
        ),
        (Argument("line", "-- RUNTIME ARGS...", "The command line: apptainer exec --nv IMAGE CMD...", many=True),),
        common=("--nv", "--gpus", "--caps", "--check", "--dry-run"),
        examples=(
            ("start an existing command line", "gpubind wrap -- singularity exec --nv app.sif python train.py"),
            ("at every prompt", "alias singularity='gpubind wrap -- singularity'"),
        ),
        exit_codes=STARTS_CODES,
        starts=True,
    )
}
