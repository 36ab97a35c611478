"""The commands as typer's, which complete the command lines of shells."""

from __future__ import annotations

import re
import sys
from typing import Any, Union

from typer.completion import completion_init  # type: ignore[attr-defined]
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import VERSION, Argument, Option, Subcommand, choices_of

_HELP_NAMES = {"help_option_names": ["-h", "--help"]}


def complete() -> int:
    """Answer a shell's request for completions, and return the exit code."""
    completion_init()
    # As if rich were missing: typer would load its Markdown and highlighting to remove markup that no text has here.
    sys.modules["rich"] = None  # type: ignore[assignment]
    commands: Any = {name: _command(command_of(name)) for name in MODULES}
    app = TyperGroup(name="gpubind", commands=commands, params=[_option(VERSION)], context_settings=_HELP_NAMES)
    status: int = app.main(args=[], prog_name="gpubind", standalone_mode=False)
    return status


def _command(command: Subcommand) -> TyperCommand:
    settings = {**_HELP_NAMES, "allow_interspersed_args": not command.starts}
    params = [*map(_argument, command.arguments), *map(_option, command.options)]
    return _Command(command.name, params=params, help=command.help[0], context_settings=settings)


class _Command(TyperCommand):
    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete options and values, but not the command line in the container: it belongs to another program."""
        arguments = [param for param in self.get_params(ctx) if param.param_type_name == "argument"]
        if not ctx.allow_interspersed_args and any(ctx.params.get(param.name) for param in arguments):
            return []
        return super().shell_complete(ctx, incomplete)


def _option(option: Option) -> Any:
    """Return *option* with the first sentence of its help: a shell shows one line."""
    short, long = ([name for name in option.spellings if name.startswith("--") == is_long] for is_long in (False, True))
    return TyperOption(
        param_decls=[option.parameter, *short, "/".join(long)],
        is_flag=not (option.metavar or option.is_repeatable) or None,
        count=not option.metavar and option.is_repeatable,
        multiple=bool(option.metavar) and option.is_repeatable,
        metavar=option.metavar or None,
        help=re.split(r"\.( |$)| \[|: ", option.help, maxsplit=1)[0],
        autocompletion=lambda _context, _words, incomplete: _choices(option, incomplete),
    )


def _argument(argument: Argument) -> Any:
    return TyperArgument(
        param_decls=[argument.parameter],
        type=str,
        required=argument.required,
        nargs=-1 if argument.takes_rest else 1,
        metavar=argument.metavar,
        autocompletion=lambda _context, _words, incomplete: _choices(argument, incomplete),
    )


def _choices(parameter: Union[Option, Argument], incomplete: str) -> list[str]:
    commas = isinstance(parameter, Option) and parameter.splits_commas
    before = incomplete[: incomplete.rfind(",") + 1] if commas else ""
    return [before + choice for choice in choices_of(parameter)]
