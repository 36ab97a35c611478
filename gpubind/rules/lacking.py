"""What is to be said of a library of the driver's that the container lacks: it is never one for the image to have."""

from __future__ import annotations

from posixpath import basename
from typing import NamedTuple, Optional

from gpubind.formats.liblist import VENDOR_NEUTRAL
from gpubind.host.base import shipped_liblist
from gpubind.rules.driver import no_nvml
from gpubind.rules.preflight import ImagePreflight
from gpubind.sources.liblist import read_table

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
    """Why the container lacks library *name*; None if it is none of the driver's."""
    capability = read_table(shipped_liblist("nvliblist.conf")).library_section(name)
    if capability in (None, VENDOR_NEUTRAL):
        return None
    findings = (*preflight.plan.findings, *no_nvml(preflight))
    is_told = any(
        finding.code in WHOLE_DRIVER
        or finding.subject == name
        or (finding.code == "not-in-list" and name in (finding.where or "").split(", "))
        for finding in findings
    )
    own = [mount for mount in preflight.plan.mounts if basename(mount.target) == name]
    # One that is in the plan, and is damaged.
    is_told |= any(f.kind == "unreadable" for mount in own for f in preflight.container.failures(mount.target))
    left = any(d.subject == name and d.rule == "capability" for d in preflight.plan.decisions)
    return Lacking("not-asked" if left else "of-driver", capability, is_told)
