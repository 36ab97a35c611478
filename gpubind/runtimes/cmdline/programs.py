"""The command lines of the runtimes: their reader, their options, and which of their subcommands start a container.

`Program.read` reads the options of a start. Sources: those of `cmdline/tables.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Optional, Union

from gpubind.frozen import NamedTuple
from gpubind.runtimes.cmdline import reader, tables
from gpubind.runtimes.cmdline.reader import Line, OptionTable, Reader, Step, Trouble, read_options, table

Shape = Literal["image", "instance", "bundle", "rootfs", "joined"]
"""The words after the options: an image and a command; an image and an instance's name; a container's name, with the
bundle among the options; a command, with the rootfs among the options; a running container."""


class StartCommand(NamedTuple):
    """A subcommand that starts something in a container."""

    options: tuple[str, ...]
    """Their tables."""
    shape: Shape = "image"
    needs_command: bool = False
    """Whether the program refuses a line that ends with the image."""

    @property
    def known(self) -> OptionTable:
        """Return the options that it takes."""
        return table(*self.options)


class Program(NamedTuple):
    """A runtime's command line."""

    family: Literal["singularity", "docker", "podman", "ch-run", ""]
    """The program whose options for GPUs it has; empty if it has none."""
    reader: Reader
    subcommands: Mapping[tuple[str, ...], StartCommand]
    """Those that start a container, by their words; `()` for a program without subcommands."""
    options: tuple[str, ...] = ("",)
    """The tables of its options before the subcommand."""
    starts_host: bool = False
    """Whether it starts a command in this machine's own root where no option names another."""
    option_files: tuple[str, ...] = ()
    """Options that read further options from a file."""

    @property
    def known(self) -> OptionTable:
        """Return its own options, before the subcommand."""
        return table(*self.options)

    @property
    def asks_by_flag(self) -> bool:
        """Return whether a start asks for GPUs only by a flag; starting any other program asks for them."""
        return self.family not in ("", "ch-run")

    def start(self, action: str = "shell") -> StartCommand:
        """Return the subcommand that starts a container for *action*: the one of that name, or `run`."""
        found = (self.subcommands.get(one) for one in ((action,), ("run",), ()))
        return next(one for one in found if one is not None and one.shape != "joined")  # `docker exec` starts none

    def read(self, arguments: Sequence[str], *more: str) -> Line:
        """Return the options in *arguments*, the user's own for a start; *more* are tables of options.

        The beginning of a name is that of an option of the start before it is one of *more*. A word that cannot be read
        is skipped: the program itself reports it, or has more options than the table.
        """
        start = self.start()

        def next_word(trouble: Trouble) -> Optional[int]:
            return None if trouble.kind == "no-value" else trouble.at + 1

        def step(known: OptionTable, argv: Sequence[str], at: int) -> Union[Step, Trouble]:
            found = self.reader.step(start.known, argv, at)
            return found if isinstance(found, Step) or not more else self.reader.step(known, argv, at)

        return read_options(self.reader._replace(step=step), table(*start.options, *more), arguments, skip=next_word)


def _engine(run: tuple[str, ...], joined: tuple[str, ...]) -> dict[tuple[str, ...], StartCommand]:
    """Return the subcommands of docker or podman, whose options are those of *run* and of `exec`, *joined*."""
    starts = {(*group, one): StartCommand(run) for group in ((), ("container",)) for one in ("run", "create")}
    return {**starts, **dict.fromkeys((("exec",), ("container", "exec")), StartCommand(joined, "joined"))}


def _bundle(create: tuple[str, ...], run: str, joined: tuple[str, ...]) -> dict[tuple[str, ...], StartCommand]:
    return {
        ("run",): StartCommand((*create, run), "bundle"),
        ("create",): StartCommand(create, "bundle"),
        ("exec",): StartCommand(joined, "joined"),
    }


_ACTION = (tables.APPTAINER_EXEC, tables.APPTAINER_PID)
_INSTANCE = StartCommand((tables.APPTAINER_INSTANCE, tables.APPTAINER_EXEC), "instance")
_SINGULARITY = Program(
    "singularity",
    reader.PFLAG,
    {
        ("exec",): StartCommand(_ACTION, needs_command=True),
        ("run",): StartCommand(_ACTION),
        ("shell",): StartCommand((*_ACTION, tables.APPTAINER_SHELL)),
        ("test",): StartCommand(_ACTION),
        ("instance", "start"): _INSTANCE,
        ("instance", "run"): _INSTANCE,
    },
    (tables.APPTAINER,),
)
_DOCKER = Program("docker", reader.PFLAG, _engine((tables.DOCKER_RUN,), (tables.DOCKER_EXEC,)), (tables.DOCKER,))
_PODMAN = Program(
    "podman",
    reader.PFLAG,
    _engine((tables.PODMAN_RUN, tables.PODMAN_ANYWHERE), (tables.PODMAN_EXEC, tables.PODMAN_ANYWHERE)),
    (tables.PODMAN, tables.PODMAN_ANYWHERE),
)
_CRUN = Program(
    "",
    reader.GETOPT,
    _bundle((tables.CRUN_CREATE, tables.ARGP), tables.CRUN_RUN, (tables.CRUN_EXEC, tables.ARGP)),
    (tables.CRUN, tables.ARGP),
)
_RUNC = Program(
    "", reader.GO_FLAG, _bundle((tables.RUNC_CREATE,), tables.RUNC_RUN, (tables.RUNC_EXEC,)), (tables.RUNC,)
)


_BWRAP = StartCommand((tables.BWRAP,), "rootfs", needs_command=True)
_NSPAWN = StartCommand((tables.SYSTEMD_NSPAWN,), "rootfs")
_PROOT = StartCommand((tables.PROOT,), "rootfs")
_CH_RUN = StartCommand((tables.CH_RUN, tables.ARGP), needs_command=True)

PROGRAMS: dict[str, Program] = {
    "apptainer": _SINGULARITY,
    "singularity": _SINGULARITY,
    "docker": _DOCKER,
    "nvidia-docker": _DOCKER,
    "podman": _PODMAN,
    "ch-run": Program("ch-run", reader.GETOPT_PERMUTING, {(): _CH_RUN}),
    "crun": _CRUN,
    "runc": _RUNC,
    "bwrap": Program("", reader.COUNTED, {(): _BWRAP}, option_files=("args",)),
    "systemd-nspawn": Program("", reader.GETOPT, {(): _NSPAWN}),
    "proot": Program("", reader.PROOT, {(): _PROOT}, starts_host=True),
    "udocker": Program("", reader.UDOCKER, {("run",): StartCommand((tables.UDOCKER_RUN,))}, (tables.UDOCKER,)),
}
"""By the name of the program."""

PASTED = ("enroot", "podman-hpc", "pyxis", "sarus", "shifter")
"""Programs that gpubind does not start; docs/paste.md has their options for a plan."""
OTHERS = {
    **{name: f"docs/paste.md says what to paste for {name}" for name in PASTED},
    "docker-compose": "use `gpubind plan --format compose`",
    "kubectl": "use `gpubind plan --format kubernetes`",
    "nerdctl": "use `gpubind plan --format cdi`",
    "podman-compose": "use `gpubind plan --format compose`",
    "sbatch": "put `gpubind wrap --` into the script, right before the runtime's name",
}
"""Other programs that start containers, whose command lines are not read; what to do instead."""
