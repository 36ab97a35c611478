"""The words before a runtime's program: `srun -n 4`, `time`, `env A=b`. Each is read by its own program's rules.

`read_prefix` returns one of these programs with its words.

Sources: `--help` of GNU coreutils 9.7, util-linux 2.41, GNU time 1.9, strace 6.1 and systemd-run 257; srun(1) of Slurm
22.05; mpirun(1) of Open MPI 4.1; sudo(8) 1.9; numactl(8) 2.0.16; xvfb-run(1). The options of MPICH's mpiexec, bsub,
jsrun, aprun, ibrun, nsys, ncu and doas are from their documentation; these programs were not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import basename
from typing import Optional

from gpubind.errors import UsageError
from gpubind.frozen import NamedTuple
from gpubind.model.arch import ARCHITECTURES
from gpubind.runtimes.cmdline.programs import PROGRAMS
from gpubind.runtimes.cmdline.reader import (
    GETOPT,
    NICE,
    SINGLE_DASH,
    Line,
    Reader,
    Trouble,
    read_options,
    table,
)

HINT = "write `gpubind wrap --` right before the runtime's own name: `... gpubind wrap -- singularity exec ...`"
_INTO_TEXT = "put `gpubind wrap --` into that text, right before the runtime's name"


class Prefix(NamedTuple):
    """A program that starts another one."""

    words: tuple[str, ...]
    """All of its words, its name first."""
    moves: bool = False
    """Whether the command gets another environment: other variables, user or cgroup, another machine, or a later time.
    A plan made here may be wrong there."""
    sets: tuple[tuple[str, Optional[str]], ...] = ()
    """The variables that it sets or, with None, unsets, in their order."""
    clears: bool = False
    """Whether it unsets all other variables."""
    several: bool = False
    """Whether a lone `:` after it begins another command."""


class _Rule(NamedTuple):
    """How a program finds the command that it starts."""

    options: str = "help version"
    reader: Reader = GETOPT
    moves: bool = False
    first: tuple[str, ...] = ()
    """Words of which one may precede the options: `nsys profile`, `setarch x86_64`."""
    skips: int = 0
    """How many words precede the command: timeout's duration, taskset's mask."""
    ends: bool = False
    """Whether a `--` may follow those."""
    assigns: bool = False
    """Whether `NAME=VALUE` words may precede the command."""
    unsets: str = ""
    """The option that unsets a variable."""
    clears: tuple[str, ...] = ()
    """Words and options that unset all variables."""
    keeps: Optional[tuple[str, ...]] = None
    """Options without which it unsets all variables; None: it keeps them."""
    guesses: bool = False
    """Whether it has more options than the table: that has those which a guess would misread, with two words or with a
    value that may be the name of a program."""
    shell: tuple[str, ...] = ()
    """Options after which the command is one string, for a shell."""
    several: bool = False


_SRUN = """
    account/A= bcast? chdir/D= comment= constraint/C= cpu-bind= cpus-per-task/c= error/e= exclusive? export= gpus/G=
    gpus-per-node= gpus-per-task= gres= het-group= help/h immediate/I? input/i= job-name/J= jobid= kill-on-bad-exit/K?
    label/l mem= mpi= nodelist/w= nodes/N= ntasks/n= ntasks-per-node= output/o= overlap partition/p= pty? qos/q= quiet/Q
    reservation= time/t= unbuffered/u verbose/v wait/W= x11?
"""
_MPIRUN = """
    app= bind-to= env=2 f= genv=2 gmca=2 host|H= hostfile|machinefile= map-by= mca=2 n|np|c= N= omca=2 oversubscribe
    output-filename= path= pmca=2 pmixmca=2 ppn= prefix= prtemca=2 q|quiet tag-output tune= wd|wdir= x=
"""
_BSUB = "app= E= Ep= e= G= gpu= I Ip Is J= K m= n= o= P= q= R= W= x"
_JSRUN = """
    bind/b= chdir/h= cpu_per_rs/c= env/E= gpu_per_rs/g= launch_distribution/d= np/p= nrs/n= rs_per_host/r= smpiargs/M=
    stdio_stderr/k= stdio_stdout= tasks_per_rs/a=
