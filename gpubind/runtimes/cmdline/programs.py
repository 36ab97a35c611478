"""The command line of a runtime: its options, and which of its subcommands start a container.

Each runtime's class has its own as `Runtime.program`; `PROGRAMS` of gpubind/runtimes has all of them, by name. Options
are written in the notation of `reader.parse_option_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Optional, Union, get_args

from gpubind.frozen import NamedTuple
from gpubind.runtimes.cmdline.reader import (
    OptionParser,
    OptionTable,
    ParsedArgument,
    ParsedCommandLine,
    ParseFailure,
    parse_option_table,
    parse_options,
)

OperandKind = Literal["image", "instance", "bundle", "rootfs", "joined"]
"""What the operands of a subcommand are. `image`: an image and a command; `instance`: an image and the name of an
instance; `bundle`: the name of a container, with the bundle in an option; `rootfs`: a command, with the root in an
option; `joined`: a running container.
"""

Action = Literal["exec", "run", "shell"]
ALL_ACTIONS: tuple[Action, ...] = get_args(Action)
Family = Literal["singularity", "docker", "nerdctl", "podman", "ch-run", ""]
"""The program whose GPU options a command line has; empty for none."""
ENGINES = ("docker", "nerdctl", "podman")
_COMPOSED = {"build", "buildx", "create", "run", "up", "watch"}
"""Subcommands of `ENGINES` for builds and Compose, which may use GPUs that files request."""


class StartSubcommand(NamedTuple):
    """A subcommand that starts something in a container."""

    options: str
    operands: OperandKind = "image"
    needs_command: bool = False
    """Whether the program refuses a line without a command after the image."""
    actions: tuple[Action, ...] = ()
    """The commands of gpubind that use this subcommand. A program has one subcommand for each."""

    @property
    def option_table(self) -> OptionTable:
        """Return the options that it takes."""
        return parse_option_table(self.options)


class RuntimeProgram(NamedTuple):
    """A runtime's command line."""

    reader: OptionParser
    subcommands: Mapping[tuple[str, ...], StartSubcommand]
    """The subcommands that start a container, by their names; `()` for a program without subcommands."""
    options: str = ""
    """Its options before the subcommand."""
    family: Family = ""
    """The program whose options for GPUs it has."""
    root_of: Callable[[ParsedCommandLine], Optional[str]] = lambda line: None
    """Returns the root directory or image that the options of a start name, if its operands are those of a `rootfs`."""
    option_files: tuple[str, ...] = ()
    """Options that read further options from a file."""

    @property
    def option_table(self) -> OptionTable:
        """Return its own options, before the subcommand."""
        return parse_option_table(self.options)

    @property
    def requests_gpus_by_flag(self) -> bool:
        """Return whether a start requests GPUs only if it has a flag for them. Otherwise, every start requests them."""
        return self.family not in ("", "ch-run")

    @property
    def start_subcommands(self) -> tuple[str, ...]:
        """Return the subcommands of which only lines need a plan or a warning; none if every line may need one."""
        names = {names[-1] for names in self.subcommands if names} | (_COMPOSED if self.family in ENGINES else set())
        return () if () in self.subcommands else tuple(sorted(names))

    def start(self, action: str = "shell") -> StartSubcommand:
        """Return the subcommand that starts a container for *action*."""
        return next(subcommand for subcommand in self.subcommands.values() if action in subcommand.actions)

    def read(self, arguments: Sequence[str], *more: str) -> ParsedCommandLine:
        """Return the options in *arguments*, which the user gives for a start; *more* are texts of further options.

        An abbreviated name means an option of the start rather than one of *more*. An argument that cannot be parsed is
        skipped: the program itself reports it, or has an option that gpubind does not know.
        """
        start = self.start()

        def next_position(failure: ParseFailure) -> Optional[int]:
            return None if failure.kind == "no-value" else failure.position + 1

        def step(table: OptionTable, argv: Sequence[str], position: int) -> Union[ParsedArgument, ParseFailure]:
            result = self.reader.step(start.option_table, argv, position)
            return result if isinstance(result, ParsedArgument) or not more else self.reader.step(table, argv, position)

        return parse_options(
            self.reader._replace(step=step), parse_option_table(start.options, *more), arguments, skip=next_position
        )


PASTE_ONLY = ("podman-hpc", "pyxis", "sarus", "shifter")
"""Programs that gpubind does not start; docs/paste.md has their options for a plan."""
UNSUPPORTED_PROGRAMS = {
    **{name: f"docs/paste.md says what to paste for {name}" for name in PASTE_ONLY},
    "kubectl": "use `gpubind plan --format kubernetes`",
    "sbatch": "put `gpubind wrap --` into the script, right before the runtime's name",
}
"""Other programs that start containers, and what to do instead: gpubind does not parse their command lines."""
