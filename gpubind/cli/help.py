"""The help of gpubind and of each command, for a terminal and for the man page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import EXIT_CODES, GROUPS, HELP, STARTS_CODES, VERSION, Argument, Option, Rows, Subcommand
from gpubind.documents.text import wrapped
from gpubind.frozen import NamedTuple
from gpubind.model.data import BUNDLED_HOSTS

LEFT = 26
"""Columns of the names before their descriptions."""
_NARROW = 72
"""The width below which a description is put below its name, unless all names have at most `SHORT` columns."""
SHORT = 12
_DOCS = "`gpubind explain CODE` prints the page of a finding or an error; all pages are in docs/ of the sources."
_ALL = "`gpubind COMMAND --help` lists the common options of a command, `gpubind COMMAND --help all` every option. "


class Page(NamedTuple):
    """The help of one command, or of gpubind."""

    usage: str
    text: tuple[str, ...]
    """Paragraphs; the first is one sentence."""
    sections: tuple[tuple[str, Rows], ...]
    """Each is a heading, and names with their descriptions."""
    examples: Rows
    """Each is a purpose and a command line."""
    exit_codes: Rows
    end: str


def page_of(command: Subcommand, *, is_whole: bool = True) -> Page:
    """Return the help of *command*. Expert options are left out unless *is_whole*."""
    options = [option for option in (*command.options, HELP) if is_whole or not option.is_expert]
    by_name = {option.name: option for option in options}
    sections: list[tuple[str, Sequence[Union[Option, Argument]]]] = [
        ("Arguments", command.arguments),
        ("Common options", [by_name[name] for name in command.common]),
    ]
    for group in GROUPS:
        sections.append((group, [each for each in options if each.group == group and each.name not in command.common]))
    hidden = len(command.options) + 1 - len(options)
    more = f"`gpubind {command.name} --help all` lists {hidden} more option{'s' * (hidden > 1)}. " if hidden else ""
    return Page(
        usage=" ".join([f"gpubind {command.name} [OPTIONS]", *(each.metavar for each in command.arguments)]),
        text=command.help,
        sections=tuple((title, tuple(map(_row, entries))) for title, entries in sections if entries),
        examples=command.examples,
        exit_codes=command.exit_codes,
        end=more + _DOCS,
    )


def overview() -> Page:
    """Return the help of gpubind itself."""
    rows = tuple((name, command_of(name).help[0]) for name in MODULES)
    about = ("NVIDIA 550.163.01, two GPUs", "eight AMD MI300X, ROCm 6.2; synthetic")
    return Page(
        usage="gpubind [OPTIONS] COMMAND [ARGS]...",
        text=("Plan what a container must get from this GPU host, explain it, and hand it to any container runtime.",),
        sections=(
            ("Commands", rows),
            ("Options", (_row(VERSION), _row(HELP))),
            ("Bundled hosts, for --host", tuple(zip(BUNDLED_HOSTS, about))),
        ),
        examples=(
            ("see a plan, on any machine", f"gpubind plan --nv --host {BUNDLED_HOSTS[0]}"),
            ("ask whether an image will run here", "gpubind check --nv --image app.sif"),
            ("start a program", "gpubind exec --nv app.sif python train.py"),
            ("what a message means", "gpubind explain CUDA_ERROR_NO_DEVICE"),
        ),
        exit_codes=(("0", "done"), ("1", "an error finding, of check and --strict"), *EXIT_CODES, *STARTS_CODES[:2]),
        end=_ALL + _DOCS,
    )


def render_page(page: Page, width: int) -> str:
    """Return *page* in lines of *width* columns."""
    lines = wrapped(f"Usage: {page.usage}", width, "  ")
    for paragraph in page.text:
        lines += ["", *wrapped(paragraph, width)]
    for title, rows in page.sections:
        lines += ["", f"{title}:", *_rows(rows, width)]
    lines += ["", "Examples:"]
    for description, command in page.examples:
        lines += [f"  # {description}", f"  {command}"]
    lines += ["", "Exit codes:"]
    for code, description in page.exit_codes:
        lines += wrapped(description, width, " " * 12, f"  {code:<10}")
    return "\n".join([*lines, "", *wrapped(page.end, width)]) + "\n"


def _row(parameter: Union[Option, Argument]) -> tuple[str, str]:
    if isinstance(parameter, Argument):
        return parameter.metavar, parameter.help
    has_default = isinstance(parameter.default, str) and parameter.default and "[" not in parameter.help
    default = f" [{parameter.default}]" if has_default else ""
    variable = f" ({parameter.variable})" if parameter.variable else ""
    return parameter.syntax, parameter.help + default + variable


def _rows(rows: Rows, width: int) -> list[str]:
    longest = max(len(name) for name, _ in rows) + 2
    left_width = min(LEFT, longest) if width >= _NARROW or longest <= SHORT else 0
    lines = []
    for name, text in rows:
        if left_width and len(name) + 2 <= left_width:
            lines += wrapped(text, width, " " * (left_width + 2), f"  {name:<{left_width}}")
        else:
            indent = " " * (left_width + 2 if left_width else 6)
            lines += [f"  {name}", *wrapped(text, width, indent, indent)]
    return lines
