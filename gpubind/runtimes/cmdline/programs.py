"""The options of the runtimes, by subcommand, and which of their subcommands start a container.

Sources: those of `cmdline/tables.py`, which has the options that a start takes; `--help` of crun 1.21 and runc 1.1.15,
and of the other subcommands; `cli.py` and `umain.py` of udocker 1.3.17. Apptainer's and SingularityCE's options are
in `cmdline/apptainer.py`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from gpubind.runtimes import PASTED
from gpubind.runtimes.cmdline import tables
from gpubind.runtimes.cmdline.apptainer import FLAGS
from gpubind.runtimes.cmdline.reader import (
    COUNTED,
    GETOPT,
    GETOPT_PERMUTING,
    GO_FLAG,
    PFLAG,
    PROOT,
    UDOCKER,
    Known,
    OptionTable,
    Reader,
    table,
)

Shape = Literal["image", "instance", "bundle", "rootfs", "joined"]
"""What follows the options: an image and a command; an image and an instance's name; a container's name, with the
bundle among the options; a command, with the rootfs among the options; a container that runs already."""


class StartCommand(NamedTuple):
    """A subcommand that starts something in a container."""

    known: OptionTable
    shape: Shape = "image"
    needs_command: bool = False
    """Whether the program refuses a line that ends with the image."""


class Program(NamedTuple):
    """A runtime's command line."""

    family: Literal["singularity", "docker", "podman", "ch-run", "udocker", "bundle", "rootfs"]
    """Whose words for GPUs it has."""
    reader: Reader
    subcommands: dict[tuple[str, ...], StartCommand]
    """Those that start a container, by their words; `()` for a program that has no subcommands."""
    known: OptionTable = table()
    """Its own options, before the subcommand."""


def _singularity(*texts: str, without: tuple[str, ...] = ()) -> OptionTable:
    names = {flag.name: Known(flag.name, int(flag.kind != "bool")) for flag in FLAGS if flag.name not in without}
    letters = {flag.short: names[flag.name] for flag in FLAGS if flag.short and flag.name in names}
    return table(*texts).also(OptionTable(names, letters))


_ACTION = _singularity(without=("shell",))
_INSTANCE = _singularity("pid-file= name=", without=("shell", "pid"))
_SINGULARITY = Program(
    "singularity",
    PFLAG,
    {
        ("exec",): StartCommand(_ACTION, needs_command=True),
        ("run",): StartCommand(_ACTION),
        ("shell",): StartCommand(_singularity()),
        ("test",): StartCommand(_ACTION),
        ("instance", "start"): StartCommand(_INSTANCE, "instance"),
        ("instance", "run"): StartCommand(_INSTANCE, "instance"),
    },
    # -s and -c are others here than behind the subcommand.
    table("build-config config/c= debug/d help/h nocolor quiet/q silent/s verbose/v version"),
)

_DOCKER_RUN = table(tables.DOCKER_RUN)
_DOCKER_EXEC = table("detach/d detach-keys= env/e= env-file= help interactive/i privileged tty/t user/u= workdir/w=")
_DOCKER = Program(
    "docker",
    PFLAG,
    {
        **dict.fromkeys(
            (("run",), ("container", "run"), ("create",), ("container", "create")), StartCommand(_DOCKER_RUN)
        ),
        **dict.fromkeys((("exec",), ("container", "exec")), StartCommand(_DOCKER_EXEC, "joined")),
    },
    table("config= context/c= debug/D help host/H= log-level/l= tls tlscacert= tlscert= tlskey= tlsverify version/v"),
)

_PODMAN_LEFT = table(tables.PODMAN_ANYWHERE)
"""Those that podman takes behind the subcommand, too."""
_PODMAN = table("config= connection/c= context= help host/H= module= noout remote/r url= version/v").also(_PODMAN_LEFT)
_PODMAN_RUN = table(tables.PODMAN_RUN).also(_PODMAN_LEFT)
_PODMAN_EXEC = table(
    """
    cidfile= detach/d detach-keys= env/e= env-file= help interactive/i latest/l no-session preserve-fd= preserve-fds=
    privileged tty/t user/u= workdir/w=
    """
).also(_PODMAN_LEFT)
_PODMAN_PROGRAM = Program(
    "podman",
    PFLAG,
    {
        **dict.fromkeys(
            (("run",), ("container", "run"), ("create",), ("container", "create")), StartCommand(_PODMAN_RUN)
        ),
        **dict.fromkeys((("exec",), ("container", "exec")), StartCommand(_PODMAN_EXEC, "joined")),
    },
    _PODMAN,
)

