"""The outcome of a check: what was checked, which findings count, which are ignored and why, and the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Optional

from gpubind import __version__
from gpubind.frozen import NamedTuple
from gpubind.loader.linkage import LinkedFile
from gpubind.model import Finding, ImageFacts, Plan, PlannedDriver, Severity
from gpubind.model.findings import page_of
from gpubind.model.gpucode import CodeFile
from gpubind.model.requirements import Expectation
from gpubind.model.trial import Trial
from gpubind.planner import finding_order

if TYPE_CHECKING:
    from gpubind.image.facts import Image

Verdict = Literal["ok", "warning", "error"]
SCHEMA = "gpubind.check/1"
_ASSIGNMENT = re.compile(r"^([A-Z_]+)=(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\s\"']*))\s*$", re.MULTILINE)
"""A line of /etc/os-release. Source: os-release(5)."""

Reasons = Mapping[tuple[str, Optional[str]], str]
"""The reasons to ignore findings, by code and subject. The subject None stands for all subjects."""

Severities = Mapping[tuple[str, Optional[str]], tuple[Severity, str]]
"""The severities that a site sets, each with the file that sets it, by code and subject as in `Reasons`."""


class Checked(NamedTuple):
    """The subjects of a check as the user named them; None if not given or not known."""

    host: Optional[str] = None
    """The name of the machine or of its record."""
    image: Optional[str] = None
    """The reference of the image."""
    system: Optional[str] = None
    """The distribution in the image: `Debian 12`."""
    glibc: Optional[str] = None
    """The release of the image's glibc, `2.31`, from the name of its file; None if the name has no release."""
    program: Optional[str] = None
    """The path of the program, or its name."""
    runtime: Optional[str] = None
    """The name of the runtime that will start the container."""
    user: Optional[str] = None
    """The value of --as-user."""
    expected: Optional[str] = None
    """The files that state what the host must have."""
    policy: Optional[str] = None
    """The file of --require: the image was compared with this policy, not with a host."""


def checked_in(opened: Optional[Image], /, **subjects: Optional[str]) -> Checked:
    """Return *subjects*, which the user named, with the distribution and glibc of the *opened* image."""
    if opened is None:
        return Checked(**subjects)
    libc = opened.tree.resolve(opened.loader.find("libc.so.6") or "/")
    match = re.search(r"/libc-([0-9.]+)\.so$", libc) if isinstance(libc, str) else None
    system = parse_os_release(opened.tree.text("/etc/os-release") or "")
    release = match.group(1) if match else opened.facts.libc_version if opened.facts.kind == "host" else None
    return Checked(**subjects)._replace(system=system, glibc=release)


def parse_os_release(text: str) -> Optional[str]:
    """Return the name and version of the distribution, `Debian 12`; None if *text* has no name."""
    values = {name: double or single or plain for name, double, single, plain in _ASSIGNMENT.findall(text)}
    name = values.get("NAME", "").replace(" GNU/Linux", "")
    return f"{name} {values.get('VERSION_ID', '')}".strip()[:80] if name else None


class Changed(NamedTuple):
    """A finding whose severity a site has changed."""

    finding: Finding
    """The finding as the report has it."""
    was: Severity
    """The severity that gpubind gave it."""
    by: str
    """The file that sets the new severity."""


