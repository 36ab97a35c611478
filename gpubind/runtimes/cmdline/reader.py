"""Options on a command line with the place of each word, by the rules of the library that reads them.

| reader | library | who uses it |
| --- | --- | --- |
| `PFLAG` | spf13/pflag | apptainer, singularity, docker, podman |
| `GETOPT`, `GETOPT_PERMUTING` | getopt_long(3) of glibc, and argp on top of it | crun, srun, env, ...; ch-run |
| `GO_FLAG` | urfave/cli 1.22 on Go's `flag` | runc |
| `COUNTED` | none: each option has its number of words | bwrap |
| `PROOT` | PRoot 5.1 `src/cli/cli.c` | proot |
| `UDOCKER` | udocker 1.3 `cmdparser.py`: each option whole, its value behind `=` or in the next word | udocker |
| `SINGLE_DASH` | one dash or two before a long name | mpirun, bsub |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Optional, Union

from gpubind.runtimes.cmdline.flags import MAYBE, Flag, listed, parse_bool, parse_command_line

_NUMBER = re.compile(r"-[+-]?[0-9]+")

TroubleKind = Literal["unknown", "ambiguous", "no-value", "needless-value", "bad-value"]


class Known(NamedTuple):
    """An option of a program."""

    name: str
    """Without dashes; one without a long name has its letter."""
    takes: int
    """How many words follow it; `MAYBE` for a value that only its own word can hold."""


class OptionTable(NamedTuple):
    """The options of a program."""

    names: Mapping[str, Known]
    letters: Mapping[str, Known]
    numbers: bool = False
    """Whether `-10` is an option: nice(1) has that."""

    flags: tuple[Flag, ...] = ()
    """The same for the reader of pflag, with every option that takes a value as a `string`."""

    def also(self, other: OptionTable) -> OptionTable:
        """Both tables as one. What stands here goes first."""
        return _table({**other.names, **self.names}, {**other.letters, **self.letters}, self.numbers or other.numbers)

    def without(self, *names: str) -> OptionTable:
        """This table without the options of these names."""
        return _table(
            {name: known for name, known in self.names.items() if known.name not in names},
            {letter: known for letter, known in self.letters.items() if known.name not in names},
            self.numbers,
        )


class GivenOption(NamedTuple):
    """An option that a command line gives."""

    name: str
    """As the table has it."""
    value: str
    """Empty for an option without one, but pflag's switches have `true`. Several words are joined by a blank."""
    words: tuple[str, ...]
    """As they stand. Letters that share a word share these."""
    at: int
    """The position of the first of them."""


class Step(NamedTuple):
    """One option, or several letters in one word."""

    options: tuple[GivenOption, ...]
    next: int


class Trouble(NamedTuple):
    """A word that is no option of the program, or one that lacks its value."""

    kind: TroubleKind
    at: int


class Line(NamedTuple):
    """The options of a command line, up to where they end."""

    options: tuple[GivenOption, ...]
    others: tuple[int, ...]
    """The positions of the words that are no options, in their order."""
    end: int
    """Where another option can be put behind those: at the first of the others, or at a `--` before it."""
    trouble: Optional[Trouble] = None
    """Reading ended there."""

    def all(self, name: str) -> tuple[GivenOption, ...]:
        """Return the options of that name."""
        return tuple(option for option in self.options if option.name == name)

    def last(self, name: str) -> Optional[str]:
        """Return the value that counts of option *name*, if it is given."""
        given = self.all(name)
        return given[-1].value if given else None


class Reader(NamedTuple):
    """How a program finds its options."""

    step: Callable[[OptionTable, Sequence[str], int], Union[Step, Trouble]]
    permutes: bool = False
    """Whether options may stand behind the first word that is none."""
    dash: bool = False
    """Whether a lone `-` counts as an option."""
    terminator: bool = True
    """Whether `--` ends the options."""


def table(*texts: str, numbers: bool = False) -> OptionTable:
    """Return a table of options from *texts*, as `listed` reads them."""
    names: dict[str, Known] = {}
    letters: dict[str, Known] = {}
    for spelled, short, takes in listed(*texts):
        known = Known(spelled[0], takes)
        names.update(dict.fromkeys((name for name in spelled if name != short), known))
        letters.update(dict.fromkeys(short, known))
    return _table(names, letters, numbers)


