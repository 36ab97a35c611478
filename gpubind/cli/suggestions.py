"""The command line that was probably meant: loaded only for a mistake."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress

from gpubind.cli.commands import MODULES, STARTS, command_of
from gpubind.errors import UsageError
from gpubind.machine import system
from gpubind.model import VENDOR_ROWS

Args = tuple[str, ...]

_FOREIGN_OPTIONS = {"--gpu": "--gpus", "--nvidia": "--nv", "--amd": "--rocm", "--img": "--image"}
"""Names of options in other programs."""
_OPERAND_OPTIONS = {"check": ("--image", "--program"), "plan": ("--image",), "record": ("--output",)}
"""For commands without arguments, the options that the user's arguments probably mean, in this order."""
_VENDOR_FLAGS = {name: f"--{row.option}" for vendor, row in VENDOR_ROWS.items() for name in (vendor, row.option)}


def suggestion(args: Sequence[str]) -> str:
    """Return `did you mean ...? ` with the command line that *args* probably mean; empty if none is known."""
    line = tuple(args)
    for step in (_insert_command, _rename_foreign_options, _name_operands, _separate_runtime_options):
        line = step(line)
    return "" if line == tuple(args) else f"did you mean `{shlex.join(('gpubind', *line))}`? "


def _insert_command(args: Args) -> Args:
    """Move the command before the options, or insert the one that takes such arguments."""
    from gpubind.runtimes import PROGRAMS

    first = args[0]
    if first in ("-v", "version"):
        return ("--version",)
    if os.path.basename(first) in PROGRAMS:
        return ("wrap", "--", *args)
    for name in MODULES:
        options, remaining = _options(name, args) if name in args else ((), ())
        if remaining[:1] == (name,):
            return (name, *options, *remaining[1:])
    options, remaining = _options("exec", args)
    if remaining[:1] and (options or remaining[0].endswith(".sif") or system.exists(remaining[0])):
        return ("run" if len(remaining) == 1 else "exec", *options, *remaining)
    return ("plan", *options) if options and not remaining else args


def _rename_foreign_options(args: Args) -> Args:
    """Rename options of other programs, except in lines that another program parses."""
    if args[0] in STARTS or args[0] not in MODULES:
        return args
    spellings = _spellings(args[0])
    renames = {name: option for name, option in _FOREIGN_OPTIONS.items() if option in spellings}
    return tuple("=".join((renames.get(name, name), *value)) for name, *value in (arg.split("=", 1) for arg in args))


def _name_operands(args: Args) -> Args:
    """Put the option before each argument without one: `check IMAGE` becomes `check --image IMAGE`."""
    command, options, others = args[0], args[:0], args[1:]
    operands: list[str] = []
    if command not in _OPERAND_OPTIONS or _spellings(command).get(args[-1]):
        return args
    if command == "plan" and others and others[-1] in _VENDOR_FLAGS:
        return (command, *others[:-1], _VENDOR_FLAGS[others[-1]])
    while others:
        more_options, others = _options(command, others)
        options += more_options
        if others[:1] and others[0].startswith("-") and others[0] != "--":
            if len(operands) > 1:
                break  # an option of the program
            return args  # the next word may be its value
        operands, others = [*operands, *(arg for arg in others[:1] if arg != "--")], others[1:]
    free = [name for name in _OPERAND_OPTIONS[command] if name not in {arg.partition("=")[0] for arg in options}]
    if command == "check" and "--image" in options and any(arg.endswith(".sif") for arg in operands):
        free = ["--image"] * len(operands)  # an image is not the program of another image
    return (command, *options, *(arg for pair in zip(free, operands) for arg in pair)) if operands else args


def _separate_runtime_options(args: Args) -> Args:
    """Move the runtime's own options of a start after `--`: `exec -e A=b IMAGE` becomes `exec -- -e A=b IMAGE`.

    Runtimes may read one line differently. docker's `-e` takes `A=b` as its value; Apptainer's `-e` takes none, so
    `A=b` would be the image. A reading whose image contains `=` is the last choice.
    """
    from gpubind.runtimes import RUNTIMES

    if args[0] not in STARTS:
        return args
    ours, _ = _options(args[0], args[1:])
    backends = [value for name, value in zip(ours, ours[1:]) if name == "--backend" and value in RUNTIMES]
    readings = [line for runtime in (backends or RUNTIMES) for line in _separate(runtime, args)]
    return min(readings, key=lambda line: "=" in line[1], default=(args, ""))[0]


def _separate(runtime: str, args: Args) -> Iterator[tuple[Args, str]]:
    """Yield *args* with the options of *runtime* after `--`, and the image; nothing if an option is unknown."""
    ours: Args = ()
    runtime_options: Args = ()
    remaining = args[1:]
    while remaining and remaining[0].startswith("-") and remaining[0] != "--":
        options, tail = _options(args[0], remaining)
        count = 0 if options else _length(runtime, args[0], remaining)
        if not options and not count:
            return
        ours, runtime_options, remaining = (*ours, *options), (*runtime_options, *remaining[:count]), tail[count:]
    remaining = remaining[1:] if remaining[:1] == ("--",) else remaining
    if runtime_options and remaining:
        yield (args[0], *ours, "--", *runtime_options, *remaining), remaining[0]


def _length(runtime: str, action: str, args: Args) -> int:
    """Return how many of *args* the first option of *runtime* takes with its value; 0 if it is unknown."""
    from gpubind.launch.wrap.command import split_options

    for count in range(1, min(3, len(args)) + 1):
        with suppress(UsageError):
            options, _ = split_options(runtime, action, (*args[:count], "IMAGE"))
            if len(options) == count:
                return count
    return 0


def _options(command: str, args: Args) -> tuple[Args, Args]:
    spellings = _spellings(command)
    at = 0
    while at < len(args) and args[at].partition("=")[0] in spellings:
        at += 1 if "=" in args[at] or not spellings[args[at]] else 2
    return args[:at], args[at:]


def _spellings(command: str) -> dict[str, bool]:
    return {name: bool(each.metavar) for each in command_of(command).options for name in each.spellings}
