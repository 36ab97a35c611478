"""Findings: the facts that were found, in the sentences of data/findings.json.

The file has an entry for each code:

- `needs`: what a start must have for the finding to be possible: `host`, `image`, `runtime` or `program`.
- `severity`: what the finding may be, worst first. `vendor`: whose it is, or, in a list, may be; null if it has
  none, or differs.
- `by`: the remedy: the finding's `command`; an `option` or a `variable` of the start; another `image`, or a change
  in it; files or packages of the `host`; only a `person`; `nothing`, where nothing is wrong.
- `theme`: what a note of that code is about, one of `gpubind.documents.check.text.THEMES`.
- `support`: for a note that changes what a job may expect of an image: what it gets instead of full support.
- `of`: the one runtime, or `like` for --like, `expectation` for what a node is to have, or `trial` for --try, for
  which the finding is possible; absent: every start.
- `when`: what a start must have besides for the rule to apply, one of `gpubind.rules.subjects.SUBJECTS`; absent:
  nothing.
- `follows`: the codes of findings that are its cause: with one of those, check does not report it.
- `what`, `why`, `hint`, `command`: templates in the way of `str.format`, of the facts that the caller gives.
- `cases`: for a finding that has several causes, by name: what differs from the above.

Each start reads that file. data/pages.json has, for each code, the paragraphs of its section in docs/findings.md, which
`gpubind explain CODE` prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, Optional, Union

from gpubind.model.data import read_data
from gpubind.model.host import Finding, Severity, Vendor

__all__ = ["active_cases", "finding", "shorten_list", "with_count", "worst"]

FINDINGS_FILE = "model/data/findings.json"
PAGES = "model/data/pages.json"
REMEDIES = ("command", "option", "variable", "image", "host", "person", "nothing")
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""Worst first."""


DOCS = "docs/"
"""Where the pages are: `[project.urls]` of pyproject.toml has no Documentation, so it is the path in the source."""


def page_of(code: str) -> str:
    """Return the address of the section about *code*, a finding's or an error's."""
    return f"{DOCS}{'findings' if code in finding_texts() else 'errors'}.md#{code}"


@lru_cache(maxsize=1)
def finding_texts() -> dict[str, Any]:
    """Return what data/findings.json holds, by code."""
    loaded: dict[str, Any] = json.loads(read_data(FINDINGS_FILE))
    return loaded


@lru_cache(maxsize=1)
def pages() -> dict[str, list[str]]:
    """Return the paragraphs of data/pages.json, by code."""
    loaded: dict[str, list[str]] = json.loads(read_data(PAGES))
    return loaded


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
    """Return the finding *code* about *subject*, in the texts of its *case*, filled in with *facts*.

    Of several cases a later one takes precedence. By default *severity* is the worst that the code may have, and
    *vendor* the code's own. Errors: `KeyError` for an unknown code, case or fact: a mistake in gpubind.
    """
    text = finding_texts()[code]
    for name in (case,) if isinstance(case, str) else case or ():
        text = {**text, **text["cases"][name]}
    facts = {"subject": subject, "where": where, **facts}
    sentences = {name: text[name].format_map(facts) for name in ("what", "why", "hint", "command") if text.get(name)}
    return Finding(
        code=code,
        severity=severity or text["severity"][0],
        vendor=text.get("vendor") if vendor == "of-code" else vendor,
        subject=subject,
        where=where,
        **sentences,
    )


def as_finding(code: str, severity: Severity, what: str, where: str = "", why: str = "", hint: str = "") -> Finding:
    """Return a message that has another origin than a rule, such as an error that ended nothing, as a finding."""
    return Finding(code, severity, None, code, what, where or None, why or None, hint or None)


def support_of(finding: Finding) -> Optional[str]:
    """Return what an image gets instead of full support where *finding* is a note about that; else None."""
    support: Optional[str] = finding_texts()[finding.code].get("support") if finding.code in finding_texts() else None
    return support if finding.severity == "note" else None


def active_cases(*cases: tuple[str, object]) -> tuple[str, ...]:
    """Return the cases of those pairs whose second member is true."""
    return tuple(case for case, is_so in cases if is_so)


def worst(severities: Iterable[Severity]) -> Severity:
    """Return the worst of *severities*, of which there is at least one."""
    return min(severities, key=SEVERITIES.index)


_NAMED = 4
"""Names in a sentence."""


def shorten_list(names: Sequence[str]) -> str:
    """Return the first of *names*, and how many others there are."""
    others = len(names) - _NAMED
    return ", ".join(names) if others <= 1 else f"{', '.join(names[:_NAMED])} and {others} others"


def with_count(number: int, noun: str) -> str:
    """Return `1 GPU`, `2 GPUs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