_ARGP = table("help usage")
_ARGP = _ARGP._replace(letters={"?": _ARGP.names["help"]})
_CRUN_RUN = table(
    """
    bundle/b= config/f= console-socket= detach/d keep no-new-keyring no-pivot no-subreaper pid-file= preserve-fds=
    """
).also(_ARGP)
_CRUN_EXEC = table(
    """
    apparmor= cap/c= cgroup= console-socket= cwd= detach/d env/e= no-new-privs pid-file= preserve-fds= process/p=
    process-label= tty/t? user/u=
    """
).also(_ARGP)
_CRUN = Program(
    "bundle",
    GETOPT,
    {
        ("run",): StartCommand(_CRUN_RUN, "bundle"),
        ("create",): StartCommand(_CRUN_RUN.without("detach", "keep"), "bundle"),
        ("exec",): StartCommand(_CRUN_EXEC, "joined"),
    },
    table(
        "cgroup-manager= debug log= log-format= log-level= root= rootless= systemd-cgroup version/vV",
    ).also(_ARGP),
)

_RUNC_RUN = table(
    """
    bundle/b= console-socket= detach/d help/h keep no-new-keyring no-pivot no-subreaper pid-file= preserve-fds=
    """
)
_RUNC_EXEC = table(
    """
    additional-gids/g= apparmor= cap/c= cgroup= console-socket= cwd= detach/d env/e= help/h ignore-paused no-new-privs
    pid-file= preserve-fds= process/p= process-label= tty/t user/u=
    """
)
_RUNC = Program(
    "bundle",
    GO_FLAG,
    {
        ("run",): StartCommand(_RUNC_RUN, "bundle"),
        ("create",): StartCommand(_RUNC_RUN.without("detach", "keep", "no-subreaper"), "bundle"),
        ("exec",): StartCommand(_RUNC_EXEC, "joined"),
    },
    table("criu= debug help/h log= log-format= root= rootless= systemd-cgroup version/v"),
)

_CH_RUN = Program("ch-run", GETOPT_PERMUTING, {(): StartCommand(table(tables.CH_RUN).also(_ARGP), needs_command=True)})

_BWRAP = Program("rootfs", COUNTED, {(): StartCommand(table(tables.BWRAP), "rootfs", needs_command=True)})
_NSPAWN = Program("rootfs", GETOPT, {(): StartCommand(table(tables.SYSTEMD_NSPAWN), "rootfs")})
_PROOT = Program("rootfs", PROOT, {(): StartCommand(table(tables.PROOT), "rootfs")})

_UDOCKER = Program(
    "udocker",
    UDOCKER,
    {("run",): StartCommand(table(tables.UDOCKER))},
    table("allow-root config= debug/D help/h insecure quiet/q repo= version/V"),
)

PROGRAMS: dict[str, Program] = {
    "apptainer": _SINGULARITY,
    "singularity": _SINGULARITY,
    "docker": _DOCKER,
    "nvidia-docker": _DOCKER,
    "podman": _PODMAN_PROGRAM,
    "ch-run": _CH_RUN,
    "crun": _CRUN,
    "runc": _RUNC,
    "bwrap": _BWRAP,
    "systemd-nspawn": _NSPAWN,
    "proot": _PROOT,
    "udocker": _UDOCKER,
}
"""By the name of the program."""

OTHERS = {
    **{name: f"docs/paste.md says what to paste for {name}" for name in PASTED},
    "docker-compose": "use `gpubind plan --format compose`",
    "kubectl": "use `gpubind plan --format kubernetes`",
    "nerdctl": "use `gpubind plan --format cdi`",
    "podman-compose": "use `gpubind plan --format compose`",
    "sbatch": "put `gpubind wrap --` into the script, right before the runtime's name",
}
"""Programs that start containers, too, whose command lines are not read here; what to do instead."""
