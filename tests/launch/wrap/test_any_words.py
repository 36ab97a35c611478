"""What holds for any words at all: no crash, and nothing changes but the GPU flags."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpubind.errors import UsageError
from gpubind.launch.wrap.command import WrappedCommand, parse_command, rewrite
from gpubind.launch.wrap.gpus import GpuRequest
from gpubind.launch.wrap.passing import asks_for_no_gpu
from gpubind.launch.wrap.prefix import _RULES
from gpubind.runtimes import PROGRAMS
from gpubind.runtimes.cmdline.reader import (
    FIXED_COUNT,
    GETOPT,
    GETOPT_PERMUTING,
    GO_FLAG,
    PFLAG,
    PROOT,
    SINGLE_DASH,
    parse_option_table,
    parse_options,
)

INTERESTING = (
    *PROGRAMS,
    *("exec", "run", "create", "shell", "test", "instance", "start", "container", "build", "ps"),
    *("srun", "mpirun", "env", "sudo", "time", "timeout", "nice", "bsub", "flock", "bash", "salloc", "nsys", "profile"),
    *(
        "--nv",
        "--rocm",
        "--nvccli",
        "--nv=false",
        "--gpus",
        "--gpus=all",
        "all",
        "0,1",
        '"device=0,1"',
        "--runtime=nvidia",
    ),
    *(
        "--device",
        "--device=nvidia.com/gpu=0",
        "nvidia.com/gpu=all",
        "-e",
        "NVIDIA_VISIBLE_DEVICES=0",
        "--runtime",
        "nvidia",
    ),
    *("-B", "/a:/b", "--bind", "-it", "-ec", "-s", "-n", "4", "-N2", "-np", "-c", "-b", "-bundle", "--bundle=/b", "-W"),
    *(
        "--",
        "-",
        "",
        ":",
        "=",
        "--=",
        "-=",
        "---",
        "A=b",
        "img.sif",
        "instance://x",
        "/",
        "--set-env",
        "--args",
        "--cdi",
    ),
    *(
        "--ro-bind",
        "--setenv",
        "-D",
        "-r",
        "--rootfs",
        "--help",
        "--version",
        "--unknown",
        "-?",
        "-S",
        "--rm",
        "\ud83d",
    ),
)
WORD = st.one_of(st.sampled_from(INTERESTING), st.sampled_from(INTERESTING), st.text(max_size=8))
WORDS = st.lists(WORD, max_size=14)
REAL = [
    shlex.split(line[2:])
    for line in (Path(__file__).parent / "wrapped.txt").read_text().splitlines()
    if line.startswith("$ ")
]


@st.composite
def nearly_real(draw: st.DrawFn) -> list[str]:
    """A real command line with words left out, put in, doubled or replaced."""
    words = list(draw(st.sampled_from(REAL)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(words)))
        how = draw(st.sampled_from(("put in", "put in", "leave out", "double", "replace")))
        if how == "put in":
            words.insert(at, draw(WORD))
        elif how == "leave out":
            del words[at : at + 1]
        elif how == "double":
            words[at:at] = words[at : at + 1]
        else:
            words[at : at + 1] = [draw(WORD)]
    return words


LINE = st.one_of(
    nearly_real(),
    nearly_real(),
    nearly_real(),
    WORDS,
    st.tuples(st.sampled_from(tuple(PROGRAMS)), WORDS).map(lambda parts: [parts[0], *parts[1]]),
)
ENVIRON = st.dictionaries(
    st.sampled_from(("APPTAINER_NV", "SINGULARITY_ROCM", "NV_GPU", "NVIDIA_VISIBLE_DEVICES", "POSIXLY_CORRECT")),
    st.sampled_from(("", "1", "0", "true", "all", "0,1", "void", "?")),
)


def parsed(words: Sequence[str], environ: dict[str, str]) -> Optional[WrappedCommand]:
    """The start in the words; None where they are passed through or refused."""
    try:
        return parse_command(words, environ)
    except UsageError as error:
        assert error.code.startswith("wrap-")
        return None


def of_flags(wrapped: WrappedCommand) -> set[int]:
    return {at for flag in wrapped.gpus.flags for at in range(flag.position, flag.position + len(flag.args))}


@settings(max_examples=133, deadline=None)
@given(LINE, ENVIRON)
@example(["docker"], {})
@example([], {})
def test_any_words_are_wrapped_passed_or_refused(words: list[str], environ: dict[str, str]) -> None:
    answer = parsed(words, environ)
    if answer is not None:
        assert list(answer.argv) == words


@settings(max_examples=133, deadline=None)
@given(LINE, ENVIRON)
def test_nothing_but_the_gpu_flags_goes_and_nothing_but_what_is_put_in_comes(
    words: list[str], environ: dict[str, str]
) -> None:
    answer = parsed(words, environ)
    if not isinstance(answer, WrappedCommand):
        return
    expected = [
        "docker" if at == answer.program_at and word.rpartition("/")[2] == "nvidia-docker" else word
        for at, word in enumerate(words)
    ]
    untouched = answer._replace(gpus=GpuRequest())
    assert list(rewrite(untouched)) == expected
    gone = of_flags(answer)
    kept = [word for at, word in enumerate(expected) if at not in gone]
    assert list(rewrite(answer)) == kept
    made = list(rewrite(answer, ["PUT", "IN"]))
    before = sum(at not in gone for at in range(answer.insert_index))
    assert made == [*kept[:before], "PUT", "IN", *kept[before:]]


@settings(max_examples=133, deadline=None)
@given(LINE, ENVIRON)
def test_the_image_and_what_follows_it_never_change(words: list[str], environ: dict[str, str]) -> None:
    answer = parsed(words, environ)
    if not isinstance(answer, WrappedCommand) or answer.image_at is None or answer.runtime == "ch-run":
        return
    behind = words[answer.image_at :]
    assert behind[0] == answer.image
    assert list(rewrite(answer, ["PUT", "IN"]))[-len(behind) :] == behind
    assert not of_flags(answer) & set(range(answer.image_at, len(words)))


@settings(max_examples=66, deadline=None)
@given(LINE, ENVIRON)
def test_a_rewritten_line_asks_for_nothing_any_more(words: list[str], environ: dict[str, str]) -> None:
    answer = parsed(words, environ)
    if isinstance(answer, WrappedCommand) and answer.gpus.flags:
        again = parsed(rewrite(answer), {})
        assert not isinstance(again, WrappedCommand) or not again.gpus.flags


OPTIONS: dict[str, tuple[list[str], ...]] = {
    "singularity": (
        ["-B", "/a:/b"],
        ["--bind=/x"],
        ["-ec"],
        ["--pwd", "--nv"],
        ["--no-home"],
        ["-W", "img"],
        ["--env", "A=b"],
    ),
    "docker": (
        ["-it"],
        ["-v", "/a:/b"],
        ["--rm"],
        ["--name", "--gpus"],
        ["-e", "A=--gpus"],
        ["--net=host"],
        ["-w", "img"],
    ),
}
OPTIONS["podman"] = OPTIONS["docker"]
GPU_OPTIONS: dict[str, tuple[list[str], ...]] = {
    "singularity": (["--nv"], ["--rocm"], ["--nv=true"], ["--nvccli"]),
    "docker": (["--gpus", "all"], ["--gpus=2"], ["--runtime=nvidia"], ["--device", "nvidia.com/gpu=1"]),
}
GPU_OPTIONS["podman"] = GPU_OPTIONS["docker"]
SUBCOMMAND = {"singularity": "exec", "docker": "run", "podman": "run"}


@st.composite
def starts(draw: st.DrawFn) -> tuple[list[str], list[str], str, list[str]]:
    """(the line, the same without GPU flags, the image, the command)"""
    program = draw(st.sampled_from(sorted(OPTIONS)))
    plain = draw(st.lists(st.sampled_from(OPTIONS[program]), max_size=4))
    gpu = draw(st.sampled_from(GPU_OPTIONS[program]))
    at = draw(st.integers(0, len(plain)))
    image = draw(st.sampled_from(("img", "a/b:c", "exec", "docker://x", "singularity")))
    command = draw(st.lists(WORD, min_size=1, max_size=5))
    head = [program, SUBCOMMAND[program]]
    words = [word for option in (*plain[:at], gpu, *plain[at:]) for word in option]
    without = [word for option in plain for word in option]
    return [*head, *words, image, *command], [*head, *without, image, *command], image, command


@settings(max_examples=66, deadline=None)
@given(starts())
def test_a_start_is_found_whatever_its_options_values_and_command_look_like(
    start: tuple[list[str], list[str], str, list[str]],
) -> None:
    words, without, image, command = start
    answer = parse_command(words)
    assert isinstance(answer, WrappedCommand)
    assert (answer.image, list(answer.command)) == (image, command)
    assert list(rewrite(answer)) == without
    assert parse_command(without) is None


KNOWN = parse_option_table("bind/B= pwd= clean/e contain/c env= quiet/q")


@settings(max_examples=66, deadline=None)
@given(st.sampled_from((PFLAG, GETOPT, GETOPT_PERMUTING, GO_FLAG, FIXED_COUNT, PROOT, SINGLE_DASH)), WORDS)
def test_each_word_is_an_options_or_none_and_none_is_both(reader: object, words: list[str]) -> None:
    line = parse_options(reader, KNOWN, words, 0)  # type: ignore[arg-type]
    of_options = [
        at
        for option in {o.position: o for o in line.options}.values()
        for at in range(option.position, option.position + len(option.args))
    ]
    assert len(set(of_options)) == len(of_options)
    assert not set(of_options) & set(line.operand_indexes)
    if line.error is None:
        left = set(range(len(words))) - set(of_options) - set(line.operand_indexes)
        assert len(left) <= 1
        assert all(words[at] == "--" for at in left)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_no_runtime_is_a_prefix(name: str) -> None:
    assert name not in _RULES


@given(
    st.sampled_from(("apptainer", "/usr/bin/singularity", "docker", "podman")),
    st.lists(st.sampled_from(INTERESTING)),
    ENVIRON,
)
def test_what_asks_for_no_gpu_at_a_glance_is_passed_through_when_it_is_read(
    program: str, rest: list[str], environ: dict[str, str]
) -> None:
    words = [program, *rest]
    if asks_for_no_gpu(words, environ):
        assert parse_command(words, environ) is None
