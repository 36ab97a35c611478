"""The outcome of a check, and its forms for programs: columns, workflow commands, JSON (data/check.schema.json)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Optional

from gpubind import __version__
from gpubind.documents.text import printable
from gpubind.frozen import NamedTuple
from gpubind.model import Finding, ImageFacts, Plan, PlannedDriver, Severity, counted, named
from gpubind.model.expectation import Expectation
from gpubind.model.findings import page_of
from gpubind.model.gpucode import CodeFile
from gpubind.model.trial import Trial
from gpubind.planner import finding_order

if TYPE_CHECKING:
    from gpubind.image.facts import Image
    from gpubind.loader.linkage import LinkedFile

SCHEMA = "gpubind.check/1"
_ASSIGNMENT = re.compile(r"^([A-Z_]+)=(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\s\"']*))\s*$", re.MULTILINE)
"""A line of /etc/os-release. Source: os-release(5)."""


Reasons = Mapping[tuple[str, Optional[str]], str]
"""The reasons to ignore findings, by code and subject; a subject of None stands for every one."""
Severities = Mapping[tuple[str, Optional[str]], tuple[Severity, str]]
"""The severities that a site sets, each with the file that sets it, by code and subject as in `Reasons`."""


class Checked(NamedTuple):
    """The subjects of a check as the user named them; None if not given or not known."""

    host: Optional[str] = None
    """The name of the machine, or of its record."""
    image: Optional[str] = None
    system: Optional[str] = None
    """The distribution in the image: `Debian 12`."""
    glibc: Optional[str] = None
    """The release of its glibc, `2.31`, whose newest symbols may be older; None if no file is called so."""
    program: Optional[str] = None
    runtime: Optional[str] = None
    user: Optional[str] = None
    """Of --as-user."""
    expected: Optional[str] = None
    """The files with what the host is to have."""
    policy: Optional[str] = None
    """The file of --require, with which the image was compared instead of a host."""


def checked_in(opened: Optional[Image], /, **named: Optional[str]) -> Checked:
    """Return the subjects *named* by the user, with facts from the files of an *opened* image."""
    if opened is None:
        return Checked(**named)
    libc = opened.tree.resolve(opened.loader.find("libc.so.6") or "/")
    match = re.search(r"/libc-([0-9.]+)\.so$", libc) if isinstance(libc, str) else None
    system = parse_os_release(opened.tree.text("/etc/os-release") or "")
    return Checked(**named)._replace(system=system, glibc=match.group(1) if match else None)


def parse_os_release(text: str) -> Optional[str]:
    """Return the name and version of the distribution, `Debian 12`; None if *text* does not have its name."""
    values = {name: double or single or plain for name, double, single, plain in _ASSIGNMENT.findall(text)}
    name = values.get("NAME", "").replace(" GNU/Linux", "")
    return f"{name} {values.get('VERSION_ID', '')}".strip()[:80] if name else None


class Changed(NamedTuple):
    """A finding whose severity a site has changed."""

    finding: Finding
    """As it is in the report."""
    was: Severity
    by: str
    """The file that says so."""


class Report(NamedTuple):
    """The outcome of a check."""

    plan: Optional[Plan]
    """The plan that was checked; None if an error prevented it."""
    findings: tuple[Finding, ...]
    """Those that are not ignored, worst first."""
    ignored: tuple[tuple[Finding, str], ...]
    """The ignored ones, each with the reason."""
    rules: tuple[tuple[str, str], ...] = ()
    """Every rule that applies, also those that found nothing: (code, what it needs)."""
    checked: Checked = Checked()
    not_counted: tuple[Finding, ...] = ()
    """Errors and warnings of codes that --only does not name."""
    linked: tuple[LinkedFile, ...] = ()
    """What the plan's files are linked with, for a document that shows it."""
    changed: tuple[Changed, ...] = ()
    """The findings among them whose severity the site has changed."""
    expected: tuple[Expectation, ...] = ()
    """What the host is to have."""
    trial: Optional[Trial] = None
    """What was seen in the container, if it was tried."""
    gpu_code: tuple[CodeFile, ...] = ()
    """The files of the image with GPU code."""
    image: Optional[ImageFacts] = None
    """The image of a check without a plan."""
    host_name: Optional[str] = None
    """What the host is called: by its record, else by the name of its file. `checked` has what the user gave."""

    @property
    def drivers(self) -> tuple[PlannedDriver, ...]:
        """The drivers of the host, as far as they are known."""
        return () if self.plan is None else self.plan.drivers


