"""A runtime's options mean the same to wrap, to exec, to --backend-arg, and to what a container brings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import UsageError
from gpubind.launch.wrap.command import WrappedCommand, parse_command, split_options
from gpubind.runtimes import PROGRAMS, WRAPPED
from gpubind.runtimes.cmdline.programs import StartSubcommand
from gpubind.runtimes.cmdline.reader import ParseFailure
from gpubind.runtimes.cmdline.values import parse_list, parse_map

IMAGE, COMMAND = "./image", "true"
ROOTS = {"bwrap": ("--ro-bind", "/image", "/"), "proot": ("-r", "/image"), "systemd-nspawn": ("-D", "/image")}
ASKS = {
    "apptainer": ("--nv",),
    "singularity": ("--nv",),
    **dict.fromkeys(("docker", "nerdctl", "podman"), ("--gpus=all",)),
}
"""What asks for GPUs; any start of the other runtimes does."""
READ = [name for name in WRAPPED if name in PROGRAMS]
"""`test_records.py` says which one is missing."""
VALUES = ("/a:/b", "A=b", "A", "CUDA*", "--", "-x", "", "overlay", "1", "false", "/")


def start_of(runtime: str) -> StartSubcommand:
    return PROGRAMS[runtime].start("exec")


def subcommand_of(runtime: str) -> tuple[str, ...]:
    return next(words for words, start in PROGRAMS[runtime].subcommands.items() if start == start_of(runtime))


@st.composite
def lines(draw: st.DrawFn, runtime: str) -> list[str]:
    """Options of *runtime* in many spellings: whole, shortened or a letter; the value in the same word or the next."""
    known = start_of(runtime).option_table
    words: list[str] = []
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(sorted(known.names)))
        letter = draw(st.sampled_from(sorted(known.letters) or ["x"]))
        spelled = (f"--{name}", f"--{name}", f"--{name[: draw(st.integers(2, 9))]}", f"-{name}", f"-{letter}")
        word, value = draw(st.sampled_from(spelled)), draw(st.sampled_from(VALUES))
        words += draw(st.sampled_from(([word], [word, value], [f"{word}={value}"], [word + value])))
    return words


def wrapped_of(runtime: str, words: list[str]) -> WrappedCommand | None:
    """Return what `wrap` makes of a start with the options *words*; None where it refuses it, or passes it through."""
    image = [] if start_of(runtime).operands in ("bundle", "rootfs") else [IMAGE]
    line = [*ASKS.get(runtime, ()), *words, *ROOTS.get(runtime, ()), *image, COMMAND]
    try:
        return parse_command([runtime, *subcommand_of(runtime), *line])
    except UsageError:
        return None


@pytest.mark.parametrize("runtime", READ)
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_wrap_and_what_a_container_brings_read_the_same_options(runtime: str, data: st.DataObject) -> None:
    wrapped = wrapped_of(runtime, data.draw(lines(runtime)))
    if wrapped is None:
        return
    read = WRAPPED[runtime].user_option_values(wrapped.user_options, {})
    line = WRAPPED[runtime].parse_user_options(wrapped.user_options)
    assert (line.skipped_errors, line.operand_indexes, line.insert_index, line.error) == ((), (), len(line.argv), None)
    gpu_flags = {option.position for option in wrapped.gpus.flags}
    users = [option for option in wrapped.options if option.position not in gpu_flags]
    for name in {option.name for option in users}:
        values = [option.value for option in users if option.name == name]
        lists = [element for value in values for element in parse_list(value)]
        if runtime in ("apptainer", "singularity") and name == "env":
            assert read.env == {name: value for text in values for name, value in parse_map(text).items()}
        else:
            assert list(read.all(name)) in (values, lists)


@pytest.mark.parametrize("runtime", READ)
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_exec_finds_the_image_where_wrap_does(runtime: str, data: st.DataObject) -> None:
    words = data.draw(lines(runtime))
    wrapped = wrapped_of(runtime, words)
    try:
        own, rest = split_options(runtime, "exec", (*words, IMAGE, COMMAND))
    except UsageError:
        assert wrapped is None or runtime in ROOTS  # those words were the last option's value
        return
    whole = (*words, IMAGE, COMMAND)
    assert whole in ((*own, *rest), (*own, "--", *rest))
    if wrapped is not None and wrapped.image_at is not None:
        assert rest[0] == wrapped.image


@pytest.mark.parametrize("words", [("-B", "--", "img", "cmd"), ("-B", "--", "--", "img", "cmd")])
def test_a_value_that_looks_like_the_end_of_the_options_is_a_value(words: tuple[str, ...]) -> None:
    assert split_options("apptainer", "exec", words) == (("-B", "--"), ("img", "cmd"))


@pytest.mark.parametrize(("runtime", "words", "name", "value"), [
    ("ch-run", ("--bin=/a:/b",), "bind", "/a:/b"), ("systemd-nspawn", ("--vola=yes",), "volatile", "yes"),
    ("runc", ("-pid-file", "/p"), "pid-file", "/p"), ("crun", ("--pid-f=/p",), "pid-file", "/p"),
    ("proot", ("--bind=/a:/b",), "bind", "/a:/b"), ("udocker", ("--volume", "/a:/b"), "volume", "/a:/b"),
    ("bwrap", ("--ro-bind", "/a", "/b"), "ro-bind", "/a /b"),
])  # fmt: skip
def test_backend_arguments_are_read_by_the_programs_rules(
    runtime: str, words: tuple[str, ...], name: str, value: str
) -> None:
    assert WRAPPED[runtime].user_option_values(words, {}).all(name) == (value,)


@pytest.mark.parametrize(("runtime", "words"), [("proot", ("--bind", "/a:/b")), ("udocker", ("-e", "-x"))])
def test_an_option_that_its_program_refuses_without_a_value_is_refused(runtime: str, words: tuple[str, ...]) -> None:
    assert WRAPPED[runtime].parse_user_options(words).error == ParseFailure("no-value", 0)
    with pytest.raises(UsageError):
        split_options(runtime, "exec", (*words, "img", "cmd"))


@pytest.mark.parametrize("runtime", READ)
def test_the_end_of_the_options_is_not_an_option(runtime: str) -> None:
    line = WRAPPED[runtime].parse_user_options(("--",))
    assert line.skipped_errors or line.insert_index == 0
