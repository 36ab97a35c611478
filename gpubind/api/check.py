"""check: what will fail, on each host, with each image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Optional, Union

from gpubind.api.verb import verb
from gpubind.errors import GpubindError, RuntimeLimitError, UsageError, suggest_known
from gpubind.frozen import NamedTuple
from gpubind.host import Host
from gpubind.host.open import host_name, open_host
from gpubind.image.reference import ImageReference, image_label, parse_reference
from gpubind.launch.preflight import local_programs, make_preflight
from gpubind.machine.budget import renew
from gpubind.model import Finding, Plan, finding
from gpubind.model.findings import SEVERITIES, finding_texts
from gpubind.planner import finding_order
from gpubind.planner.planning import PlanQuery
from gpubind.rules import table
from gpubind.rules.outcome import Checked, Reasons, Report, Severities, checked_in, make_report
from gpubind.runtimes import get_runtime

if TYPE_CHECKING:
    from typing import BinaryIO

    from gpubind.image.facts import Image
    from gpubind.image.open import OpenImages
    from gpubind.model import ImageFacts
    from gpubind.model.gpucode import CodeFile
    from gpubind.model.requirements import Expectation, Policy
    from gpubind.rules.preflight import Preflight
    from gpubind.runtimes.runtime import Runtime


class HostRef(NamedTuple):
    """A host as the user names it; this machine if there is no name."""

    name: Optional[str] = None
    """A record: a file, or the name of a bundled one."""
    root: Optional[str] = None
    dev_root: Optional[str] = None
    label: str = ""
    """Its name for people."""


class CheckRequest(NamedTuple):
    """The options of a check."""

    query: PlanQuery = PlanQuery()
    backend: Optional[str] = None
    """The name of a runtime, or `auto`."""
    arguments: tuple[str, ...] = ()
    """The user's arguments for the runtime."""
    allow_writable: bool = False
    program: Optional[str] = None
    user: Optional[str] = None
    """The user whose access to nodes and files is checked; None for the caller."""
    only: tuple[str, ...] = ()
    """The codes that are reported; empty for all."""
    reasons: Reasons = MappingProxyType({})
    """The reasons to ignore findings."""
    severities: Severities = MappingProxyType({})
    """The severities that the site sets."""
    expected: tuple[Expectation, ...] = ()
    """The expectations that each host must meet."""
    linked: bool = False
    """Whether the report has the files with which the plan's files are linked."""
    lists_rules: bool = False
    """Whether the report lists the rules without findings."""
    tries: bool = False
    """Whether the container is started, to compare it with the predictions."""
    gpu_code: bool = True
    """Whether the image's GPU code is read."""
    policy: Optional[Policy] = None
    """The policy with which images are compared instead of hosts."""
    standard_input: Optional[BinaryIO] = None
    """The stream with the image `-`."""


def check_each(request: CheckRequest, images: Sequence[Optional[str]], hosts: Sequence[HostRef]) -> list[Report]:
    """Return the report on each of *images* on each of *hosts*. None among *images* stands for a check without an
    image.

    If a check fails, its report has the error as a finding. Errors: if all checks fail with the same error, that error.
    """
    from gpubind.image.open import OpenImages

    reports: list[Report] = []
    errors: list[GpubindError] = []
    with OpenImages(request.standard_input) as opened:
        for image in images:
            for host in hosts:
                if reports:
                    renew()  # each check has the bounds of a separate command
                try:
                    reports.append(_check(request, host, image, opened))
                except GpubindError as error:
                    if error.code == "bad-typical-host":
                        raise  # the command line is wrong, whatever the other hosts are
                    errors.append(error)
                    # This finding is reported whatever --only names: the host or image was not checked.
                    finding = not_checked(
                        error, image_label(image) if image and opened.has_raised(error) else host.label
                    )
                    checked = Checked(**_checked_subjects(request, host, image))
                    failed = make_report(None, [finding], request.reasons, [(finding.code, "host")], checked=checked)
                    reports.append(failed._replace(host_name=host_name(host.label)))
    if len(errors) == len(reports) and len({str(error) for error in errors}) == 1:
        raise errors[0]
    return reports


