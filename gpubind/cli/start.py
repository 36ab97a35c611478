"""exec, run, shell, and a plan in a runtime's words. No `from __future__ import annotations`: see options.py."""

import os
from collections.abc import Callable, Iterable, Mapping
from glob import glob
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import typer

from gpubind.cli.options import PlanOptions, make_plan, open_host_of, open_image_of, takes_plan_options
from gpubind.errors import (
    EXIT_NOT_STARTED,
    CheckError,
    CommandError,
    GpubindError,
    HostReadError,
    NothingToBindError,
    UsageError,
)
from gpubind.runtimes import RUNTIMES

if TYPE_CHECKING:
    from gpubind.image import Image
    from gpubind.model import Brought, Finding, Plan
    from gpubind.rules import Preflight
    from gpubind.runtimes.start import Action, Start

SITE_FILES = {
    "apptainer": "/etc/apptainer/apptainer.conf",
    "singularity": "/etc/singularity/singularity.conf",
}
HELP = {
    "exec": "Plan, then run CMD in a container of IMAGE: this process becomes the runtime's.",
    "run": "Plan, then run what IMAGE runs by default, with arguments.",
    "shell": "Plan, then start a shell in a container of IMAGE.",
}
ENV_FILE_LIMIT = 1 << 20


def add_to(app: typer.Typer) -> None:
    """Give *app* the commands exec, run and shell."""
    settings = {"allow_interspersed_args": False, "ignore_unknown_options": False}
    for action, text in HELP.items():
        app.command(name=action, help=text, context_settings=settings)(takes_plan_options(_starter(action)))


def _starter(action: Any) -> Callable[..., None]:
    def start(
        options: PlanOptions,
        image: Annotated[str, typer.Argument(metavar="IMAGE", help="The image, as the runtime takes it.")],
        command: Annotated[
            Optional[list[str]], typer.Argument(metavar="[--] [CMD...]", help="The command and its arguments.")
        ] = None,
        backend: Annotated[
            str,
            typer.Option(metavar="RUNTIME", envvar="GPUBIND_BACKEND", help="apptainer, singularity, bwrap or auto."),
        ] = "auto",
        backend_arg: Annotated[
            Optional[list[str]], typer.Option(metavar="WORD", help="A word for the runtime itself. Repeatable.")
        ] = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command instead.")] = False,
        require_gpu: Annotated[
            bool, typer.Option("--require-gpu", envvar="GPUBIND_REQUIRE_GPU", help="Do not start without a GPU.")
        ] = False,
        check: Annotated[
            bool, typer.Option(envvar="GPUBIND_CHECK", help="Check first, and do not start on an error finding.")
        ] = False,
        quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Do not report findings.")] = False,
    ) -> None:
        argv = tuple(command or ())
        argv = argv[1:] if argv[:1] == ("--",) else argv
        if action == "exec" and not argv:
            raise UsageError("no-command", "exec wants a command", hint="gpubind exec IMAGE CMD..., or gpubind shell")
        try:
            wanted = Wanted(backend, tuple(backend_arg or ()), dry_run, require_gpu, check, quiet)
            _start(action, options, image, argv, wanted)
        except (CommandError, UsageError):
            raise
        except GpubindError as error:
            # As with docker and podman: 125 says that the container was never started.
            error.exit_code = EXIT_NOT_STARTED
            raise

    start.__name__ = str(action)
    return start


class Wanted(NamedTuple):
    """How a container is to be started. The names are the options'."""

    backend: str
    arguments: tuple[str, ...]
    dry_run: bool
    require_gpu: bool
    check: bool
    quiet: bool


