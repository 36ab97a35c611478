"""The report of several checks: images by hosts, then each finding once with where it was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

from gpubind.documents import Made
from gpubind.documents.check.report import Report, verdict
from gpubind.documents.check.several import equal_hosts, host_names
from gpubind.documents.report.page import render
from gpubind.frozen import NamedTuple
from gpubind.model import Finding, named
from gpubind.model.findings import SEVERITIES, counted, support_of


class Cell(NamedTuple):
    """One image on the hosts of one column."""

    id: str
    verdict: str
    codes: tuple[str, ...]
    """Of the worst findings; where all is well, what a job gets instead of full support."""


class FoundIn(NamedTuple):
    """A finding, and every place in which it is."""

    finding: Finding
    places: tuple[str, ...]
    cells: tuple[str, ...]
    """The ids of the cells that have it."""


def render_matrix_html(reports: Sequence[Report], made: Optional[Made] = None) -> str:
    """Return the page of *reports*. Hosts with the same findings for every image are one column."""
    images = list(dict.fromkeys(report.checked.image for report in reports))
    columns = [*equal_hosts(reports, lambda report: report.findings).values()]
    names = host_names(reports)
    at = {(report.checked.image, str(report.checked.host)): report for report in reports}
    cells: dict[tuple[Optional[str], int], Cell] = {}
    found: dict[Finding, list[tuple[str, str]]] = {}
    for row, image in enumerate(images):
        for column, hosts in enumerate(columns):
            report = at[image, hosts[0]]
            cell = cells[image, column] = Cell(f"c{row}-{column}", verdict(report.findings), _codes(report))
            for finding in report.findings:
                found.setdefault(finding, []).append((_place(image, [names[host] for host in hosts]), cell.id))
    outcomes = [verdict(report.findings) for report in reports]
    numbers = (f"{outcomes.count(outcome)} {outcome}" for outcome in ("error", "warning", "ok") if outcome in outcomes)
    return render(
        "matrix.html",
        made=made,
        verdict=next(outcome for outcome in ("error", "warning", "ok") if outcome in outcomes),
        title=f"{counted(len(images), 'image')} on {counted(sum(map(len, columns)), 'host')}",
        what=f"{counted(len(reports), 'check')}: {', '.join(numbers)}",
        facts=(),
        heads=[[named([names[host] for host in hosts]), *_drivers(at, images, hosts)] for hosts in columns],
        rows=[(image or "no image", [cells[image, column] for column in range(len(columns))]) for image in images],
        found=in_order(found),
    )


def in_order(found: dict[Finding, list[tuple[str, str]]]) -> list[FoundIn]:
    """Return *found*, the places and cells of each finding, worst and most frequent first."""
    order = sorted(found, key=lambda one: (SEVERITIES.index(one.severity), -len(found[one]), one.code, one.subject))
    return [FoundIn(one, *(tuple(parts) for parts in zip(*found[one]))) for one in order]


def _drivers(
    at: Mapping[tuple[Optional[str], str], Report], images: Sequence[Optional[str]], hosts: Sequence[str]
) -> list[str]:
    """Return the drivers of *hosts*, each once; a host of which no check was made has none."""
    reports = (at[image, host] for host in hosts for image in images)
    return list(dict.fromkeys(one.title_with_cuda for report in reports for one in report.drivers))


def _codes(report: Report) -> tuple[str, ...]:
    worst = verdict(report.findings)
    if worst == "ok":
        return tuple(dict.fromkeys(filter(None, map(support_of, report.findings))))
    return tuple(dict.fromkeys(one.code for one in report.findings if one.severity == worst))


def _place(image: Optional[str], hosts: Sequence[str]) -> str:
    return f"{image} on {named(hosts)}" if image else named(hosts)
