"""`check --format markdown`: the report for a ticket.

Source: CommonMark 0.31 and GitHub Flavored Markdown, "Tables". Texts of a host or an image are shown literally: parts
in backquotes become code, and all other characters with a meaning in Markdown are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpubind.documents.check.report import excluded_text, fold_findings, subject_rows
from gpubind.documents.text import printable
from gpubind.model import Finding
from gpubind.rules.outcome import Report, verdict

_SPECIAL = re.compile(r"[\\`*\[\]<>|&~#@]|(?<!\w)_|_(?!\w)")
_CODE = re.compile(r"(`[^`]+`)")


def render_markdown(report: Report) -> str:
    """Return the report: the verdict, what was checked, errors and warnings with what to do about them, then notes."""
    lines = [f"## gpubind check: {verdict(report.findings)}", "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {as_code(value, in_table=True)} |" for name, value in subject_rows(report)]
    for finding in fold_findings(report.findings):
        lines += ["", *_lines(finding)] if finding.severity != "note" else []
    notes = [f"- {as_code(each.code)}: {as_text(each.what)}" for each in report.findings if each.severity == "note"]
    lines += ["", "### notes", "", *notes] if notes else []
    ignored = [f"- {as_code(each.code)}: {as_text(each.what)} ({as_text(reason)})" for each, reason in report.ignored]
    lines += ["", "### ignored", "", *ignored] if ignored else []
    if report.not_counted:
        lines += ["", as_text(excluded_text(report))]
    return "\n".join(lines) + "\n"


def _lines(finding: Finding) -> Iterator[str]:
    yield f"### {finding.severity}: {as_code(finding.code)}"
    yield ""
    yield f"{as_text(finding.what)}."
    members = [(name, getattr(finding, name)) for name in ("where", "why", "hint") if getattr(finding, name)]
    if members:
        yield ""
    for name, text in members:
        yield f"- {name}: {as_text(text)}"
    if finding.command:
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", finding.command))])
        yield from ("", f"{fence}sh", *map(printable, finding.command.split("\n")), fence)


def as_code(text: str, *, in_table: bool = False) -> str:
    """Return *text* as code, where no character but the backquote has a meaning; in a table also `|`."""
    shown = printable(text)
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence, pad = "`" * (longest + 1), " " if "`" in shown else ""
    shown = shown.replace("|", "\\|") if in_table else shown
    return f"{fence}{pad}{shown}{pad}{fence}"


def as_text(text: str) -> str:
    """Return *text* escaped. Code in it remains code."""
    lines = (printable(line) for line in text.split("\n"))
    parts = _CODE.split(" ".join(lines))
    return "".join(part if _CODE.fullmatch(part) else _SPECIAL.sub(r"\\\g<0>", part) for part in parts)
