"""Real command lines: what each starts, which GPUs it asks for, and its words with others in the place of its flags."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from gpubind.errors import EXIT_USAGE, UsageError
from gpubind.launch.wrap.command import WrappedCommand, insert_gpubind, parse_command, rewrite, split_options
from gpubind.launch.wrap.passing import asks_for_no_gpu
from tests.support.golden import GOLDEN, assert_golden

HERE = Path(__file__).parent


class Case(NamedTuple):
    """A command line, and what is known of it."""

    words: list[str]
    environ: dict[str, str]
    rewritten: list[str]
    facts: dict[str, str]
    command: list[str]


def assignments(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(text))


def wrapped_cases() -> list[Case]:
    cases = []
    for block in (HERE / "wrapped.txt").read_text().split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if not lines:
            continue
        by_mark = {line[0]: line[2:] for line in lines if line[0] in "!$>"}
        facts = next(line for line in lines if line.startswith("  ") and not line.startswith("  command:"))
        command = next((line.partition(":")[2] for line in lines if line.startswith("  command:")), "")
        cases.append(
            Case(
                shlex.split(by_mark["$"]),
                assignments(by_mark.get("!", "")),
                shlex.split(by_mark[">"]),
                assignments(facts),
                shlex.split(command),
            )
        )
    return cases


def short_cases(name: str) -> list[tuple[str, dict[str, str], list[str]]]:
    """(code, environment, words) of each line of a file."""
    cases = []
    for line in (HERE / name).read_text().splitlines():
        if line and not line.startswith("#"):
            code, _, text = line.partition(": ")
            variables, _, words = text[2:].partition(" $ ") if text.startswith("! ") else ("", "", text)
            cases.append((code, assignments(variables), shlex.split(words)))
    return cases


def facts_of(wrapped: WrappedCommand) -> dict[str, str]:
    """What a case says of a line, of this one: what is nothing is left out."""
    gpus = wrapped.gpus
    facts = {
        "runtime": wrapped.runtime,
        "subcommand": " ".join(wrapped.subcommand),
        "image": wrapped.image or "",
        "name": wrapped.name or "",
        "where": "" if wrapped.starts_here else "elsewhere",
        "vendors": ",".join(gpus.vendors),
        "gpus": gpus.gpus or "",
        "caps": ",".join(gpus.caps or ()),
        "cdi": ",".join(gpus.cdi),
        "image_decides": "True" if gpus.image_decides else "",
    }
    return {name: value for name, value in facts.items() if value}


@pytest.mark.parametrize("case", wrapped_cases(), ids=lambda case: shlex.join(case.words)[:100])
def test_a_line_with_gpus_is_read_as_its_program_reads_it(case: Case) -> None:
    wrapped = parse_command(case.words, case.environ)
    assert isinstance(wrapped, WrappedCommand)
    assert facts_of(wrapped) == case.facts
    assert list(wrapped.command) == case.command
    assert list(rewrite(wrapped, ["PUT", "IN"])) == case.rewritten


@pytest.mark.parametrize(("why", "environ", "words"), short_cases("passed.txt"), ids=lambda value: str(value)[:90])
def test_a_line_without_gpus_or_without_a_start_is_passed_through(
    why: str, environ: dict[str, str], words: list[str]
) -> None:
    assert parse_command(words, environ) is None, why


@pytest.mark.parametrize(("code", "environ", "words"), short_cases("refused.txt"), ids=lambda value: str(value)[:90])
def test_a_line_that_asks_for_gpus_and_cannot_be_read_is_refused(
    code: str, environ: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(UsageError) as error:
        parse_command(words, environ)
    assert (error.value.code, error.value.exit_code) == (code, EXIT_USAGE)
    assert error.value.what
    assert error.value.hint or error.value.why or error.value.where


def spelled(fields: dict[str, object]) -> str:
    """The fields that are anything, on a line."""
    return " ".join(f"{name}={value!r}" for name, value in fields.items() if value not in (None, "", False, ()))


def test_each_field_of_a_reading_is_as_recorded() -> None:
    text = ""
    for case in wrapped_cases():
        wrapped = parse_command(case.words, case.environ)
        assert isinstance(wrapped, WrappedCommand)
        request = wrapped.gpus
        fields = {name: getattr(wrapped, name) for name in ("program_at", "image_at", "insert_index", "name")}
        fields |= {name: getattr(wrapped, name) for name in ("image_place", "is_rootfs", "is_entered", "starts_here")}
        names = ("vendors", "gpus", "caps", "cdi", "chosen_by", "by_count", "reads_image", "image_decides")
        asked = {name: getattr(request, name) for name in (*names, "brings_nodes", "is_requested", "is_optional")}
        options = [(one.position, one.name, one.value) for one in (*wrapped.globals, *wrapped.options)]
        prefixes = [
            f"  {shlex.join(one.words)}: {spelled(dict(zip(one._fields[1:], one[1:])))}" for one in wrapped.prefixes
        ]
        lines = [f"$ {shlex.join(case.words)}", *prefixes, f"  {spelled(fields)}", f"  {options}"]
        lines += [f"  {wrapped.global_options}", f"  {spelled(asked)} flags={[one.position for one in request.flags]}"]
        text += "\n".join((*lines, "", ""))
    assert_golden(GOLDEN / "wrap-read.txt", text)


def test_each_refusal_says_what_where_and_why_and_what_to_do() -> None:
    text = ""
    for _, environ, words in short_cases("refused.txt"):
        with pytest.raises(UsageError) as caught:
            parse_command(words, environ)
        error = caught.value
        fields = {"what": error.what, "where": error.where, "why": error.why, "hint": error.hint}
        lines = [f"  {name}: {value}\n" for name, value in fields.items() if value]
        text += f"$ {shlex.join(words)}\n{''.join(lines)}\n"
    assert_golden(GOLDEN / "wrap-refused.txt", text)


def test_there_are_enough_lines() -> None:
    assert len(wrapped_cases()) >= 120
    assert len(short_cases("refused.txt")) >= 20
    assert len(short_cases("passed.txt")) >= 15


@pytest.mark.parametrize("case", wrapped_cases(), ids=lambda case: shlex.join(case.words)[:100])
def test_with_gpubind_moved_behind_the_prefix_the_line_is_the_same(case: Case) -> None:
    wrapped = parse_command(case.words, case.environ)
    assert isinstance(wrapped, WrappedCommand)
    words = list(insert_gpubind(wrapped, ["gpubind", "wrap", "--"]))
    at = wrapped.program_at
    assert words[:at] + words[at + 3 :] == case.words
    assert words[at : at + 3] == ["gpubind", "wrap", "--"]
    behind = parse_command(words[at + 3 :], case.environ)
    if behind is not None:
        assert behind.starts_here


def test_no_line_is_there_twice() -> None:
    lines = [(tuple(case.words), tuple(sorted(case.environ.items()))) for case in wrapped_cases()]
    lines += [
        (tuple(words), tuple(environ.items()))
        for name in ("passed.txt", "refused.txt")
        for _, environ, words in short_cases(name)
    ]
    assert len(set(lines)) == len(lines)


def test_no_line_with_gpus_is_passed_through_at_a_glance() -> None:
    assert not [case.words for case in wrapped_cases() if asks_for_no_gpu(case.words, case.environ)]
    assert not [words for _, environ, words in short_cases("refused.txt") if asks_for_no_gpu(words, environ)]


@pytest.mark.parametrize(("runtime", "words"), [
    ("docker", "--rm --volume=/a:/b -eA=b img true"), ("podman", "--rm --mount type=tmpfs,target=/x img true"),
    ("crun", "--no-pivot img true"), ("apptainer", "-ec img true"), ("ch-run", "-W img true"),
])  # fmt: skip
def test_the_own_options_of_exec_are_those_of_a_start(runtime: str, words: str) -> None:
    own, rest = split_options(runtime, "exec", words.split())
    assert (*own, *rest) == tuple(words.split())
    assert rest == ("img", "true")


@pytest.mark.parametrize(
    ("line", "is_entered"),
    [
        ("apptainer instance start --nv img.sif name", True),
        ("singularity instance run --nv img.sif name", True),
        ("apptainer exec --nv img.sif true", False),
        ("docker run -d --gpus all img", False),  # `docker exec` has the variables of the container
        ("crun run name", False),
        ("ch-run img -- true", False),
    ],
)
def test_later_commands_bring_their_own_variables_into_an_instance_only(line: str, is_entered: bool) -> None:
    wrapped = parse_command(line.split())
    assert wrapped is not None
    assert wrapped.is_entered == is_entered
