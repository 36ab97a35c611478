"""What is to be said of a library of the driver's that the container lacks: it is never one for the image to have."""

from __future__ import annotations

from posixpath import basename
from typing import NamedTuple, Optional

from gpubind.formats.driver.names import driver_section
from gpubind.rules.host.driver import no_nvml
from gpubind.rules.preflight import ImagePreflight

WHOLE_DRIVER = ("driver-mismatch", "nothing-to-bind")
"""Findings that the plan has nothing of the driver."""


class Lacking(NamedTuple):
    """Why the container lacks a library of the driver's."""

    case: str
    """Of the finding."""
    capability: Optional[str]
    is_told: bool
    """Whether another finding says it already: what follows from that is not told again."""


def lacking(preflight: ImagePreflight, name: str) -> Optional[Lacking]:
    """Return why the container lacks library *name*; None if it is none of the driver's."""
    capability = driver_section(name)
    if capability is None:
        return None
    is_told = any(f.code in WHOLE_DRIVER or f.subject == name for f in (*preflight.plan.findings, *no_nvml(preflight)))
    rules = {decision.rule for decision in preflight.plan.decisions if decision.subject == name}
    own = [mount for mount in preflight.plan.mounts if basename(mount.target) == name]
    # One that is in the plan, and is damaged.
    is_told |= any(f.kind == "unreadable" for mount in own for f in preflight.container.failures(mount.target))
    return Lacking("not-asked" if "capability" in rules else "of-driver", capability, is_told or "not-in-list" in rules)
