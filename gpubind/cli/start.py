"""exec, run, shell, and a plan in a runtime's words. No `from __future__ import annotations`: see options.py."""

import contextlib
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
    from gpubind.host import Host
    from gpubind.image import Image
    from gpubind.model import Finding, Plan
    from gpubind.rules import Preflight
    from gpubind.runtimes.singularity_options import Options
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
WITHOUT_GPU = ("driver-mismatch", "driver-not-loaded", "gpu-forbidden", "no-libcuda", "visible-devices-unknown")
"""Errors with which no GPU works in a container."""
BackendArguments = Annotated[
    Optional[list[str]], typer.Option(metavar="WORD", help="A word for the runtime itself. Repeatable.")
]


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
        backend_arg: BackendArguments = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command instead.")] = False,
        require_gpu: Annotated[
            bool, typer.Option("--require-gpu", envvar="GPUBIND_REQUIRE_GPU", help="Do not start without a GPU.")
        ] = False,
        check: Annotated[
            bool, typer.Option(envvar="GPUBIND_CHECK", help="Check first, and do not start on an error finding.")
        ] = False,
        quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Do not report findings.")] = False,
        verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Report notes, too.")] = False,
    ) -> None:
        argv = tuple(command or ())
        argv = argv[1:] if argv[:1] == ("--",) else argv
        if action == "exec" and not argv:
            raise UsageError("no-command", "exec wants a command", hint="gpubind exec IMAGE CMD..., or gpubind shell")
        try:
            wanted = Wanted(backend, tuple(backend_arg or ()), dry_run, require_gpu, check, quiet, verbose)
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
    verbose: bool


def _start(action: "Action", options: PlanOptions, image: str, argv: tuple[str, ...], wanted: Wanted) -> None:
    from gpubind.cli.main import complain, render_error
    from gpubind.execute import execute, find_program, need_program
    from gpubind.planner import empty_plan
    from gpubind.rules import nothing_to_bind, order_findings, preflight
    from gpubind.runtimes import bwrap, dispatch, singularity

    environ = callers_environ()
    if image.startswith("-"):  # the runtime would take it for an option
        image = f"./{image}"
    name = _backend(wanted.backend, environ)
    program = name if wanted.dry_run and not find_program(name, environ) else need_program(name, environ)
    host = open_host_of(options)
    opened = _look_at(image, name, wanted, host)
    start = facts_of(name, program, wanted.arguments, environ)
    layout = dispatch.layout_of(start)
    host = host_for(options, host, start, opened)
    try:
        plan = make_plan(options, host=host, image=opened, layout=layout)
    except NothingToBindError as error:
        if wanted.require_gpu or _asks_by_name(options):
            raise
        plan = empty_plan(layout, opened.facts if opened else None)
        if wanted.check:
            plan = plan._replace(findings=(nothing_to_bind(error),))
        elif not wanted.quiet:
            complain(render_error(error, "warning"))
    if wanted.require_gpu:
        _need_gpu(plan)
    start = staged(start, plan, opened, write=not wanted.dry_run)
    tree = opened.tree if opened else None
    words = dispatch.words(plan, start, tree)
    assert words is not None
    if name == "bwrap":
        assert tree is not None
        line = bwrap.command(program, action, words, tree, argv)
    else:
        line = singularity.command(program, action, start, words, image, argv)
        environ = singularity.without_variables(singularity.without_gpu_switches(environ), words.unset)
    if wanted.check or name == "bwrap" or not wanted.quiet:  # else nobody asks what the container will hold
        first = argv[0] if action == "exec" and (wanted.check or name == "bwrap") else None
        brought = dispatch.brought(plan, start, tree)
        made = preflight(host, plan, opened, backend=name, program=first, brought=brought, words=words)
        if wanted.check:
            _checked(made, wanted)
        elif name == "bwrap":
            _need_command(made)
        if not (wanted.check or wanted.quiet):
            order = order_findings(made) if opened is not None else ()
            report([*plan.findings, *words.findings, *order], notes=wanted.verbose)
    if wanted.dry_run:
        import shlex

        from gpubind.cli.output import write_document

        write_document(" ".join(shlex.quote(word) for word in line) + "\n", None)
        return
    execute(line, environ)


def _need_gpu(plan: "Plan") -> None:
    """Errors: `CheckError` (code `gpu-required`) where the container would have no GPU that works."""
    stops = [finding for finding in plan.findings if finding.severity == "error" and finding.code in WITHOUT_GPU]
    is_linux = all(planned.driver.kind == "linux" for planned in plan.drivers)
    if stops or (is_linux and not any(gpu.chosen for gpu in plan.gpus)):
        why = "; ".join(f"{finding.code}: {finding.what}" for finding in stops)
        raise CheckError(
            "gpu-required",
            "no GPU would work in the container, and --require-gpu was given",
            why=why or "no GPU is chosen, or none is here",
            hint="`gpubind check` says what is wrong with this host; ask the scheduler for a GPU",
        )


