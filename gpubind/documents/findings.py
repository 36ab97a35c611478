"""What `gpubind check` prints: lines, or JSON (`gpubind.check/1`)."""

from __future__ import annotations

import json
from collections.abc import Iterable

from gpubind import __version__
from gpubind.documents.json import image_document
from gpubind.documents.text import printable
from gpubind.model import Finding, Plan

SCHEMA = "gpubind.check/1"


def verdict(findings: Iterable[Finding]) -> str:
    """`ok`, `warning` or `error`: the worst of the findings; notes are ok."""
    severities = {finding.severity for finding in findings}
    return "error" if "error" in severities else "warning" if "warning" in severities else "ok"


def render_check_text(findings: tuple[Finding, ...]) -> str:
    """One line a finding: severity, code, subject, what, hint, separated by tabs; then the verdict."""
    lines = []
    for finding in findings:
        todo = (finding.command or finding.hint or "").replace("\n", " ")
        fields = (finding.severity, finding.code, finding.subject, finding.what, todo)
        lines.append("\t".join(printable(field) for field in fields))
    return "\n".join([*lines, f"# {verdict(findings)}"]) + "\n"


def render_check_json(plan: Plan, findings: tuple[Finding, ...]) -> str:
    """The check document; `plan` is the digest of the plan that was checked, null where there is nothing to bind."""
    document = {
        "schema": SCHEMA,
        "gpubind": __version__,
        "verdict": verdict(findings),
        "plan": plan.digest if plan.drivers else None,
        "image": image_document(plan.image),
        "findings": [finding._asdict() for finding in findings],
    }
    return json.dumps(document, indent=1) + "\n"