def report_of(
    plan: Optional[Plan],
    findings: Iterable[Finding],
    reasons: Reasons,
    rules: Iterable[tuple[str, str]] = (),
    *,
    checked: Optional[Checked] = None,
    only: Iterable[str] = (),
    severities: Severities = MappingProxyType({}),
) -> Report:
    """Return *findings* as a report, divided by the *reasons* to ignore some, with the site's *severities*.

    *rules*: those that apply, as (code, needs). *only*: the codes to report; all of them if it is empty.
    """
    codes = frozenset(only)
    findings, changed = _with_severities(findings, severities)
    counted: list[Finding] = []
    ignored: list[tuple[Finding, str]] = []
    others: list[Finding] = []
    for finding in findings:
        reason = reasons.get((finding.code, finding.subject)) or reasons.get((finding.code, None))
        if codes and finding.code not in codes:
            if finding.severity != "note" and reason is None:
                others.append(finding)
        elif reason is not None:
            ignored.append((finding, reason))
        else:
            counted.append(finding)
    applied = tuple(rule for rule in rules if not codes or rule[0] in codes)
    reported = tuple(one for one in changed if one.finding in counted)
    kept = tuple(counted), tuple(ignored)
    return Report(plan, *kept, applied, checked or Checked(), not_counted=tuple(others), changed=reported)


def _with_severities(
    findings: Iterable[Finding], severities: Severities
) -> tuple[tuple[Finding, ...], tuple[Changed, ...]]:
    """Return *findings* with the site's *severities*, worst first again, and those that have another one now."""
    found, changed = [], []
    for finding in findings:
        given = severities.get((finding.code, finding.subject)) or severities.get((finding.code, None))
        if given is not None and given[0] != finding.severity:
            changed.append(Changed(finding._replace(severity=given[0]), finding.severity, given[1]))
            finding = changed[-1].finding
        found.append(finding)
    return tuple(sorted(found, key=finding_order)) if changed else tuple(found), tuple(changed)


def folded(findings: Iterable[Finding], *, brief: bool = False) -> list[Finding]:
    """Return *findings* for people: those that are `alike` are one, with all subjects.

    Its `what` is that of the first, and names the other subjects; its `where` has the places of all, with *brief* of
    the first ones.
    """
    made = []
    for first, *others in alike(findings):
        subjects = dict.fromkeys(other.subject for other in others if other.subject != first.subject)
        places = list(dict.fromkeys(one.where for one in (first, *others) if one.where))
        what = f"{first.what}; also {', '.join(subjects)}" if subjects else first.what
        where = (named(places) if brief else ", ".join(places)) if others else first.where
        made.append(first._replace(what=what, where=where or None))
    return made


def alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Return *findings* in their order, each with those that differ from it only in the subject and its place."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for at, one in enumerate(findings):
        has_remedy = one.hint is not None or one.command is not None
        what = one.what.replace(one.where, "\0") if one.where else one.what
        key = one._replace(subject="", where=None, what=what.replace(one.subject, "\1") if one.subject else what)
        groups.setdefault((key,) if has_remedy else (at,), []).append(one)
    return list(groups.values())


def verdict(findings: Iterable[Finding]) -> Literal["ok", "warning", "error"]:
    """Return `ok`, `warning` or `error`: the worst of the findings; notes are ok."""
    severities = {finding.severity for finding in findings}
    return "error" if "error" in severities else "warning" if "warning" in severities else "ok"


