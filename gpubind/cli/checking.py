"""Check each image on each host: `check_each`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Optional

from gpubind.cli.declarations import PlanOptions
from gpubind.cli.options import open_host_of, query_of
from gpubind.errors import GpubindError, RuntimeLimitError
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.host.open import host_name
from gpubind.image.reference import ImageReference, parse_reference
from gpubind.launch.choose import choose_runtime
from gpubind.launch.prepare import preflight_on
from gpubind.machine.budget import renew
from gpubind.model import Finding, Plan, finding
from gpubind.model.expectation import Expectation
from gpubind.model.findings import texts
from gpubind.model.policy import Policy
from gpubind.planner import finding_order
from gpubind.rules.linkage import linkage_of
from gpubind.rules.outcome import Checked, Reasons, Report, Severities, checked_in, report_of
from gpubind.rules.table import applying, check
from gpubind.runtimes import known_runtime
from gpubind.runtimes.runtime import Runtime

if TYPE_CHECKING:
    from gpubind.image.open import OpenImages
    from gpubind.model import ImageFacts
    from gpubind.model.gpucode import CodeFile


class CheckRequest(NamedTuple):
    """What is asked of each check."""

    options: PlanOptions
    backend: Optional[str]
    arguments: tuple[str, ...]
    """The user's own, for the runtime."""
    allow_writable: bool
    program: Optional[str]
    like: Optional[str]
    user: Optional[str]
    """The user who may open the nodes and files, or may not; None is the caller."""
    only: tuple[str, ...]
    """The codes that are counted; empty for all."""
    reasons: Reasons
    """Why findings are ignored."""
    severities: Severities
    """Those that the site sets."""
    expected: tuple[Expectation, ...]
    """What each host is to have."""
    linked: bool = False
    """Whether the document shows what the plan's files are linked with."""
    lists_rules: bool = False
    """Whether the document names the rules that found nothing."""
    tries: bool = False
    """Whether the container is started, to see what is predicted."""
    gpu_code: bool = True
    """Whether the GPU code of the image is read."""
    policy: Optional[Policy] = None
    """With what images are compared, instead of hosts."""

    @property
    def host(self) -> str:
        """The name of the host, for people."""
        return self.options.host or os.uname().nodename

    def named(self, image: Optional[str]) -> dict[str, Optional[str]]:
        """Return what is checked, with the members of `Checked`: *image* on the host, or with a policy."""
        there = {"host": self.host, "user": self.user} if self.policy is None else {"policy": self.policy.origin}
        return {**there, "image": image, "program": self.program}

    def start(self, image: Optional[str]) -> tuple[Optional[Runtime], Optional[ImageReference]]:
        """Return the runtime that will start *image*, None if it is not named, or not known; and what it starts.

        Errors: as `parse_reference`, `choose_runtime`; with `tries`, as `read_trial`.
        """
        if self.tries:
            from gpubind.launch.trial import read_trial

            line = read_trial(image or "", self.backend, os.environ)
            return line.runtime, line.image
        runtime = known_runtime(self.backend, "auto") if self.backend not in (None, "auto") else None
        if self.backend == "auto" and self.options.host is None:
            with suppress(RuntimeLimitError):
                chosen = choose_runtime(image or "", os.environ)
                return chosen.runtime, chosen.image if image is not None else None
        return runtime, parse_reference(image, runtime) if image is not None else None


def check_each(request: CheckRequest, images: Sequence[Optional[str]], hosts: Sequence[Optional[str]]) -> list[Report]:
    """Return the outcome for each of *images* on each of *hosts*; None stands for no image, or for this machine.

    The outcome of a check that fails is a finding. Errors: the one error with which all of them fail.
    """
    from gpubind.image.open import OpenImages

    reports: list[Report] = []
    errors: list[GpubindError] = []
    with OpenImages() as opened:
        for image in images:
            for host in hosts:
                if reports:
                    renew()  # each check has the bounds of a separate command
                there = request._replace(options=request.options._replace(host=host))
                try:
                    reports.append(_check(there, image, opened))
                except GpubindError as error:
                    errors.append(error)
                    # Counted whatever --only names: it is not known that all is well.
                    found = not_checked(error, image if image and opened.has_raised(error) else there.host)
                    checked = Checked(**there.named(image))
                    failed = report_of(None, [found], there.reasons, [(found.code, "host")], checked=checked)
                    reports.append(failed._replace(host_name=host_name(there.host)))
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


