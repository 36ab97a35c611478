"""What `gpubind check` looks at: each image on each host."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional

from gpubind.cli.options import PlanOptions, make_plan, open_host_of, open_image_of, vendors_of
from gpubind.cli.settings import ignored_findings, known_codes
from gpubind.documents.report import Checked, Reasons, Report, report_of
from gpubind.errors import NothingToBindError, RuntimeLimitError
from gpubind.rules.table import applying
from gpubind.rules.table import check as check_start

if TYPE_CHECKING:
    from gpubind.host import Host
    from gpubind.image import Image
    from gpubind.rules.preflight import Preflight
    from gpubind.runtimes.record import Runtime


class Asked(NamedTuple):
    """What is asked about each start."""

    backend: Optional[str]
    arguments: tuple[str, ...]
    """The user's own, for the runtime."""
    allow_writable: bool
    program: Optional[str]
    like: Optional[str]
    user: Optional[str]
    """Who may open the nodes and files, or may not; None is the caller."""
    only: tuple[str, ...]
    """The codes that count; all of them if there are none."""
    reasons: Reasons
    """Of findings that do not count."""


def asked_of(
    backend: Optional[str],
    arguments: Optional[Sequence[str]],
    allow_writable: bool,
    program: Optional[str],
    like: Optional[str],
    user: Optional[str],
    only: Optional[Sequence[str]],
    ignore: Optional[Sequence[str]],
) -> Asked:
    """The values of the options, as what is asked. Errors: `UsageError` for codes that no finding has."""
    codes, reasons = known_codes(only or ()), ignored_findings(ignore or ())
    return Asked(backend, tuple(arguments or ()), allow_writable, program, like, user, codes, reasons)


def reports_of(
    options: PlanOptions, images: Sequence[Optional[str]], hosts: Sequence[Optional[str]], asked: Asked
) -> list[Report]:
    """The outcome for each of *images* on each of *hosts*; None is no image, and this machine."""
    from gpubind.budget import renew

    reports: list[Report] = []
    opened: dict[tuple[Optional[str], str], Optional[Image]] = {}
    for name in images:
        for host_name in hosts:
            if reports:
                renew()  # each check has the bounds that it would have alone
            there = options._replace(host=host_name)
            host = open_host_of(there)
            if asked.user is not None:
                host = host.as_user(asked.user)
            key = name, host.uname.machine
            if key not in opened:
                opened[key] = open_image_of(name, host)
            reports.append(_report(there, name, host, opened[key], asked))
    return reports


def _report(options: PlanOptions, reference: Optional[str], host: Host, image: Optional[Image], asked: Asked) -> Report:
    start = _preflight(options, reference, host, image, asked)
    rules = ((rule.code, rule.needs) for rule in applying(start))
    checked = _checked(options, reference, start, asked)
    return report_of(start.plan, check_start(start), asked.reasons, rules, checked=checked, only=asked.only)


def _checked(options: PlanOptions, reference: Optional[str], start: Preflight, asked: Asked) -> Checked:
    from gpubind.formats.os_release import parse_os_release

    system = glibc = None
    if start.image is not None:
        system = parse_os_release(start.image.tree.text("/etc/os-release") or "")
        libc = start.image.tree.resolve(start.image.loader.find("libc.so.6") or "/")
        match = re.search(r"/libc-([0-9.]+)\.so$", libc) if isinstance(libc, str) else None
        glibc = match.group(1) if match else None
    return Checked(
        host=options.host or os.uname().nodename,
        image=reference,
        system=system,
        glibc=glibc,
        program=asked.program,
        runtime=start.backend,
        user=asked.user,
    )


def _preflight(
    options: PlanOptions, reference: Optional[str], host: Host, image: Optional[Image], asked: Asked
) -> Preflight:
    """What the rules look at: the plan for these options, or an empty one where there is nothing to bind."""
    from gpubind.planner import empty_plan
    from gpubind.planner.placement import GPUBIND
    from gpubind.preparation import host_for, layout_of, preflight_of, start_on
    from gpubind.runtimes.start import Start
    from gpubind.sources.vendors import nothing_to_bind

    start, runtime = None, _runtime(asked.backend, options, reference)
    layout = GPUBIND if runtime is None else runtime.layout(Start(runtime.name))
    if runtime is not None and asked.like is None:
        start = start_on(host, runtime, asked.arguments)._replace(allow_writable=asked.allow_writable)
        host = host_for(host, start, image)
        layout = layout_of(start, host, image)
    try:
        plan = make_plan(options, host=host, like=asked.like, image=image, layout=layout)
    except NothingToBindError as error:
        plan = empty_plan(layout, image.facts if image else None, vendors_of(options))
        plan = plan._replace(findings=(nothing_to_bind(error),))
    return preflight_of(host, plan, image, runtime, start, asked.program)


def _runtime(backend: Optional[str], options: PlanOptions, image: Optional[str]) -> Optional[Runtime]:
    """The runtime that --backend names; None if there is none, or if nobody can know. Errors: `UsageError`."""
    from gpubind.preparation import choose_runtime
    from gpubind.runtimes import known_runtime

    if backend != "auto":
        return known_runtime(backend) if backend is not None else None
    try:
        return choose_runtime(image or "", os.environ).runtime if options.host is None else None
    except RuntimeLimitError:
        return None
