"""Read command lines, and run the commands. `run_line` is the entry.

`typer_app` says what is wrong with a line that is refused here, and answers shells that ask for completions. typer
takes longer to load than a plan takes to make.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import COMPLETION, HELP, VERSION, Option, Origin, Subcommand
from gpubind.errors import EXIT_OK, EXIT_USAGE, GpubindError, UsageError
from gpubind.frozen import NamedTuple

if TYPE_CHECKING:
    from gpubind.cli.help import Page


class ParsedLine(NamedTuple):
    """The values of a command line, and where those of options come from."""

    values: dict[str, Any]
    origins: dict[str, Origin]


_TWICE = {
    **dict.fromkeys(("--image", "--host"), "`check` takes --image and --host several times"),
    "--format": "--json is --format json",
}
_BOOLEANS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}


def read_line(command: Subcommand, words: Sequence[str], environ: Mapping[str, str]) -> Optional[ParsedLine]:
    """Read *words*, which follow the name of *command*; return None if they are refused.

    A line that asks for help has no values but `help`.

    Errors: `UsageError` (code `given-twice`); as `defaults_for`.
    """
    given = _given(command, words)
    if given is None or HELP.parameter in given:
        return None if given is None else ParsedLine({HELP.parameter: True}, {})
    from gpubind.cli.settings import defaults_for

    line = ParsedLine({each.parameter: given.get(each.parameter) for each in command.arguments}, {})
    defaults = defaults_for(command)
    for option in command.options:
        if option.stands_for:
            continue
        value, origin = _resolved(option, given, environ, defaults)
        if (origin == "variable" and value is None) or (origin == "default" and option.required):
            return None
        line.values[option.parameter], line.origins[option.parameter] = value, origin
    return line


def _resolved(
    option: Option, given: Mapping[str, Any], environ: Mapping[str, str], defaults: Mapping[str, Any]
) -> tuple[Any, Origin]:
    """Return the value of *option* and its origin. The value is None for a variable that sets none."""
    name, text = option.parameter, environ.get(option.variable)
    if name in given:
        return given[name], "line"
    if text:
        return _value_of(option, text), "variable"
    return (defaults[name], "settings") if name in defaults else (option.unset, "default")


def requested_format(words: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the format of the document that *words* request on standard output, `json` if they name several.

    Empty if they request none there. A line that is refused counts as far as it can be read.
    """
    words = _without_dashes(words)
    command = command_of(words[0]) if words and words[0] in MODULES else None
    if command is None or command.remote:
        return ""
    from gpubind.cli.settings import defaults_for

    given = _scan(command, words[1:]).given
    if any(path != "-" for path in given.get("output", ())):
        return ""
    try:
        defaults = defaults_for(command)
    except GpubindError:  # perhaps the one that is reported
        defaults = {}
    options = {option.parameter: option for option in command.options if not option.stands_for}
    values = {
        each: _resolved(options[each], given, environ, defaults)[0] for each in ("json", "format_") if each in options
    }
    formats = values.get("format_") or ()
    formats = [formats] if isinstance(formats, str) else [*formats]
    return "json" if values.get("json") or "json" in formats else "".join(formats[:1])


def _without_dashes(words: Sequence[str]) -> Sequence[str]:
    """Return *words* without a `--` before the command."""
    return words[1:] if words and words[0] == "--" else words


class _Scan(NamedTuple):
    """What a command line gives, before anything is required of it."""

    given: dict[str, Any]
    """By parameter; of an option with a value all that it is given."""
    others: list[str]
    is_refused: bool


