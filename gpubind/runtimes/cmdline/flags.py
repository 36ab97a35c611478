"""Options on a command line, as pflag reads them: the library of Apptainer, SingularityCE, podman and docker.

Source: spf13/pflag 1.0 `flag.go` (parseArgs, parseLongArg, parseSingleShortArg), `bool.go`, `string_slice.go`,
`string_to_string.go`; Go's `strconv.ParseBool` and `encoding/csv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple, Optional

FlagKind = Literal["bool", "string", "array", "list", "map"]
"""`array`: each value whole, repeatable; `list`: each value a line of CSV, repeatable; `map`: NAME=VALUE, as `list`."""
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


class Flag(NamedTuple):
    """An option of a program."""

    name: str
    """Without the dashes."""
    kind: FlagKind
    short: str = ""
    """Its letter, if it has one."""
    variables: tuple[str, ...] = ()
    """The environment variables that say the same, without the program's prefix, in the order of their rank."""


class ListedOption(NamedTuple):
    """An option as a table of options has it."""

    names: tuple[str, ...]
    """Without the dashes; its letter, for one without a long name."""
    letters: str
    takes: int
    """How many words follow it; `MAYBE` for a value that only its own word can hold."""


MAYBE = -1
_TOKEN = re.compile(r"(?P<names>[^/=?]*)(?:/(?P<letters>[^=?]+))?(?:=(?P<count>[0-9])?|(?P<maybe>\?))?")


def listed(*texts: str) -> Iterator[ListedOption]:
    """Yield the options of a table, *texts* of words `name/letters` with what follows each.

    `name` takes nothing, `name=` one word, `name=2` two, `name?` a value in its own word only. `a|b` are names for one
    option, `/x` is an option without a long name.
    """
    for token in " ".join(texts).split():
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise ValueError(token)
        names = tuple(name for name in match["names"].split("|") if name)
        takes = MAYBE if match["maybe"] else int(match["count"] or 1) if "=" in token else 0
        yield ListedOption(names or (match["letters"],), match["letters"] or "", takes)


def valued(*texts: str) -> dict[str, str]:
    """The options of a table that have a value, as they are spelled, with the first name of each."""
    return {
        dashes + word: names[0]
        for names, letters, takes in listed(*texts)
        if takes
        for dashes, words in (("--", names), ("-", letters))
        for word in words
    }


def flags_of(*texts: str) -> tuple[Flag, ...]:
    """The options of a table for `parse_command_line`: each by its every name, the letters with the first of them."""
    made = []
    for names, letters, takes in listed(*texts):
        kind: FlagKind = "array" if takes > 0 else "bool"
        made += [Flag(names[0], kind, letter) for letter in letters or ("",)]
        made += [Flag(name, kind) for name in names[1:]]
    return tuple(made)


class Given(NamedTuple):
    """An option that a command line gives."""

    name: str
    value: str


class CommandLine(NamedTuple):
    """The options at the start of a command line."""

    given: tuple[Given, ...]
    """In their order. An option without a value has the value `true`."""
    unknown: tuple[str, ...]
    """Words that look like options and are none of the program's."""
    rest: tuple[str, ...]
    """What follows the options: the first word that is none, and everything behind it."""
    incomplete: Optional[str] = None
    """The last option, if it lacks its value."""


class Options(NamedTuple):
    """The options of a start, each as the program will have it."""

    values: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The values of each option that is given, by its name; the elements of a `list`. Without those of `env`."""
    env: Mapping[str, str] = MappingProxyType({})
    """What --env sets."""
    unknown: tuple[str, ...] = ()
    """Words that are none of the program's options, as far as gpubind knows those."""
    image: tuple[str, ...] = ()
    """What follows the options: the program would take it for the image."""
    incomplete: Optional[str] = None
    """The last option, if it lacks its value: it would take the next word for it."""

    def has(self, name: str) -> bool:
        """Return whether the switch *name* is on."""
        return parse_bool(self.values.get(name, ("false",))[-1]) is True

    def all(self, name: str) -> tuple[str, ...]:
        """Return the values of option *name*, in their order."""
        return self.values.get(name, ())

    def last(self, name: str) -> Optional[str]:
        """Return the value of option *name* that counts, if it is given."""
        return self.values[name][-1] if self.values.get(name) else None


