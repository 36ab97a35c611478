"""A command line is read by the declarations of its command: all of its values, or what is wrong with it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpubind import __version__
from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import COMPLETION, HELP, choices_of
from gpubind.cli.reader import parse_line, read_line, requested_format, run_line
from gpubind.errors import UsageError, WrongUseError

SPELLINGS = sorted({word for name in MODULES for option in command_of(name).options for word in option.spellings})
VARIABLES = sorted({o.variable for name in MODULES for o in command_of(name).options if o.variable})
VALUES = ("all", "image.sif", "0,1", "a=b", "", "-", "--", "-1", "json", "é", "exec", "--x", "-vq", "--json=1", "-oF")
CONFIG = """caps = "utility"
completion = false
cdi-dir = ["/a", "/b"]
format = "json"
backend = "bwrap"
"""
_words = st.lists(
    st.sampled_from(SPELLINGS)
    | st.sampled_from(VALUES)
    | st.tuples(st.sampled_from(SPELLINGS), st.sampled_from(VALUES)).map("=".join),
    max_size=6,
)
_environs = st.dictionaries(st.sampled_from(VARIABLES), st.sampled_from(("", "1", "all", "false", "a b")), max_size=2)
FREE = {
    name: [option for option in command_of(name).options if not (option.unknown or option.expands_to)]
    for name in MODULES
}
"""The options of each command that take any value."""


@st.composite
def spelled_options(draw: st.DrawFn, name: str) -> tuple[dict[str, Any], list[str]]:
    """Values of options of the command *name*, and words that spell them, each in one of its ways."""
    values: dict[str, Any] = {}
    words: list[str] = []
    for option in draw(st.lists(st.sampled_from(FREE[name]), max_size=5, unique=True)) if FREE[name] else ():
        spelling = draw(st.sampled_from(sorted(option.spellings)))
        times = draw(st.integers(1, 3)) if option.is_repeatable else 1
        if not option.metavar:
            values[option.parameter] = times if option.is_repeatable else option.spellings[spelling]
            words += [spelling] * times
            continue
        texts = [draw(st.sampled_from(VALUES)) for _ in range(times)]
        values[option.parameter] = texts if option.is_repeatable else texts[0]
        for text in texts:
            attached = f"{spelling}={text}" if spelling.startswith("--") else f"{spelling}{text}"
            words += [spelling, text] if not text or draw(st.booleans()) else [attached]
    return values, words


@pytest.mark.parametrize("name", MODULES)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_what_a_line_gives_is_read_however_it_is_spelled(name: str, data: st.DataObject) -> None:
    command = command_of(name)
    values, words = data.draw(spelled_options(name))
    for each in command.options:
        if each.required and each.parameter not in values:
            values[each.parameter], words = "x", [*words, f"{each.name}=x"]
    operands = [str(choices_of(each)[0]) if each.unknown else "x" for each in command.arguments if each.required]
    line = read_line(command, [*words, *(["--"] if command.starts else []), *operands], {})
    assert {name: line.values[name] for name in values} == values
    assert {name for name, origin in line.origins.items() if origin == "line"} == set(values)
    assert [*line.values.values()][: len(operands)] == [
        [x] if e.takes_rest else x for x, e in zip(operands, command.arguments)
    ]


@pytest.mark.parametrize("config", ["", CONFIG], ids=["no-config", "config"])
@pytest.mark.parametrize("name", MODULES)
@given(words=_words, environ=_environs)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_line_is_read_or_refused_with_a_code_and_a_hint(
    name: str, config: str, words: list[str], environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "gpubind").mkdir(exist_ok=True)
    (tmp_path / "gpubind" / "config.toml").write_text(config)
    with mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": str(tmp_path)}):
        line = parse_line(command_of(name), words, environ)
    if HELP.parameter in line.values:
        assert line.origins == {}
        return
    assert line.origins.keys() == {each.parameter for each in command_of(name).options if not each.expands_to}
    for each in command_of(name).options:
        if not (each.expands_to or line.error):
            origin, text = line.origins[each.parameter], environ.get(each.variable)
            assert origin == "line" or (origin == "variable") == bool(text)
    if line.error is not None:
        assert isinstance(line.error, WrongUseError)
        assert line.error.hint or line.error.code == "given-twice"


@pytest.mark.parametrize(
    "line",
    [
        "plan",
        "plan --nv --json",
        "plan --nv --format apptainer --format sh -o FILE",
        "plan --image=IMAGE --gpus 0,1 --no-completion -q",
        "check --nv --image IMAGE --image IMAGE --program PATH --ignore a=b --ignore c -v",
        "exec IMAGE true",
        "exec --backend bwrap --nv -q IMAGE -- sh -c --help",
        "exec -- --bind /a IMAGE cmd --json",
        "wrap --check -- apptainer exec --nv IMAGE cmd",
        "wrap apptainer exec --nv IMAGE cmd",
        "explain libcuda.so.1 --json",
        "gpus --nv --json",
        "record -o FILE --hostname",
        "completion bash",
    ],
)
def test_the_lines_of_the_pages_are_plain(line: str) -> None:
    name, *words = line.split()
    assert read_line(command_of(name), words, {}).error is None


@pytest.mark.parametrize(
    "line",
    [
        "pln",
        "--bogus",
        "plan --nv=1",
        "plan IMAGE",
        "plan --caps",
        "exec",
        "exec -x IMAGE",
        "plan -q-v",
        "record",
        "completion",
    ],
)
def test_a_line_that_is_wrong_is_refused(line: str) -> None:
    with pytest.raises(UsageError):
        run_line(line.split())


@pytest.mark.parametrize("config", ["", CONFIG.replace("json", "tsv")], ids=["no-config", "config"])
@pytest.mark.parametrize("words", [["--json"], ["--json", "--json"], ["--json", "--format=json"]], ids=" ".join)
def test_json_is_the_format_json_whatever_a_site_sets(
    words: list[str], config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind" / "config.toml").write_text(config)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    line = read_line(command_of("plan"), words, {"GPUBIND_FORMAT": "cdi"})
    assert (set(line.values["format_"]), line.origins["format_"]) == ({"json"}, "line")
    assert "json" not in line.values


CLOSED = [
    ("plan --format toml", "unknown-format", "format", "table, tsv"),
    ("plan --format json --format toml", "unknown-format", "format", "table, tsv"),
    ("check --format toml", "unknown-format", "format", "text, tsv"),
    ("diff a b --format toml", "unknown-format", "format", "text, json"),
    ("needs IMAGE --format toml", "unknown-format", "format", "text, tsv"),
    ("explain ls --tree --format toml", "unknown-format", "format", "text, json, dot"),
    ("fleet check -w n --format toml", "unknown-format", "format", "table, json"),
    ("fleet check -w n --engine toml", "wrong-use", "engine", "slurm, clustershell"),
    ("fleet toml -w n", "wrong-use", "action", "check, plan, record, diff"),
    ("cdi toml", "wrong-use", "action", "list"),
    ("setup toml", "wrong-use", "engine", "docker, podman, containerd"),
    ("completion toml", "unknown-shell", "shell", "bash, zsh, fish"),
]


@pytest.mark.parametrize(("line", "code", "noun", "known"), CLOSED)
def test_a_value_that_is_none_of_the_choices_is_refused_before_the_command(
    line: str, code: str, noun: str, known: str
) -> None:
    name, *words = line.split()
    with pytest.raises(WrongUseError) as caught:
        read_line(command_of(name), words, {})
    assert (caught.value.code, caught.value.what) == (code, f"unknown {noun} `toml`")
    assert f"known: {known}" in caught.value.hint


def test_every_list_of_formats_engines_actions_and_shells_is_enforced() -> None:
    closed = {(name, each.parameter) for name in MODULES for each in command_of(name).options if each.unknown}
    closed |= {(name, each.parameter) for name in MODULES for each in command_of(name).arguments if each.unknown}
    named = {"format_", "engine", "action", "shell"}
    options = {(name, each.parameter) for name in MODULES for each in command_of(name).options}
    options |= {(name, each.parameter) for name in MODULES for each in command_of(name).arguments}
    assert closed == {one for one in options if one[1] in named}
    assert len(closed) == len(CLOSED) - 1  # plan's format may be given twice


def test_a_value_that_is_refused_is_said_to_be_a_sites_or_a_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpubind").mkdir()
    (tmp_path / "gpubind" / "config.toml").write_text('format = "toml"')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for environ, where in (
        ({"GPUBIND_FORMAT": "yaml"}, "the variable GPUBIND_FORMAT"),
        ({}, f"`format` in {tmp_path}/gpubind/config.toml"),
    ):
        error = parse_line(command_of("plan"), [], environ).error
        assert isinstance(error, WrongUseError)
        assert error.where == where


@pytest.mark.parametrize(
    ("line", "environ", "form"),
    [
        ("plan --json --jsn", {}, "json"),
        ("plan --format tsv --bogus", {}, "tsv"),
        ("plan --bogus", {"GPUBIND_FORMAT": "json"}, "json"),
        ("plan --json -o FILE --bogus", {}, ""),
        ("plan --json -o - --bogus", {}, "json"),
        ("plan --json -o - -o FILE", {}, ""),
        ("check --json --format html", {}, "json"),
        ("check --only --format=json", {}, ""),
        ("explain --json -- --output-x", {}, "json"),
        ("explain -- --json", {}, ""),
        ("exec IMAGE --json", {}, ""),
        ("fleet check --json", {}, ""),
        ("pln --json", {}, ""),
        ("help plan", {}, ""),
    ],
)
def test_an_error_has_the_form_that_the_line_asks_for_on_standard_output(
    line: str, environ: dict[str, str], form: str
) -> None:
    assert requested_format(line.split(), environ) == form


@pytest.mark.parametrize("name", ["check", "diff", "fleet"])
def test_json_beside_another_format_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_line(command_of(name), ["--json", "--format", "html"], {})
    assert (caught.value.code, caught.value.hint) == ("given-twice", "--json is --format json")


@pytest.mark.parametrize("line", ["plan --caps a --caps b", "plan --caps=a -q --caps a", "plan -oa -ob"])
def test_an_option_with_one_value_is_refused_where_it_is_given_twice(line: str) -> None:
    name, *words = line.split()
    with pytest.raises(UsageError, match="given-twice"):
        read_line(command_of(name), words, {})


def test_a_variable_that_says_neither_yes_nor_no_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBIND_STRICT", "maybe")
    with pytest.raises(UsageError, match="boolean"):
        run_line(["plan"])


@pytest.mark.parametrize("line", ["--version", "-V", "-- --version", "--version plan"])
def test_the_version_needs_no_command(line: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run_line(line.split()) == 0
    assert capfdbinary.readouterr().out == f"gpubind {__version__}\n".encode()


@pytest.mark.parametrize("line", ["--help", "-h", "-- --help", "plan --help", "plan --nv -h word", "exec -qh"])
def test_help_is_shown_wherever_it_is_asked_for(line: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run_line(line.split()) == 0
    assert capfdbinary.readouterr().out.startswith(b"Usage: gpubind ")


def test_short_options_may_share_a_word() -> None:
    line = read_line(command_of("plan"), ["-qvvoFILE"], {})
    assert [line.values[name] for name in ("quiet", "verbose", "output")] == [True, 2, "FILE"]


@pytest.mark.parametrize("name", MODULES)
def test_the_parameters_of_a_command_have_names_of_their_own(name: str) -> None:
    command = command_of(name)
    names = [each.parameter for each in command.options] + [each.parameter for each in command.arguments]
    assert len(names) == len(set(names))
    assert set(command.common) <= {option.name for option in command.options}


def test_a_shell_that_asks_for_completions_asks_typer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)  # as typer is told: no other test may see that
    monkeypatch.setenv(COMPLETION, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "gpubind comp")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        run_line(["plan"])
    assert capsys.readouterr().out == "completion\n"