def _scan(command: Subcommand, words: Iterable[str]) -> _Scan:
    """Read *words* as options of *command* and others. A refused word is skipped."""
    spelled = {name: (option, on) for option in (*command.options, HELP) for name, on in option.spellings.items()}
    given: dict[str, Any] = {}
    others: list[str] = []
    is_refused = False
    left = [*words][::-1]
    while left:
        word = left.pop()
        if word == "--":
            others += left[::-1]
            break
        name, attached = _parted(word)
        if word == "-" or not word.startswith("-") or (name not in spelled and _is_sentence(word, command)):
            others.append(word)
            if command.starts:
                others += left[::-1]
                break
            continue
        if name not in spelled:
            is_refused = True
            continue
        option, on = spelled[name]
        if option.stands_for and not given.get(option.parameter):
            left.append(option.stands_for)
        if option.metavar:
            if attached is None and not left:
                is_refused = True
                break
            given.setdefault(option.parameter, []).append(left.pop() if attached is None else attached)
            continue
        given[option.parameter] = given.get(option.parameter, 0) + 1 if option.repeats else on
        if attached is not None:
            if word.startswith("--") or attached.startswith("-"):
                is_refused = True
                continue
            left.append(f"-{attached}")  # more short options in one word
    return _Scan(given, others, is_refused)


def _is_sentence(word: str, command: Subcommand) -> bool:
    """Return whether *word*, which begins with a `-`, is a text: a message of a log, in quotes."""
    return not command.starts and " " in (word.partition("=")[0] if word.startswith("--") else word)


def _given(command: Subcommand, words: Iterable[str]) -> Optional[dict[str, Any]]:
    """Return the values that *words* give, by parameter; None if they cannot be read.

    Errors: `UsageError` (code `given-twice`).
    """
    given, others, is_refused = _scan(command, words)
    if is_refused or HELP.parameter in given:
        return None if is_refused else given
    for option in command.options:
        if option.metavar and not option.repeats and option.parameter in given:
            if len(given[option.parameter]) > 1:
                hint = _TWICE.get(option.name, "")
                raise UsageError("given-twice", f"{option.name} is given twice, and can have one value", hint=hint)
            (given[option.parameter],) = given[option.parameter]
    return _with_arguments(command, given, others)


def _parted(word: str) -> tuple[str, Optional[str]]:
    """Return the name of the option in *word*, and what is attached to it."""
    if not word.startswith("--"):
        return word[:2], word[2:] or None
    name, equals, attached = word.partition("=")
    return name, attached if equals else None


def _with_arguments(command: Subcommand, given: dict[str, Any], words: list[str]) -> Optional[dict[str, Any]]:
    for argument in command.arguments:
        if words:
            given[argument.parameter] = words if argument.many else words[0]
            words = [] if argument.many else words[1:]
        elif argument.required:
            return None
    return None if words else given


def _value_of(option: Option, text: str) -> Any:
    """Return the value that *text*, of a variable, gives *option*; None if it gives none."""
    if option.metavar:
        return text.split() if option.repeats else text
    return _BOOLEANS.get(text.strip().lower())


def run_line(words: Sequence[str]) -> int:
    """Do what the command line *words* asks for, and return the exit code.

    Errors: `UsageError` for a line that is refused; as the command.
    """
    if COMPLETION in os.environ:
        from gpubind.cli.typer_app import complete

        return complete()
    words = _without_dashes(words)
    first = words[0] if words else ""
    if not words or first in HELP.spellings:
        from gpubind.cli.help import overview

        return _show(overview(), to_stderr=not words)
    if first in VERSION.spellings:
        from gpubind import __version__
        from gpubind.cli.output import write_document

        write_document(f"gpubind {__version__}\n", None)
        return EXIT_OK
    command = command_of(first) if first in MODULES else None
    line = None if command is None else read_line(command, words[1:], os.environ)
    if command is None or line is None:
        from gpubind.cli.typer_app import wrong_use

        raise wrong_use(words)
    if HELP.parameter in line.values:
        from gpubind.cli.help import page_of

        return _show(page_of(command))
    from gpubind.cli.options import run

    run(command, line.values, line.origins)
    return EXIT_OK


def _show(page: Page, *, to_stderr: bool = False) -> int:
    from gpubind.cli.help import render_page
    from gpubind.cli.output import complain, help_width, write_document

    text = render_page(page, help_width())
    if to_stderr:
        complain(text)
        return EXIT_USAGE
    write_document(text, None)
    return EXIT_OK
