"""Parse the options of a command line, with their positions, by the rules of the library that the program uses.

| reader | library | used by |
| --- | --- | --- |
| `PFLAG` | spf13/pflag | apptainer, singularity, docker, podman |
| `GETOPT`, `GETOPT_PERMUTING` | getopt_long(3) of glibc, and argp on top of it | crun, srun, env, ...; ch-run |
| `GETOPT_NUMERIC` | the same, with a number as an option | nice |
| `GO_FLAG` | urfave/cli 1.22 on Go's `flag` | runc |
| `FIXED_COUNT` | none: each option has its number of words | bwrap |
| `WHOLE` | none: each option whole; the value of a long one also after `=` | enroot |
| `PROOT` | PRoot 5.1 `src/cli/cli.c` | proot |
| `UDOCKER` | udocker 1.3 `cmdparser.py`: each option whole, its value after `=` or in the next word | udocker |
| `SINGLE_DASH` | one dash or two before a long name | mpirun, bsub |

Source: spf13/pflag 1.0 `flag.go` (parseArgs, parseLongArg, parseSingleShortArg), `bool.go`; getopt_long(3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Literal, Optional, Union

from gpubind.frozen import NamedTuple
from gpubind.runtimes.cmdline.values import parse_bool

FailureKind = Literal["unknown", "ambiguous", "no-value", "needless-value", "bad-value"]
_OPTIONAL_VALUE = -1
_TOKEN = re.compile(r"(?P<names>[^/=?]*)(?:/(?P<letters>\?|[^=?]+))?(?:=(?P<count>[0-9])?|(?P<maybe>\?))?")


class OptionSpec(NamedTuple):
    """An option of a program."""

    name: str
    """Without dashes; the letter of an option without a long name."""
    argument_count: int
    """How many arguments follow it. `_OPTIONAL_VALUE`: it may have a value, but only in the same argument."""


class OptionTable(NamedTuple):
    """The options of a program."""

    names: Mapping[str, OptionSpec]
    letters: Mapping[str, OptionSpec]


class ParsedOption(NamedTuple):
    """An option that a command line gives."""

    name: str
    """The first of its names in the table."""
    value: str
    """The values, joined by a space. It is empty for an option without one, but `true` for a switch of Go's `flag`."""
    args: tuple[str, ...]
    """The arguments of the option as written. Letters that share one argument have the same one."""
    position: int
    """The position of the first of `args`."""


def argument_location(position: int) -> str:
    """Return the location of the argument at *position*, for messages. The program is the first argument."""
    return f"argument {position + 1}"


class ParsedArgument(NamedTuple):
    """One option, or several letters in one argument."""

    options: tuple[ParsedOption, ...]
    next: int


class ParseFailure(NamedTuple):
    """An argument that is not an option of the program, or an option without its value."""

    kind: FailureKind
    position: int


class ParsedCommandLine(NamedTuple):
    """The options of a command line, up to the point where its options end."""

    argv: tuple[str, ...]
    """The whole line."""
    options: tuple[ParsedOption, ...]
    operand_indexes: tuple[int, ...]
    """The positions of the arguments that are not options, in order."""
    insert_index: int
    """The position at which another option can be inserted: the first operand, or a `--` before it."""
    error: Optional[ParseFailure] = None
    """Why parsing ended early."""
    skipped_errors: tuple[ParseFailure, ...] = ()
    """Arguments that could not be parsed, and were skipped."""

    def last(self, *names: str) -> Optional[str]:
        """Return the value of the last option that has one of *names*, if one is given."""
        return next((option.value for option in reversed(self.options) if option.name in names), None)


class OptionParser(NamedTuple):
    """How a program finds its options."""

    step: Callable[[OptionTable, Sequence[str], int], Union[ParsedArgument, ParseFailure]]
    permutes: bool = False
    """Whether options may follow the first operand."""
    dash_is_option: bool = False
    """Whether a lone `-` is an option."""
    has_terminator: bool = True
    """Whether `--` ends the options."""


