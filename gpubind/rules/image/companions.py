"""Rules about what the driver opens by name at run time: no header says so, and no loader checks it beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename

from gpubind.formats.driver.names import COMPANIONS
from gpubind.model import Finding
from gpubind.model.findings import finding
from gpubind.rules.preflight import Preflight


def companion_missing(preflight: Preflight) -> Iterator[Finding]:
    """A library is in the plan, and what it opens by name is not."""
    names = {basename(mount.target) for mount in preflight.plan.mounts}
    version = preflight.driver.version if preflight.driver is not None else None
    if version is None:
        return
    branch = int(version.partition(".")[0])
    for companion in COMPANIONS:
        due = companion.since <= branch <= (companion.until or branch)
        if due and companion.library in names and not any(name.startswith(companion.name) for name in names):
            yield finding(
                "companion-missing",
                subject=companion.name + (version if companion.name.endswith(".so.") else ""),
                case=companion.name,
                severity=companion.severity,
                library=companion.library,
            )
