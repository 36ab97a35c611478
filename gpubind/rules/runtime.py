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
