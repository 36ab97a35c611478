"""gpubind as typer knows it: answers for shells that ask for completions, and what is wrong with a command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, Union

from typer.completion import completion_init  # type: ignore[attr-defined]
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import VERSION, Argument, Option, Subcommand
from gpubind.cli.suggestions import suggestion
from gpubind.errors import UsageError, like, one_of

HELP_NAMES = {"help_option_names": ["-h", "--help"]}


def application(words: Sequence[str] = ()) -> TyperGroup:
    """Return gpubind with all commands, or with only the one that *words* begin with."""
    names = words[:1] if words and words[0] in MODULES else MODULES
    commands: Any = {name: typer_command(command_of(name)) for name in names}
    return TyperGroup(name="gpubind", commands=commands, params=[_option(VERSION)], context_settings=HELP_NAMES)


def typer_command(command: Subcommand) -> TyperCommand:
    """Return *command* with its options and arguments."""
    settings = {**HELP_NAMES, "allow_interspersed_args": not command.starts}
    params = [*map(_argument, command.arguments), *map(_option, command.options)]
    help_text = " ".join(command.help.split("\n\n")[0].split())
    return _Command(command.name, params=params, help=help_text, context_settings=settings)


class _Command(TyperCommand):
    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete options and values, but no command line for the container: its words are another program's."""
        arguments = [param for param in self.get_params(ctx) if param.param_type_name == "argument"]
        if not ctx.allow_interspersed_args and any(ctx.params.get(param.name) for param in arguments):
            return []
        return super().shell_complete(ctx, incomplete)


def _option(option: Option) -> Any:
    """Return *option* with the first sentence of its help: a shell shows one line."""
    short, long = ([name for name in option.spellings if name.startswith("--") == is_long] for is_long in (False, True))
    return TyperOption(
        param_decls=[option.parameter, *short, "/".join(long)],
        type=str if option.metavar else None,
        required=option.required,
        default=option.unset,
        is_flag=not (option.metavar or option.repeats) or None,
        count=not option.metavar and option.repeats,
        multiple=bool(option.metavar) and option.repeats,
        metavar=option.metavar or None,
        envvar=option.variable or None,
        help=re.split(r"\.( |$)| \[|: ", option.help, maxsplit=1)[0],
        autocompletion=lambda _context, _words, incomplete: _choices(option, incomplete),
    )


def _argument(argument: Argument) -> Any:
    return TyperArgument(
        param_decls=[argument.parameter],
        type=str,
        required=argument.required,
        nargs=-1 if argument.many else 1,
        metavar=argument.metavar,
        autocompletion=lambda _context, _words, incomplete: _choices(argument, incomplete),
    )


def _choices(parameter: Union[Option, Argument], incomplete: str) -> list[str]:
    choices = parameter.choices() if callable(parameter.choices) else parameter.choices
    commas = isinstance(parameter, Option) and parameter.commas
    before = incomplete[: incomplete.rfind(",") + 1] if commas else ""
    return [before + choice for choice in choices]


def complete() -> int:
    """Answer a shell that asks for completions, and return the exit code."""
    completion_init()
    # As if it were not installed: typer would load its Markdown and highlighting to remove marks that no text has here.
    sys.modules["rich"] = None  # type: ignore[assignment]
    status: int = application().main(args=[], prog_name="gpubind", standalone_mode=False)
    return status


def wrong_use(words: Sequence[str]) -> UsageError:
    """Return the error about the command line *words*, with the line that would work."""
    if words[0] not in MODULES and not words[0].startswith("-"):
        hint = suggestion(words).rstrip()
        unknown = words[1] if words[0] == "help" and len(words) > 1 and not hint else words[0]
        return UsageError("unknown-command", f"unknown command `{unknown}`", hint=hint or one_of(MODULES, unknown))
    try:
        application(words).main(args=[*words], prog_name="gpubind", standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's own have it, whichever module its version has them in
            raise
        return _as_ours(error, words)
    return UsageError("wrong-use", "the command line cannot be read", hint=f"`gpubind {words[0]} --help` explains it")


def _as_ours(error: Any, words: Sequence[str]) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else " ".join(("gpubind", *words[:1]))
    line = suggestion(words)
    see = line + f"`{path} --help` lists the options"
    if hasattr(error, "possibilities") and context is not None:
        known = [name for param in context.command.get_params(context) for name in (*param.opts, *param.secondary_opts)]
        near = "" if line else like([name for name in known if name.startswith("--")], error.option_name)
        return UsageError("unknown-option", f"{path} has no option `{error.option_name}`", hint=near + see)
    param = getattr(error, "param", None)
    if param is not None and type(error).__name__ == "MissingParameter":
        name = max(param.opts, key=len) if param.param_type_name == "option" else param.metavar
        return UsageError("missing-argument", f"{path}: {name} is missing", hint=see)
    text: str = error.format_message()
    return UsageError("wrong-use", f"{path}: {(text[:1].lower() + text[1:]).rstrip('.')}", hint=see)
