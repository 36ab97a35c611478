"""The command lines of the runtimes: their reader, their options, and which of their subcommands start a container.

`Program.read` reads the options of a start. The options are tables of data/options.txt, by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal, Optional, Union, get_args

from gpubind.frozen import NamedTuple
from gpubind.model.data import read_data
from gpubind.runtimes.cmdline import reader
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
"""The operands, in the order of the kinds: an image and a command; an image and an instance's name; a container's name,
with the bundle among the options; a command, with the rootfs among the options; a running container."""

Action = Literal["exec", "run", "shell"]
ALL_ACTIONS: tuple[Action, ...] = get_args(Action)
ENGINES = ("docker", "nerdctl", "podman")
_COMPOSED = {"build", "buildx", "create", "run", "up", "watch"}
"""Subcommands of `ENGINES` for builds and Compose, which may use GPUs that files request."""

BWRAP_BINDS = ("bind", "bind-try", "dev-bind", "dev-bind-try", "ro-bind", "ro-bind-try")
"""The options of bubblewrap that bind a path of the host."""
_SECTION = re.compile(r"^\[(.*)\]\n((?:  .*\n)*)", re.MULTILINE)


def read_option_table(*names: str) -> OptionTable:
    """Return the options of programs and subcommands *names*; none for one that has no table."""
    return parse_option_table(*(_texts().get(name, "") for name in names))


@cache
def _texts() -> dict[str, str]:
    texts: dict[str, str] = {}
    for names, options in _SECTION.findall(read_data("model/data/options.txt").decode()):
        texts.update({name: texts.get(name, "") + options for name in names.split(", ")})
    return texts


class StartSubcommand(NamedTuple):
    """A subcommand that starts something in a container."""

    options: str
    """The name of its table."""
    operands: OperandKind = "image"
    needs_command: bool = False
    """Whether the program refuses a line that ends with the image."""
    actions: tuple[Action, ...] = ()
    """The commands of gpubind that it carries out; the program has one subcommand for each."""

    @property
    def option_table(self) -> OptionTable:
        """Return the options that it takes."""
        return read_option_table(self.options)


class RuntimeProgram(NamedTuple):
    """A runtime's command line."""

    options: str
    """The name of the table of its options before the subcommand; empty without."""
    family: Literal["singularity", "docker", "nerdctl", "podman", "ch-run", ""]
    """The program whose options for GPUs it has; empty if it has none."""
    reader: OptionParser
    subcommands: Mapping[tuple[str, ...], StartSubcommand]
    """The subcommands that start a container, by their names; `()` for a program without subcommands."""
    default_root: Optional[str] = None
    """The root directory of a command where no option names one; None if an option must."""
    option_files: tuple[str, ...] = ()
    """Options that read further options from a file."""

    @property
    def option_table(self) -> OptionTable:
        """Return its own options, before the subcommand."""
        return read_option_table(self.options)

    @property
    def requests_gpus_by_flag(self) -> bool:
        """Return whether a start asks for GPUs only by a flag; starting any other program asks for them."""
        return self.family not in ("", "ch-run")

    @property
    def start_subcommands(self) -> tuple[str, ...]:
        """Return the subcommands without which a line needs no plan and no warning; none if every line may need one."""
        names = {names[-1] for names in self.subcommands if names} | (_COMPOSED if self.family in ENGINES else set())
        return () if () in self.subcommands else tuple(sorted(names))

    def start(self, action: str = "shell") -> StartSubcommand:
        """Return the subcommand that starts a container for *action*."""
        return next(subcommand for subcommand in self.subcommands.values() if action in subcommand.actions)

    def read(self, arguments: Sequence[str], *more: str) -> ParsedCommandLine:
        """Return the options in *arguments*, the user's own for a start; *more* are tables of options.

        An abbreviated name means an option of the start before one of *more*. An argument that cannot be parsed is
        skipped: the program itself reports it, or has more options than the table.
        """
        start = self.start()

        def next_position(failure: ParseFailure) -> Optional[int]:
            return None if failure.kind == "no-value" else failure.position + 1

        def step(table: OptionTable, argv: Sequence[str], position: int) -> Union[ParsedArgument, ParseFailure]:
            result = self.reader.step(start.option_table, argv, position)
            return result if isinstance(result, ParsedArgument) or not more else self.reader.step(table, argv, position)

        return parse_options(
            self.reader._replace(step=step), read_option_table(start.options, *more), arguments, skip=next_position
        )