"""
_APRUN = "b cc= d= e= L= n= N= p= q S="
_SUDO = """
    askpass/A background/b bell/B chdir/D= chroot/R= close-from/C= command-timeout/T= group/g= help host/h= login/i
    login-class/c= no-update/N non-interactive/n other-user/U= /E preserve-env? preserve-groups/P prompt/p=
    reset-timestamp/k role/r= set-home/H shell/s stdin/S type/t= user/u=
"""
_STRACE = """
    argv0= attach/p= env/E= /e= follow-forks/f /k output/o= quiet/q string-limit/s= summary-only/c /t /T trace=
    trace-path/P= user/u= /v /x /y
"""
_SYSTEMD_RUN = """
    collect/G description= gid= host/H= machine/M= pipe/P property/p= pty/t quiet/q same-dir/d scope setenv/E= shell/S
    slice= uid= unit/u= user wait working-directory=
"""
_CHRT = """
    all-tasks/a batch/b deadline/d fifo/f help/h idle/i max/m other/o pid/p reset-on-fork/R rr/r sched-deadline/D=
    sched-period/P= sched-runtime/T= verbose/v version/V
"""
_ENV = """
    argv0/a= block-signal? chdir/C= debug/v default-signal? help ignore-environment/i ignore-signal?
    list-signal-handling null/0 split-string/S= unset/u= version
"""
_FLOCK = """
    close/o command/c= conflict-exit-code/E= exclusive/x /e fcntl help/h no-fork/F nonblock|nb/n shared/s
    timeout|wait/w= unlock/u verbose version/V