def _table(names: Mapping[str, Known], letters: Mapping[str, Known], numbers: bool) -> OptionTable:
    longs = [Flag(name, "string" if known.takes else "bool") for name, known in names.items()]
    shorts = [Flag(known.name, "string" if known.takes else "bool", letter) for letter, known in letters.items()]
    # The reader of pflag finds each by name or by letter: the second entry of one name changes nothing.
    return OptionTable(names, letters, numbers, (*longs, *shorts))


def read_options(reader: Reader, known: OptionTable, argv: Sequence[str], at: int) -> Line:
    """Return the options in *argv* from position *at* on. Never raises."""
    options: list[GivenOption] = []
    others: list[int] = []
    end: Optional[int] = None
    while at < len(argv):
        word = argv[at]
        if word == "--" and reader.terminator:
            end = at if end is None else end
            others += range(at + 1, len(argv))
            break
        if not word.startswith("-") or (word == "-" and not reader.dash):
            end = at if end is None else end
            if not reader.permutes:
                others += range(at, len(argv))
                break
            others.append(at)
            at += 1
            continue
        step = reader.step(known, argv, at)
        if isinstance(step, Trouble):
            return Line(tuple(options), tuple(others), at if end is None else end, step)
        options += step.options
        at = step.next
    if end is not None and options and options[-1].at > end:
        end = options[-1].at + len(options[-1].words)
    return Line(tuple(options), tuple(others), len(argv) if end is None else end)


def _pflag(known: OptionTable, argv: Sequence[str], at: int) -> Union[Step, Trouble]:
    words = argv[at : at + 1]
    line = parse_command_line(words, known.flags)
    if line.incomplete is not None:
        words = argv[at : at + 2]
        if len(words) < 2:
            return Trouble("no-value", at)
        line = parse_command_line(words, known.flags)
    if line.unknown:
        return Trouble("unknown", at)
    switches = {flag.name for flag in known.flags if flag.kind == "bool"}
    if any(given.name in switches and parse_bool(given.value) is None for given in line.given):
        return Trouble("bad-value", at)
    names = {name: option.name for name, option in known.names.items()}
    options = tuple(GivenOption(names.get(name, name), value, tuple(words), at) for name, value in line.given)
    return Step(options, at + len(words))


def _getopt(known: OptionTable, argv: Sequence[str], at: int) -> Union[Step, Trouble]:
    word = argv[at]
    if known.numbers and _NUMBER.fullmatch(word):
        return Step((GivenOption("adjustment", word[1:], (word,), at),), at + 1)
    if not word.startswith("--"):
        return _letters(known, argv, at)
    name, equals, value = word[2:].partition("=")
    found = _abbreviated(known, name)
    if not isinstance(found, Known):
        return Trouble(found, at)
    if equals:
        return (
            Trouble("needless-value", at)
            if not found.takes
            else Step((GivenOption(found.name, value, (word,), at),), at + 1)
        )
    return _with_words(found, argv, at)


def _abbreviated(known: OptionTable, name: str) -> Union[Known, Literal["unknown", "ambiguous"]]:
    """Return the option *name*, or the only one that begins so: getopt_long(3)."""
    if name in known.names:
        return known.names[name]
    found = {option for full, option in known.names.items() if name and full.startswith(name)}
    if len(found) > 1:
        return "ambiguous"
    return found.pop() if found else "unknown"


def _letters(known: OptionTable, argv: Sequence[str], at: int) -> Union[Step, Trouble]:
    word = argv[at]
    options: list[GivenOption] = []
    for place, letter in enumerate(word[1:], 1):
        found = known.letters.get(letter)
        if found is None:
            return Trouble("unknown", at)
        behind = word[place + 1 :]
        if not found.takes:
            options.append(GivenOption(found.name, "", (word,), at))
            continue
        if behind or found.takes == MAYBE:
            options.append(GivenOption(found.name, behind, (word,), at))
            break
        if at + 1 == len(argv):
            return Trouble("no-value", at)
        words = (word, argv[at + 1])
        both = (*(option._replace(words=words) for option in options), GivenOption(found.name, words[1], words, at))
        return Step(both, at + 2)
    return Step(tuple(options), at + 1)


