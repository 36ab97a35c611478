"""The report of several checks: images by hosts, then each finding once with its locations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from gpubind.documents import Made
from gpubind.documents.check.report import alike, fold_findings
from gpubind.documents.check.several import equal_hosts, host_names
from gpubind.documents.report.page import render
from gpubind.frozen import NamedTuple
from gpubind.model import Finding, shorten_list
from gpubind.model.findings import SEVERITIES, support_of, with_count
from gpubind.rules.outcome import Report, verdict

_PLACES = 4
"""Maximum locations in a line."""


class Cell(NamedTuple):
    """One image on the hosts of one column."""

    id: str
    verdict: str
    codes: tuple[str, ...]
    """The codes of the worst findings. If there are none, the support that a job gets, unless that is full support."""


class FindingLocations(NamedTuple):
    """A finding, or several with one remedy, and all of its locations."""

    finding: Finding
    locations: tuple[str, ...]
    """The locations: a line for each subject."""
    cells: tuple[str, ...]
    """The ids of the cells that have it."""


def render_matrix_html(reports: Sequence[Report], made: Optional[Made] = None) -> str:
    """Return the page of *reports*. Hosts with the same findings for every image are one column."""
    images = list(dict.fromkeys(report.checked.image for report in reports))
    columns = [*equal_hosts(reports, lambda report: report.findings).values()]
    names = host_names(reports)
    at = {(report.checked.image, str(report.checked.host)): report for report in reports}
    cells: dict[tuple[Optional[str], int], Cell] = {}
    located: dict[Finding, list[tuple[str, str]]] = {}
    for row, image in enumerate(images):
        for column, hosts in enumerate(columns):
            report = at[image, hosts[0]]
            cell = cells[image, column] = Cell(f"c{row}-{column}", verdict(report.findings), _codes(report))
            place = (f"{image} on " if image else "") + shorten_list([names[host] for host in hosts])
            for finding in report.findings:
                located.setdefault(finding, []).append((place, cell.id))
    outcomes = [verdict(report.findings) for report in reports]
    numbers = (f"{outcomes.count(outcome)} {outcome}" for outcome in ("error", "warning", "ok") if outcome in outcomes)
    return render(
        "matrix.html",
        made=made,
        verdict=next(outcome for outcome in ("error", "warning", "ok") if outcome in outcomes),
        title=f"{with_count(len(images), 'image')} on {with_count(sum(map(len, columns)), 'host')}",
        what=f"{with_count(len(reports), 'check')}: {', '.join(numbers)}",
        facts=(),
        heads=[[shorten_list([names[host] for host in hosts]), *_drivers(at, images, hosts)] for hosts in columns],
        rows=[(image or "no image", [cells[image, column] for column in range(len(columns))]) for image in images],
        found=sort_findings(located),
    )


def sort_findings(located: dict[Finding, list[tuple[str, str]]]) -> list[FindingLocations]:
    """Return *located*, the locations and cells of each finding, with the worst and most frequent first. Findings
    that are `alike` become one.
    """
    groups = alike(sorted(located, key=lambda finding: (finding.code, finding.subject)))
    number = {group[0]: sum(len(located[finding]) for finding in group) for group in groups}
    groups.sort(key=lambda group: (SEVERITIES.index(group[0].severity), -number[group[0]]))
    return [_merge_locations(group, located) for group in groups]


def _merge_locations(group: Sequence[Finding], located: dict[Finding, list[tuple[str, str]]]) -> FindingLocations:
    """Return the findings of *group* as one. If there are several, each line begins with its subject."""
    lines = []
    for finding in group:
        places = [place for place, _ in located[finding]]
        more = f"; and {len(places) - _PLACES} more" if len(places) > _PLACES else ""
        lines.append((f"{finding.subject}: " if len(group) > 1 else "") + "; ".join(places[:_PLACES]) + more)
    cells = dict.fromkeys(cell for finding in group for _, cell in located[finding])
    return FindingLocations(fold_findings(group)[0], tuple(lines), tuple(cells))


def _drivers(
    at: Mapping[tuple[Optional[str], str], Report], images: Sequence[Optional[str]], hosts: Sequence[str]
) -> list[str]:
    reports = (at[image, host] for host in hosts for image in images)
    return list(dict.fromkeys(driver.title_with_cuda for report in reports for driver in report.drivers))


def _codes(report: Report) -> tuple[str, ...]:
    worst = verdict(report.findings)
    if worst == "ok":
        return tuple(dict.fromkeys(filter(None, map(support_of, report.findings))))
    return tuple(dict.fromkeys(finding.code for finding in report.findings if finding.severity == worst))