class UserOptionValues(NamedTuple):
    """The user's options for a start, as the runtime itself reads them."""

    values: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The values of each option that is given, by its name."""
    env: Mapping[str, str] = MappingProxyType({})
    """The variables that the options set in the container."""

    @classmethod
    def of(cls, line: ParsedCommandLine, env: Mapping[str, str]) -> UserOptionValues:
        """Return the options of *line*, and the variables *env* that they set."""
        values: dict[str, tuple[str, ...]] = {}
        for option in line.options:
            values[option.name] = (*values.get(option.name, ()), option.value)
        return cls(values, env)

    def has(self, name: str) -> bool:
        """Return whether the switch *name* is on."""
        return parse_bool(self.values.get(name, ("false",))[-1]) is True

    def all(self, name: str) -> tuple[str, ...]:
        """Return the values of option *name*, in their order."""
        return self.values.get(name, ())

    def last(self, name: str) -> Optional[str]:
        """Return the last value of option *name*, if it is given."""
        return self.values[name][-1] if self.values.get(name) else None


@cache
def parse_option_table(*texts: str) -> OptionTable:
    """Return the options in *texts*, which have items `name/letters`, each with its number of arguments.

    `name` takes none, `name=` one, `name=2` two, and `name?` a value only in the same argument. `a|b` are two names of
    one option, and `/x` is an option without a long name. Of two entries for one name or letter, the first takes
    precedence.
    """
    names: dict[str, OptionSpec] = {}
    letters: dict[str, OptionSpec] = {}
    for token in " ".join(texts).split():
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise ValueError(token)
        long_names, short = [name for name in match["names"].split("|") if name], match["letters"] or ""
        takes = _OPTIONAL_VALUE if match["maybe"] else int(match["count"] or 1) if "=" in token else 0
        option = OptionSpec(long_names[0] if long_names else short, takes)
        for name in long_names:
            names.setdefault(name, option)
        for letter in short:
            letters.setdefault(letter, option)
    return OptionTable(names, letters)


def parse_options(
    reader: OptionParser,
    table: OptionTable,
    argv: Sequence[str],
    position: int = 0,
    skip: Callable[[ParseFailure], Optional[int]] = lambda failure: None,
) -> ParsedCommandLine:
    """Return the options in *argv* from *position* on. Never raises.

    After a failure, parsing continues at the position that *skip* returns; None ends it.
    """
    options: list[ParsedOption] = []
    operands: list[int] = []
    skipped: list[ParseFailure] = []
    end: Optional[int] = None
    while position < len(argv):
        arg = argv[position]
        if arg == "--" and reader.has_terminator:
            end = position if end is None else end
            operands += range(position + 1, len(argv))
            break
        if not arg.startswith("-") or (arg == "-" and not reader.dash_is_option):
            end = position if end is None else end
            if not reader.permutes:
                operands += range(position, len(argv))
                break
            operands.append(position)
            position += 1
            continue
        step = reader.step(table, argv, position)
        if isinstance(step, ParsedArgument):
            options += step.options
            position = step.next
            continue
        after = skip(step)
        if after is None:
            end = position if end is None else end
            return ParsedCommandLine(tuple(argv), tuple(options), tuple(operands), end, step, tuple(skipped))
        skipped.append(step)
        position = after
    if end is not None and options and options[-1].position > end:
        end = options[-1].position + len(options[-1].args)
    end = len(argv) if end is None else end
    return ParsedCommandLine(tuple(argv), tuple(options), tuple(operands), end, skipped_errors=tuple(skipped))


def _parse_option(
    spec: Optional[OptionSpec], argv: Sequence[str], position: int, value: Optional[str] = None, *, is_go: bool = False
) -> Union[ParsedArgument, ParseFailure]:
    """Return the option *spec* at *position*. Its value is *value*, from the same argument, or else in the arguments
    after it.

    *is_go*: whether an option without a value is a switch of Go's `flag`, which accepts `=false`.
    """
    if spec is None:
        return ParseFailure("unknown", position)
    if is_go and not spec.argument_count:
        value = "true" if value is None else value
        if parse_bool(value) is None:
            return ParseFailure("bad-value", position)
    elif value is not None and not spec.argument_count:
        return ParseFailure("needless-value", position)
    count = max(spec.argument_count, 0) if value is None else 0
    args = tuple(argv[position : position + 1 + count])
    if len(args) <= count:
        return ParseFailure("no-value", position)
    value = " ".join(args[1:]) if value is None else value
    return ParsedArgument((ParsedOption(spec.name, value, args, position),), position + 1 + count)


def _split(text: str) -> tuple[str, Optional[str]]:
    name, equals, value = text.partition("=")
    return name, value if equals else None


def _short_options(
    table: OptionTable, argv: Sequence[str], position: int, *, is_go: bool = False
) -> Union[ParsedArgument, ParseFailure]:
    """Parse `-ec`, `-B/a:/b`, `-B /a:/b` and, for Go's `flag`, `-B=/a:/b`."""
    arg, after = argv[position], position + 1
    options: list[ParsedOption] = []
    for offset, letter in enumerate(arg[1:], 2):
        spec, remainder, value = table.letters.get(letter), arg[offset:], None
        if is_go and len(remainder) > 1 and remainder[0] == "=":
            value = remainder[1:]
        elif remainder and spec is not None and spec.argument_count:
            value = remainder
        step = _parse_option(spec, argv, position, value, is_go=is_go)
        if isinstance(step, ParseFailure):
            return step
        options += step.options
        after = step.next
        if value is not None:
            break
    args = tuple(argv[position:after])
    return ParsedArgument(tuple(option._replace(args=args) for option in options), after)