def _with_words(found: Known, argv: Sequence[str], at: int) -> Union[Step, Trouble]:
    """Return the option at *at*, with as many of the words behind it as it takes."""
    count = max(found.takes, 0)
    words = tuple(argv[at : at + 1 + count])
    if len(words) <= count:
        return Trouble("no-value", at)
    return Step((GivenOption(found.name, " ".join(words[1:]), words, at),), at + 1 + count)


def _go_flag(known: OptionTable, argv: Sequence[str], at: int) -> Union[Step, Trouble]:
    word = argv[at]
    name, equals, value = word.lstrip("-").partition("=") if not word.startswith("---") else ("", "", "")
    found = known.names.get(name) or known.letters.get(name)
    if found is None:
        return Trouble("unknown", at)
    if not found.takes:
        value = value if equals else "true"
        return (
            Step((GivenOption(found.name, value, (word,), at),), at + 1)
            if parse_bool(value) is not None
            else Trouble("bad-value", at)
        )
    return Step((GivenOption(found.name, value, (word,), at),), at + 1) if equals else _with_words(found, argv, at)


def _counted(known: OptionTable, argv: Sequence[str], at: int) -> Union[Step, Trouble]:
    found = known.names.get(argv[at][2:]) if argv[at].startswith("--") else None
    return Trouble("unknown", at) if found is None else _with_words(found, argv, at)


def _proot(known: OptionTable, argv: Sequence[str], at: int) -> Union[Step, Trouble]:
    word = argv[at]
    if not word.startswith("--"):
        found = known.letters.get(word[1:])
        return Trouble("unknown", at) if found is None else _with_words(found, argv, at)
    name, equals, value = word[2:].partition("=")
    found = known.names.get(name)
    if found is None:
        return Trouble("unknown", at)
    if bool(equals) != bool(found.takes):
        return Trouble("needless-value" if equals else "no-value", at)
    return Step((GivenOption(found.name, value, (word,), at),), at + 1)


def _udocker(known: OptionTable, argv: Sequence[str], at: int) -> Union[Step, Trouble]:
    word = argv[at]
    name, equals, value = word.partition("=")
    found = known.names.get(name[2:]) if name.startswith("--") else known.letters.get(name[1:])
    if found is None:
        return Trouble("unknown", at)
    if equals:
        if not found.takes:
            return Trouble("needless-value", at)
        return Step((GivenOption(found.name, value, (word,), at),), at + 1)
    if found.takes and argv[at + 1 : at + 2] and argv[at + 1].startswith("-"):
        return Trouble("no-value", at)
    return _with_words(found, argv, at)


def _single_dash(known: OptionTable, argv: Sequence[str], at: int) -> Union[Step, Trouble]:
    word = argv[at]
    name, equals, value = (word[2:] if word.startswith("--") else word[1:]).partition("=")
    found = known.names.get(name) or known.letters.get(name)
    if found is None:
        return Trouble("unknown", at)
    if equals and found.takes in (1, MAYBE):
        return Step((GivenOption(found.name, value, (word,), at),), at + 1)
    if found.takes == 2 and "=" in "".join(argv[at + 1 : at + 2]):
        # MPICH's `-env NAME VALUE` is `--env NAME=VALUE` for PALS.
        return _with_words(found._replace(takes=1), argv, at)
    return _with_words(found, argv, at)


PFLAG = Reader(_pflag)
GETOPT = Reader(_getopt)
GETOPT_PERMUTING = Reader(_getopt, permutes=True)
GO_FLAG = Reader(_go_flag, permutes=True)
COUNTED = Reader(_counted, dash=True)
PROOT = Reader(_proot, terminator=False)
UDOCKER = Reader(_udocker, terminator=False)
SINGLE_DASH = Reader(_single_dash)
