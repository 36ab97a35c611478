"""Read command lines, and run the commands. `run_line` is the entry.

The declarations of a command and this module are the only grammar of its lines. What is wrong with a line is a value
(`ParsedLine.error`): the rest of the line still says in which form the error is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import COMPLETION, HELP, VERSION, Argument, Option, Origin, Subcommand, choices_of
from gpubind.errors import EXIT_OK, EXIT_USAGE, GpubindError, WrongUseError, like, one_of
from gpubind.frozen import NamedTuple
from gpubind.machine import system

if TYPE_CHECKING:
    from gpubind.cli.help import Page


class ParsedLine(NamedTuple):
    """The values of a command line, and where those of options come from."""

    values: dict[str, Any]
    """Of a line that asks for help only `help`: whether it asks for every option."""
    origins: dict[str, Origin]
    error: Optional[GpubindError] = None
    """The first thing that is wrong. The values are then those that can be read all the same."""


_TWICE = {
    **dict.fromkeys(("--image", "--host"), "`check` takes --image and --host several times"),
    "--format": "--json is --format json",
}
_BOOLEANS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}


def read_line(command: Subcommand, words: Sequence[str], environ: Mapping[str, str]) -> ParsedLine:
    """Read *words*, which follow the name of *command*.

    Errors: `WrongUseError` (codes `unknown-option`, `missing-argument`, `wrong-use`, `given-twice`, those of
    `Option.unknown`); as `defaults_for`.
    """
    line = parse_line(command, words, environ)
    if line.error is not None:
        raise line.error
    return line


def parse_line(command: Subcommand, words: Sequence[str], environ: Mapping[str, str]) -> ParsedLine:
    """Read *words*, which follow the name of *command*, as far as they can be read."""
    given, others, wrong = _scan(command, words)
    if HELP.parameter in given and not wrong:
        return ParsedLine({HELP.parameter: others[:1] == ["all"]}, {})
    wrong += _twice(command, given)
    line = ParsedLine({}, {})
    for argument in command.arguments:
        line.values[argument.parameter] = (others if argument.many else others[0]) if others else None
        if argument.required and not others:
            wrong.append(_missing(command, argument.metavar))
        others = [] if argument.many else others[1:]
    wrong += [_missing(command, each.name) for each in command.options if each.required and each.parameter not in given]
    if others:
        what = f"unexpected argument{'s' if others[1:] else ''} ({' '.join(others)})"
        wrong.append(WrongUseError("wrong-use", f"gpubind {command.name}: {what}"))
    from gpubind.cli.settings import defaults_for

    try:
        defaults = defaults_for(command)
    except GpubindError as error:
        defaults = {}
        wrong.append(error)
    for option in command.options:
        if not option.stands_for:
            value, origin = _resolved(option, given, environ, defaults)
            if value is None and origin == "variable":
                wrong.append(_not_boolean(command, option, environ))
            line.values[option.parameter], line.origins[option.parameter] = value, origin
    wrong += _unknown(command, line)
    return line._replace(error=_with_hint(wrong[0], command, words)) if wrong else line


def _twice(command: Subcommand, given: dict[str, Any]) -> Iterator[WrongUseError]:
    """Make one of the values *given* to an option that takes one, and yield what is wrong where there are several."""
    for option in command.options:
        values = given.get(option.parameter)
        if option.metavar and not option.repeats and values:
            if len(values) == 1:
                (given[option.parameter],) = values
            else:
                hint = _TWICE.get(option.name, "")
                yield WrongUseError("given-twice", f"{option.name} is given twice, and can have one value", hint=hint)


def _missing(command: Subcommand, name: str) -> WrongUseError:
    return WrongUseError("missing-argument", f"gpubind {command.name}: {name} is missing")


def _not_boolean(command: Subcommand, option: Option, environ: Mapping[str, str]) -> WrongUseError:
    what = f"gpubind {command.name}: `{environ[option.variable]}` is not a boolean, for {option.name}"
    hint = f"set {option.variable} to 1 or 0, or unset it"
    return WrongUseError("wrong-use", what, where=f"the variable {option.variable}", hint=hint)


def _unknown(command: Subcommand, line: ParsedLine) -> Iterator[WrongUseError]:
    """Yield what is wrong with a value of *line* that must be one of the choices of its option, and is not."""
    parameters: tuple[Union[Argument, Option], ...] = (*command.arguments, *command.options)
    for each in parameters:
        for value in _all(line.values.get(each.parameter)) if each.unknown else ():
            if value not in choices_of(each):
                from gpubind.cli.settings import place_of

                what, hint = f"unknown {each.parameter.rstrip('_')} `{value}`", one_of(choices_of(each), value)
                where = place_of(each, line.origins[each.parameter]) if isinstance(each, Option) else ""
                yield WrongUseError(each.unknown, what, where=where, hint=hint)


def _with_hint(error: GpubindError, command: Subcommand, words: Sequence[str]) -> GpubindError:
    """Return *error* about *words*, if it has no hint, with the line that was probably meant, and where options are."""
    if isinstance(error, WrongUseError) and (error.code == "unknown-option" or not error.hint):
        from gpubind.cli.suggestions import suggestion

        error.hint = suggestion((command.name, *words)) or error.hint
        error.hint += f"`gpubind {command.name} --help` lists the options"
    return error


def _all(value: Any) -> Sequence[Any]:
    """Return the values of an option or argument as several, whether it takes one or more."""
    return value if isinstance(value, list) else [] if value is None else [value]


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
    words = _command_first(words)
    command = command_of(words[0]) if words and words[0] in MODULES else None
    if command is None or command.remote:
        return ""
    values = parse_line(command, words[1:], environ).values
    if any(path != "-" for path in _all(values.get("output"))):
        return ""
    formats = _all(values.get("format_"))
    return "json" if values.get("json") or "json" in formats else "".join(formats[:1])


def _command_first(words: Sequence[str]) -> Sequence[str]:
    """Return *words* without a `--` before the command, and `COMMAND --help` for `help COMMAND`."""
    words = words[1:] if words[:1] == ["--"] else words
    if words[:1] != ["help"]:
        return words
    named = 0 if words[1:2] in ([], ["all"]) else 1
    return [*words[1 : 1 + named], "--help", *words[1 + named :]]


class _Scan(NamedTuple):
    """What a command line gives, before anything is required of it."""

    given: dict[str, Any]
    """By parameter; of an option with a value all that it is given."""
    others: list[str]
    wrong: list[GpubindError]


def _scan(command: Subcommand, words: Iterable[str]) -> _Scan:
    """Read *words* as options of *command* and others. A word that is wrong is skipped."""
    spelled = {name: (option, on) for option in (*command.options, HELP) for name, on in option.spellings.items()}
    scan = _Scan({}, [], [])
    given, others = scan.given, scan.others
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
            near = like([known for known in spelled if known.startswith("--")], name)
            what = f"gpubind {command.name} has no option `{name}`"
            scan.wrong.append(WrongUseError("unknown-option", what, hint=near))
            continue
        option, on = spelled[name]
        if option.stands_for and not given.get(option.parameter):
            left.append(option.stands_for)
        if option.metavar:
            if attached is None and not left:
                what = f"gpubind {command.name}: option '{name}' requires an argument"
                scan.wrong.append(WrongUseError("wrong-use", what))
                break
            given.setdefault(option.parameter, []).append(left.pop() if attached is None else attached)
            continue
        given[option.parameter] = given.get(option.parameter, 0) + 1 if option.repeats else on
        if attached is not None:
            if word.startswith("--") or attached.startswith("-"):
                what = f"gpubind {command.name}: option '{name}' does not take a value"
                scan.wrong.append(WrongUseError("wrong-use", what))
                continue
            left.append(f"-{attached}")  # more short options in one word
    return scan


def _is_sentence(word: str, command: Subcommand) -> bool:
    """Return whether *word*, which begins with a `-`, is a text: a message of a log, in quotes."""
    return not command.starts and " " in (word.partition("=")[0] if word.startswith("--") else word)


def _parted(word: str) -> tuple[str, Optional[str]]:
    """Return the name of the option in *word*, and what is attached to it."""
    if not word.startswith("--"):
        return word[:2], word[2:] or None
    name, equals, attached = word.partition("=")
    return name, attached if equals else None


def _value_of(option: Option, text: str) -> Any:
    """Return the value that *text*, of a variable, gives *option*; None if it gives none."""
    if option.metavar:
        return text.split() if option.repeats else text
    return _BOOLEANS.get(text.strip().lower())


def run_line(words: Sequence[str]) -> int:
    """Do what the command line *words* asks for, and return the exit code.

    Errors: as `read_line`; `WrongUseError` (code `unknown-command`); as the command.
    """
    if COMPLETION in system.environ():
        from gpubind.cli.typer_app import complete

        return complete()
    words = _command_first(words)
    first = words[0] if words else ""
    if not words or first in HELP.spellings:
        from gpubind.cli.help import overview, page_of

        about = MODULES if words[1:2] == ["all"] else ()
        return _show(overview(), *(page_of(command_of(name)) for name in about), to_stderr=not words)
    if first in VERSION.spellings:
        from gpubind import __version__
        from gpubind.cli.output import write_document

        write_document(f"gpubind {__version__}\n", None)
        return EXIT_OK
    if first not in MODULES:
        raise _no_command(words)
    command = command_of(first)
    line = read_line(command, words[1:], system.environ())
    if HELP.parameter in line.values:
        from gpubind.cli.help import page_of

        return _show(page_of(command, is_whole=line.values[HELP.parameter]))
    from gpubind.cli.options import run

    run(command, line.values, line.origins)
    return EXIT_OK


def _no_command(words: Sequence[str]) -> WrongUseError:
    """Return the error that *words* do not begin with a command, with the line that was probably meant."""
    from gpubind.cli.suggestions import suggestion

    line, first = suggestion(words), words[0].partition("=")[0]
    if not first.startswith("-"):
        hint = line.rstrip() or one_of(MODULES, first)
        return WrongUseError("unknown-command", f"unknown command `{first}`", hint=hint)
    hint = (line or like([HELP.name, VERSION.name], first)) + "`gpubind --help` lists the options"
    if first in (HELP.name, VERSION.name):
        return WrongUseError("wrong-use", f"gpubind: option '{first}' does not take a value", hint=hint)
    return WrongUseError("unknown-option", f"gpubind has no option `{first}`", hint=hint)


def _show(*pages: Page, to_stderr: bool = False) -> int:
    from gpubind.cli.help import render_page
    from gpubind.cli.output import complain, help_width, write_document

    text = "\n\n".join(render_page(page, help_width()) for page in pages)
    if to_stderr:
        complain(text)
        return EXIT_USAGE
    write_document(text, None)
    return EXIT_OK
