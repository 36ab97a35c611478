"""exec, run, shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from gpubind.cli import declarations as declared
from gpubind.cli.declarations import Argument, PlanOptions, Subcommand
from gpubind.cli.output import progress, write_document
from gpubind.errors import UsageError
from gpubind.machine.answers import lexists

if TYPE_CHECKING:
    from gpubind.runtimes.cmdline.programs import Action


def start(
    action: Action,
    options: PlanOptions,
    *,
    image: str,
    command: Optional[Sequence[str]],
    backend: str,
    quiet: bool,
    verbose: int,
    **start_options: Any,
) -> None:
    """Start a container, or print its command."""
    from gpubind.cli.starting import start_request
    from gpubind.launch.choose import need_command, parse_start
    from gpubind.launch.start import become, make_command
    from gpubind.model.notice import Notice

    args = (image, *(command or ()))
    if not image.startswith("-"):
        need_command(action, args)
    _need_image(args, is_verbose=verbose > 0)
    request = start_request(options, quiet=quiet, verbose=verbose, **start_options)
    line = parse_start(action, args, backend, request.environ, elsewhere=request.elsewhere)
    if line.why:
        request.report(Notice("note", "backend", f"{line.runtime.name}, {line.why}", is_detail=True))
    with progress(quiet=quiet):
        result = make_command(request, action, line)
    if request.dry_run:
        write_document(_format_command(result.argv, line.image.word, line.argv), None)
    else:
        become(result)


def _format_command(argv: tuple[str, ...], image: str, command: tuple[str, ...]) -> str:
    """Return *argv* as text for a shell: one option on a line, IMAGE and the command on the last."""
    from gpubind.runtimes.runtime import format_multiline

    behind = len(argv) - len(command) if command and argv[-len(command) :] == command else len(argv)
    for before in ("--", image):
        behind -= argv[behind - 1] == before
    return format_multiline(argv, 1, behind)


def _need_image(args: tuple[str, ...], *, is_verbose: bool) -> None:
    """Errors: `UsageError` for a runtime's command line, or a volume, in place of the image."""
    image = args[0]
    if args[1:2] in (("exec",), ("run",), ("shell",)) and not lexists(image):
        from gpubind.runtimes import PROGRAMS

        if image in PROGRAMS:
            from gpubind.cli.suggestions import suggestion

            raise UsageError("wrong-use", f"`{image}` is a runtime, not an image", hint=suggestion(args).rstrip())
    if is_verbose and image.startswith("/") and ":/" in image and not lexists(image):
        hint = f"`-v` is gpubind's --verbose; the runtime's own options follow `--`: `-- -v {image} IMAGE`"
        raise UsageError("wrong-use", f"`{image}` is a volume, not an image", hint=hint)


def _command(action: Action, text: str, *examples: tuple[str, str]) -> Subcommand:
    def run(options: PlanOptions, **values: Any) -> None:
        start(action, options, **values)

    run.__name__, run.__doc__ = action, text
    return Subcommand(
        run,
        (
            declared.BACKEND,
            declared.BACKEND_ARGUMENTS,
            declared.ALLOW_WRITABLE,
            declared.CHECK_FIRST,
            declared.LOG_START,
            declared.REQUIRE_GPU,
            declared.DRY_RUN,
            declared.QUIET,
            declared.VERBOSE,
        ),
        (
            Argument(
                "image",
                "[-- RUNTIME_OPTIONS...] IMAGE",
                "The image, as the runtime takes it. The runtime's own options may stand before it, after a --.",
            ),
            Argument("command", "[--] [CMD...]", "The command and its arguments.", takes_rest=True, required=False),
        ),
        common=("--nv", "--gpus", "--backend", "--check", "--dry-run"),
        examples=examples,
        exit_codes=declared.STARTS_CODES,
        starts=True,
    )


EXEC = _command(
    "exec",
    "Plan, then run CMD in a container of IMAGE.",
    ("start a program", "gpubind exec --nv app.sif python train.py"),
    ("with options of the runtime", "gpubind exec --nv -- -B /scratch app.sif python train.py"),
)
RUN = _command(
    "run",
    "Plan, then run what IMAGE runs by default.",
    ("start what the image starts by default", "gpubind run --nv app.sif --epochs 3"),
)
SHELL = _command(
    "shell",
    "Plan, then start a shell in a container of IMAGE.",
    ("look around in an image", "gpubind shell --nv app.sif"),
)