def parse_command_line(words: Sequence[str], flags: Sequence[Flag]) -> CommandLine:
    """Return the options in *words*, up to the first word that is no option, or `--`. Never raises."""
    names = {flag.name: flag for flag in flags}
    letters = {flag.short: flag for flag in flags if flag.short}
    given: list[Given] = []
    unknown: list[str] = []
    incomplete: Optional[str] = None
    at = 0
    while at < len(words):
        word = words[at]
        if not word.startswith("-") or word == "-":
            break
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            flag = names.get(name)
            if flag is None:
                unknown.append(word)
                continue
            if not equals:
                incomplete = word if flag.kind != "bool" and at == len(words) else None
                value, at = _value(flag, words, at)
            given.append(Given(name, value))
        else:
            before = at
            at = _read_letters(word[1:], letters, words, at, given, unknown)
            last = letters.get(word[-1])
            if at == before == len(words) and "=" not in word and last is not None and last.kind != "bool":
                incomplete = word if given and given[-1] == Given(last.name, "") else None
    return CommandLine(tuple(given), tuple(unknown), tuple(words[at:]), incomplete)


def by_name(given: Sequence[Given]) -> dict[str, tuple[str, ...]]:
    """Return the values of each option in *given*, in their order."""
    values: dict[str, tuple[str, ...]] = {}
    for name, value in given:
        values[name] = (*values.get(name, ()), value)
    return values


def assigned(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what `NAME=VALUE` sets; `NAME` alone means the caller's own value, if there is one in *environ*."""
    name, equals, value = text.partition("=")
    if equals:
        return {name: value}
    return {name: environ[name]} if name in environ else {}


def _value(flag: Flag, words: Sequence[str], at: int) -> tuple[str, int]:
    """The value of an option that has none behind a `=`, and where to go on: the next word is it, whatever it is."""
    if flag.kind == "bool":
        return "true", at
    return (words[at], at + 1) if at < len(words) else ("", at)


def _read_letters(
    cluster: str, letters: Mapping[str, Flag], words: Sequence[str], at: int, given: list[Given], unknown: list[str]
) -> int:
    """Read `-ec`, `-B/a:/b`, `-B=/a:/b`, `-B /a:/b` (without the dash); where to go on."""
    while cluster:
        flag, behind = letters.get(cluster[0]), cluster[1:]
        if flag is None:
            unknown.append(f"-{cluster}")
            return at
        if len(behind) > 1 and behind[0] == "=":
            given.append(Given(flag.name, behind[1:]))
            return at
        if flag.kind != "bool":
            value, at = (behind, at) if behind else _value(flag, words, at)
            given.append(Given(flag.name, value))
            return at
        given.append(Given(flag.name, "true"))
        cluster = behind
    return at


def parse_bool(text: str) -> Optional[bool]:
    """Return what *text* says of a `bool`; None where the program refuses it."""
    return True if text in _TRUE else False if text in _FALSE else None


def parse_list(text: str) -> tuple[str, ...]:
    """Return the elements of a `list`: the fields of one line of CSV. Empty where the program refuses it."""
    if not text:
        return ()
    import csv  # only where a list is given

    try:
        return tuple(next(csv.reader([text], strict=True), ()))
    except csv.Error:
        return ()


def parse_map(text: str) -> dict[str, str]:
    """The pairs of a `map`. With one `=` the text is one pair, without the quotes at its ends; else it is CSV."""
    count = text.count("=")
    pairs = [text.strip('"')] if count == 1 else parse_list(text) if count else ()
    return {name: value for name, equals, value in (pair.partition("=") for pair in pairs) if equals}


def map_word(name: str, value: str) -> Optional[str]:
    """Return the text of a `map` that gives *name* exactly *value*; None where there is none.

    One `=` in the text means one pair as it stands, less the quotes at its ends. With more of them it is CSV, where
    quotes protect everything but a carriage return before a newline. A pair that is given twice has more of them.
    """
    pair = f"{name}={value}"
    if pair.count("=") == 1 and pair.strip('"') == pair:
        return pair
    if "\r\n" in pair:
        return None
    field = '"' + pair.replace('"', '""') + '"'
    return field if pair.count("=") > 1 else f"{field},{field}"
