"""What podman and docker print where they fail. Both were run: docker 26.1, podman 5.4."""

from __future__ import annotations

import re

_ABSENT = re.compile("no such image|image not known|unsupported transport", re.IGNORECASE)
"""The last is of `dir:PATH` and its kin, which podman copies into its store."""
_WARNING = re.compile(r'time="[^"]*" level=(?:debug|info|warning) |(?:WARN|INFO|DEBU)\[|WARNING: ')
"""How a line begins that is not the reason of a failure."""


def parse_reason(message: str) -> str:
    """Return the reason in *message* as one line, without the warnings in front of it."""
    lines = message.strip().splitlines()
    return " ".join([line for line in lines if not _WARNING.match(line)] or lines)


def is_absence(reason: str) -> bool:
    """Return whether *reason* is that the store does not have the image."""
    return _ABSENT.search(reason) is not None