def _checked_subjects(request: CheckRequest, host: HostRef, image: Optional[str]) -> dict[str, Optional[str]]:
    policy = request.policy
    subjects = {"host": host.label, "user": request.user} if policy is None else {"policy": policy.source_file}
    return {**subjects, "image": image and image_label(image), "program": request.program}


def not_checked(error: GpubindError, subject: str) -> Finding:
    """Return the finding that *subject*, an image or a host, was not checked because of *error*."""
    hint = error.hint or f"`gpubind explain {error.code}` says what that means"
    where = error.where or None
    return finding(
        "not-checked", subject=subject, where=where, error=error.code, what=error.what, why=error.why, hint=hint
    )


def _check(request: CheckRequest, host_ref: HostRef, image: Optional[str], opened: OpenImages) -> Report:
    """Errors: those of opening, planning and preparing."""
    if request.policy is not None and image is not None:
        return _compare(request, image, request.policy, opened)
    with open_host(host_ref.name, host_ref.root, host_ref.dev_root) as host:
        if request.user is None:
            return _check_on(host, host_ref, request, image, opened)
        with host.as_user(request.user) as user_host:
            return _check_on(user_host, host_ref, request, image, opened)


def _check_on(
    host: Host, host_ref: HostRef, request: CheckRequest, image_name: Optional[str], opened: OpenImages
) -> Report:
    from gpubind.image.open import PythonEnvironmentError

    runtime, reference = _start(request, host, host_ref, image_name)
    image = None
    try:
        image = opened.image(reference, host.uname.machine) if reference is not None else None
    except PythonEnvironmentError as error:
        if runtime is not None or local_programs(host) is None:
            raise
        program = request.program or "python"
        program = program if "/" in program else f"{error.where.rstrip('/')}/bin/{program}"
        request, image_name = request._replace(program=program), None
    preflight = _make_preflight(request, host, request.query, image, runtime, reference if request.tries else None)
    report = _check_preflight(request, preflight, image, _checked_subjects(request, host_ref, image_name))
    return report._replace(host_name=host_name(host_ref.label, host.hostname))


def _start(
    request: CheckRequest, host: Host, host_ref: HostRef, image: Optional[str]
) -> tuple[Optional[Runtime], Optional[ImageReference]]:
    """Return the runtime, None if it is unknown, and the reference of the image that it will start.

    Errors: as `parse_reference`, `choose_runtime`; with `tries`, as `read_trial`.
    """
    if request.tries:
        from gpubind.launch.prepare import environ_of
        from gpubind.launch.trial import read_trial

        line = read_trial(image or "", request.backend, environ_of(host))
        return line.runtime, line.image
    runtime = get_runtime(request.backend, "auto") if request.backend not in (None, "auto") else None
    if request.backend == "auto" and host_ref.name is None:
        from gpubind.launch.choose import choose_runtime
        from gpubind.launch.prepare import environ_of

        with suppress(RuntimeLimitError):
            chosen = choose_runtime(image or "", environ_of(host))
            return chosen.runtime, chosen.image if image is not None else None
    return runtime, parse_reference(image, runtime) if image is not None else None


