"""A command line is read without typer where it is plain, and means what typer makes of it."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any, Optional
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpubind import __version__
from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import COMPLETION, HELP, Origin, Subcommand
from gpubind.cli.reader import ParsedLine, read_line, run_line
from gpubind.cli.settings import defaults_for
from gpubind.cli.typer_app import typer_command
from gpubind.errors import UsageError

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


ORIGINS: dict[str, Origin] = {"COMMANDLINE": "line", "ENVIRONMENT": "variable", "DEFAULT_MAP": "settings"}


def by_typer(command: Subcommand, words: list[str]) -> Optional[ParsedLine]:
    """What typer reads; None where it refuses. typer knows no flag that stands for an option, and has both."""
    try:
        context: Any = typer_command(command).make_context(command.name, [*words], default_map=defaults_for(command))
    except Exception as error:
        if type(error).__name__ == "Exit":
            return ParsedLine({HELP.parameter: True}, {})
        if not hasattr(error, "format_message"):  # typer's own have it
            raise
        return None
    sources = {option.parameter: context.get_parameter_source(option.parameter).name for option in command.options}
    for option in command.options:
        if option.stands_for and sources.pop(option.parameter) and context.params.pop(option.parameter):
            given = context.params["format_"] if sources["format_"] == "COMMANDLINE" else ()
            context.params["format_"] = (*given, "json") if command.name == "plan" else "json"
            sources["format_"] = "COMMANDLINE"
    return ParsedLine(context.params, {name: ORIGINS.get(source, "default") for name, source in sources.items()})


def compared(line: ParsedLine) -> ParsedLine:
    """*line*; no values are no values, however they are said. Two formats are refused, in any order."""
    values = {name: [*value] if isinstance(value, tuple) else value for name, value in line.values.items()}
    values = {name: sorted(value) if value and name == "format_" else value for name, value in values.items()}
    return line._replace(values={name: None if value == [] else value for name, value in values.items()})


@pytest.mark.parametrize("config", ["", CONFIG], ids=["no-config", "config"])
@pytest.mark.parametrize("name", MODULES)
@given(words=_words, environ=_environs)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_read_without_typer_is_what_typer_reads(
    name: str, config: str, words: list[str], environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "gpubind").mkdir(exist_ok=True)
    (tmp_path / "gpubind" / "config.toml").write_text(config)
    without = {key: value for key, value in os.environ.items() if not key.startswith("GPUBIND_")}
    with mock.patch.dict(os.environ, {**without, **environ, "XDG_CONFIG_HOME": str(tmp_path)}, clear=True):
        command = command_of(name)
        try:
            line = read_line(command, words, os.environ)
        except UsageError as error:
            assert error.code == "given-twice"
            return
        with contextlib.redirect_stdout(io.StringIO()):
            typers = by_typer(command, words)
        assert (line is None) == (typers is None), words
        if line is not None and typers is not None:
            assert compared(line) == compared(typers), words


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
    assert read_line(command_of(name), words, {}) is not None


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
    assert line is not None
    assert (set(line.values["format_"]), line.origins["format_"]) == ({"json"}, "line")
    assert "json" not in line.values


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
    assert line is not None
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
