"""The messages that a command reports while it works: findings, errors as warnings, and notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional, Union

from gpubind.errors import GpubindError
from gpubind.frozen import NamedTuple
from gpubind.model.findings import SEVERITIES, as_finding
from gpubind.model.host import Finding


class Notice(NamedTuple):
    """A message about a start, in one line."""

    severity: str
    code: str
    text: str
    is_detail: bool = False
    """Whether only a verbose caller shows it."""


Message = Union[Finding, GpubindError, Notice]
"""A report of a command. An error is reported as a warning: the command continues without the part that failed."""


def ignore(message: Message) -> None:
    """Drop *message*."""


def finding_of(message: Message) -> Optional[Finding]:
    """Return *message* as a finding; None for a detail."""
    if isinstance(message, Finding):
        return message
    if isinstance(message, GpubindError):
        return as_finding(message.code, "warning", message.what, message.where, message.why, message.hint)
    severity = next((candidate for candidate in SEVERITIES if candidate == message.severity), None)
    return None if severity is None else as_finding(message.code, severity, message.text)


def collecting(findings: list[Finding], report: Callable[[Message], None]) -> Callable[[Message], None]:
    """Return a function that adds each message except details to *findings*, and passes it to *report*."""

    def collect(message: Message) -> None:
        finding = finding_of(message)
        if finding is not None:
            findings.append(finding)
        report(message)

    return collect
