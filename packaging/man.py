"""man.py OUT   write gpubind.1, the man page, from what `--help` says."""

from __future__ import annotations

import re
import sys

from gpubind import __version__
from gpubind.cli.commands import MODULES, command_of
from gpubind.cli.declarations import Rows
from gpubind.cli.help import Page, overview, page_of


def main(out: str) -> None:
    """Write the page of the commands as they are."""
    with open(out, "w") as file:
        file.write(man_page())


def man_page() -> str:
    """The page, in the macros of man(7)."""
    top = overview()
    version = __version__.partition("+")[0]  # the commit of a build changes no page
    lines = [f'.TH GPUBIND 1 "" "gpubind {version}" "User Commands"', ".SH NAME"]
    lines += [_text(f"gpubind - {top.text[0][0].lower()}{top.text[0][1:].rstrip('.')}"), ".SH SYNOPSIS"]
    lines += [".B gpubind", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]"]
    for title, rows in top.sections:
        lines += [f".SH {_text(title.upper())}", *_rows(rows)]
    for name in MODULES:
        lines += [f".SH GPUBIND {_text(name.upper())}", *_command(page_of(command_of(name)))]
    lines += [".SH EXAMPLES", *_examples(top.examples), ".SH EXIT STATUS", *_rows(top.exit_codes)]
    return "\n".join([*lines, ".SH SEE ALSO", _text(top.end)]) + "\n"


def _command(page: Page) -> list[str]:
    lines = [".PP", rf"\fB{_text(page.usage)}\fR"]
    for paragraph in page.text:
        lines += [".PP", _text(paragraph)]
    for title, rows in page.sections:
        lines += [f".SS {_text(title)}", *_rows(rows)]
    return [*lines, ".SS Examples", *_examples(page.examples), ".SS Exit status", *_rows(page.exit_codes)]


def _rows(rows: Rows) -> list[str]:
    return [line for name, text in rows for line in (".TP", rf"\fB{_text(name)}\fR", _text(text))]


def _examples(examples: Rows) -> list[str]:
    lines = []
    for what, command in examples:
        lines += [".PP", _text(what[0].upper() + what[1:] + ":"), ".PP", ".RS 4", ".nf", _text(command), ".fi", ".RE"]
    return lines


def _text(text: str) -> str:
    """*text* as troff reads it: a hyphen is one that can be copied, and no line is a macro."""
    text = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq").replace("~", "\\(ti")
    )
    return re.sub(r"^\.", r"\\&.", text)


if __name__ == "__main__":
    main(*sys.argv[1:])