def _start(action: "Action", options: PlanOptions, image: str, argv: tuple[str, ...], wanted: Wanted) -> None:
    from gpubind.cli.main import complain, render_error
    from gpubind.execute import execute, find_program, need_program
    from gpubind.planner import empty_plan
    from gpubind.rules import nothing_to_bind, preflight
    from gpubind.runtimes import bwrap, singularity

    environ = dict(os.environ)
    if image.startswith("-"):  # the runtime would take it for an option
        image = f"./{image}"
    name = _backend(wanted.backend, environ)
    program = name if wanted.dry_run and not find_program(name, environ) else need_program(name, environ)
    opened = _look_at(image, name, wanted)
    layout = bwrap.LAYOUT if name == "bwrap" else singularity.LAYOUT
    host = open_host_of(options)
    try:
        plan = make_plan(options, host=host, image=opened, layout=layout)
    except NothingToBindError as error:
        if wanted.require_gpu or _asks_by_name(options):
            raise
        plan = empty_plan(layout, opened.facts if opened else None)
        if wanted.check:
            plan = plan._replace(findings=(nothing_to_bind(error),))
        elif not wanted.quiet:
            complain(render_error(error).replace("error: ", "warning: ", 1))
    start = facts_of(name, program, wanted.arguments, environ, plan, stage_content=not wanted.dry_run)
    if name == "bwrap":
        assert opened is not None
        _need_command(argv, opened, plan, bwrap.brought(plan, start, opened.tree))
        words = bwrap.words(plan, start, opened.tree)
        line = bwrap.command(program, action, words, opened.tree, argv)
    else:
        words = singularity.words(plan, start, opened.tree if opened else None)
        line = singularity.command(program, action, start, words, image, argv)
        environ = singularity.without_variables(singularity.without_gpu_switches(environ), words.unset)
    if wanted.check:
        first = _program(action, argv)
        _checked(preflight(host, plan, opened, backend=name, program=first)._replace(words=words), quiet=wanted.quiet)
    elif not wanted.quiet:
        report([*plan.findings, *words.findings])
    if wanted.dry_run:
        import shlex

        from gpubind.cli.output import write_document

        write_document(" ".join(shlex.quote(word) for word in line) + "\n", None)
        return
    execute(line, environ)


def _asks_by_name(options: PlanOptions) -> bool:
    """Whether --gpus names a GPU: without that one there is no start."""
    return options.gpus is not None and options.gpus.strip().lower() not in ("all", "none")


def _look_at(image: str, name: str, wanted: Wanted) -> Optional["Image"]:
    """*image*, if it is on this machine. bubblewrap takes directories alone; what others pull is theirs to open."""
    from gpubind.cli.main import complain, render_error

    if name == "bwrap" and os.path.isfile(image):
        hint = "unpack it: `apptainer build --sandbox DIR IMAGE`, or use --backend apptainer"
        raise HostReadError("no-image", "bubblewrap starts directories alone", where=image, hint=hint)
    if name == "bwrap" or os.path.isdir(image):
        return open_image_of(image)
    if not os.path.isfile(image):
        if wanted.check and not wanted.quiet:
            complain(f"warning: image-not-checked: `{image}` is no file here; the host alone is checked\n")
        return None
    try:
        return open_image_of(image)
    except GpubindError as error:
        if wanted.check:
            raise
        if not wanted.quiet:
            complain(render_error(error).replace("error: ", "warning: ", 1))
        return None


def _program(action: "Action", argv: tuple[str, ...]) -> Optional[str]:
    """The program of the image that will start; None if it is the runtime's, or may come from the host."""
    if action != "exec" or argv[0].startswith(("/tmp/", "/home/", "/root/")):
        return None
    return argv[0] if "/" not in argv[0] or argv[0].startswith("/") else None


def _checked(start: "Preflight", *, quiet: bool) -> None:
    """Report what check says of *start*. Errors: `CheckError` if there is an error finding that counts."""
    from gpubind.cli.check import ignored_codes
    from gpubind.cli.main import complain
    from gpubind.documents.findings import report_of
    from gpubind.documents.text import printable
    from gpubind.rules import check

    outcome = report_of(start.plan, check(start), ignored_codes(()))
    if not quiet:
        report(outcome.findings)
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


def plan_in_words(options: PlanOptions, chosen: str, image: Optional[str], *, quoted: bool) -> tuple["Plan", str]:
    """The plan, and its words for the runtime that format *chosen* names."""
    from gpubind.execute import find_program
    from gpubind.runtimes import singularity

    name = chosen[: -len("-env")] if chosen.endswith("-env") else chosen
    opened = open_image_of(image)
    made = make_plan(options, image=opened, layout=singularity.LAYOUT)
    environ = dict(os.environ)
    program = find_program(name, environ) if options.host is None else None
    start = facts_of(name, program, (), environ, made, stage_content=True)
    words = singularity.words(made, start, opened.tree if opened else None)
    made = made._replace(findings=(*made.findings, *words.findings))
    if chosen.endswith("-env"):
        return made, singularity.exports(words, name.upper())
    return made, singularity.quoted(words, name) if quoted else singularity.raw(words, name)


