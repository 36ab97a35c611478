"""The declarations of commands as a user sees them: the help of every command, and what help does not show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import Argument, Option, Subcommand
from gpubind.cli.help import overview, page_of, render_page
from tests.support.golden import GOLDEN, assert_golden


def test_the_help_of_every_command_is_what_its_golden_file_says() -> None:
    pages = [overview(), *(page_of(command_of(name)) for name in MODULES)]
    assert_golden(GOLDEN / "help.txt", "\n\n".join(render_page(page, 80) for page in pages))


def test_the_declarations_of_every_command_are_what_their_golden_file_says() -> None:
    lines = dict.fromkeys(line for name in MODULES for line in lines_of(command_of(name)))  # shared options once
    assert_golden(GOLDEN / "options.txt", "".join(f"{line}\n" for line in lines))


def lines_of(command: Subcommand) -> Iterator[str]:
    """Yield each option and argument with the members that change how a line is read."""
    yield f"{command.name}: starts={command.starts} remote={command.remote}"
    parameters: list[Union[Option, Argument]] = [*command.arguments, *command.options]
    for each in parameters:
        name = each.parameter if isinstance(each, Argument) else each.name
        members = {key: value for key, value in each._asdict().items() if key not in ("help", "syntax", "group")}
        members["choices"] = choices_of(each)
        yield f"  {name}: {', '.join(f'{key}={value!r}' for key, value in members.items() if value)}"


def choices_of(each: Union[Option, Argument]) -> object:
    return each.choices.__name__ if callable(each.choices) else each.choices