def verdict_line(report: Report) -> str:
    """Return the verdict and the codes of its findings: `error uvm-missing`, a scheduler's reason to drain a node."""
    worst = verdict(report.findings)
    parts = [worst, ",".join(dict.fromkeys(f.code for f in report.findings if f.severity == worst))]
    if report.not_counted:
        parts.append(not_counted(report))
    return " ".join(filter(None, parts)) + "\n"


def not_counted(report: Report) -> str:
    """Return, in brackets, the errors and warnings that --only leaves out."""
    names = dict.fromkeys(f"{finding.severity} {finding.code}" for finding in report.not_counted)
    return f"(--only does not count: {', '.join(names)})"


def about(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what was checked, by name; what is not known is left out."""
    plan = report.plan
    about = {name: value for name, value in report.checked._asdict().items() if value}
    about["driver"] = " and ".join(planned.title_with_cuda for planned in report.drivers)
    if plan is not None and plan.gpus:
        about["GPUs"] = counted(sum(gpu.chosen for gpu in plan.gpus), "GPU")
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
    lines += [f"# {not_counted(report)}"] if report.not_counted else []
    return "\n".join([*lines, f"# {verdict(report.findings)}"]) + "\n"


def render_check_json(report: Report) -> str:
    """Return the check document as text."""
    return json.dumps(check_document(report), indent=1) + "\n"


def check_document(report: Report) -> dict[str, Any]:
    """Return the check document; `plan` and `node` are digests of its plan, null where there is none."""
    plan = report.plan
    facts = report.image if plan is None else plan.image
    return {
        "schema": SCHEMA,
        "gpubind": __version__,
        "verdict": verdict(report.findings),
        "checked": _checked(report),
        "plan": plan.digest if plan is not None and plan.drivers else None,
        "node": plan.node_digest if plan is not None else None,
        "image": None if facts is None else facts.to_dict(),
        "gpu_code": [file.to_dict() for file in report.gpu_code],
        "findings": [_finding(finding) for finding in report.findings],
        "ignored": [{**_finding(finding), "reason": reason} for finding, reason in report.ignored],
        "not_counted": [_finding(finding) for finding in report.not_counted],
        "changed": [
            {"code": finding.code, "subject": finding.subject, "severity": finding.severity, "was": was, "by": by}
            for finding, was, by in report.changed
        ],
        "tried": None if report.trial is None else _tried(report.trial),
    }


def _tried(trial: Trial) -> dict[str, Any]:
    answers = [
        {
            "kind": one.prediction.kind,
            "subject": one.prediction.subject,
            "predicted": one.prediction.succeeds,
            "why": one.prediction.why or None,
            "seen": one.succeeded,
            "said": one.said or None,
        }
        for one in trial.tried
    ]
    return {"runtime": trial.runtime, "failure": trial.failure, "untried": trial.untried, "answers": answers}


def _finding(finding: Finding) -> dict[str, Any]:
    return {**finding.to_dict(), "docs": page_of(finding.code)}


def _checked(report: Report) -> dict[str, Any]:
    members = ("vendor", "version", "cuda_max")
    drivers = [{name: getattr(planned.driver, name) for name in members} for planned in report.drivers]
    return {**report.checked._asdict(), "drivers": drivers}


def render_check_github(report: Report) -> str:
    """Return a workflow command a finding, which GitHub shows with a run. Source: its docs, "Workflow commands"."""
    lines = []
    for finding in report.findings:
        level = {"error": "error", "warning": "warning", "note": "notice"}[finding.severity]
        parts = [finding.what, finding.why, finding.hint, finding.command]
        message = _escaped("\n".join(printable(part) for part in parts if part))
        title = _escaped(printable(f"{finding.code}: {finding.subject}")).replace(":", "%3A").replace(",", "%2C")
        lines.append(f"::{level} title={title}::{message}")
    for finding, reason in report.ignored:
        lines.append(printable(f"ignored: {finding.code}: {finding.what} ({reason})"))
    lines += [f"gpubind: {not_counted(report)}"] if report.not_counted else []
    return "\n".join([*lines, f"gpubind: {verdict(report.findings)}"]) + "\n"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
