"""Missing libraries and programs: why the container lacks one, and which unreadable parts may provide it.

gpubind cannot inspect everything that may provide a file: an overlay, an image file, a value that only a shell can
compute. If such a part exists, the job may run, so the finding is a warning instead of an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from posixpath import basename
from typing import Optional

from gpubind.formats.driver.names import driver_section
from gpubind.frozen import NamedTuple
from gpubind.loader.search import LoadFailure
from gpubind.model import Finding, finding, shorten_list
from gpubind.model.findings import Sentence
from gpubind.model.rocm import is_rocms, release_with
from gpubind.model.vendors import ROCM_USERSPACE
from gpubind.rules.host.driver import no_nvml
from gpubind.rules.preflight import Preflight

FROM_THE_HOST = ("/tmp/", "/home/", "/root/", "/scratch/", "/var/tmp/")
"""Directories that runtimes and sites bind from the host. If the runtime is not known, neither is their content."""
_WHOLE_DRIVER = ("driver-mismatch", "nothing-to-bind")
"""Findings that report that the plan has no driver files."""


def unseen_libraries(preflight: Preflight) -> tuple[str, ...]:
    """Return descriptions of what could not be inspected and may provide a missing library."""
    return _unseen(preflight, "LD_LIBRARY_PATH")


def unseen_programs(preflight: Preflight, name: str) -> tuple[str, ...]:
    """Return descriptions of what could not be inspected and may provide the missing program *name*."""
    is_set = any(v.name == "PATH" and v.op == "set" for v in (preflight.own_mounts.env if preflight.own_mounts else ()))
    return preflight.container.unreadable_mounts if "/" in name or is_set else _unseen(preflight, "PATH")


def soften(finding: Finding, things: Iterable[str]) -> Finding:
    """Return *finding*; if *things* could not be inspected, an error becomes a warning that names them."""
    names = tuple(dict.fromkeys(things))
    if not names or finding.severity != "error":
        return finding
    what = finding.what
    if isinstance(what, Sentence):
        what = Sentence.fill(
            f"{what.template}; not looked at: {{unseen}}", {**what.facts, "unseen": shorten_list(names)}
        )
    return finding._replace(severity="warning", what=what)


def rocm_with(preflight: Preflight, name: str) -> Optional[str]:
    """Return the directory of a ROCm release on the host that has library *name* but is not the planned release."""
    others = [(each.subject, each.path or "") for each in preflight.plan.decisions if each.rule == "other-rocm"]
    path = next((path for subject, path in others if subject == name), "")
    return next((release for subject, release in others if subject == release and path.startswith(f"{release}/")), None)


def without_userspace(preflight: Preflight, failures: Iterable[LoadFailure], needed_by: str) -> Iterator[Finding]:
    """Yield `userspace-missing` as an error if *needed_by* lacks ROCm libraries because the plan has none of ROCm."""
    reported = next((f for f in preflight.plan.findings if f.code == "userspace-missing" and f.vendor == "amd"), None)
    missing = [failure for failure in failures if failure.kind == "missing" and is_rocms(failure.name)]
    if reported is None or not missing:
        return
    names = tuple(dict.fromkeys(failure.name for failure in missing))
    release = release_with(names)
    is_asked = preflight.plan.request.userspace == "image"
    raw_finding = finding(
        reported.code,
        subject=reported.subject,
        case=("needed", "needed-asked") if is_asked else "needed",
        vendor="amd",
        name=ROCM_USERSPACE.name,
        needed_by=needed_by,
        names=shorten_list(names),
        message=missing[0].message,
        release=f" {release}" if release else "",
    )
    yield soften(raw_finding, unseen_libraries(preflight))


def _unseen(preflight: Preflight, variable: str) -> tuple[str, ...]:
    undecided = (f"the image's {variable}",) if variable in preflight.image.facts.undecided else ()
    return (*preflight.container.unreadable_mounts, *undecided)


class MissingReason(NamedTuple):
    """The reason for which the container lacks a library of the driver."""

    case: str
    """The case of the finding."""
    capability: Optional[str]
    is_reported: bool
    """Whether another finding reports it."""


def missing_reason(preflight: Preflight, name: str) -> Optional[MissingReason]:
    """Return why the container lacks library *name*; None if it is not a library of the driver."""
    capability = driver_section(name)
    if capability is None:
        return None
    reported = (*preflight.plan.findings, *no_nvml(preflight))
    is_reported = any(f.code in _WHOLE_DRIVER or f.subject == name for f in reported)
    rules = {decision.rule for decision in preflight.plan.decisions if decision.subject == name}
    mounts = [mount for mount in preflight.plan.mounts if basename(mount.target) == name]
    # The plan has the library, but its file is damaged.
    is_reported |= any(f.kind == "unreadable" for mount in mounts for f in preflight.container.failures(mount.target))
    case = "not-asked" if "capability" in rules else "of-driver"
    return MissingReason(case, capability, is_reported or "not-in-list" in rules)
