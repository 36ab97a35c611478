"""`check --format sarif`: the findings for programs that collect those of many tools, such as GitHub's code scanning.

Source: SARIF 2.1.0, https://docs.oasis-open.org/sarif/sarif/v2.1.0/; GitHub's documentation, "SARIF support for code
scanning", for `partialFingerprints` and `automationDetails`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Optional

from gpubind import __version__
from gpubind.documents.check.report import subject_rows
from gpubind.documents.explanation import markdown_to_text
from gpubind.documents.text import printable, with_valid_unicode
from gpubind.explanation.codes import explain_code
from gpubind.model import Finding
from gpubind.model.data import table
from gpubind.model.digest import sha256_hex
from gpubind.model.findings import finding_texts, page_of
from gpubind.rules.outcome import Report, verdict

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/.-_~+@:")
_OTHER_PAGES = re.compile(r"\[([^\]]+)\]\((?!https:)[^)]+\)")
"""Links to other pages of the docs: they are broken elsewhere."""


def render_sarif(report: Report) -> str:
    """Return the report as a SARIF log of one run."""
    return render_sarif_of([report])


def render_sarif_of(reports: Sequence[Report]) -> str:
    """Return *reports* as one SARIF log, each a run."""
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": list(map(_run, reports))}, indent=1) + "\n"


def _run(report: Report) -> dict[str, Any]:
    findings = [*((finding, None) for finding in report.findings), *report.ignored]
    codes = sorted({finding.code for finding, _ in findings})
    checked = report.checked
    subjects = [name for name in (checked.image, checked.program, checked.host, checked.runtime) if name]
    return {
        "tool": {"driver": {"name": "gpubind", "version": __version__, "rules": list(map(_rule, codes))}},
        "automationDetails": {"id": _line("/".join(["gpubind check", *subjects]))},
        "invocations": [{"executionSuccessful": True}],
        "results": [_result(finding, codes, reason, checked.image) for finding, reason in findings],
        "properties": {
            "verdict": verdict(report.findings),
            "checked": {name: _line(value) for name, value in subject_rows(report)},
            "notCounted": sorted({finding.code for finding in report.not_counted}),
        },
    }


def _rule(code: str) -> dict[str, Any]:
    """Return the description of *code*. `helpUri` must be absolute, so a page without a host is only a property."""
    page, about_it, paragraphs = page_of(code), finding_texts()[code], table("pages")[code]
    text = markdown_to_text((explain_code(code) or "").partition("\n\n")[2], 120)
    rule = {
        "id": code,
        "shortDescription": {"text": markdown_to_text(paragraphs[0], 10_000).partition(". ")[0].strip(". \n") + "."},
        "help": {"text": text, "markdown": _OTHER_PAGES.sub(r"\1", "\n\n".join(paragraphs))},
        "defaultConfiguration": {"level": about_it["severity"][0]},
        "properties": {"needs": about_it["needs"], "docs": page},
    }
    return {**rule, "helpUri": page} if "://" in page else rule


def _result(finding: Finding, codes: Sequence[str], reason: Optional[str], image: Optional[str]) -> dict[str, Any]:
    parts = (finding.what, finding.why, finding.hint, finding.command)
    subject = _line(finding.subject)
    location: dict[str, Any] = {"logicalLocations": [{"name": subject, "kind": "resource"}]}
    if image is not None:
        location["physicalLocation"] = {"artifactLocation": {"uri": _uri(image)}}
    result = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": finding.severity,
        "message": {"text": "\n".join(with_valid_unicode(part) for part in parts if part)},
        "locations": [location],
        # Equal for the same finding about another driver or image.
        "partialFingerprints": {"gpubind/1": sha256_hex(f"{finding.code}\0{finding.subject}")[:32]},
        "properties": {"subject": subject, "where": _line(finding.where or ""), "vendor": finding.vendor or ""},
    }
    if reason is not None:
        result["suppressions"] = [{"kind": "external", "justification": _line(reason)}]
    return result


def _line(text: str) -> str:
    return with_valid_unicode(printable(text))


def _uri(image: str) -> str:
    """Return the reference of an image as a URI: a file becomes its path; a name in a store (`podman:NAME`) stays
    unchanged.
    """
    store, colon, name = image.partition(":")
    is_stored = bool(colon) and store.isalpha() and "/" not in store
    return f"{store}:{_quoted(name)}" if is_stored else _quoted(image)


def _quoted(path: str) -> str:
    """Escape every byte of *path* that a URI does not support. Source: RFC 3986, 2.1."""
    data = path.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data)
