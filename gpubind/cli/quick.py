"""Command lines as most are, read without typer, which takes longer to load than a plan takes to make.

Whatever is not plain is left to typer, every error above all: help, an unknown option, a value that is missing or
begins with a dash, one that is given twice, short options in one word, a variable for a flag or for several values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declare import Option, Origin, Parameter, Subcommand

COMPLETION = "_GPUBIND_COMPLETE"
"""The variable by which a shell asks for completions; typer makes its name of the program's."""


class ParsedLine(NamedTuple):
    """A command line, read."""

    values: dict[str, Any]
    origins: dict[str, Origin]


def run_if_plain(words: Sequence[str]) -> bool:
    """Do what the command line *words* asks for; False, and nothing is done, where typer has to read it."""
    if COMPLETION in os.environ or not words or words[0] not in MODULES:
        return False
    command = command_of(words[0])
    line = read_line(command, words[1:], os.environ)
    if line is None:
        return False
    command.run(line.values, line.origins)
    return True


def read_line(command: Subcommand, words: Sequence[str], environ: Mapping[str, str]) -> Optional[ParsedLine]:
    """*words*, which follow the name of *command*, with what variables and configuration files say; None if not plain.

    Errors: as `defaults_for`.
    """
    typed = _typed(command, words)
    if typed is None or not _is_complete(command, typed, environ):
        return None
    from gpubind.cli.settings import defaults_for

    defaults = defaults_for(command.name)
    line = ParsedLine({}, {})
    for parameter in command.parameters:
        value, origin = _value(parameter, typed, environ, defaults)
        line.values[parameter.name] = value
        if isinstance(parameter.says, Option):
            line.origins[parameter.name] = origin
    return line


def _typed(command: Subcommand, words: Sequence[str]) -> Optional[dict[str, Any]]:
    """Return what the command line gives, by the names of parameters; None for one that is not plain."""
    options = {spelled: (p, said) for p in command.parameters for spelled, said in p.spellings.items()}
    typed: dict[str, Any] = {}
    others: list[str] = []
    left = list(reversed(words))
    while left:
        word = left.pop()
        if word == "--":
            others += reversed(left)
            break
        if word == "-" or not word.startswith("-"):
            others.append(word)
            if command.ends_options:
                others += reversed(left)
                break
            continue
        spelled, equals, value = word.partition("=")
        if spelled not in options or (equals and not spelled.startswith("--")):
            return None
        parameter, said = options[spelled]
        if parameter.kind == "flag":
            if equals:
                return None
            typed[parameter.name] = typed.get(parameter.name, 0) + 1 if parameter.type is int else said
            continue
        if not equals:
            value = left.pop() if left else "-"
            if value.startswith("-"):
                return None
        if parameter.kind == "value" and parameter.name in typed:
            return None
        typed[parameter.name] = [*typed.get(parameter.name, ()), value] if parameter.kind == "list" else value
    return _with_arguments(command, typed, others)


def _with_arguments(command: Subcommand, typed: dict[str, Any], words: list[str]) -> Optional[dict[str, Any]]:
    for parameter in command.parameters:
        if not isinstance(parameter.says, Option) and words:
            typed[parameter.name] = words if parameter.kind == "list" else words[0]
            words = [] if parameter.kind == "list" else words[1:]
    return None if words or "" in typed.values() else typed


def _is_complete(command: Subcommand, typed: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Return whether nothing is missing in *typed*, and every variable that counts beside it is for one value."""
    left = [parameter for parameter in command.parameters if parameter.name not in typed]
    return not any(p.default is ... or (p.kind != "value" and _variable(p, environ)) for p in left)


def _value(
    parameter: Parameter, typed: Mapping[str, Any], environ: Mapping[str, str], defaults: Mapping[str, Any]
) -> tuple[Any, Origin]:
    """Return the value of *parameter*, and where it comes from."""
    if parameter.name in typed:
        return typed[parameter.name], "line"
    variable = _variable(parameter, environ)
    if variable is not None:
        return variable, "variable"
    if parameter.name in defaults:
        return defaults[parameter.name], "settings"
    return parameter.default, "default"


def _variable(parameter: Parameter, environ: Mapping[str, str]) -> Optional[str]:
    """Return what the parameter's variable says; an empty one says nothing."""
    name = parameter.says.envvar if isinstance(parameter.says, Option) else None
    return environ.get(name) or None if name else None