"""
_PERSONALITIES = (
    *("linux32", "linux64", "uname26"),
    *(name for known in ARCHITECTURES for name in (known.name, *known.aliases)),
)
"""The names of an architecture for setarch; it also has these names itself."""
_SETARCH_RULE = _Rule(first=_PERSONALITIES, guesses=True)
_MPI = _Rule(_MPIRUN, SINGLE_DASH, moves=True, guesses=True, several=True)
_SLURM = _Rule(_SRUN, moves=True, guesses=True, several=True)
_RULES: dict[str, _Rule] = {
    "aprun": _Rule(_APRUN, SINGLE_DASH, moves=True, guesses=True, several=True),
    "bsub": _Rule(_BSUB, SINGLE_DASH, moves=True, guesses=True),
    "catchsegv": _Rule(),
    "choom": _Rule("adjust/n= help/h pid/p= version/V"),
    "chrt": _Rule(_CHRT, skips=1, ends=True),
    "dbus-run-session": _Rule("config-file= dbus-daemon= help version"),
    "doas": _Rule("/C= /L /a= /n /s /u=", moves=True, keeps=()),
    "env": _Rule(
        _ENV,
        moves=True,
        assigns=True,
        unsets="unset",
        clears=("-", "ignore-environment"),
        shell=("split-string",),
    ),
    "flock": _Rule(_FLOCK, skips=1, shell=("command",)),
    "ibrun": _Rule("/n= /o=", moves=True, guesses=True),
    "ionice": _Rule("class/c= classdata/n= help/h ignore/t pgid/P= pid/p= uid/u= version/V"),
    "jsrun": _Rule(_JSRUN, moves=True, guesses=True, several=True),
    "ncu": _Rule("export/o= kernel-name/k=", guesses=True),
    "nice": _Rule("adjustment/n= help version", NICE),
    "nohup": _Rule(),
    "nsys": _Rule("output/o= trace/t=", first=("profile", "launch"), guesses=True),
    "numactl": _Rule(guesses=True),
    "prlimit": _Rule(guesses=True),
    "salloc": _SLURM,
    "setarch": _SETARCH_RULE,
    "setsid": _Rule("ctty/c fork/f help/h version/V wait/w"),
    "srun": _SLURM,
    "stdbuf": _Rule("error/e= help input/i= output/o= version"),
    "strace": _Rule(_STRACE, guesses=True),
    "sudo": _Rule(_SUDO, moves=True, assigns=True, keeps=("E", "preserve-env"), guesses=True),
    "systemd-run": _Rule(_SYSTEMD_RUN, moves=True, guesses=True),
    "taskset": _Rule("all-tasks/a cpu-list/c help/h pid/p version/V", skips=1),
    "time": _Rule("append/a format/f= help/h output/o= portability/p quiet/q verbose/v version/V"),
    "timeout": _Rule("foreground/f help kill-after/k= preserve-status/p signal/s= verbose/v version", skips=1),
    "unbuffer": _Rule("/p"),
    "xvfb-run": _Rule("server-args/s= error-file/e=", guesses=True),
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich"), _MPI),
    **dict.fromkeys(("mpiexec.mpich", "orterun", "prterun", "prun"), _MPI),
    **dict.fromkeys(_PERSONALITIES, _SETARCH_RULE._replace(first=())),
}
_SHELLS = (
    *("ash", "bash", "csh", "dash", "eval", "fish", "ksh", "mksh", "runuser", "script", "sh", "ssh", "su", "tcsh"),
    "zsh",
)
"""Programs whose command is text or a script, which a shell splits into words."""


def read_prefix(argv: Sequence[str], at: int) -> Prefix:
    """Return the prefix that begins at position *at*.

    Errors: `UsageError` for an unknown program (code `wrap-prefix`), for a command that a shell reads (`wrap-shell`),
    for an option that cannot be read (`wrap-option`), and for words that start nothing (`wrap-no-runtime`).
    """
    word = argv[at]
    program = basename(word)
    rule = _RULES.get(program)
    if program in _SHELLS:
        what = f"`{word}` is given its command as text or as a script, which only a shell can split into arguments"
        raise UsageError("wrap-shell", what, where=f"argument {at + 1}", hint=_INTO_TEXT)
    if rule is None:
        what = f"`{word}` is not a runtime, and gpubind does not know it as a program that starts one"
        raise UsageError("wrap-prefix", what, where=f"argument {at + 1}", hint=HINT)
    line = _read(rule, argv, at + 1 + ("".join(argv[at + 1 : at + 2]) in rule.first))
    for option in line.options:
        if option.name in rule.shell:
            what = f"`{' '.join(option.words)}` is a command as text, which {program} splits into arguments"
            raise UsageError("wrap-shell", what, where=f"argument {option.at + 1}", hint=_INTO_TEXT)
    others = list(line.others)
    given = {option.name for option in line.options}
    if others and argv[others[0]] in rule.clears:
        given.add(argv[others.pop(0)])
    del others[: rule.skips]
    if rule.ends and others and argv[others[0]] == "--":
        others.pop(0)
    sets: list[tuple[str, Optional[str]]] = [
        (option.value, None) for option in line.options if option.name == rule.unsets
    ]
    while rule.assigns and others and "=" in argv[others[0]]:
        name, _, value = argv[others.pop(0)].partition("=")
        sets.append((name, value))
    if not others:
        raise UsageError("wrap-no-runtime", f"`{word}` starts no runtime here", where=f"argument {at + 1}", hint=HINT)
    if rule.shell and argv[others[0]] in ("-c", "--command"):
        what = f"`{argv[others[0]]}` of {program} is a command as text"
        raise UsageError("wrap-shell", what, where=f"argument {others[0] + 1}", hint=_INTO_TEXT)
    clears = not given.isdisjoint(rule.clears) or (rule.keeps is not None and given.isdisjoint(rule.keeps))
    return Prefix(tuple(argv[at : others[0]]), rule.moves, tuple(sets), clears, rule.several)


def _read(rule: _Rule, argv: Sequence[str], at: int) -> Line:
    """Return the options of a prefix. After one that is not in the table, the next words show if it takes a value."""

    def guessed(trouble: Trouble) -> Optional[int]:
        is_guessed = rule.guesses and trouble.kind == "unknown"
        return _guessed(argv, trouble.at) if is_guessed else None

    line = read_options(rule.reader, table(rule.options), argv, at, guessed)
    if line.trouble is not None:
        what = f"`{argv[line.trouble.at]}` cannot be read, so the beginning of the command is not known"
        raise UsageError("wrap-option", what, where=f"argument {line.trouble.at + 1}", hint=HINT)
    return line


def _guessed(argv: Sequence[str], at: int) -> Optional[int]:
    """Return where to go on after an unknown option, if that is sure: a known program, or another option, is there."""
    if "=" in argv[at]:
        return at + 1
    for after in (at + 1, at + 2):
        word = argv[after] if after < len(argv) else ""
        if word.startswith("-") or basename(word) in (*PROGRAMS, *_RULES, *_SHELLS):
            return after
    return None