def _make_preflight(
    request: CheckRequest,
    host: Host,
    query_or_plan: Union[PlanQuery, Plan],
    image: Optional[Image],
    runtime: Optional[Runtime],
    tried: Optional[ImageReference],
) -> Preflight:
    """Return the input of the rules. If *tried* is given, start it first. Errors: as `make_preflight`."""
    preflight = make_preflight(
        host,
        query_or_plan,
        image,
        runtime,
        request.arguments,
        allow_writable=request.allow_writable,
        program=request.program,
        expected=request.expected,
        looks_at_gpu_code=request.gpu_code,
    )
    if tried is None or preflight.start is None or runtime is None:
        return preflight
    from gpubind.api.layout import need_layout
    from gpubind.launch.prepare import layout_of
    from gpubind.launch.trial import try_start

    if isinstance(query_or_plan, Plan):
        need_layout(layout_of(preflight.start, image), query_or_plan, runtime.name)
    return preflight.with_trial(try_start(preflight, tried))


def _check_preflight(
    request: CheckRequest, preflight: Preflight, image: Optional[Image], subjects: Mapping[str, Optional[str]]
) -> Report:
    opened = preflight.image if preflight.is_without_container else image
    rules = [(rule.code, rule.needs) for rule in table.applicable_rules(preflight)] if request.lists_rules else ()
    expected = " and ".join(expectation.source_file for expectation in request.expected) or None
    report = make_report(
        preflight.plan,
        table.check(preflight),
        request.reasons,
        rules,
        checked=checked_in(opened, runtime=preflight.backend, expected=expected, **subjects),
        only=request.only,
        severities=request.severities,
    )
    if request.linked:
        from gpubind.rules.linkage import linkage_of

        report = report._replace(linked=linkage_of(preflight))
    return report._replace(expected=request.expected, trial=preflight.trial, gpu_code=preflight.gpu_code)


def _compare(request: CheckRequest, image_name: str, policy: Policy, opened: OpenImages) -> Report:
    """Return the report on one image and *policy*. An image index is read for each architecture of the policy.

    Errors: those of opening, and of `read_needs`.
    """
    from gpubind.image.needs import read_needs
    from gpubind.rules.policy import check_policy

    reference, findings = parse_reference(image_name), dict[Finding, None]()
    subjects: list[tuple[Checked, ImageFacts, tuple[CodeFile, ...]]] = []
    for arch in policy.arch or (None,):
        image = opened.image(reference, arch)
        needs = read_needs(image, request.program)
        subjects.append(
            (checked_in(image, **_checked_subjects(request, HostRef(), image_name)), image.facts, needs.gpu_code)
        )
        findings.update(dict.fromkeys(check_policy(needs, policy if arch is None else policy._replace(arch=(arch,)))))
    checked, facts, gpu_code = subjects[0]
    rules = ((code, text["needs"]) for code, text in finding_texts().items() if text.get("of") == "policy")
    report = make_report(
        None,
        sorted(findings, key=finding_order),
        request.reasons,
        rules,
        checked=checked,
        only=request.only,
        severities=request.severities,
    )
    return report._replace(image=facts, gpu_code=gpu_code)


def errors_of(host: Host, plan: Plan, request: CheckRequest) -> list[Finding]:
    """Return the errors of a check of *plan* on *host*, as far as *request* does not ignore them."""
    report = _check_preflight(request, _make_preflight(request, host, plan, None, None, None), None, {})
    return [finding for finding in report.findings if finding.severity == "error"]


@verb
def check(
    host: Host,
    plan: Plan,
    image: Optional[Image] = None,
    *,
    backend: Optional[str] = None,
    arguments: Sequence[str] = (),
    allow_writable: bool = False,
    program: Optional[str] = None,
    try_: bool = False,
) -> tuple[Finding, ...]:
    """Return what will fail with *plan* on *host*, in *image* if one is given: errors first, then by code.

    *backend*: the name of the runtime that will start the container, with the user's *arguments* for it. The plan
    should be one for that runtime (see `open_runtime`). *allow_writable*: accept a runtime without read-only binds.
    *program*: the program that will run, a path or a name in the image; without an image, on this machine,
    where it runs without a container. *try_*: start a container by that runtime, or by the first that starts such an
    image, and compare the answers of its loader and driver with the predictions.
    Errors: `UsageError` (codes `program-without-image`, `try-without-image`, `unknown-backend`, `incomplete-argument`;
    `other-host` for a plan whose driver is not on *host*; with *try_* `host-to-start`, and `other-layout` as in
    `words`); with *try_* also `RuntimeLimitError` for a runtime that is missing, or cannot express the plan.
    """
    from gpubind.documents.notebook import Findings

    request = CheckRequest(
        backend=backend, arguments=tuple(arguments), allow_writable=allow_writable, program=program, tries=try_
    )
    return Findings(table.check(_plan_preflight(request, host, plan, image)))


