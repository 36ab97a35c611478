"""The outcome of several checks, images by hosts, in each format of a single check."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Optional, TypeVar

from gpubind.documents import CHECK_DOCUMENTS
from gpubind.documents.check.junit import render_suites
from gpubind.documents.check.report import verdict_line
from gpubind.documents.check.text import render_check_text
from gpubind.documents.tables import Table, always_shown, make_table
from gpubind.documents.text import printable, render_line
from gpubind.model import shorten_list
from gpubind.rules.outcome import Report

_T = TypeVar("_T")


def render_several(form: str, reports: Sequence[Report]) -> str:
    """Return *reports* as one document in *form*, a format of `check` that puts single reports together."""
    if form == "json":
        return json.dumps([report.to_dict() for report in reports], indent=1) + "\n"
    if form == "junit":
        return render_suites(reports)
    if form == "markdown":  # each names what was checked
        return "\n".join(map(CHECK_DOCUMENTS[form].render, reports))
    begin, end = ("::group::", "::endgroup::\n") if form == "github" else ("# ", "")
    return "".join(
        f"{begin}{printable(_check_name(report))}\n{CHECK_DOCUMENTS[form].render(report)}{end}" for report in reports
    )


def render_several_text(reports: Sequence[Report], *, colour: bool = False) -> str:
    """Return each check in full, below its name."""
    return "\n".join(
        f"{printable(_check_name(report))}\n{render_check_text(report, verbose=True, colour=colour)}"
        for report in reports
    )


def render_several_lines(reports: Sequence[Report]) -> str:
    """Return a line for each check: its name, the verdict and the codes."""
    return "".join(f"{printable(_check_name(report))}: {verdict_line(report)}" for report in reports)


def render_unchecked(reports: Sequence[Report]) -> str:
    """Return a line for each image and host that could not be checked, below a table of verdicts."""
    findings = dict.fromkeys(finding for report in reports if report.plan is None for finding in report.findings)
    return "".join(map(render_line, findings))


def _check_name(report: Report) -> str:
    """Return the name of the check: `app.sif on node.json`."""
    checked = report.checked
    target = checked.policy or checked.host
    return f"{checked.image} on {target}" if checked.image else str(target)


def equal_hosts(reports: Iterable[Report], outcome: Callable[[Report], _T]) -> dict[tuple[_T, ...], list[str]]:
    """Group the hosts of *reports* by their outcomes: each has a report for each image, and *outcome* is applied to
    all of them.
    """
    outcomes: dict[str, dict[Optional[str], _T]] = {}
    for report in reports:
        outcomes.setdefault(str(report.checked.host), {})[report.checked.image] = outcome(report)
    groups: dict[tuple[_T, ...], list[str]] = {}
    for host, of_images in outcomes.items():
        groups.setdefault(tuple(of_images.values()), []).append(host)
    return groups


def host_names(reports: Iterable[Report]) -> dict[str, str]:
    """Return the name of each host, by the user's argument. Hosts that share a name are called by their arguments."""
    names = {str(report.checked.host): report.host_name or str(report.checked.host) for report in reports}
    number = Counter(names.values())
    return {host: name if number[name] == 1 else host for host, name in names.items()}


def verdicts_table(reports: Sequence[Report]) -> Table:
    """Return the verdicts, images by hosts. With one image or one host, a row is a check.

    Hosts with the same verdict about each image are one row or column.
    """
    images = list(dict.fromkeys(report.checked.image for report in reports))
    groups = equal_hosts(reports, lambda report: verdict_line(report).strip().replace(",", ", "))
    names = host_names(reports)
    titles = [
        shorten_list([names[host] for host in hosts]) + (f" ({len(hosts)})" if len(hosts) > 1 else "")
        for hosts in groups.values()
    ]
    if len(images) == 1:
        return make_table(always_shown("host", "verdict"), [(title, *lines) for title, lines in zip(titles, groups)])
    columns = titles if sum(map(len, groups.values())) > 1 else ["verdict"]
    return make_table(always_shown("image", *columns), [(str(image), *lines) for image, *lines in zip(images, *groups)])
