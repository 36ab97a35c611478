"""A command line is read without typer where it is plain, and means what typer makes of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpubind.cli.app import application_of
from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declare import Option, Origin, Subcommand
from gpubind.cli.quick import COMPLETION, ParsedLine, read_line, run_if_plain
from gpubind.errors import UsageError

SPELLINGS = sorted({word for name in MODULES for p in command_of(name).parameters for word in p.spellings})
VARIABLES = sorted(
    {p.says.envvar for n in MODULES for p in command_of(n).parameters if isinstance(p.says, Option) and p.says.envvar}
)
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


def by_typer(command: Subcommand, words: list[str]) -> Optional[ParsedLine]:
    """What typer reads; None where it refuses."""
    seen: list[ParsedLine] = []

    def remember(values: dict[str, Any], origins: Mapping[str, Origin]) -> None:
        seen.append(ParsedLine(values, dict(origins)))

    app = application_of([command._replace(run=remember)])
    try:
        app(args=[command.name, *words], prog_name="gpubind", standalone_mode=False)
    except UsageError:
        return None
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's own have it
            raise
        return None
    return seen[0] if seen else None


def compared(line: ParsedLine) -> ParsedLine:
    """*line*; no values are no values, however they are said."""
    return line._replace(values={name: None if value in ([], ()) else value for name, value in line.values.items()})


@pytest.mark.parametrize("config", ["", CONFIG], ids=["no-config", "config"])
@pytest.mark.parametrize("name", MODULES)
@given(words=_words, environ=_environs)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_read_without_typer_is_what_typer_reads(
    name: str, config: str, words: list[str], environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "gpubind").mkdir(exist_ok=True)
    (tmp_path / "gpubind" / "config.toml").write_text(config)
    without = {key: value for key, value in os.environ.items() if not key.startswith("GPUBIND_")}
    with mock.patch.dict(os.environ, {**without, **environ, "XDG_CONFIG_HOME": str(tmp_path)}, clear=True):
        command = command_of(name)
        line = read_line(command, words, os.environ)
        if line is not None:
            typers = by_typer(command, words)
            assert typers is not None, words
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
        "",
        "--help",
        "-h",
        "pln",
        "plan --help",
        "plan --nv=1",
        "plan IMAGE",
        "plan --caps",
        "plan --caps=",
        "plan --caps --nv",
        "plan --caps a --caps b",
        "exec",
        "plan -qv",
    ],
)
def test_what_is_not_plain_is_left_to_typer(line: str) -> None:
    assert not run_if_plain(line.split())


def test_a_variable_that_switches_something_on_is_left_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBIND_STRICT", "maybe")
    assert not run_if_plain(["plan"])


def test_a_shell_that_asks_for_completions_asks_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPLETION, "complete_bash")
    assert not run_if_plain(["plan"])