def _check(request: CheckRequest, image: Optional[str], opened: OpenImages) -> Report:
    """Return the outcome for one image on one host. Errors: those of opening, planning and preparing."""
    if request.policy is not None and image is not None:
        return _compare(request, image, request.policy, opened)
    with open_host_of(request.options) as host:
        if request.user is None:
            return _check_on(host, request, image, opened)
        with host.as_user(request.user) as other:
            return _check_on(other, request, image, opened)


def _check_on(host: Host, request: CheckRequest, named_image: Optional[str], opened: OpenImages) -> Report:
    runtime, reference = request.start(named_image)
    image = opened.image(reference, host.uname.machine) if reference is not None else None
    start = preflight_on(
        host,
        query_of(request.options, request.like),
        image,
        runtime,
        request.arguments,
        allow_writable=request.allow_writable,
        program=request.program,
        expected=request.expected,
        looks_at_gpu_code=request.gpu_code,
    )
    if request.tries and reference is not None:
        from gpubind.launch.trial import try_start

        start = start.with_trial(try_start(start, reference))
    rules = [(rule.code, rule.needs) for rule in applying(start)] if request.lists_rules else ()
    named = request.named(named_image)
    expected = " and ".join(one.origin for one in request.expected) or None
    checked = checked_in(image, runtime=start.backend, expected=expected, **named)
    made = report_of(
        start.plan,
        check(start),
        request.reasons,
        rules,
        checked=checked,
        only=request.only,
        severities=request.severities,
    )
    linked = linkage_of(start) if request.linked else ()
    name = host_name(request.host, host.hostname)
    return made._replace(
        linked=linked, expected=request.expected, trial=start.trial, gpu_code=start.gpu_code, host_name=name
    )


def _compare(request: CheckRequest, named_image: str, policy: Policy, opened: OpenImages) -> Report:
    """Return the outcome for one image and *policy*: of one for several architectures, for each that it names.

    Errors: those of opening, and of `read_needs`.
    """
    from gpubind.image.needs import read_needs
    from gpubind.rules.policy import judge

    reference, found = parse_reference(named_image), dict[Finding, None]()
    subjects: list[tuple[Checked, ImageFacts, tuple[CodeFile, ...]]] = []
    for arch in policy.arch or (None,):
        image = opened.image(reference, arch or os.uname().machine)
        needs = read_needs(image, request.program)
        subjects.append((checked_in(image, **request.named(named_image)), image.facts, needs.gpu_code))
        found.update(dict.fromkeys(judge(needs, policy if arch is None else policy._replace(arch=(arch,)))))
    checked, facts, gpu_code = subjects[0]
    rules = ((code, text["needs"]) for code, text in texts().items() if text.get("of") == "policy")
    made = report_of(
        None,
        sorted(found, key=finding_order),
        request.reasons,
        rules,
        checked=checked,
        only=request.only,
        severities=request.severities,
    )
    return made._replace(image=facts, gpu_code=gpu_code)


def errors_of_host(host: Host, plan: Plan, site: Optional[Expectation] = None) -> list[Finding]:
    """Return the errors of *plan* and of a check of *host*, as `check` counts them: with what the site changes.

    *site*: what the site requires of it.
    """
    from gpubind.cli.settings import ignored_findings, site_severities

    start = preflight_on(host, plan, expected=(site,) if site is not None else ())
    report = report_of(plan, check(start), ignored_findings(()), severities=site_severities())
    return [finding for finding in report.findings if finding.severity == "error"]
