"""`--help`: whole, in groups, and readable in a narrow terminal."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import GROUPS, HELP
from gpubind.cli.help import Page, overview, page_of, render_page
from gpubind.model.data import BUNDLED_HOSTS
from tests.support.commands import gpubind

COMMANDS = list(MODULES)
WIDTH = 80


def pages() -> dict[str, Page]:
    """The help of gpubind and of each command, by name."""
    return {"": overview(), **{name: page_of(command_of(name)) for name in COMMANDS}}


def help_of(command: str, width: int, *, is_whole: bool = False) -> str:
    return render_page(page_of(command_of(command), is_whole=is_whole) if command else overview(), width)


def test_help_is_as_wide_as_the_terminal() -> None:
    for width in (60, 120):
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": str(width)}
        line = [sys.executable, "-m", "gpubind", "plan", "--help"]
        done = subprocess.run(line, capture_output=True, text=True, check=True, env=environ)
        assert done.stdout == help_of("plan", width)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_what_is_declared_in_the_order_of_its_declaration(command: str) -> None:
    text = " ".join(help_of(command, WIDTH, is_whole=True).split())
    declared = command_of(command)
    by_name = {option.name: option for option in (*declared.options, HELP)}
    common = [by_name.pop(name) for name in declared.common]
    at = 0
    for part in (
        f"Usage: gpubind {command} [OPTIONS]",
        *declared.help,
        *(f"{each.metavar} {each.help}" for each in declared.arguments),
        *(f"{each.syntax} {each.help}" for each in common),
        *(f"{each.syntax} {each.help}" for group in GROUPS for each in by_name.values() if each.group == group),
        *(f"# {purpose} {line}" for purpose, line in declared.examples),
        *(f"{status} {means}" for status, means in declared.exit_codes),
    ):
        at = text.index(" ".join(part.split()), at)


def test_a_row_ends_with_the_default_and_the_variable() -> None:
    for command in COMMANDS:
        text = " ".join(help_of(command, WIDTH, is_whole=True).split())
        for option in command_of(command).options:
            has_default = isinstance(option.default, str) and option.default and "[" not in option.help
            ends = (f" [{option.default}]" if has_default else "", f" ({option.variable})" if option.variable else "")
            assert f"{option.syntax} {option.help}{''.join(ends)} " in text


EXPERT = {
    *("--completion", "--source", "--libdir", "--list", "--library-path", "--dev-root"),
    *("--vendor-neutral", "--userspace", "--cuda-compat", "--cdi-dir"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_without_all_lists_what_is_not_for_experts_and_says_how_many_there_are(command: str) -> None:
    declared = command_of(command)
    rows = [name.split(",")[0].split()[0] for _, rows in page_of(declared, is_whole=False).sections for name, _ in rows]
    rare = {option.name for option in declared.options} & EXPERT
    assert not EXPERT & {*rows}
    assert len(rows) == len(declared.arguments) + len(declared.options) + 1 - len(rare)
    assert (
        f"`gpubind {command} --help all` lists {len(rare)} more option{'s' * (len(rare) > 1)}." in help_of(command, 999)
    ) == bool(rare)


def test_help_all_has_every_option_and_without_a_command_every_command() -> None:
    whole = [help_of(command, WIDTH, is_whole=True) for command in COMMANDS]
    plan = whole[COMMANDS.index("plan")]
    assert gpubind("plan", "--help", "all").stdout == gpubind("help", "plan", "all").stdout == plan
    assert gpubind("exec", "-h", "all").stdout == whole[COMMANDS.index("exec")]
    assert gpubind("--help", "all").stdout == gpubind("help", "all").stdout == "\n\n".join([help_of("", WIDTH), *whole])


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


def test_the_lines_of_an_exit_code_begin_below_its_first_word() -> None:
    page = overview()._replace(exit_codes=(("0", "first second third"),))
    assert "\n".join(("  0         first", "            second", "            third", "")) in render_page(page, 20)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_of_a_command_is_in_its_help_once(command: str) -> None:
    heads = [
        line.strip()
        for line in help_of(command, 60, is_whole=True).splitlines()
        if line.startswith("  -") and line[2:5] != "-- "
    ]
    named = [next(word.strip(",") for word in head.split() if word.startswith("--")) for head in heads]
    assert len(named) == len(set(named))
    assert set(named) == {option.name for option in (*command_of(command).options, HELP)}
    assert set(command_of(command).common) <= set(named)
    assert len(command_of(command).common) <= 5
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
    assert all(host in text for host in BUNDLED_HOSTS)