def _asks_by_name(options: PlanOptions) -> bool:
    """Whether --gpus names a GPU: without that one there is no start."""
    return options.gpus is not None and options.gpus.strip().lower() not in ("all", "none")


def _look_at(image: str, name: str, wanted: Wanted, host: "Host") -> Optional["Image"]:
    """*image*, if it is on this machine. bubblewrap takes directories alone; what others pull is theirs to open."""
    from gpubind.cli.main import complain, render_error

    if name == "bwrap" and os.path.isfile(image):
        hint = "unpack it: `apptainer build --sandbox DIR IMAGE`, or use --backend apptainer"
        raise HostReadError("no-image", "bubblewrap starts directories alone", where=image, hint=hint)
    if name == "bwrap" or os.path.isdir(image):
        return open_image_of(image, host)
    if not os.path.isfile(image):
        if wanted.check and not wanted.quiet:
            complain(f"warning: image-not-checked: `{image}` is no file here; the host alone is checked\n")
        return None
    try:
        return open_image_of(image, host)
    except GpubindError as error:
        if wanted.check:
            raise
        if not wanted.quiet:
            complain(render_error(error, "warning"))
        return None


def _checked(start: "Preflight", wanted: Wanted) -> None:
    """Report what check says of *start*. Errors: `CheckError` if there is an error finding that counts."""
    from gpubind.cli.check import ignored_codes
    from gpubind.cli.main import complain
    from gpubind.documents.findings import report_of
    from gpubind.documents.text import printable
    from gpubind.rules import check

    outcome = report_of(start.plan, check(start), ignored_codes(()))
    if not wanted.quiet:
        report(outcome.findings, notes=wanted.verbose)
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


def plan_in_words(
    options: PlanOptions, chosen: str, image: Optional[str], arguments: tuple[str, ...], *, quoted: bool
) -> tuple["Plan", str]:
    """The plan, and its words for the runtime that format *chosen* names, beside the user's *arguments* for it."""
    from gpubind.execute import find_program
    from gpubind.runtimes import singularity

    as_exports = chosen.endswith("-env")
    name = chosen[: -len("-env")] if as_exports else chosen
    host = open_host_of(options)
    opened = open_image_of(image, host)
    environ = callers_environ()
    if as_exports:  # the lines themselves look at the value in force
        environ = singularity.without_variables(environ, ("LD_LIBRARY_PATH", "PREPEND_LD_LIBRARY_PATH"))
    start = facts_of(name, find_program(name, environ) if options.host is None else None, arguments, environ)
    layout = singularity.layout_of(start)
    host = host_for(options, host, start, opened)
    made = make_plan(options, host=host, image=opened, layout=layout)
    words = singularity.words(made, staged(start, made, opened, write=True), opened.tree if opened else None)
    made = made._replace(findings=(*made.findings, *words.findings))
    if as_exports:
        is_typed = any(word.startswith("--containlibs") for word in arguments)
        own = None if is_typed else _own_libraries(host, made)
        return made, singularity.exports(words, start.program.upper(), own)
    return made, singularity.quoted(words, name) if quoted else singularity.raw(words, name)


def _own_libraries(host: "Host", plan: "Plan") -> dict[str, str]:
    """The libraries that Apptainer's own flags would bind here: where to, and where from in its own words."""
    from gpubind.like import like_plan
    from gpubind.model import VENDORS, Request

    vendors = tuple(vendor for vendor in plan.request.vendors if vendor in VENDORS)
    if not vendors:
        return {}
    try:
        own = like_plan(host, Request(vendors=vendors, like="apptainer-1.4"))
    except GpubindError:
        return {}
    return {mount.target: mount.source for mount in own.mounts if mount.kind == "library" and mount.source}


def report(findings: Iterable["Finding"], *, notes: bool = True) -> None:
    """Write findings to standard error, with or without those that are mere notes."""
    from gpubind.cli.main import complain
    from gpubind.documents.text import render_finding

    for finding in findings:
        if notes or finding.severity != "note":
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


def facts_of(name: str, program: Optional[str], arguments: tuple[str, ...], environ: Mapping[str, str]) -> "Start":
    """What the runtime's words depend on: version, configuration, the user's own options, values and directories."""
    from gpubind.execute import probe_version
    from gpubind.host.open import read_file
    from gpubind.runtimes import bwrap, singularity
    from gpubind.runtimes.singularity_options import Options, parse_site, read_options
    from gpubind.runtimes.start import Start

    flavour, version, site = name, None, {}
    options = Options()
    if name != "bwrap":
        if program is not None and program.startswith("/"):
            flavour, version = singularity.parse_version(probe_version(program))
            if os.path.exists(SITE_FILES[flavour]):
                site = parse_site(_text(read_file(SITE_FILES[flavour], ENV_FILE_LIMIT)))
        options = read_options(flavour, arguments, environ)
        _need_whole(options)
    here = _working_directory(environ)
    directories = frozenset(path for path in (environ.get("HOME"), here) if path and os.path.isdir(path))
    env_files, unread = _read_env_files(options.all("env-file"), environ)
    nodes: tuple[Any, ...] = ()
    if name == "bwrap":
        nodes = tuple(path for pattern in bwrap.NODES for path in sorted(glob(pattern)))
    return Start(
        program=flavour,
        version=version,
        arguments=arguments,
        environ=environ,
        options=options,
        site=site,
        env_files=env_files,
        has_unread_env_files=unread,
        directories=directories,
        home=_home(),
        working_directory=here,
        nodes=nodes,
    )


