"""The application, with plan and record. Bodies import their work, so that no command loads what it does not use.

No `from __future__ import annotations`: see options.py.
"""

import os
from collections.abc import Sequence
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from gpubind.cli.command import OwnCommand, OwnGroup
from gpubind.cli.options import (
    AllowWritable,
    BackendArguments,
    CdiHook,
    ImageOption,
    Like,
    Output,
    PlanOptions,
    StageDir,
    make_plan,
    open_host_of,
    open_image_of,
    takes_plan_options,
)
from gpubind.cli.values import COMPLETION, plan_formats
from gpubind.documents import FORMATS, LASTING, PLAN_DOCUMENTS
from gpubind.errors import EXIT_FINDING, EXIT_NOT_STARTED, EXIT_USAGE, GpubindError, UsageError, one_of
from gpubind.runtimes import PLAN_FORMATS, QUOTABLE

STARTS = ("exec", "run", "shell")

if TYPE_CHECKING:
    from typer.models import CommandInfo

    from gpubind.model import Plan

app = typer.Typer(
    cls=OwnGroup,
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Plan what a container must get from this GPU host, explain it, and hand it to any container runtime.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from gpubind.cli.output import write_version

        write_version()
        raise typer.Exit


@app.callback()
def gpubind(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("-V", "--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Runs before every command: defaults from configuration files."""
    if context.invoked_subcommand is None:
        from gpubind.cli.output import complain

        complain(f"{context.get_help()}\n")
        raise typer.Exit(EXIT_USAGE)
    from gpubind.cli.settings import read_settings

    try:
        settings = read_settings()
    except GpubindError as error:
        if context.invoked_subcommand in (*STARTS, "wrap"):
            error.exit_code = EXIT_NOT_STARTED
        raise
    settings.pop("ignore", None)  # check asks for it itself: options add to it
    if settings:
        formats = [settings.pop("format")] if "format" in settings else []
        defaults = {{"list": "list_"}.get(key, key.replace("-", "_")): value for key, value in settings.items()}
        context.default_map = dict.fromkeys(("explain", "check", "exec", "run", "shell", "wrap", "gpus"), defaults)
        context.default_map["plan"] = {**defaults, "format_": formats}


Strict = Annotated[bool, typer.Option("--strict", envvar="GPUBIND_STRICT", help="Exit 1 if there is an error finding.")]


@app.command(cls=OwnCommand)
@takes_plan_options
def plan(
    options: PlanOptions,
    like: Like = None,
    image: ImageOption = None,
    format_: Annotated[
        Optional[list[str]],
        typer.Option(
            "--format",
            metavar="FORMAT",
            envvar="GPUBIND_FORMAT",
            autocompletion=plan_formats,
            help="What to print: "
            + ", ".join((*FORMATS, *PLAN_FORMATS))
            + "; add --format sh to quote arguments for a shell. [table]",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    backend_arg: BackendArguments = None,
    allow_writable: AllowWritable = False,
    cdi_hook: CdiHook = None,
    stage_dir: StageDir = None,
    output: Output = None,
    strict: Strict = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Do not report findings on standard error.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Also show what was left out, and why.")] = False,
) -> None:
    """Say what a container needs of this host, and why.

    That is: files and sockets to bind, device nodes, and variables. Of each vendor whose driver is found, unless
    --nv or --rocm name one.
    """
    from gpubind.cli.output import report, tell_of_memo, waiting, write_document

    tell_of_memo(wanted=verbose)
    chosen, quoted = _format(format_ or [], json)
    _need_fitting(chosen, bool(backend_arg), cdi_hook, like)
    with waiting(quiet=quiet):
        if chosen in LASTING:
            from gpubind.cli.lasting import Asked, plan_to_last

            made, text = plan_to_last(options, Asked(chosen, image, cdi_hook, stage_dir))
        elif chosen in PLAN_FORMATS:
            from gpubind.cli.words import WordsOf, plan_in_words

            words = WordsOf(chosen, quoted, tuple(backend_arg or ()), allow_writable, stage_dir)
            made, text = plan_in_words(options, image, words)
        else:
            host = open_host_of(options)
            made = make_plan(options, host=host, like=like, image=open_image_of(image, host))
            text = _render(made, chosen, output, verbose=verbose)
    write_document(text, output)
    if not quiet and chosen != "json":
        report(made.findings)
    if strict and any(finding.severity == "error" for finding in made.findings):
        raise typer.Exit(EXIT_FINDING)


@app.command(cls=OwnCommand)
def record(
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help="The record to write; - for standard output.")
    ],
    root: Annotated[Optional[str], typer.Option(metavar="DIR", help="Where the driver's user space is. [/]")] = None,
    dev_root: Annotated[
        Optional[str], typer.Option(metavar="DIR", help="Where /dev, /proc and /sys are. [--root, or /]")
    ] = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="A line that says which host this is.")] = "",
    hostname: Annotated[bool, typer.Option("--hostname", help="Keep this machine's name in the record.")] = False,
) -> None:
    """Write this host to a file, for --host FILE anywhere.

    A record holds listings, facts and small texts of a fixed set of places; no file bodies, no user names, no
    environment but PATH, ROCM_PATH, CUDA_MPS_PIPE_DIRECTORY and the variables that choose GPUs: CUDA_VISIBLE_DEVICES,
    CUDA_DEVICE_ORDER, NVIDIA_VISIBLE_DEVICES, NVIDIA_IMEX_CHANNELS, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES,
    SLURM_STEP_GPUS, SLURM_JOB_GPUS.
    """
    from gpubind.cli.output import write_document
    from gpubind.facade import record as record_host

    name = os.uname().nodename if hostname else None
    host = open_host_of(PlanOptions(root=root, dev_root=dev_root))
    write_document(record_host(host, description, name), output)


_MODULES = {
    "gpus": "gpus",
    "explain": "explain",
    "check": "check",
    **dict.fromkeys(STARTS, "start"),
    "wrap": "wrap",
    "completion": "completion",
}
"""Where the commands are that have modules of their own."""


def application(words: Sequence[str]) -> typer.Typer:
    """The application for the command line *words*: with all commands, or that one alone with which *words* begin.

    The modules and options of each further command would cost every start some milliseconds.
    """
    if COMPLETION in os.environ:
        import_module("gpubind.cli.completion").get_ready()
    first = words[0] if words else ""
    made = copy(app)
    made.registered_commands = [*app.registered_commands]
    if first not in _names(made):
        for module in [_MODULES[first]] if first in _MODULES else dict.fromkeys(_MODULES.values()):
            import_module(f"gpubind.cli.{module}").add_to(made)
    names = _names(made)
    if first in names:
        made.registered_commands = [names[first]]
    return made


def _names(of: typer.Typer) -> "dict[str, CommandInfo]":
    return {
        str(command.name or getattr(command.callback, "__name__", "")): command for command in of.registered_commands
    }


def _format(formats: list[str], json: bool) -> tuple[str, bool]:
    """The one document that is asked for, and whether its words are to be quoted for a shell."""
    chosen = [name for name in formats if name != "sh"]
    if (json and chosen not in ([], ["json"])) or len(chosen) > 1:
        raise UsageError("two-formats", "--json and --format, or two formats, exclude each other")
    name = "json" if json else chosen[0] if chosen else "table"
    if name not in (*FORMATS, *PLAN_FORMATS):
        known = one_of((*FORMATS, *PLAN_FORMATS), name)
        raise UsageError(
            "unknown-format", f"unknown format `{name}`", hint=f"{known}, and sh beside the name of a runtime"
        )
    quoted = "sh" in formats
    if quoted and name not in QUOTABLE:
        raise UsageError("two-formats", f"--format sh quotes a runtime's arguments; `{name}` has none")
    return name, quoted


def _need_fitting(chosen: str, has_arguments: bool, cdi_hook: Optional[str], like: Optional[str]) -> None:
    """Errors: `UsageError` for options that say nothing to the format *chosen*."""
    if has_arguments and chosen not in PLAN_FORMATS:
        raise UsageError(
            "argument-without-runtime", "--backend-arg is only for formats that print a runtime's arguments"
        )
    if cdi_hook is not None and chosen != "cdi":
        raise UsageError("hook-without-cdi", "--cdi-hook is only for --format cdi")
    if like is not None and (chosen in LASTING or chosen in PLAN_FORMATS):
        what = f"--like shows what a program would bind; it is not for --format {chosen}"
        raise UsageError("like-in-words", what)


def _render(plan: "Plan", chosen: str, output: Optional[str], *, verbose: bool) -> str:
    if chosen in PLAN_DOCUMENTS:
        return PLAN_DOCUMENTS[chosen].render(plan, verbose=verbose)
    from gpubind.cli.output import has_colour, table_width
    from gpubind.cli.render import render_tables
    from gpubind.documents.plan_table import plan_tables
    from gpubind.documents.text import summary

    tables = plan_tables(plan, verbose=verbose)
    return render_tables(tables, table_width(output), summary(plan), colour=has_colour(output))
