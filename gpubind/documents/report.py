"""What `gpubind check` prints: lines, workflow commands, or JSON (`gpubind.check/1`, data/check.schema.json)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpubind import __version__
from gpubind.documents.text import printable
from gpubind.model import Finding, Plan

SCHEMA = "gpubind.check/1"


class Report(NamedTuple):
    """The outcome of a check."""

    plan: Plan
    """What was checked."""
    findings: tuple[Finding, ...]
    """Those that count, worst first."""
    ignored: tuple[tuple[Finding, str], ...]
    """Those that do not, each with the reason."""
    rules: tuple[tuple[str, str], ...] = ()
    """Every rule that was asked, also those that found nothing: (code, what it needs)."""


def report_of(
    plan: Plan, findings: Iterable[Finding], reasons: Mapping[str, str], rules: Iterable[tuple[str, str]] = ()
) -> Report:
    """*findings*, without those whose code is in *reasons*, from the *rules* that were asked: (code, what it needs)."""
    findings = tuple(findings)
    ignored = tuple((finding, reasons[finding.code]) for finding in findings if finding.code in reasons)
    counted = tuple(finding for finding in findings if finding.code not in reasons)
    return Report(plan, counted, ignored, tuple(rules))


def verdict(findings: Iterable[Finding]) -> str:
    """`ok`, `warning` or `error`: the worst of the findings; notes are ok."""
    severities = {finding.severity for finding in findings}
    return "error" if "error" in severities else "warning" if "warning" in severities else "ok"


def render_check_text(report: Report) -> str:
    """One line a finding: severity, code, subject, what, and what to do, separated by tabs; then the verdict."""
    rows: list[tuple[str, ...]] = []
    for finding in report.findings:
        todo = (finding.command or finding.hint or "").replace("\n", " ")
        rows.append((finding.severity, finding.code, finding.subject, finding.what, todo))
    rows += [("ignored", finding.code, finding.subject, finding.what, reason) for finding, reason in report.ignored]
    lines = ["\t".join(printable(field) for field in row) for row in rows]
    return "\n".join([*lines, f"# {verdict(report.findings)}"]) + "\n"


def render_check_json(report: Report) -> str:
    """The check document; `plan` is the digest of the plan that was checked, null where there is nothing to bind."""
    document = {
        "schema": SCHEMA,
        "gpubind": __version__,
        "verdict": verdict(report.findings),
        "plan": report.plan.digest if report.plan.drivers else None,
        "image": None if report.plan.image is None else report.plan.image.to_dict(),
        "findings": [finding.to_dict() for finding in report.findings],
        "ignored": [{**finding.to_dict(), "reason": reason} for finding, reason in report.ignored],
    }
    return json.dumps(document, indent=1) + "\n"


def render_check_github(report: Report) -> str:
    """A workflow command a finding, which GitHub shows beside a run. Source: its docs, "Workflow commands"."""
    lines = []
    for finding in report.findings:
        level = {"error": "error", "warning": "warning", "note": "notice"}[finding.severity]
        parts = [finding.what, finding.why, finding.hint, finding.command]
        message = _escaped("\n".join(printable(part) for part in parts if part))
        title = _escaped(printable(f"{finding.code}: {finding.subject}")).replace(":", "%3A").replace(",", "%2C")
        lines.append(f"::{level} title={title}::{message}")
    for finding, reason in report.ignored:
        lines.append(printable(f"ignored: {finding.code}: {finding.what} ({reason})"))
    return "\n".join([*lines, f"gpubind: {verdict(report.findings)}"]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