class Report(NamedTuple):
    """The outcome of a check."""

    plan: Optional[Plan]
    """The plan that was checked; None if an error prevented it."""
    findings: tuple[Finding, ...]
    """The findings that are not ignored, worst first."""
    ignored: tuple[tuple[Finding, str], ...]
    """The ignored findings, each with the reason."""
    rules: tuple[tuple[str, str], ...] = ()
    """Every rule that applied, with or without findings: (code, the inputs that it needs)."""
    checked: Checked = Checked()
    """The subjects of the check as the user named them."""
    not_counted: tuple[Finding, ...] = ()
    """Errors and warnings of codes that --only does not name."""
    linked: tuple[LinkedFile, ...] = ()
    """The files with which the plan's files are linked, for a document that shows them."""
    changed: tuple[Changed, ...] = ()
    """Those of `findings` whose severity the site changed."""
    expected: tuple[Expectation, ...] = ()
    """What the host must have."""
    trial: Optional[Trial] = None
    """The answers of the container, if it was started."""
    gpu_code: tuple[CodeFile, ...] = ()
    """The image's files with GPU code."""
    image: Optional[ImageFacts] = None
    """The image of a check without a plan."""
    host_name: Optional[str] = None
    """The host's name in its record, else the name of the record's file. `checked.host` is the user's name for it."""

    @property
    def drivers(self) -> tuple[PlannedDriver, ...]:
        """The planned drivers; empty without a plan."""
        return () if self.plan is None else self.plan.drivers

    @property
    def verdict(self) -> Verdict:
        """`ok`, `warning` or `error`: the worst of `findings`."""
        return verdict(self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the document `gpubind.check/1`. Its `plan` and `node` are digests of the plan, null without one."""
        plan = self.plan
        facts = self.image if plan is None else plan.image
        members = ("vendor", "version", "cuda_max")
        drivers = [{name: getattr(planned.driver, name) for name in members} for planned in self.drivers]
        return {
            "schema": SCHEMA,
            "gpubind": __version__,
            "verdict": verdict(self.findings),
            "checked": {**self.checked._asdict(), "drivers": drivers},
            "plan": plan.digest if plan is not None and plan.drivers else None,
            "node": plan.node_digest if plan is not None else None,
            "image": None if facts is None else facts.to_dict(),
            "gpu_code": [file.to_dict() for file in self.gpu_code],
            "findings": [_finding(finding) for finding in self.findings],
            "ignored": [{**_finding(finding), "reason": reason} for finding, reason in self.ignored],
            "not_counted": [_finding(finding) for finding in self.not_counted],
            "changed": [
                {"code": finding.code, "subject": finding.subject, "severity": finding.severity, "was": was, "by": by}
                for finding, was, by in self.changed
            ],
            "tried": None if self.trial is None else _tried(self.trial),
        }


def make_report(
    plan: Optional[Plan],
    findings: Iterable[Finding],
    reasons: Reasons,
    rules: Iterable[tuple[str, str]] = (),
    *,
    checked: Optional[Checked] = None,
    only: Iterable[str] = (),
    severities: Severities = MappingProxyType({}),
) -> Report:
    """Return the report of *findings*, with the site's *severities*, and without those that *reasons* ignore.

    *rules*: the rules that applied, as (code, needs). *only*: the codes to report; all codes if it is empty.
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
    reported = tuple(change for change in changed if change.finding in counted)
    report = Report(plan, tuple(counted), tuple(ignored), applied, checked or Checked())
    return report._replace(not_counted=tuple(others), changed=reported)


def _with_severities(
    findings: Iterable[Finding], severities: Severities
) -> tuple[tuple[Finding, ...], tuple[Changed, ...]]:
    new_findings, changed = [], []
    for finding in findings:
        setting = severities.get((finding.code, finding.subject)) or severities.get((finding.code, None))
        if setting is not None and setting[0] != finding.severity:
            changed.append(Changed(finding._replace(severity=setting[0]), finding.severity, setting[1]))
            finding = changed[-1].finding
        new_findings.append(finding)
    return tuple(sorted(new_findings, key=finding_order)) if changed else tuple(new_findings), tuple(changed)


def verdict(findings: Iterable[Finding]) -> Verdict:
    """Return `ok`, `warning` or `error`: the worst of *findings*. Notes are ok."""
    severities = {finding.severity for finding in findings}
    return "error" if "error" in severities else "warning" if "warning" in severities else "ok"


def _tried(trial: Trial) -> dict[str, Any]:
    answers = [
        {
            "kind": outcome.prediction.kind,
            "subject": outcome.prediction.subject,
            "predicted": outcome.prediction.succeeds,
            "why": outcome.prediction.why or None,
            "seen": outcome.succeeded,
            "said": outcome.said or None,
        }
        for outcome in trial.tried
    ]
    return {"runtime": trial.runtime, "failure": trial.failure, "untried": trial.untried, "answers": answers}


def _finding(finding: Finding) -> dict[str, Any]:
    return {**finding.to_dict(), "docs": page_of(finding.code)}
