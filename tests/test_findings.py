"""The texts of findings, and the findings that the code makes of them."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from typing import Any

import pytest

from gpubind.documents.check.text import THEMES
from gpubind.explanation.codes import explain_code
from gpubind.formats.driver.names import COMPANIONS
from gpubind.model import VENDORS, data
from gpubind.model.findings import REMEDIES, finding, finding_texts
from gpubind.rules.subjects import SUBJECTS
from tests.support.golden import DOCS, assert_golden, assert_listed, assert_none
from tests.support.sources import PACKAGE, modules, nodes

MEANS = {
    "command": "a command in the finding, usually for root",
    "option": "an option of gpubind, or of the runtime",
    "variable": "a variable of the environment",
    "image": "another image, or a change in this one",
    "host": "a file or a package of the host, or the site's configuration",
    "person": "**a person**: a decision, a reboot, a scheduler, hardware",
    "nothing": "no one: it is information",
}
TOLD = ("what", "why", "hint", "command")
DATA = "gpubind/model/data/findings.json"
PAGES = "gpubind/model/data/pages.json"
REQUIRED = {"needs", "severity", "by"}
IMPERATIVES = (
    "add|allow|ask|become|bind|build|check|choose|compare|copy|correct|create|find|ignore|"
    "inspect|install|keep|leave|let|load|look|make|move|name|omit|plan|put|reboot|rebuild|"
    "record|recreate|regenerate|reinstall|reload|remove|report|request|restart|run|search|set|"
    "start|stop|try|turn|unset|use|write"
)
FIELDS = {*TOLD, "needs", "severity", "by", "theme", "support", "follows", "of", "when", "vendor", "cases"}


def test_the_texts_are_in_order_and_have_no_other_fields() -> None:
    assert_listed(finding_texts(), sorted(finding_texts()), add="", order=DATA)
    for code, text in finding_texts().items():
        of, severities, row = text.get("vendor"), text.get("severity", ()), f"{DATA}, `{code}`: "
        assert_listed(text, sorted(REQUIRED), add=f"{row}add the field `{{}}`")
        assert_listed(FIELDS, text, add=f"{row}remove the field `{{}}`, which gpubind/model/findings.py does not know")
        assert text["needs"] in ("host", "image", "runtime", "program"), f"{row}`needs`"
        assert {*severities} <= {"error", "warning", "note"} and severities, f"{row}`severity`"
        assert text.get("when", "wsl") in SUBJECTS, f"{row}`when` is no key of SUBJECTS in gpubind/rules/subjects.py"
        assert text["by"] in REMEDIES, f"{row}`by` is not in MENDED_BY of gpubind/model/findings.py"
        assert {*(of if isinstance(of, list) else [of])} <= {None, *VENDORS}, f"{row}`vendor`"
        assert (text.get("theme") in THEMES) == ("note" in severities), (
            f"{row}a code that may be a note, and no other, has a `theme` of THEMES in gpubind/documents/check/text.py"
        )
        for name, case in text.get("cases", {}).items():
            assert_listed({*TOLD, "vendor"}, case, add=f"{row}case `{name}`: remove the field `{{}}`")


def test_every_code_has_its_page_and_nothing_else_has_one() -> None:
    assert_listed(
        data.table("pages"),
        finding_texts(),
        add=f"{PAGES}: write the page of `{{}}`",
        remove=f"{PAGES}: remove `{{}}`, no code",
    )


def variants(text: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**text, **case} for case in text.get("cases", {}).values()] or [text]


# A code whose finding is still written out where it is made has no sentence here yet.
TOLD_HERE = sorted(code for code, text in finding_texts().items() if {*text} & {*TOLD, "cases"})


@pytest.mark.parametrize("code", TOLD_HERE)
def test_every_text_says_what_and_what_to_do(code: str) -> None:
    for variant in variants(finding_texts()[code]):
        for field in ("what", "hint"):
            assert variant.get(field), f"{DATA}, `{code}`: write `{field}`"


def calls() -> list[tuple[str, ast.Call]]:
    """Every call of `finding` in the package, with the file and line where it stands."""
    found = []
    for module in modules():
        for node in nodes(module):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "finding":
                found.append((f"{module.relative_to(PACKAGE)}:{node.lineno}", node))
    return found


def constants(node: ast.expr) -> list[str]:
    """What a code or case may be: one of the texts in it."""
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def test_every_fact_of_a_text_is_given_where_the_finding_is_made() -> None:
    for place, call in calls():
        given = {keyword.arg for keyword in call.keywords if keyword.arg} | {"where"}
        if any(keyword.arg is None for keyword in call.keywords):
            continue  # **facts: the tests of that rule tell
        for code in [code for code in constants(call.args[0]) if code in finding_texts()]:
            cases = next((constants(k.value) for k in call.keywords if k.arg == "case"), [])
            named = [
                finding_texts()[code]["cases"][case] for case in cases if case in finding_texts()[code].get("cases", {})
            ]
            for variant in [{**finding_texts()[code], **case} for case in named] or [finding_texts()[code]]:
                fields = {f for told in TOLD for _, f, _, _ in string.Formatter().parse(variant.get(told) or "") if f}
                assert {field.split(".")[0].split("[")[0] for field in fields} <= given, (
                    f"gpubind/{place}: give `finding` all that the texts of `{code}` name: {sorted(fields)}"
                )


def test_a_finding_is_filled_in_with_its_facts() -> None:
    made = finding(
        "gpu-without-driver", subject="0000:17:00.0", where="/sys", gpus="1 NVIDIA GPU", load="modprobe nvidia"
    )
    assert made.what == "this host has 1 NVIDIA GPU on its PCI bus, but no NVIDIA driver is loaded"
    assert (made.severity, made.vendor, made.subject) == ("error", "nvidia", "0000:17:00.0")


def test_of_several_cases_the_later_ones_texts_count() -> None:
    both = finding(
        "stub-libcuda", subject="/x", case=("stub", "cached"), offered_by="the ld cache", library="libcuda.so.1"
    )
    one = finding("stub-libcuda", subject="/x", case="stub", offered_by="the ld cache", library="libcuda.so.1")
    assert both.why == one.why
    assert "ldconfig" in (both.hint or "")
    assert both.hint != one.hint


def test_every_case_is_named_in_the_code() -> None:
    written = {
        node.value
        for module in modules()
        for node in nodes(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    } | {companion.name for companion in COMPANIONS}
    for code, text in finding_texts().items():
        remove = f"{DATA}, `{code}`: remove the case `{{}}`, or make a finding with it: no code names it"
        assert_listed(written, text.get("cases", {}), add=remove)


@pytest.mark.parametrize("code", sorted(finding_texts()))
def test_a_codes_page_begins_with_what_its_findings_may_be(code: str) -> None:
    page = explain_code(code)
    assert page is not None
    severities, needs = ", ".join(finding_texts()[code]["severity"]), finding_texts()[code]["needs"]
    assert page.split("\n")[2] == f"*{severities}; {needs}*"


def test_the_page_says_for_each_code_what_mends_it() -> None:
    assert_golden(DOCS / "findings.md", table(), part="what mends it")


def table() -> str:
    """What mends it, and the codes that it mends."""
    by = {means: [code for code, text in finding_texts().items() if text["by"] == means] for means in REMEDIES}
    rows = [
        f"| {MEANS[means]} | " + ", ".join(f"[{code}](#{code})" for code in codes) + " |" for means, codes in by.items()
    ]
    return "\n".join(["| who corrects it, and how | findings |", "| --- | --- |", *rows, ""])


def test_no_finding_is_made_without_its_text() -> None:
    for module in modules():
        if module != PACKAGE / "model" / "findings.py":
            for node in nodes(module):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    place = f"gpubind/{module.relative_to(PACKAGE)}:{node.lineno}"
                    assert node.func.id != "Finding", f'{place}: write `finding("CODE", ...)`, with the texts in {DATA}'


def _sentences_of(text: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield field and text of each text of a finding and its cases."""
    for part in (text, *text.get("cases", {}).values()):
        yield from ((field, part[field]) for field in ("what", "why", "hint") if part.get(field))


def test_a_hint_begins_with_an_imperative() -> None:
    assert_none(
        f"{DATA}, `{code}`: begin the hint with an imperative; IMPERATIVES of this test has those in use: {said}"
        for code, text in finding_texts().items()
        for field, said in _sentences_of(text)
        if field == "hint" and not re.match(rf"(\{{near\}})?({IMPERATIVES})\b|\{{hint\}}$", said)
    )


def test_no_sentence_of_a_finding_has_more_than_30_words() -> None:
    assert_none(
        f"{DATA}, `{code}`, `{field}`: divide the sentence: {sentence}"
        for code, text in finding_texts().items()
        for field, said in _sentences_of(text)
        for sentence in re.split(r"[.;:] ", said)
        if len(sentence.split()) > 30
    )
