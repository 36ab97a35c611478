"""`--help`: whole, in groups, and readable in a narrow terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from gpubind.cli.app import application
from gpubind.cli.help import COMMON, EXAMPLES, EXIT_CODES, GROUPS, Page, overview_of, page_of, render_page
from gpubind.model.data import HOSTS

GOLDEN = Path(__file__).parent / "golden" / "help"
COMMANDS = [
    command.name or getattr(command.callback, "__name__", "") for command in application(()).registered_commands
]


def pages() -> dict[str, Page]:
    """The help of gpubind and of each command, by name."""
    group: Any = typer.main.get_command(application(()))
    context = group.make_context("gpubind", [], resilient_parsing=True)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    contexts = {
        name: command.make_context(name, [], parent=context, resilient_parsing=True)
        for name, command in commands.items()
    }
    return {
        "": overview_of(group, context),
        **{name: page_of(commands[name], contexts[name]) for name in commands},
    }


def help_of(command: str, width: int) -> str:
    return render_page(pages()[command], width)


def test_help_is_as_wide_as_the_terminal() -> None:
    for width in (60, 120):
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": str(width)}
        line = [sys.executable, "-m", "gpubind", "plan", "--help"]
        done = subprocess.run(line, capture_output=True, text=True, check=True, env=environ)
        assert done.stdout == help_of("plan", width)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_what_its_golden_file_says_and_fits(command: str, width: int, update_golden: bool) -> None:
    text = help_of(command, width)
    path = GOLDEN / f"{command or 'gpubind'}-{width}.txt"
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
    commands = {line for _, line in EXAMPLES.get(command, ())}
    too_long = [line for line in text.splitlines() if len(line) > width and line.strip() not in commands]
    assert too_long == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_of_a_command_is_in_its_help_once(command: str) -> None:
    heads = [
        line.strip() for line in help_of(command, 60).splitlines() if line.startswith("  -") and line[2:5] != "-- "
    ]
    named = [next(word.strip(",") for word in head.split() if word.startswith("--")) for head in heads]
    assert len(named) == len(set(named))
    assert set(named) <= {name for names in GROUPS.values() for name in names}
    assert set(COMMON[command]) <= set(named)
    assert len(COMMON[command]) == (0 if command == "completion" else 5)


def test_no_option_is_in_two_groups() -> None:
    names = [name for group in GROUPS.values() for name in group]
    assert len(names) == len(set(names))


def test_each_command_has_an_example_and_its_exit_codes() -> None:
    assert set(EXAMPLES) == set(EXIT_CODES) == set(COMMON) == set(COMMANDS)
    for command, examples in EXAMPLES.items():
        assert all(command in line for _, line in examples)


def test_the_summary_of_a_command_is_one_whole_line_and_the_hosts_that_ship_are_named() -> None:
    text = help_of("", 80)
    rows = text.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [row.split()[0] for row in rows] == COMMANDS
    assert all(row.endswith(".") for row in rows)
    assert all(host in text for host in HOSTS)
