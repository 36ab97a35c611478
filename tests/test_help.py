"""`--help`: whole, in groups, and readable in a narrow terminal."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import GROUPS, HELP
from gpubind.cli.help import Page, overview, page_of, render_page
from gpubind.model.data import HOSTS
from tests.support.golden import GOLDEN, assert_golden

COMMANDS = list(MODULES)
WIDTH = 80


def pages() -> dict[str, Page]:
    """The help of gpubind and of each command, by name."""
    return {"": overview(), **{name: page_of(command_of(name)) for name in COMMANDS}}


def help_of(command: str, width: int) -> str:
    return render_page(pages()[command], width)


def test_help_is_as_wide_as_the_terminal() -> None:
    for width in (60, 120):
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": str(width)}
        line = [sys.executable, "-m", "gpubind", "plan", "--help"]
        done = subprocess.run(line, capture_output=True, text=True, check=True, env=environ)
        assert done.stdout == help_of("plan", width)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_what_its_golden_file_says(command: str) -> None:
    assert_golden(GOLDEN / "help" / f"{command or 'gpubind'}.txt", help_of(command, WIDTH))


@pytest.mark.parametrize("width", [40, 60, 71, 72, WIDTH, 100, 120])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_of_any_width_has_the_same_words_and_fits(command: str, width: int) -> None:
    page = pages()[command]
    text = render_page(page, width)
    assert text.split() == render_page(page, WIDTH).split()
    whole = {line for _, line in page.examples} | {name for _, rows in page.sections for name, _ in rows}
    whole |= {what for what, _ in page.examples}
    lines = [line for line in text.splitlines() if line.strip().removeprefix("# ") not in whole]
    assert [line for line in lines if len(line) > width and " " in line.strip()] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_of_a_command_is_in_its_help_once(command: str) -> None:
    heads = [
        line.strip() for line in help_of(command, 60).splitlines() if line.startswith("  -") and line[2:5] != "-- "
    ]
    named = [next(word.strip(",") for word in head.split() if word.startswith("--")) for head in heads]
    assert len(named) == len(set(named))
    assert set(named) == {option.name for option in (*command_of(command).options, HELP)}
    assert set(command_of(command).common) <= set(named)
    assert len(command_of(command).common) == (0 if command in ("completion", "install-shims") else 5)
    assert {option.group for option in command_of(command).options} <= set(GROUPS)


def test_each_command_has_an_example_and_its_exit_codes() -> None:
    for name in COMMANDS:
        command = command_of(name)
        assert command.name == name
        assert command.exit_codes
        assert command.examples
        assert all(name in line for _, line in command.examples)


def test_the_summary_of_a_command_is_one_whole_line_and_the_hosts_that_ship_are_named() -> None:
    text = help_of("", 80)
    rows = text.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [row.split()[0] for row in rows] == COMMANDS
    assert all(row.endswith(".") for row in rows)
    assert all(host in text for host in HOSTS)