@verb
def report(
    host: Host,
    plan: Plan,
    image: Optional[Image] = None,
    *,
    backend: Optional[str] = None,
    arguments: Sequence[str] = (),
    allow_writable: bool = False,
    program: Optional[str] = None,
    try_: bool = False,
    only: Sequence[str] = (),
    ignore: Mapping[str, str] = MappingProxyType({}),
    severities: Mapping[str, str] = MappingProxyType({}),
    gpu_code: bool = True,
) -> Report:
    """Return the report of `check`, as `gpubind check` prints it; its `to_dict()` is `gpubind check --json`.

    *only*: the codes to count. *ignore*: reasons to ignore findings, *severities*: other severities, each by CODE or
    CODE:SUBJECT. *gpu_code*: whether to read the GPU code of the program, or of the image's frameworks. The other
    arguments are those of `check`. Errors: as `check`; `UsageError` (codes `unknown-code`, `wrong-type`).
    """
    site_severities = {}
    for key, value in severities.items():
        severity = next((level for level in SEVERITIES if level == value), None)
        if severity is None:
            raise UsageError("wrong-type", f"severities[{key!r}] is `{value}`", hint=suggest_known(SEVERITIES, value))
        site_severities[table.code_and_subject(key)] = (severity, "severities")
    request = CheckRequest(
        backend=backend,
        arguments=tuple(arguments),
        allow_writable=allow_writable,
        program=program,
        tries=try_,
        only=table.known_codes(only),
        reasons={table.code_and_subject(code): reason for code, reason in ignore.items()},
        severities=site_severities,
        gpu_code=gpu_code,
    )
    name = host.label if host.local is None else host.hostname
    subjects = {"host": name, "image": image.facts.label if image is not None else None, "program": program}
    return _check_preflight(request, _plan_preflight(request, host, plan, image), image, subjects)._replace(
        host_name=name
    )


def _plan_preflight(request: CheckRequest, host: Host, plan: Plan, image: Optional[Image]) -> Preflight:
    """Errors: as `check`."""
    runtime = get_runtime(request.backend) if request.backend is not None else None
    if not request.tries:
        return _make_preflight(request, host, plan, image, runtime, None)
    from gpubind.launch.prepare import environ_of
    from gpubind.launch.trial import need_to_try, read_trial

    label = image.facts.label if image is not None else None
    name = need_to_try(label, is_recorded=host.local is None)
    line = read_trial(name, request.backend, environ_of(host))
    return _make_preflight(request, host, plan, image, line.runtime, line.image)


@verb
def check_document(
    plan: Plan,
    findings: Sequence[Finding],
    image: Optional[Image] = None,
    *,
    host: Optional[str] = None,
    reference: Optional[str] = None,
    program: Optional[str] = None,
    backend: Optional[str] = None,
) -> dict[str, Any]:
    """Return the document `gpubind.check/1` of the *findings* of `check`, as `gpubind check --json` prints it.

    *host* and *reference* (of the image) are names for people. Its `gpu_code` is that of the image's frameworks.
    """
    from gpubind.image.gpucode import read_gpu_code

    subjects = {"host": host, "image": reference, "program": program, "runtime": backend}
    report = make_report(plan, findings, {}, checked=checked_in(image, **subjects))
    return report._replace(gpu_code=() if image is None else read_gpu_code(image)).to_dict()
