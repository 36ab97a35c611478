"""The application as typer has it: help, completion, wrong use, and every command line that `quick` leaves alone.

No `from __future__ import annotations`: typer reads annotations as they are.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import typer

from gpubind.cli.command import OwnCommand, OwnGroup
from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declare import Option, Origin, Parameter, Subcommand
from gpubind.cli.quick import COMPLETION
from gpubind.errors import EXIT_USAGE


def application(words: Sequence[str]) -> typer.Typer:
    """The application for the command line *words*: with all commands, or that one alone with which *words* begin."""
    if COMPLETION in os.environ:
        from gpubind.cli.commands.completion import get_ready

        get_ready()
    first = words[0] if words else ""
    return application_of(command_of(name) for name in ((first,) if first in MODULES else MODULES))


def application_of(commands: Iterable[Subcommand]) -> typer.Typer:
    """Return the application with these *commands*."""
    app = typer.Typer(
        cls=OwnGroup,
        add_completion=False,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Plan what a container must get from this GPU host, explain it, and hand it to any container runtime.",
    )
    app.callback()(_gpubind)
    for command in commands:
        settings = {"allow_interspersed_args": not command.ends_options, "ignore_unknown_options": False}
        app.command(command.name, cls=OwnCommand, help=command.help, context_settings=settings)(_callback(command))
    return app


def _version(wanted: bool) -> None:
    if wanted:
        from gpubind.cli.output import write_version

        write_version()
        raise typer.Exit


def _gpubind(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("-V", "--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Runs before every command: defaults from configuration files."""
    command = context.invoked_subcommand
    if command is None:
        from gpubind.cli.output import complain

        complain(f"{context.get_help()}\n")
        raise typer.Exit(EXIT_USAGE)
    from gpubind.cli.settings import defaults_for

    context.default_map = {command: defaults_for(command)}


_ORIGINS: dict[str, Origin] = {"COMMANDLINE": "line", "ENVIRONMENT": "variable", "DEFAULT_MAP": "settings"}


def _callback(command: Subcommand) -> Callable[..., None]:
    """Return *command* as a function whose signature typer reads."""

    def run(context: typer.Context, **values: Any) -> None:
        options = (parameter.name for parameter in command.parameters if isinstance(parameter.says, Option))
        command.run(values, {name: _origin(context, name) for name in options})

    keyword = inspect.Parameter.KEYWORD_ONLY
    taken = [inspect.Parameter("context", keyword, annotation=typer.Context), *map(_signed, command.parameters)]
    run.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    return run


def _origin(context: typer.Context, name: str) -> Origin:
    """Return where the value of the option *name* comes from."""
    source = context.get_parameter_source(name)
    return "default" if source is None else _ORIGINS.get(source.name, "default")


def _signed(parameter: Parameter) -> inspect.Parameter:
    """Return *parameter* as typer reads it in a signature."""
    says = parameter.says
    if isinstance(says, Option):
        told: Any = typer.Option(*says.names, **{k: v for k, v in vars(says).items() if k != "names"})
    else:
        told = typer.Argument(**vars(says))
    default = inspect.Parameter.empty if parameter.default is ... else parameter.default
    kind: Any = Annotated[parameter.type, told]
    return inspect.Parameter(parameter.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
