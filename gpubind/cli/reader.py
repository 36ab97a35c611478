"""Parse command lines, and run the commands. `run_line` is the entry.

The declarations of a command and this module are the only grammar of its lines. An error in a line is a value
(`ParsedLine.error`): the rest of the line still selects the format in which the error is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import COMPLETION, HELP, VERSION, Argument, Option, Origin, Subcommand, choices_of
from gpubind.errors import EXIT_OK, EXIT_USAGE, GpubindError, WrongUseError, did_you_mean, suggest_known
from gpubind.frozen import NamedTuple
from gpubind.machine import system

if TYPE_CHECKING:
    from gpubind.cli.help import Page


class ParsedLine(NamedTuple):
    """The values of a command line, and the origins of those of options."""

    values: dict[str, Any]
    """For a line that requests help, only `help`: whether it requests every option."""
    origins: dict[str, Origin]
    error: Optional[GpubindError] = None
    """The first error. The values are then those that could be parsed."""


_HELP_WIDEST = 120
"""Maximum columns of help, where options and descriptions are side by side."""
_REPEAT_HINTS = {
    **dict.fromkeys(("--image", "--host"), "`check` takes --image and --host several times"),
    "--format": "--json is --format json",
}
_BOOLEANS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}


def read_line(command: Subcommand, args: Sequence[str], environ: Mapping[str, str]) -> ParsedLine:
    """Parse *args*, which follow the name of *command*.

    Errors: `WrongUseError` (codes `unknown-option`, `missing-argument`, `wrong-use`, `given-twice`, those of
    `Option.unknown`); as `defaults_for`.
    """
    line = parse_line(command, args, environ)
    if line.error is not None:
        raise line.error
    return line


def parse_line(command: Subcommand, args: Sequence[str], environ: Mapping[str, str]) -> ParsedLine:
    """Parse *args*, which follow the name of *command*, as far as possible."""
    parsed, others, wrong = _scan(command, args)
    if HELP.parameter in parsed and not wrong:
        return ParsedLine({HELP.parameter: others[:1] == ["all"]}, {})
    wrong += _repeat_errors(command, parsed)
    line, missing = ParsedLine({}, {}), list[str]()
    for argument in command.arguments:
        line.values[argument.parameter] = (others if argument.takes_rest else others[0]) if others else None
        missing += [argument.metavar] if argument.required and not others else []
        others = [] if argument.takes_rest else others[1:]
    missing += [each.name for each in command.options if each.required and each.parameter not in parsed]
    wrong += [WrongUseError("missing-argument", f"gpubind {command.name}: {name} is missing") for name in missing]
    if others:
        message = f"unexpected argument{'s' if others[1:] else ''} ({' '.join(others)})"
        wrong.append(WrongUseError("wrong-use", f"gpubind {command.name}: {message}"))
    from gpubind.cli.settings import defaults_for

    try:
        defaults = defaults_for(command)
    except GpubindError as error:
        defaults = {}
        wrong.append(error)
    for option in command.options:
        if not option.expands_to:
            value, origin = _resolved(option, parsed, environ, defaults)
            if value is None and origin == "variable":
                message = f"gpubind {command.name}: `{environ[option.variable]}` is not a boolean, for {option.name}"
                hint = f"set {option.variable} to 1 or 0, or unset it"
                where = f"the variable {option.variable}"
                wrong.append(WrongUseError("wrong-use", message, where=where, hint=hint))
            line.values[option.parameter], line.origins[option.parameter] = value, origin
    wrong += _choice_errors(command, line)
    return line._replace(error=_with_hint(wrong[0], command, args)) if wrong else line


def _repeat_errors(command: Subcommand, parsed: dict[str, Any]) -> Iterator[WrongUseError]:
    """Replace the list of values by its value if the option takes only one; yield an error if there are several."""
    for option in command.options:
        values = parsed.get(option.parameter)
        if option.metavar and not option.is_repeatable and values:
            if len(values) == 1:
                (parsed[option.parameter],) = values
            else:
                hint = _REPEAT_HINTS.get(option.name, "")
                yield WrongUseError("given-twice", f"{option.name} is given twice, and can have one value", hint=hint)


def _choice_errors(command: Subcommand, line: ParsedLine) -> Iterator[WrongUseError]:
    parameters: tuple[Union[Argument, Option], ...] = (*command.arguments, *command.options)
    for each in parameters:
        for value in _as_list(line.values.get(each.parameter)) if each.unknown else ():
            if value not in choices_of(each):
                from gpubind.cli.settings import setting_location

                message = f"unknown {each.parameter.rstrip('_')} `{value}`"
                where = setting_location(each, line.origins[each.parameter]) if isinstance(each, Option) else ""
                yield WrongUseError(each.unknown, message, where=where, hint=suggest_known(choices_of(each), value))


def _with_hint(error: GpubindError, command: Subcommand, args: Sequence[str]) -> GpubindError:
    if isinstance(error, WrongUseError) and (error.code == "unknown-option" or not error.hint):
        from gpubind.cli.suggestions import suggestion

        error.hint = suggestion((command.name, *args)) or error.hint
        error.hint += f"`gpubind {command.name} --help` lists the options"
    return error


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _resolved(
    option: Option, parsed: Mapping[str, Any], environ: Mapping[str, str], defaults: Mapping[str, Any]
) -> tuple[Any, Origin]:
    """Return the value of *option* and its origin. The value is None for a variable that is not a boolean."""
    name, text = option.parameter, environ.get(option.variable)
    if name in parsed:
        return parsed[name], "line"
    if text and option.metavar:
        return text.split() if option.is_repeatable else text, "variable"
    if text:
        return _BOOLEANS.get(text.strip().lower()), "variable"
    return (defaults[name], "settings") if name in defaults else (option.unset, "default")


def requested_format(args: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the format of the document that *args* request on standard output, `json` if they name several.

    Empty if they request none there. Of a wrong line, the valid part is used.
    """
    args = _command_first(args)
    command = command_of(args[0]) if args and args[0] in MODULES else None
    if command is None or command.remote:
        return ""
    values = parse_line(command, args[1:], environ).values
    if any(path != "-" for path in _as_list(values.get("output"))):
        return ""
    formats = _as_list(values.get("format_"))
    return "json" if values.get("json") or "json" in formats else "".join(formats[:1])


