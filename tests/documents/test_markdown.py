"""`check --format markdown`: a ticket, in which nothing of a host or an image is markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gpubind import plan
from gpubind.documents.check.markdown import as_code, render_markdown
from gpubind.model import Finding, Request
from gpubind.rules.outcome import Checked, make_report
from tests.support.driver import host, kernel, rhel

PLAN = plan(host(rhel(), kernel()), Request())
ERROR = Finding(
    "uvm-missing", "error", "nvidia", "/dev/nvidia-uvm", "it is missing", "/dev", "`cuInit`: 999", "load", "a\nb"
)
REPORT = make_report(PLAN, (ERROR,), {}, checked=Checked("n3|4", "<img onerror=x>.sif"))


def test_it_begins_with_the_verdict_and_has_each_finding_with_its_command() -> None:
    text = render_markdown(REPORT)
    assert text.startswith("## gpubind check: error\n")
    assert "### error: `uvm-missing`\n\nit is missing.\n\n- where: /dev\n- why: `cuInit`: 999\n- hint: load\n" in text
    assert text.endswith("\n```sh\na\nb\n```\n")


def test_what_was_checked_is_a_table_with_a_row_for_each_fact() -> None:
    rows = [line for line in render_markdown(REPORT).splitlines() if line.startswith("| ")]
    assert rows[1:4] == ["| --- | --- |", "| host | `n3\\|4` |", "| image | `<img onerror=x>.sif` |"]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)


HOSTILE = [
    "<img onerror=x>",
    "``<img>`x`",
    "a`<b",
    "[x](javascript:y)",
    "![x](y)",
    "* _x_ **y**",
    "a\n# b",
    "\x1b[31m",
    "@x #1",
]


@pytest.mark.parametrize(("text", "code"), [("a", "`a`"), ("a`b", "`` a`b ``"), ("a``b`", "``` a``b` ```")])
def test_the_fence_of_code_is_longer_than_any_in_it(text: str, code: str) -> None:
    assert as_code(text) == code


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_code_or_escaped(text: str) -> None:
    found = Finding("bad-icd", "warning", None, text, f"{text} is damaged", text, text, text, f"{text}\n```\n<x>")
    note, ignored = found._replace(severity="note"), found._replace(code="uvm-missing")
    report = make_report(PLAN, (found, note, ignored), {("uvm-missing", None): text}, checked=Checked(text))
    shown = render_markdown(report)
    tokens = list(_flat(MarkdownIt("commonmark").enable("table").parse(shown)))
    assert {token.type for token in tokens}.isdisjoint({"html_block", "html_inline", "link_open", "image", "em_open"})
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h2", "h3", "h3", "h3"]
    (command,) = [token.content for token in tokens if token.type == "fence"]
    assert command.endswith("\n```\n<x>\n")
    assert "\x1b" not in shown


def _flat(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or ())


def test_of_several_checks_each_says_what_it_is_about() -> None:
    from gpubind.documents.check.several import render_several

    text = render_several("markdown", [REPORT, REPORT])
    assert text == f"{render_markdown(REPORT)}\n{render_markdown(REPORT)}"
