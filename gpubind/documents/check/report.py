"""The outcome of a check in forms for programs: columns, workflow commands, JSON (data/check.schema.json)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from gpubind import __version__
from gpubind.documents.text import printable
from gpubind.model import Finding, shorten_list, with_count
from gpubind.rules.outcome import Report, verdict


def fold_findings(findings: Iterable[Finding], *, brief: bool = False) -> list[Finding]:
    """Return *findings* for people: those that are `alike` become one.

    Its `what` is that of the first of them, with the other subjects. Its `where` lists all locations, or with *brief*
    only the first ones.
    """
    merged = []
    for first, *others in alike(findings):
        subjects = dict.fromkeys(other.subject for other in others if other.subject != first.subject)
        places = list(dict.fromkeys(finding.where for finding in (first, *others) if finding.where))
        message = f"{first.what}; also {', '.join(subjects)}" if subjects else first.what
        where = (shorten_list(places) if brief else ", ".join(places)) if others else first.where
        merged.append(first._replace(what=message, where=where or None))
    return merged


def alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Group the *findings* that differ only in subject and location, and that have equal remedies. Their order is
    kept.
    """
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for at, finding in enumerate(findings):
        has_remedy = finding.hint is not None or finding.command is not None
        message = finding.what.replace(finding.where, "\0") if finding.where else finding.what
        key = finding._replace(
            subject="", where=None, what=message.replace(finding.subject, "\1") if finding.subject else message
        )
        groups.setdefault((key,) if has_remedy else (at,), []).append(finding)
    return list(groups.values())


def verdict_line(report: Report) -> str:
    """Return the verdict and the codes of its findings: `error uvm-missing`, a scheduler's reason to drain a node."""
    worst = verdict(report.findings)
    parts = [worst, ",".join(dict.fromkeys(f.code for f in report.findings if f.severity == worst))]
    if report.not_counted:
        parts.append(excluded_text(report))
    return " ".join(filter(None, parts)) + "\n"


def excluded_text(report: Report) -> str:
    """Return, in brackets, the number of errors and warnings that --only leaves out."""
    names = dict.fromkeys(f"{finding.severity} {finding.code}" for finding in report.not_counted)
    return f"(--only does not count: {', '.join(names)})"


def checked_with_driver(report: Report) -> dict[str, str]:
    """Return what was checked, by name, and the drivers of the host."""
    checked = {name: value for name, value in report.checked._asdict().items() if value}
    return {**checked, "driver": " and ".join(planned.title_with_cuda for planned in report.drivers)}


def subject_rows(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each known subject of the check."""
    plan, about = report.plan, checked_with_driver(report)
    if plan is not None and plan.gpus:
        about["GPUs"] = with_count(sum(gpu.chosen for gpu in plan.gpus), "GPU")
    about["digest of the plan"] = plan.digest if plan is not None and plan.drivers else ""
    about["gpubind"] = __version__
    yield from ((name, value) for name, value in about.items() if value)


def render_check_tsv(report: Report) -> str:
    """Return a line a finding, severity, code, subject, what and remedy separated by tabs; then the verdict."""
    rows: list[tuple[str, ...]] = []
    for finding in report.findings:
        todo = (finding.command or finding.hint or "").replace("\n", " ")
        rows.append((finding.severity, finding.code, finding.subject, finding.what, todo))
    rows += [("ignored", finding.code, finding.subject, finding.what, reason) for finding, reason in report.ignored]
    lines = ["\t".join(printable(field) for field in row) for row in rows]
    lines += [f"# {excluded_text(report)}"] if report.not_counted else []
    return "\n".join([*lines, f"# {verdict(report.findings)}"]) + "\n"


def render_check_json(report: Report) -> str:
    """Return the check document as text."""
    return json.dumps(report.to_dict(), indent=1) + "\n"


def render_check_github(report: Report) -> str:
    """Return a workflow command for each finding. Source: GitHub's documentation, "Workflow commands"."""
    lines = []
    for finding in report.findings:
        level = {"error": "error", "warning": "warning", "note": "notice"}[finding.severity]
        parts = [finding.what, finding.why, finding.hint, finding.command]
        message = _escaped("\n".join(printable(part) for part in parts if part))
        title = _escaped(printable(f"{finding.code}: {finding.subject}")).replace(":", "%3A").replace(",", "%2C")
        lines.append(f"::{level} title={title}::{message}")
    for finding, reason in report.ignored:
        lines.append(printable(f"ignored: {finding.code}: {finding.what} ({reason})"))
    lines += [f"gpubind: {excluded_text(report)}"] if report.not_counted else []
    return "\n".join([*lines, f"gpubind: {verdict(report.findings)}"]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
