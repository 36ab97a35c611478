"""The report of one check."""

from __future__ import annotations

from typing import Any, Optional

from gpubind.documents import Made
from gpubind.documents.check.report import excluded_text, subject_rows
from gpubind.documents.check.text import THEMES, subject_line, theme_of
from gpubind.documents.gpus import ListedGpu, gpus_table
from gpubind.documents.report.page import render
from gpubind.documents.report.picture import picture_of, script_data
from gpubind.documents.tables import Table, plan_tables
from gpubind.model import Gpu, Plan
from gpubind.rules.outcome import Report, verdict


def render_check_html(report: Report, made: Optional[Made] = None) -> str:
    """Return the page of one check."""
    plan = report.plan
    picture = None
    if plan is not None and (plan.mounts or plan.devices):
        picture = picture_of(plan, report.linked, report.findings, report.checked.program)
    return render(
        "check.html",
        script_data(picture) if picture is not None else None,
        made,
        verdict=verdict(report.findings),
        title=" on ".join(part for part in (report.checked.image, report.checked.host) if part),
        what=subject_line(report),
        facts=[fact for fact in subject_rows(report) if fact[0] != "gpubind"],
        picture=picture,
        gpus=None if plan is None or not plan.gpus else gpus_table([_listed(plan, gpu) for gpu in plan.gpus]),
        tables=_tables(plan),
        **_findings_of(report),
    )


def _findings_of(report: Report) -> dict[str, Any]:
    """Return the values of the template `findings.html`."""
    notes = [finding for finding in report.findings if finding.severity == "note"]
    themes = {THEMES[theme]: [note for note in notes if theme_of(note) == theme] for theme in THEMES}
    return {
        "serious": [finding for finding in report.findings if finding.severity != "note"],
        "notes": {theme: theme_notes for theme, theme_notes in themes.items() if theme_notes},
        "ignored": report.ignored,
        "changed": report.changed,
        "not_counted": excluded_text(report) if report.not_counted else None,
    }


def _listed(plan: Plan, gpu: Gpu) -> ListedGpu:
    nodes = (node for node in plan.devices if node.vendor == gpu.vendor and node.gpu == gpu.index is not None)
    return ListedGpu(gpu, gpu.mig if gpu.chosen else (), tuple(nodes))


def _tables(plan: Optional[Plan]) -> list[tuple[str, Table]]:
    titles = ("Libraries and programs", "Other files", "Device nodes", "Environment", "Not in the plan")
    tables = [] if plan is None else plan_tables(plan, verbose=True)
    return [(title, table) for title, table in zip(titles, tables) if table.rows]