def _command_first(args: Sequence[str]) -> Sequence[str]:
    """Return *args* without a `--` before the command, and with `COMMAND --help` for `help COMMAND`."""
    args = args[1:] if args[:1] == ["--"] else args
    if args[:1] != ["help"]:
        return args
    command_count = 0 if args[1:2] in ([], ["all"]) else 1
    return [*args[1 : 1 + command_count], "--help", *args[1 + command_count :]]


def _scan(command: Subcommand, args: Iterable[str]) -> tuple[dict[str, Any], list[str], list[GpubindError]]:
    """Return the values of options in *args*, the other arguments, and the errors of wrong ones, which are skipped.

    The values are by parameter. An option with a value has a list of all its values.
    """
    by_name = {name: (option, on) for option in (*command.options, HELP) for name, on in option.spellings.items()}
    parsed: dict[str, Any] = {}
    others, wrong, remaining = list[str](), list[GpubindError](), [*args][::-1]
    while remaining:
        arg = remaining.pop()
        if arg == "--":
            others += remaining[::-1]
            break
        name, attached = _split_option(arg)
        # With a space in it, it is a message of a log in quotes.
        is_message = name not in by_name and not command.starts and " " in (name if arg.startswith("--") else arg)
        if arg == "-" or not arg.startswith("-") or is_message:
            others.append(arg)
            if command.starts:
                others += remaining[::-1]
                break
            continue
        if name not in by_name:
            near = did_you_mean([spelling for spelling in by_name if spelling.startswith("--")], name)
            message = f"gpubind {command.name} has no option `{name}`"
            wrong.append(WrongUseError("unknown-option", message, hint=near))
            continue
        option, on = by_name[name]
        if option.expands_to and not parsed.get(option.parameter):
            remaining.append(option.expands_to)
        if option.metavar:
            if attached is None and not remaining:
                message = f"gpubind {command.name}: option '{name}' requires an argument"
                wrong.append(WrongUseError("wrong-use", message))
                break
            parsed.setdefault(option.parameter, []).append(remaining.pop() if attached is None else attached)
            continue
        parsed[option.parameter] = parsed.get(option.parameter, 0) + 1 if option.is_repeatable else on
        if attached is not None:
            if arg.startswith("--") or attached.startswith("-"):
                message = f"gpubind {command.name}: option '{name}' does not take a value"
                wrong.append(WrongUseError("wrong-use", message))
                continue
            remaining.append(f"-{attached}")  # more short options in one word
    return parsed, others, wrong


def _split_option(arg: str) -> tuple[str, Optional[str]]:
    if not arg.startswith("--"):
        return arg[:2], arg[2:] or None
    name, equals, attached = arg.partition("=")
    return name, attached if equals else None


def run_line(args: Sequence[str]) -> int:
    """Run the command line *args*, and return the exit code.

    Errors: as `read_line`; `WrongUseError` (code `unknown-command`); as the command.
    """
    if COMPLETION in system.environ():
        from gpubind.cli.typer_app import complete

        return complete()
    args = _command_first(args)
    first = args[0] if args else ""
    if not args or first in HELP.spellings:
        from gpubind.cli.help import overview, page_of

        about = MODULES if args[1:2] == ["all"] else ()
        return _show(overview(), *(page_of(command_of(name)) for name in about), to_stderr=not args)
    if first in VERSION.spellings:
        from gpubind import __version__
        from gpubind.cli.output import write_document

        write_document(f"gpubind {__version__}\n", None)
        return EXIT_OK
    if first not in MODULES:
        raise _no_command(args)
    command = command_of(first)
    line = read_line(command, args[1:], system.environ())
    if HELP.parameter in line.values:
        from gpubind.cli.help import page_of

        return _show(page_of(command, is_whole=line.values[HELP.parameter]))
    from gpubind.cli.options import run

    run(command, line.values, line.origins)
    return EXIT_OK


def _no_command(args: Sequence[str]) -> WrongUseError:
    """Return the error for *args* that do not begin with a command. Its hint is the line that was probably meant."""
    from gpubind.cli.suggestions import suggestion

    line, first = suggestion(args), args[0].partition("=")[0]
    if not first.startswith("-"):
        hint = line.rstrip() or suggest_known(MODULES, first)
        return WrongUseError("unknown-command", f"unknown command `{first}`", hint=hint)
    hint = (line or did_you_mean([HELP.name, VERSION.name], first)) + "`gpubind --help` lists the options"
    if first in (HELP.name, VERSION.name):
        return WrongUseError("wrong-use", f"gpubind: option '{first}' does not take a value", hint=hint)
    return WrongUseError("unknown-option", f"gpubind has no option `{first}`", hint=hint)


def _show(*pages: Page, to_stderr: bool = False) -> int:
    from gpubind.cli.help import render_page
    from gpubind.cli.output import width, write_document, write_stderr

    columns = width(_HELP_WIDEST)
    text = "\n\n".join(render_page(page, columns) for page in pages)
    if to_stderr:
        write_stderr(text)
        return EXIT_USAGE
    write_document(text, None)
    return EXIT_OK
