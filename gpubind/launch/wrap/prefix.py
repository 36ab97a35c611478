"""The programs before a runtime's, with their arguments: `srun -n 4`, `time`, `env A=b`.

`read_prefix` parses one of them by the rules of that program. Their options are in model/data/launchers.txt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from posixpath import basename
from typing import Optional

from gpubind.errors import UsageError
from gpubind.frozen import NamedTuple
from gpubind.model.arch import ARCHITECTURES
from gpubind.model.data import read_data
from gpubind.runtimes import PROGRAMS
from gpubind.runtimes.cmdline.reader import (
    GETOPT,
    GETOPT_NUMERIC,
    SINGLE_DASH,
    OptionParser,
    ParsedCommandLine,
    ParseFailure,
    argument_location,
    parse_option_table,
    parse_options,
)

HINT = "write `gpubind wrap --` right before the runtime's own name: `... gpubind wrap -- singularity exec ...`"
_INTO_TEXT = "put `gpubind wrap --` into that text, right before the runtime's name"


class Prefix(NamedTuple):
    """A program that starts another one."""

    words: tuple[str, ...]
    """All of its arguments, its name first."""
    moves: bool = False
    """Whether a plan made here may be wrong for the command, because it gets other variables, another user, cgroup
    or machine, or starts later.
    """
    sets: tuple[tuple[str, Optional[str]], ...] = ()
    """The variables that it sets or, with None, unsets, in order."""
    clears: bool = False
    """Whether it unsets all other variables."""
    several: bool = False
    """Whether a lone `:` after it begins another command."""


class _Rule(NamedTuple):
    """The rules by which a program finds the command that it starts."""

    reader: OptionParser = GETOPT
    moves: bool = False
    leading_words: tuple[str, ...] = ()
    """Arguments of which one may precede the options: `nsys profile`, `setarch x86_64`."""
    skips: int = 0
    """The number of operands before the command: timeout's duration, taskset's mask."""
    ends: bool = False
    """Whether a `--` may follow the operands in `skips`."""
    assigns: bool = False
    """Whether `NAME=VALUE` operands may precede the command."""
    unsets: str = ""
    """The option that unsets a variable."""
    clears: tuple[str, ...] = ()
    """Operands and options that unset all variables."""
    keeps: Optional[tuple[str, ...]] = None
    """If set, the program unsets all variables unless it has one of these options."""
    guesses: bool = False
    """Whether it has options that are not in the table, so that they must be guessed. The table then has those that
    a guess would misread: options with two values, or with a value that may be the name of a program.
    """
    shell: tuple[str, ...] = ()
    """Options whose value is the command as one string, for a shell."""
    several: bool = False


_PERSONALITIES = (
    *("linux32", "linux64", "uname26"),
    *(name for known in ARCHITECTURES for name in (known.name, *known.aliases)),
)
"""The names of an architecture for setarch, which is also installed under these names."""
_SETARCH_RULE = _Rule(leading_words=_PERSONALITIES, guesses=True)
_LAUNCHER = _Rule(moves=True, guesses=True, several=True)
_MPI = _LAUNCHER._replace(reader=SINGLE_DASH)
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("catchsegv", "choom", "dbus-run-session", "ionice", "nohup", "setsid", "stdbuf"), _Rule()),
    **dict.fromkeys(("time", "unbuffer"), _Rule()),
    **dict.fromkeys(("ncu", "numactl", "prlimit", "strace", "xvfb-run"), _Rule(guesses=True)),
    **dict.fromkeys(("taskset", "timeout"), _Rule(skips=1)),
    **dict.fromkeys(("jsrun", "salloc", "srun"), _LAUNCHER),
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich"), _MPI),
    **dict.fromkeys(("mpiexec.mpich", "orterun", "prterun", "prun", "aprun"), _MPI),
    "bsub": _MPI._replace(several=False),
    "chrt": _Rule(skips=1, ends=True),
    "doas": _Rule(moves=True, keeps=()),
    "env": _Rule(moves=True, assigns=True, unsets="unset", clears=("-", "ignore-environment"), shell=("split-string",)),
    "flock": _Rule(skips=1, shell=("command",)),
    "ibrun": _LAUNCHER._replace(several=False),
    "nice": _Rule(GETOPT_NUMERIC),
    "nsys": _Rule(leading_words=("profile", "launch"), guesses=True),
    "setarch": _SETARCH_RULE,
    "sudo": _Rule(moves=True, assigns=True, keeps=("E", "preserve-env"), guesses=True),
    "systemd-run": _Rule(moves=True, guesses=True),
    **dict.fromkeys(_PERSONALITIES, _SETARCH_RULE._replace(leading_words=())),
}
_SHELLS = (
    *("ash", "bash", "csh", "dash", "eval", "fish", "ksh", "mksh", "runuser", "script", "sh", "ssh", "su", "tcsh"),
    "zsh",
)
"""Programs that start a command from a text or a script, which a shell splits."""


@cache
def _texts() -> dict[str, str]:
    texts = re.findall(r"^\[(.*)\]\n((?:  .*\n)*)", read_data("model/data/launchers.txt").decode(), re.MULTILINE)
    return {name: options for names, options in texts for name in names.split(", ")}


def read_prefix(argv: Sequence[str], at: int) -> Prefix:
    """Return the prefix that begins at position *at*.

    Errors: `UsageError` for an unknown program (code `wrap-prefix`), a command that a shell parses (`wrap-shell`), an
    option that cannot be parsed (`wrap-option`), and a prefix that starts nothing (`wrap-no-runtime`).
    """
    arg = argv[at]
    program = basename(arg)
    rule = _RULES.get(program)
    if program in _SHELLS:
        problem = f"`{arg}` is given its command as text or as a script, which only a shell can split into arguments"
        raise UsageError("wrap-shell", problem, where=argument_location(at), hint=_INTO_TEXT)
    if rule is None:
        problem = f"`{arg}` is not a runtime, and gpubind does not know it as a program that starts one"
        raise UsageError("wrap-prefix", problem, where=argument_location(at), hint=HINT)
    line = _read(program, rule, argv, at + 1 + ("".join(argv[at + 1 : at + 2]) in rule.leading_words))
    for option in line.options:
        if option.name in rule.shell:
            problem = f"`{' '.join(option.args)}` is a command as text, which {program} splits into arguments"
            raise UsageError("wrap-shell", problem, where=argument_location(option.position), hint=_INTO_TEXT)
    others = list(line.operand_indexes)
    option_names = {option.name for option in line.options}
    if others and argv[others[0]] in rule.clears:
        option_names.add(argv[others.pop(0)])
    del others[: rule.skips]
    if rule.ends and others and argv[others[0]] == "--":
        others.pop(0)
    unset = [option.value for option in line.options if option.name == rule.unsets]
    sets: list[tuple[str, Optional[str]]] = [(name, None) for name in unset]
    while rule.assigns and others and "=" in argv[others[0]]:
        name, _, value = argv[others.pop(0)].partition("=")
        sets.append((name, value))
    if not others:
        raise UsageError("wrap-no-runtime", f"`{arg}` starts no runtime here", where=argument_location(at), hint=HINT)
    if rule.shell and argv[others[0]] in ("-c", "--command"):
        problem = f"`{argv[others[0]]}` of {program} is a command as text"
        raise UsageError("wrap-shell", problem, where=argument_location(others[0]), hint=_INTO_TEXT)
    keeps = rule.keeps is None or not option_names.isdisjoint(rule.keeps)
    clears = not keeps or not option_names.isdisjoint(rule.clears)
    return Prefix(tuple(argv[at : others[0]]), rule.moves, tuple(sets), clears, rule.several)


def _read(program: str, rule: _Rule, argv: Sequence[str], at: int) -> ParsedCommandLine:
    """Parse the options of a prefix. The guess after an unknown option ends at another option or a known program."""

    def guessed(trouble: ParseFailure) -> Optional[int]:
        if not rule.guesses or trouble.kind != "unknown":
            return None
        if "=" in argv[trouble.position]:
            return trouble.position + 1
        for after in (trouble.position + 1, trouble.position + 2):
            arg = argv[after] if after < len(argv) else ""
            if arg.startswith("-") or basename(arg) in (*PROGRAMS, *_RULES, *_SHELLS):
                return after
        return None

    line = parse_options(rule.reader, parse_option_table(_texts().get(program, "")), argv, at, guessed)
    if line.error is not None:
        problem = f"`{argv[line.error.position]}` cannot be read, so the beginning of the command is not known"
        raise UsageError("wrap-option", problem, where=argument_location(line.error.position), hint=HINT)
    return line
