"""Rules about the runtime that will start the container: what it cannot do for this plan."""

from __future__ import annotations

from collections.abc import Iterator

from gpubind.model import Finding
from gpubind.model.findings import finding
from gpubind.rules.preflight import Preflight


def runtime_limit(preflight: Preflight) -> Iterator[Finding]:
    """The runtime cannot express the plan."""
    error = preflight.limit
    if error is not None:
        yield finding(
            "runtime-limit",
            subject=error.code,
            where=error.where,
            runtime=preflight.backend,
            limit=error.what,
            why=error.why,
            hint=error.hint,
        )
