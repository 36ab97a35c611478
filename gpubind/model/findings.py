"""Findings, with their texts in data/findings.json.

The file has an entry for each code:

- `needs`: the parts of a start that the finding requires: `host`, `image`, `runtime` or `program`.
- `severity`: the possible severities, worst first. `vendor`: its vendor, or a list of possible ones; null if it has
  none, or the caller gives it.
- `by`: the remedy: the finding's `command`; an `option` or a `variable` of the start; another `image`, or a change
  in it; files or packages of the `host`; only a `person`; `nothing`, where nothing is wrong.
- `theme`: the subject of a note, one of `gpubind.documents.check.text.THEMES`.
- `support`: for a note that reduces the support of an image: what a job gets instead of full support.
- `of`: the only runtime with the finding, or `like` for --like, `expectation` for the requirements for a node, or
  `trial` for --try; absent: every start.
- `when`: a further part of the start that the rule requires, one of `gpubind.rules.subjects.SUBJECTS`; absent: none.
- `follows`: the codes of findings that are its cause: with one of those, check does not report it.
- `what`, `why`, `hint`, `command`: templates of `str.format` for the facts that the caller gives.
- `cases`: for a finding with several causes, by name: the members that differ.

Each start reads that file. data/pages.json contains, for each code, the paragraphs of its section in docs/findings.md,
which `gpubind explain CODE` prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Optional, Union

from gpubind.model.data import table
from gpubind.model.host import Finding, Severity, Vendor

__all__ = ["active_cases", "finding", "shorten_list", "with_count", "worst"]

REMEDIES = ("command", "option", "variable", "image", "host", "person", "nothing")
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""The severities, worst first."""


class Sentence(str):
    """A template of data/findings.json with its facts filled in."""

    template: str
    facts: dict[str, object]

    @classmethod
    def fill(cls, template: str, facts: dict[str, object]) -> Sentence:
        """Return *template* with *facts* filled in."""
        sentence = cls(template.format_map(facts))
        sentence.template, sentence.facts = template, facts
        return sentence


def page_of(code: str) -> str:
    """Return the path, in the source, of the section about *code*, which is a finding's or an error's. No site has the
    pages.
    """
    return f"docs/{'findings' if code in finding_texts() else 'errors'}.md#{code}"


def finding_texts() -> dict[str, Any]:
    """Return the content of data/findings.json, by code."""
    return table("findings")


def finding(
    code: str,
    *,
    subject: str,
    case: Union[str, tuple[str, ...], None] = None,
    severity: Optional[Severity] = None,
    vendor: Union[Vendor, Literal["of-code"], None] = "of-code",
    where: Optional[str] = None,
    **facts: object,
) -> Finding:
    """Return the finding *code* about *subject*, with the texts of its *case* filled in with *facts*.

    Of several cases a later one takes precedence. By default *severity* is the worst that the code may have, and
    *vendor* the code's own. Errors: `KeyError` for an unknown code, case or fact: a mistake in gpubind.
    """
    text = finding_texts()[code]
    for name in (case,) if isinstance(case, str) else case or ():
        text = {**text, **text["cases"][name]}
    facts = {"subject": subject, "where": where, **facts}
    sentences = {
        name: Sentence.fill(text[name], facts) for name in ("what", "why", "hint", "command") if text.get(name)
    }
    return Finding(
        code=code,
        severity=severity or text["severity"][0],
        vendor=text.get("vendor") if vendor == "of-code" else vendor,
        subject=subject,
        where=where,
        **sentences,
    )


def as_finding(code: str, severity: Severity, what: str, where: str = "", why: str = "", hint: str = "") -> Finding:
    """Return a message from another origin than a rule, such as a non-fatal error, as a finding."""
    return Finding(code, severity, None, code, what, where or None, why or None, hint or None)


def support_of(finding: Finding) -> Optional[str]:
    """Return what an image gets instead of full support, if *finding* is a note about that; else None."""
    support: Optional[str] = finding_texts()[finding.code].get("support") if finding.code in finding_texts() else None
    return support if finding.severity == "note" else None


def active_cases(*cases: tuple[str, object]) -> tuple[str, ...]:
    """Return the cases whose condition, the second member of the pair, is true."""
    return tuple(case for case, is_so in cases if is_so)


def worst(severities: Iterable[Severity]) -> Severity:
    """Return the worst of *severities*, which must not be empty."""
    return min(severities, key=SEVERITIES.index)


def shorten_list(names: Sequence[str]) -> str:
    """Return the first four of *names*, and the number of the others."""
    others = len(names) - 4
    return ", ".join(names) if others <= 1 else f"{', '.join(names[:4])} and {others} others"


def with_count(number: int, noun: str) -> str:
    """Return `1 GPU`, `2 GPUs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