def report(findings: Iterable["Finding"]) -> None:
    """Write findings to standard error."""
    from gpubind.cli.main import complain
    from gpubind.documents.text import render_finding

    for finding in findings:
        complain(render_finding(finding))


def _backend(backend: str, environ: Mapping[str, str]) -> str:
    from gpubind.errors import RuntimeLimitError
    from gpubind.execute import find_program

    if backend == "auto":
        found = next((name for name in RUNTIMES if find_program(name, environ)), None)
        if found is None:
            hint = "install one of them, or name another with --backend"
            raise RuntimeLimitError("no-runtime", "no container runtime is in PATH: " + ", ".join(RUNTIMES), hint=hint)
        return found
    if backend not in RUNTIMES:
        raise UsageError(
            "unknown-backend", f"unknown runtime `{backend}`", hint="known: " + ", ".join((*RUNTIMES, "auto"))
        )
    return backend


def facts_of(
    name: str,
    program: Optional[str],
    arguments: tuple[str, ...],
    environ: Mapping[str, str],
    plan: "Plan",
    *,
    stage_content: bool,
) -> "Start":
    """What the runtime's words depend on: version, configuration, the user's own values."""
    from gpubind.execute import probe_version
    from gpubind.host.open import read_file
    from gpubind.runtimes import bwrap, singularity
    from gpubind.runtimes.start import Start
    from gpubind.stage import stage

    flavour, version, site = name, None, {}
    if name != "bwrap" and program is not None and program.startswith("/"):
        flavour, version = singularity.parse_version(probe_version(program))
        if os.path.exists(SITE_FILES[flavour]):
            text = read_file(SITE_FILES[flavour], ENV_FILE_LIMIT).decode("utf-8", "surrogateescape")
            site = singularity.parse_site(text)
    staged: dict[Any, Any] = {m.target: f"<generated>{m.target}" for m in plan.mounts if m.content is not None}
    if stage_content:
        staged = dict(stage(plan, environ))
    directories = frozenset(path for path in (environ.get("HOME"), environ.get("PWD")) if path and os.path.isdir(path))
    env_files: dict[str, str] = {}
    for path in singularity.env_file_options(arguments) if name != "bwrap" else ():
        text = read_file(path, ENV_FILE_LIMIT).decode("utf-8", "surrogateescape")
        env_files.update(singularity.parse_env_file(text))
    nodes: tuple[Any, ...] = ()
    if name == "bwrap":
        nodes = tuple(path for pattern in bwrap.NODES for path in sorted(glob(pattern)))
    return Start(flavour, version, arguments, environ, site, env_files, staged, directories, nodes)


def _need_command(argv: tuple[str, ...], image: "Image", plan: "Plan", brought: "Brought") -> None:
    """Say 127 or 126 as a shell would, where bubblewrap itself would exit 1. What the plan brings counts."""
    from gpubind.image.facts import DEFAULT_PATH
    from gpubind.model import Missing

    if not argv or any(mount.target.rpartition("/")[2] == argv[0] for mount in plan.mounts) or brought.unseen:
        return
    if "PATH" in image.facts.undecided or any(variable.name == "PATH" for variable in brought.env):
        return  # the container's shell knows better
    directories = (image.facts.env.get("PATH") or DEFAULT_PATH).split(":")
    places = [argv[0]] if argv[0].startswith("/") else [f"{d}/{argv[0]}" for d in directories if d.startswith("/")]
    if "/" in argv[0] and not argv[0].startswith("/"):
        return  # counts from a directory that may be the host's
    found = False
    for place in places:
        facts = image.tree.stat(place)
        if isinstance(facts, Missing):
            # What is bound from the host (home, /tmp) is not the image's to know.
            if any(place.startswith(bind.target.rstrip("/") + "/") for bind in brought.binds):
                return
            continue
        found = True
        if facts.kind == "file" and facts.mode & 0o111:
            return
    code, what = ("not-executable", "is no program") if found else ("no-such-command", "is not in the image")
    raise CommandError(
        code, f"`{argv[0]}` {what}", found=found, where=":".join(directories), hint="look with `gpubind shell`"
    )
