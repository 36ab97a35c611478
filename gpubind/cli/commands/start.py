"""exec, run, shell."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Optional

from gpubind.cli.declarations import (
    ALLOW_WRITABLE,
    BACKEND,
    BACKEND_ARGUMENTS,
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
from gpubind.cli.output import complain, tell_of_memo, waiting
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
from gpubind.documents.text import printable
from gpubind.errors import EXIT_NOT_STARTED, CommandError, GpubindError, RuntimeLimitError, UsageError
from gpubind.model.answers import lexists
from gpubind.observe import has_command
from gpubind.runtimes import RUNTIMES

if TYPE_CHECKING:
    from gpubind.launch.preparation import ChosenRuntime
    from gpubind.runtimes.runtime import Action, Command, Runtime


def _starter(action: Action) -> Callable[..., None]:
    def start(
        options: PlanOptions,
        *,
        image: str,
        command: Optional[Sequence[str]],
        backend: str,
        backend_arg: Optional[Sequence[str]],
        dry_run: bool,
        require_gpu: bool,
        allow_writable: bool,
        check: bool,
        quiet: bool,
        verbose: int,
    ) -> None:
        words = (image, *(command or ()))
        if not image.startswith("-"):
            _need_argv(action, words)
        _need_image(words, is_verbose=verbose > 0)
        need_this_machine(options, dry_run=dry_run)
        try:
            arguments = tuple(backend_arg or ())
            wanted = StartRequest(backend, arguments, dry_run, require_gpu, check, quiet, verbose, allow_writable)
            _start(action, options, words, wanted)
        except (CommandError, UsageError):
            raise
        except GpubindError as error:
            # As with docker and podman: 125 says that the container was never started.
            error.exit_code = EXIT_NOT_STARTED
            raise

    return start


def _start(action: Action, options: PlanOptions, words: tuple[str, ...], wanted: StartRequest) -> None:
    from gpubind.launch.execute import callers_environ, execute, need_program
    from gpubind.launch.preparation import written
    from gpubind.runtimes.runtime import Call, Command

    tell_of_memo(wanted=wanted.verbose > 1)
    environ = callers_environ()
    runtime, words = _chosen(action, wanted, environ, words, elsewhere=options.host is not None)
    own, words = _own_options(runtime, action, words)
    argv = _need_argv(action, words)
    image = words[0] if wanted.backend == "auto" else _without_store(words[0], runtime)
    if image.startswith("-"):  # the runtime would take it for an option
        image = f"./{image}"
    wanted = wanted._replace(arguments=(*wanted.arguments, *own))
    token = "ID" if wanted.dry_run else f"{os.getpid()}-{os.urandom(4).hex()}"

    def planned(looked: Looked) -> Command:
        ready = ready_for(options, looked, wanted, environ)
        call = Call(looked.program, action, image, argv, token, _is_terminal())
        made = ready.runtime.command(call, ready.start, ready.words)
        look_into(looked, ready, argv[0] if action == "exec" else None, wanted)
        return made

    try:
        with (
            waiting(quiet=wanted.quiet),
            closing(look_at(options, image, runtime, wanted, environ, runtime.name)) as looked,
        ):
            made = all_the_same(looked, wanted, planned)
    except UNSEEN as error:
        need_own_flag(error, options, wanted, has_one=bool(runtime.gpu_flags))
        program = runtime.name if wanted.dry_run else need_program(runtime.name, environ)
        made = Command((program, action, *wanted.arguments, *_own_flags(runtime, options), image, *argv), environ)
    has_command(argv, is_looked_at=wanted.check or runtime.limits.hides_missing_command)
    if wanted.dry_run:
        from gpubind.cli.output import write_document

        write_document(_shown(made.argv, image, argv), None)
        return
    execute(written(made), made.environ)


def _without_store(image: str, runtime: Runtime) -> str:
    """Return *image* without the name of the store of *runtime*, `podman:debian:12`.

    `docker:dind` stays as it is: it is also an image that is called docker.
    """
    store, _, name = image.partition(":")
    is_stored = store == runtime.store and not {*":/@"}.isdisjoint(name) and not lexists(image)
    return name if is_stored else image


def _own_flags(runtime: Runtime, options: PlanOptions) -> tuple[str, ...]:
    """Return the flag of *runtime* for the GPUs that *options* ask for; of two vendors it takes one alone."""
    if options.gpus is not None and options.gpus.strip().lower() == "none":
        return ()
    is_amd = options.rocm and not options.nv
    if not (options.nv or options.rocm):
        is_amd = os.path.exists("/dev/kfd") and not os.path.exists("/dev/nvidiactl")
    return (runtime.gpu_flags["amd" if is_amd else "nvidia"],)


def _shown(words: tuple[str, ...], image: str, command: tuple[str, ...]) -> str:
    """The command line *words*, for a reader and a shell: an option a line, then IMAGE and the command in the last."""
    from gpubind.runtimes.runtime import an_option_a_line

    behind = len(words) - len(command) if command and words[-len(command) :] == command else len(words)
    for before in ("--", image):
        behind -= words[behind - 1] == before
    return an_option_a_line(words, 1, behind)


def _is_terminal() -> bool:
    """Return whether standard input is one."""
    try:
        return os.isatty(0)
    except OSError:
        return False


def _own_options(runtime: Runtime, action: str, words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The options of *runtime* that stand before IMAGE in *words*, and IMAGE with what follows. Errors: `UsageError`.

    They need a `--` before them, and then an image whose name begins with `-` could be meant, too: one that is there.
    """
    if not words[0].startswith("-"):
        return (), words
    from gpubind.launch.wrap.command import own_options

    try:
        return own_options(runtime.name, action, words)
    except UsageError:
        if lexists(words[0]):
            return (), words
        raise


