"""The command line that was probably meant: loaded only for a mistake."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress

from gpubind.cli.commands import MODULES, STARTS, command_of
from gpubind.errors import UsageError
from gpubind.frozen import NamedTuple
from gpubind.machine import system
from gpubind.model import VENDOR_ROWS

Words = tuple[str, ...]

_OTHER_NAMES = {"--gpu": "--gpus", "--nvidia": "--nv", "--amd": "--rocm", "--img": "--image"}
"""What other programs call an option."""
_NAMED = {"check": ("--image", "--program"), "plan": ("--image",), "record": ("--output",)}
"""The options that words without a name are for, in their order, of commands that take no such words."""
_VENDOR_FLAGS = {name: f"--{row.option}" for vendor, row in VENDOR_ROWS.items() for name in (vendor, row.option)}


def suggestion(words: Sequence[str]) -> str:
    """Return `did you mean ...? ` with the command line that *words* probably mean; empty if none is known."""
    line = tuple(words)
    for step in (_a_command_first, _options_by_our_names, _words_by_name, _runtime_options_apart):
        line = step(line)
    return "" if line == tuple(words) else f"did you mean `{shlex.join(('gpubind', *line))}`? "


def _a_command_first(words: Words) -> Words:
    """Put the command before the options, or add the one that takes such words."""
    from gpubind.runtimes.cmdline.programs import PROGRAMS

    first = words[0]
    if first in ("-v", "version"):
        return ("--version",)
    if os.path.basename(first) in PROGRAMS:
        return ("wrap", "--", *words)
    for name in MODULES:
        options, rest = _options(name, words) if name in words else ((), ())
        if rest[:1] == (name,):
            return (name, *options, *rest[1:])
    options, rest = _options("exec", words)
    if rest[:1] and (options or rest[0].endswith(".sif") or system.exists(rest[0])):
        return ("run" if len(rest) == 1 else "exec", *options, *rest)
    return ("plan", *options) if options and not rest else words


def _options_by_our_names(words: Words) -> Words:
    """Spell options of other programs as gpubind does: only where the line is for no other program."""
    if words[0] in STARTS or words[0] not in MODULES:
        return words
    known = _spellings(words[0])
    ours = {name: own for name, own in _OTHER_NAMES.items() if own in known}
    return tuple("=".join((ours.get(name, name), *value)) for name, *value in (word.split("=", 1) for word in words))


def _words_by_name(words: Words) -> Words:
    """Put the option before each word that *words* give without one: `check IMAGE` is `check --image IMAGE`."""
    command, options, others = words[0], words[:0], words[1:]
    named: list[str] = []
    if command not in _NAMED or _spellings(command).get(words[-1]):
        return words
    if command == "plan" and others and others[-1] in _VENDOR_FLAGS:
        return (command, *others[:-1], _VENDOR_FLAGS[others[-1]])
    while others:
        found, others = _options(command, others)
        options += found
        if others[:1] and others[0].startswith("-") and others[0] != "--":
            if len(named) > 1:
                break  # it is the program's
            return words  # the next word may be its value
        named, others = [*named, *(word for word in others[:1] if word != "--")], others[1:]
    free = [name for name in _NAMED[command] if name not in {word.partition("=")[0] for word in options}]
    if command == "check" and "--image" in options and any(word.endswith(".sif") for word in named):
        free = ["--image"] * len(named)  # an image is not a program of another
    return (command, *options, *(word for pair in zip(free, named) for word in pair)) if named else words


def _runtime_options_apart(words: Words) -> Words:
    """Put the runtime's own options of a start after `--`, right before IMAGE.

    `-e A=b IMAGE` is docker's: to Apptainer, `-e` is a switch, and `A=b` would be the image.
    """
    from gpubind.runtimes import RUNTIMES

    if words[0] not in STARTS:
        return words
    ours, _ = _options(words[0], words[1:])
    named = [value for name, value in zip(ours, ours[1:]) if name == "--backend" and value in RUNTIMES]
    readings = [line for runtime in (named or RUNTIMES) for line in _apart(runtime, words)]
    return min(readings, key=lambda line: "=" in line.image, default=_Apart(words, "")).words


class _Apart(NamedTuple):
    """A command line with the runtime's options apart, and what stands in it for IMAGE."""

    words: Words
    image: str


def _apart(runtime: str, words: Words) -> Iterator[_Apart]:
    """Yield *words* with the options of *runtime* apart from gpubind's; nothing if one of them is unknown."""
    ours: Words = ()
    theirs: Words = ()
    left = words[1:]
    while left and left[0].startswith("-") and left[0] != "--":
        options, rest = _options(words[0], left)
        taken = 0 if options else _length(runtime, words[0], left)
        if not options and not taken:
            return
        ours, theirs, left = (*ours, *options), (*theirs, *left[:taken]), rest[taken:]
    left = left[1:] if left[:1] == ("--",) else left
    if theirs and left:
        yield _Apart((words[0], *ours, "--", *theirs, *left), left[0])


def _length(runtime: str, action: str, words: Words) -> int:
    """Return how many of *words* the option of *runtime* has with which they begin; 0 if it is none."""
    from gpubind.launch.wrap.command import own_options

    for taken in range(1, min(3, len(words)) + 1):
        with suppress(UsageError):
            options, _ = own_options(runtime, action, (*words[:taken], "IMAGE"))
            if len(options) == taken:
                return taken
    return 0


def _options(command: str, words: Words) -> tuple[Words, Words]:
    """Return the options of *command* with which *words* begin, and the rest."""
    known = _spellings(command)
    at = 0
    while at < len(words) and words[at].partition("=")[0] in known:
        at += 1 if "=" in words[at] or not known[words[at]] else 2
    return words[:at], words[at:]


def _spellings(command: str) -> dict[str, bool]:
    return {name: bool(each.metavar) for each in command_of(command).options for name in each.spellings}
