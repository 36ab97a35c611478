"""Rules about the runtime that will start the container: what it cannot do for this plan."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.model import Finding
from gpubind.rules.preflight import Preflight


def runtime_limit(preflight: Preflight) -> Iterator[Finding]:
    """The runtime cannot express the plan."""
    error = preflight.limit
    if error is not None:
        what = f"{preflight.backend} cannot start this: {error.what}"
        yield Finding("runtime-limit", "error", None, error.code, what, error.where, error.why, error.hint)


def no_mount_point(preflight: Preflight) -> Iterator[Finding]:
    """Optional files for which the container has no place."""
    decisions = [] if preflight.words is None else preflight.words.decisions
    left = [decision for decision in decisions if decision.rule == "no-mount-point"]
    if left:
        names = ", ".join(sorted({decision.target or decision.subject for decision in left}))
        what = f"{len(left)} files are left out: the container has no place for them"
        hint = "make the mount points in the image, or use a runtime that can make them"
        yield Finding("no-mount-point", "warning", "nvidia", "mounts", what, names, left[0].detail, hint)