def _pflag(table: OptionTable, argv: Sequence[str], position: int) -> Union[ParsedArgument, ParseFailure]:
    if not argv[position].startswith("--"):
        return _short_options(table, argv, position, is_go=True)
    name, value = _split(argv[position][2:])
    return _parse_option(table.names.get(name), argv, position, value, is_go=True)


def _getopt(table: OptionTable, argv: Sequence[str], position: int) -> Union[ParsedArgument, ParseFailure]:
    if not argv[position].startswith("--"):
        return _short_options(table, argv, position)
    name, value = _split(argv[position][2:])
    matches = {table.names[name]} if name in table.names else set()
    # The beginning of one option's names is enough: getopt_long(3).
    matches = matches or {option for full, option in table.names.items() if name and full.startswith(name)}
    if len(matches) > 1:
        return ParseFailure("ambiguous", position)
    return _parse_option(next(iter(matches), None), argv, position, value)


def _getopt_numeric(table: OptionTable, argv: Sequence[str], position: int) -> Union[ParsedArgument, ParseFailure]:
    arg = argv[position]
    if re.fullmatch(r"-[+-]?[0-9]+", arg):
        return ParsedArgument((ParsedOption("adjustment", arg[1:], (arg,), position),), position + 1)
    return _getopt(table, argv, position)


def _go_flag(table: OptionTable, argv: Sequence[str], position: int) -> Union[ParsedArgument, ParseFailure]:
    name, value = _split(argv[position].lstrip("-") if not argv[position].startswith("---") else "")
    return _parse_option(table.names.get(name) or table.letters.get(name), argv, position, value, is_go=True)


def _fixed_count(table: OptionTable, argv: Sequence[str], position: int) -> Union[ParsedArgument, ParseFailure]:
    spec = table.names.get(argv[position][2:]) if argv[position].startswith("--") else None
    return _parse_option(spec, argv, position)


def _parse_whole_option(table: OptionTable, argv: Sequence[str], position: int) -> Union[ParsedArgument, ParseFailure]:
    if not argv[position].startswith("--"):
        return _parse_option(table.letters.get(argv[position][1:]), argv, position)
    name, value = _split(argv[position][2:])
    return _parse_option(table.names.get(name), argv, position, value)


def _proot(table: OptionTable, argv: Sequence[str], position: int) -> Union[ParsedArgument, ParseFailure]:
    spec = table.names.get(argv[position][2:]) if argv[position].startswith("--") else None
    if spec is not None and spec.argument_count:
        return ParseFailure("no-value", position)
    return _parse_whole_option(table, argv, position)


def _udocker(table: OptionTable, argv: Sequence[str], position: int) -> Union[ParsedArgument, ParseFailure]:
    name, value = _split(argv[position])
    spec = table.names.get(name[2:]) if name.startswith("--") else table.letters.get(name[1:])
    is_option_next = any(arg.startswith("-") for arg in argv[position + 1 : position + 2])
    if spec is not None and spec.argument_count and value is None and is_option_next:
        return ParseFailure("no-value", position)
    return _parse_option(spec, argv, position, value)


def _single_dash(table: OptionTable, argv: Sequence[str], position: int) -> Union[ParsedArgument, ParseFailure]:
    arg = argv[position]
    name, value = _split(arg[2:] if arg.startswith("--") else arg[1:])
    spec = table.names.get(name) or table.letters.get(name)
    if spec is not None and spec.argument_count == 2 and any("=" in arg for arg in argv[position + 1 : position + 2]):
        # MPICH's `-env NAME VALUE` is `--env NAME=VALUE` for PALS.
        spec = spec._replace(argument_count=1)
    has_value = spec is not None and spec.argument_count in (1, _OPTIONAL_VALUE)
    return _parse_option(spec, argv, position, value if has_value else None)


PFLAG = OptionParser(_pflag)
GETOPT = OptionParser(_getopt)
GETOPT_PERMUTING = OptionParser(_getopt, permutes=True)
GETOPT_NUMERIC = OptionParser(_getopt_numeric)
GO_FLAG = OptionParser(_go_flag, permutes=True)
FIXED_COUNT = OptionParser(_fixed_count, dash_is_option=True)
WHOLE = OptionParser(_parse_whole_option)
PROOT = OptionParser(_proot, has_terminator=False)
UDOCKER = OptionParser(_udocker, has_terminator=False)
SINGLE_DASH = OptionParser(_single_dash)
