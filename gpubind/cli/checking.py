"""What `gpubind check` looks at: each image on each host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional, Union

from gpubind.cli.declarations import PlanOptions
from gpubind.cli.options import open_host_of, open_image_of, query_of
from gpubind.cli.settings import ignored_findings, known_codes
from gpubind.documents.check.report import Checked, Reasons, Report, checked_in, report_of
from gpubind.errors import GpubindError, RuntimeLimitError
from gpubind.model import Finding
from gpubind.model.findings import finding
from gpubind.rules.table import applying
from gpubind.rules.table import check as check_start

if TYPE_CHECKING:
    from gpubind.host import Host
    from gpubind.image import Image
    from gpubind.runtimes.runtime import Runtime


class CheckRequest(NamedTuple):
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
) -> CheckRequest:
    """Return the values of the options, as what is asked. Errors: `UsageError` for codes that no finding has."""
    codes, reasons = known_codes(only or ()), ignored_findings(ignore or ())
    return CheckRequest(backend, tuple(arguments or ()), allow_writable, program, like, user, codes, reasons)


def reports_of(
    options: PlanOptions, images: Sequence[Optional[str]], hosts: Sequence[Optional[str]], asked: CheckRequest
) -> list[Report]:
    """Return the outcome for each of *images* on each of *hosts*; None is no image, and this machine.

    What keeps one of several from being checked is told there, as a finding. Errors: what keeps all of them from it.
    """
    from gpubind.model.budget import renew

    reports: list[Report] = []
    errors: list[GpubindError] = []
    opened: dict[tuple[Optional[str], str], Union[Image, GpubindError, None]] = {}
    for name in images:
        for host_name in hosts:
            if reports:
                renew()  # each check has the bounds that it would have alone
            there = options._replace(host=host_name)
            try:
                reports.append(_checked_there(there, name, asked, opened))
            except GpubindError as error:
                errors.append(error)
                of_image = any(error is one for one in opened.values())
                reports.append(_unchecked(there, name, asked, error, of_image=of_image))
    if len(errors) == len(reports) and len({str(error) for error in errors}) == 1:
        raise errors[0]
    return reports


def not_checked(error: GpubindError, subject: str) -> Finding:
    """Return the finding that *error* kept *subject*, an image or a host, from being checked, while others were."""
    hint = error.hint or f"`gpubind explain {error.code}` says what that means"
    where = error.where or None
    return finding(
        "not-checked", subject=subject, where=where, error=error.code, what=error.what, why=error.why, hint=hint
    )


def _checked_there(
    options: PlanOptions,
    reference: Optional[str],
    asked: CheckRequest,
    opened: dict[tuple[Optional[str], str], Union[Image, GpubindError, None]],
) -> Report:
    """The outcome on one host; *opened* are the images so far, by name and machine. Errors: what a check raises."""
    host = open_host_of(options)
    if asked.user is not None:
        host = host.as_user(asked.user)
    key = reference, host.uname.machine
    if key not in opened:
        try:
            opened[key] = open_image_of(reference, host)
        except GpubindError as error:
            opened[key] = error
    image = opened[key]
    if isinstance(image, GpubindError):
        raise image
    return _report(options, reference, host, image, asked)


def _unchecked(
    options: PlanOptions, reference: Optional[str], asked: CheckRequest, error: GpubindError, *, of_image: bool
) -> Report:
    """The outcome where *error* came in the way. It counts whatever --only names: nobody knows that all is well."""
    host = options.host or os.uname().nodename
    checked = Checked(host, reference, program=asked.program, user=asked.user)
    told = not_checked(error, reference if of_image and reference is not None else host)
    return report_of(None, [told], asked.reasons, [(told.code, "host")], checked=checked)


def _report(
    options: PlanOptions, reference: Optional[str], host: Host, image: Optional[Image], asked: CheckRequest
) -> Report:
    from gpubind.launch.prepare import preflight_on

    start = preflight_on(
        host,
        query_of(options, asked.like),
        image,
        _runtime(asked.backend, options, reference),
        asked.arguments,
        allow_writable=asked.allow_writable,
        program=asked.program,
    )
    rules = ((rule.code, rule.needs) for rule in applying(start))
    checked = checked_in(
        start.image,
        host=options.host or os.uname().nodename,
        image=reference,
        program=asked.program,
        runtime=start.backend,
        user=asked.user,
    )
    return report_of(start.plan, check_start(start), asked.reasons, rules, checked=checked, only=asked.only)


def _runtime(backend: Optional[str], options: PlanOptions, image: Optional[str]) -> Optional[Runtime]:
    """Return the runtime that --backend names; None if there is none, or if nobody can know. Errors: `UsageError`."""
    from gpubind.launch.choose import choose_runtime
    from gpubind.runtimes import known_runtime

    if backend != "auto":
        return known_runtime(backend, "auto") if backend is not None else None
    try:
        return choose_runtime(image or "", os.environ).runtime if options.host is None else None
    except RuntimeLimitError:
        return None