def _engine(name: Literal["docker", "nerdctl", "podman"]) -> RuntimeProgram:
    run, joined = StartSubcommand(f"{name} run", actions=ALL_ACTIONS), StartSubcommand(f"{name} exec", "joined")
    starts = {(*group, verb): run for group in ((), ("container",)) for verb in ("run", "create")}
    return RuntimeProgram(name, name, reader.PFLAG, {**starts, ("exec",): joined, ("container", "exec"): joined})


def _bundles(name: str, parser: OptionParser) -> RuntimeProgram:
    starts: dict[tuple[str, ...], StartSubcommand] = {
        ("run",): StartSubcommand(f"{name} run", "bundle", actions=ALL_ACTIONS),
        ("create",): StartSubcommand(f"{name} create", "bundle"),
        ("exec",): StartSubcommand(f"{name} exec", "joined"),
    }
    return RuntimeProgram(name, "", parser, starts)


_EXEC = StartSubcommand("apptainer exec")
_INSTANCE_START = StartSubcommand("apptainer instance", "instance")
_SINGULARITY = RuntimeProgram(
    "apptainer",
    "singularity",
    reader.PFLAG,
    {
        ("exec",): _EXEC._replace(needs_command=True, actions=("exec",)),
        ("run",): _EXEC._replace(actions=("run",)),
        ("shell",): StartSubcommand("apptainer shell", actions=("shell",)),
        ("test",): _EXEC,
        ("instance", "start"): _INSTANCE_START,
        ("instance", "run"): _INSTANCE_START,
    },
)
COMPOSE = RuntimeProgram("compose", "docker", reader.PFLAG, {})
"""Files define its containers."""
BUILDAH = RuntimeProgram("buildah", "podman", reader.PFLAG, {})
"""Its containers are those of builds."""
_BWRAP = StartSubcommand("bwrap", "rootfs", needs_command=True, actions=ALL_ACTIONS)
_CH_RUN = StartSubcommand("ch-run", needs_command=True, actions=ALL_ACTIONS)
_NSPAWN = StartSubcommand("systemd-nspawn", "rootfs", actions=ALL_ACTIONS)
_PROOT = StartSubcommand("proot", "rootfs", actions=ALL_ACTIONS)
PROGRAMS: dict[str, RuntimeProgram] = {
    "apptainer": _SINGULARITY,
    "singularity": _SINGULARITY,
    "docker": _engine("docker"),
    "docker-compose": COMPOSE,
    "podman-compose": COMPOSE,
    "buildah": BUILDAH,
    "nvidia-docker": _engine("docker"),
    "nerdctl": _engine("nerdctl"),
    "podman": _engine("podman"),
    "ch-run": RuntimeProgram("", "ch-run", reader.GETOPT_PERMUTING, {(): _CH_RUN}),
    "crun": _bundles("crun", reader.GETOPT),
    "runc": _bundles("runc", reader.GO_FLAG),
    "bwrap": RuntimeProgram("", "", reader.FIXED_COUNT, {(): _BWRAP}, option_files=("args",)),
    "systemd-nspawn": RuntimeProgram("", "", reader.GETOPT, {(): _NSPAWN}),
    "proot": RuntimeProgram("", "", reader.PROOT, {(): _PROOT}, default_root="/"),
    "enroot": RuntimeProgram(
        "",
        "",
        reader.WHOLE,
        {
            ("start",): StartSubcommand("enroot start", actions=ALL_ACTIONS),
            ("exec",): StartSubcommand("enroot exec", "joined"),
        },
    ),
    "udocker": RuntimeProgram(
        "udocker", "", reader.UDOCKER, {("run",): StartSubcommand("udocker run", actions=ALL_ACTIONS)}
    ),
}
"""By the name of the program."""

PASTE_ONLY = ("podman-hpc", "pyxis", "sarus", "shifter")
"""Programs that gpubind does not start; docs/paste.md has their options for a plan."""
UNSUPPORTED_PROGRAMS = {
    **{name: f"docs/paste.md says what to paste for {name}" for name in PASTE_ONLY},
    "kubectl": "use `gpubind plan --format kubernetes`",
    "sbatch": "put `gpubind wrap --` into the script, right before the runtime's name",
}
"""Other programs that start containers, whose command lines gpubind does not parse: what to do instead."""