def _read_env_files(paths: Iterable[str], environ: Mapping[str, str]) -> tuple[dict[str, Optional[str]], bool]:
    """What the user's environment files set; and whether one of them was not read.

    A pipe, such as a shell's `<(...)`, is the runtime's: what is read from it here would be lost to that.
    """
    from gpubind.host.open import read_file
    from gpubind.runtimes.singularity_options import read_env_file

    values: dict[str, Optional[str]] = {}
    unread = False
    for path in paths:
        if os.path.exists(path) and not (os.path.isfile(path) and os.path.getsize(path) <= ENV_FILE_LIMIT):
            values, unread = {}, True
        else:
            values.update(read_env_file(_text(read_file(path, ENV_FILE_LIMIT)), environ))
    return values, unread


def _need_whole(options: "Options") -> None:
    """Errors: `UsageError` for a --backend-arg that would make the program take gpubind's own words for the user's."""
    if options.incomplete is not None:
        what = f"`{options.incomplete}` of --backend-arg lacks its value"
        hint = "give the value in the same word, --backend-arg=--bind=/a:/b, or in one more --backend-arg behind it"
        raise UsageError("incomplete-argument", what, hint=hint)
    if options.image and not options.unknown:
        what = f"`{options.image[0]}` of --backend-arg is no option: the program would take it for the image"
        raise UsageError(
            "incomplete-argument", what, hint="--backend-arg is for options; IMAGE and CMD stand behind them"
        )


def callers_environ() -> dict[str, str]:
    """The caller's environment. Python sets LC_CTYPE for itself (PEP 538), which no container is to inherit."""
    environ = dict(os.environ)
    if environ.get("LC_CTYPE") == "C.UTF-8":
        with contextlib.suppress(OSError), open("/proc/self/environ", "rb") as file:
            if not any(variable.startswith(b"LC_CTYPE=") for variable in file.read().split(b"\0")):
                del environ["LC_CTYPE"]
    return environ


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _home() -> Optional[str]:
    """The caller's home by the user database: Apptainer asks there, not in HOME."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None


def _working_directory(environ: Mapping[str, str]) -> Optional[str]:
    """Where the caller is, under the name that the caller's shell has for it; None if that directory is gone."""
    try:
        here = os.getcwd()
        named = environ.get("PWD", "")
        return named if named.startswith("/") and os.path.samefile(named, here) else here
    except OSError:
        return None


def host_for(options: PlanOptions, host: "Host", start: "Start", image: Optional["Image"]) -> "Host":
    """*host* as a plan sees it. Where something else chooses GPUs in the container, the caller's variables choose none.

    As with --nv: the user's `--env CUDA_VISIBLE_DEVICES=1`, or such a line in an environment file of the image's,
    counts among all GPUs, so all of them must be there. With --cleanenv the caller's variables stay outside.
    """
    from gpubind.host.base import GPU_VARIABLES, LIBRARY_VARIABLES

    facts = image.facts if image is not None else None
    images = {*facts.env, *facts.undecided}.intersection(LIBRARY_VARIABLES) if facts is not None else ()
    void = images or start.options.clean_environment or any(start.said(name) is not None for name in GPU_VARIABLES)
    if options.host is None and void:
        host.environ = {name: value for name, value in host.environ.items() if name not in GPU_VARIABLES}
    return host


def staged(start: "Start", plan: "Plan", image: Optional["Image"], *, write: bool) -> "Start":
    """*start* with the places of generated files, the plan's and its own, which are written if *write*."""
    from gpubind.runtimes import dispatch
    from gpubind.stage import stage

    contents = dispatch.generated(plan, start, image.tree if image is not None else None)
    if write:
        return start._replace(staged=stage(contents, start.environ))
    places: dict[Any, Any] = {target: f"<generated>{target}" for target in contents}
    return start._replace(staged=places)


def _need_command(made: "Preflight") -> None:
    """Say 127 or 126 as a shell would, where bubblewrap itself would exit 1; nothing where not all could be seen."""
    from gpubind.rules.preflight import search_path

    chain, container = made.chain, made.container
    if chain is None or container is None or len(chain.names) > 1 or container.unseen:
        return
    kind = chain.stop.kind if chain.stop is not None else None
    name = chain.names[0]
    relative = "/" in name and not name.startswith("/") and container.working_directory is None
    if kind not in ("missing", "mode") or relative:
        return
    code, what = ("not-executable", "is no program") if kind == "mode" else ("no-such-command", "is not in the image")
    where = search_path(made.image, made.plan, made.brought)
    raise CommandError(code, f"`{name}` {what}", found=kind == "mode", where=where, hint="look with `gpubind shell`")