def _need_argv(action: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """The command in *words*, which begin with IMAGE. Errors: `UsageError` where IMAGE or a command is missing."""
    if not words:
        raise UsageError(
            "no-command", "there is no IMAGE after the runtime's options", hint="gpubind exec -- OPTIONS IMAGE"
        )
    argv = words[2:] if words[1:2] == ("--",) else words[1:]
    if action == "exec" and not argv:
        raise UsageError("no-command", "exec wants a command", hint="gpubind exec IMAGE CMD..., or gpubind shell")
    return argv


def _need_image(words: tuple[str, ...], *, is_verbose: bool) -> None:
    """Raise `UsageError` where *words* begin with a runtime's command line, or with a volume, instead of an image."""
    image = words[0]
    if words[1:2] in (("exec",), ("run",), ("shell",)) and not lexists(image):
        from gpubind.runtimes.cmdline.programs import PROGRAMS

        if image in PROGRAMS:
            from gpubind.cli.meant import meant

            raise UsageError("wrong-use", f"`{image}` is a runtime, not an image", hint=meant(words).rstrip())
    if is_verbose and image.startswith("/") and ":/" in image and not lexists(image):
        hint = f"`-v` is gpubind's --verbose; the runtime's own options stand behind `--`: `-- -v {image} IMAGE`"
        raise UsageError("wrong-use", f"`{image}` is a volume, not an image", hint=hint)


def _chosen(
    action: Action, wanted: StartRequest, environ: Mapping[str, str], words: tuple[str, ...], *, elsewhere: bool
) -> tuple[Runtime, tuple[str, ...]]:
    """The runtime that --backend names, and *words* with IMAGE as that takes it; options of the runtime's may stand
    before it.

    Errors: `UsageError`, `RuntimeLimitError` (code `no-runtime`).
    """
    from gpubind.runtimes import known_runtime

    if wanted.backend != "auto":
        return known_runtime(wanted.backend, "auto"), words
    chosen, at = _automatic(action, words, environ, elsewhere=elsewhere)
    if wanted.verbose:
        complain(f"note: backend: {chosen.runtime.name}, {printable(chosen.why)}\n")
    return chosen.runtime, (*words[:at], chosen.image, *words[at + 1 :])


def _automatic(
    action: Action, words: tuple[str, ...], environ: Mapping[str, str], *, elsewhere: bool = False
) -> tuple[ChosenRuntime, int]:
    """Return what --backend auto comes to, and where IMAGE stands in *words*.

    Whose options stand before it decides where it stands, and the image decides whose they are: the first runtime
    counts that reads them and is the one for the image behind them.
    """
    from gpubind.launch.preparation import choose_runtime
    from gpubind.launch.wrap.command import own_options

    for name in RUNTIMES if words[0].startswith("-") else ():
        with suppress(UsageError, RuntimeLimitError):
            _, rest = own_options(name, action, words)
            chosen = choose_runtime(rest[0], environ) if rest else None
            if chosen is not None and chosen.runtime.name == name:
                return chosen, len(words) - len(rest)
    return choose_runtime(words[0], environ, elsewhere=elsewhere), 0


def _command(action: Action, text: str, *examples: tuple[str, str]) -> Subcommand:
    return Subcommand(
        action,
        _starter(action),
        text,
        (BACKEND, BACKEND_ARGUMENTS, ALLOW_WRITABLE, CHECK_FIRST, REQUIRE_GPU, DRY_RUN, QUIET, VERBOSE),
        (
            Argument(
                "image",
                "[-- RUNTIME_OPTIONS...] IMAGE",
                "The image, as the runtime takes it. The runtime's own options may stand before it, after a --.",
            ),
            Argument("command", "[--] [CMD...]", "The command and its arguments.", many=True, required=False),
        ),
        common=("--nv", "--gpus", "--backend", "--check", "--dry-run"),
        examples=examples,
        exit_codes=STARTS_CODES,
        starts=True,
    )


COMMANDS = {
    "exec": _command(
        "exec",
        "Plan, then run CMD in a container of IMAGE.",
        ("start a program", "gpubind exec --nv app.sif python train.py"),
        ("with options of the runtime", "gpubind exec --nv -- -B /scratch app.sif python train.py"),
    ),
    "run": _command(
        "run",
        "Plan, then run what IMAGE runs by default.",
        ("start what the image starts by default", "gpubind run --nv app.sif --epochs 3"),
    ),
    "shell": _command(
        "shell",
        "Plan, then start a shell in a container of IMAGE.",
        ("look around in an image", "gpubind shell --nv app.sif"),
    ),
}
