"""The words before a runtime's program, and what they change for it."""

from __future__ import annotations

import shlex

import pytest

from gpubind.errors import UsageError
from gpubind.launch.wrap.command import WrappedCommand, parse_command, rewrite
from gpubind.launch.wrap.prefix import _RULES, _SHELLS, read_prefix
from tests.support.golden import GOLDEN, assert_golden

STARTS = "apptainer exec --nv i c"
PROBES = (
    "",
    "x",
    "--",
    "5 --",
    "--own",
    "--own value more",
    "-9",
    "A=b",
    "-",
    "-c",
    "-i",
    "-E",
    "-u A B=c",
    "profile",
    "x86_64",
)
"""What may be between a program and the runtime that it starts."""


def outcome(line: str) -> str:
    """What `read_prefix` makes of a line: the code of its error, or all but the words of the prefix."""
    words = line.split()
    try:
        prefix = read_prefix(words, 0)
    except UsageError as error:
        return error.code.removeprefix("wrap-")
    if words[len(prefix.words)] != "apptainer":
        return f"at {words[len(prefix.words)]}"
    marks = [name for name in ("moves", "clears", "several") if getattr(prefix, name)]
    return " ".join((*marks, *(f"{name}={value}" for name, value in prefix.sets))) or "here"


def test_each_program_reads_its_own_words_alone() -> None:
    text = ""
    for name in sorted({*_RULES, *_SHELLS}):
        text += f"{name}\n" + "".join(f"  {probe} ...: {outcome(f'{name} {probe} {STARTS}')}\n" for probe in PROBES)
    assert_golden(GOLDEN / "wrap-prefixes.txt", text)


def wrapped(line: str, **environ: str) -> WrappedCommand:
    answer = parse_command(shlex.split(line), environ)
    assert isinstance(answer, WrappedCommand)
    return answer


@pytest.mark.parametrize(
    ("line", "programs", "is_here"),
    [
        ("singularity exec --nv i c", [], True),
        ("time nice -n 5 numactl -N 0 singularity exec --nv i c", ["time", "nice", "numactl"], True),
        ("env A=b singularity exec --nv i c", ["env"], False),
        ("sudo srun -n1 singularity exec --nv i c", ["sudo", "srun"], False),
        ("salloc srun time singularity exec --nv i c", ["salloc", "srun", "time"], False),
    ],
)
def test_each_program_before_the_runtime_is_named_and_where_it_starts_it(
    line: str, programs: list[str], is_here: bool
) -> None:
    answer = wrapped(line)
    assert [prefix.words[0] for prefix in answer.prefixes] == programs
    assert answer.starts_here is is_here
    assert [word for prefix in answer.prefixes for word in prefix.words] == shlex.split(line)[: answer.program_at]


def test_env_sets_and_clears_what_the_runtime_is_told() -> None:
    line = "env -u APPTAINER_ROCM APPTAINER_NV=1 apptainer exec i c"
    answer = wrapped(line, APPTAINER_ROCM="1")
    assert (answer.gpus.vendors, answer.gpus.flags) == (("nvidia",), ())
    assert answer.prefixes[0].sets == (("APPTAINER_ROCM", None), ("APPTAINER_NV", "1"))
    assert wrapped("env - APPTAINER_NV=1 apptainer exec i c", APPTAINER_ROCM="1").prefixes[0].clears


@pytest.mark.parametrize(("line", "said"), [("sudo", False), ("sudo -E", True), ("sudo APPTAINER_NV=1", True)])
def test_sudo_takes_the_callers_variables_away_unless_it_is_told_to_keep_them(line: str, said: bool) -> None:
    answer = parse_command([*line.split(), "apptainer", "exec", "i", "c"], {"APPTAINER_NV": "1"})
    assert isinstance(answer, WrappedCommand) == said


@pytest.mark.parametrize("option", ["--own", "--own=x", "--own x", "-y"])
def test_an_option_of_a_launchers_plugin_is_stepped_over_where_a_known_program_follows(option: str) -> None:
    assert wrapped(f"srun {option} singularity exec --nv i c").prefixes[0].words == ("srun", *option.split())


def test_an_option_that_no_launcher_guesses_is_refused() -> None:
    with pytest.raises(UsageError, match="wrap-option"):
        wrapped("timeout --own 5 singularity exec --nv i c")


def test_getopt_takes_the_beginning_of_a_long_option() -> None:
    assert wrapped("timeout --kill 5 10 singularity exec --nv i c").prefixes[0].words == (
        "timeout",
        "--kill",
        "5",
        "10",
    )


def test_an_option_that_shares_its_word_cannot_be_taken_out() -> None:
    answer = wrapped("crun run -db /b c1")
    with pytest.raises(UsageError, match="wrap-option"):
        rewrite(answer, remove=("bundle",))
    assert rewrite(wrapped("runc run -d -b /b c1"), ("--bundle", "/n"), remove=("bundle",)) == (
        *("runc", "run", "-d", "--bundle", "/n", "c1"),
    )


@pytest.mark.parametrize(
    ("line", "posix", "command"),
    [
        ("ch-run img ls -w", "", ["ls"]),
        ("ch-run img ls -w", "1", ["ls", "-w"]),
        ("ch-run img -- ls -w", "", ["ls", "-w"]),
    ],
)
def test_ch_run_takes_options_behind_the_image_unless_getopt_is_told_not_to(
    line: str, posix: str, command: list[str]
) -> None:
    answer = wrapped(line, **({"POSIXLY_CORRECT": posix} if posix else {}))
    assert list(answer.command) == command
