"""What gpubind finds on a host and in an image, for comparisons of a typical host with a recorded one."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from gpubind import Request, check, open_host, open_image, plan
from gpubind.model import Finding

NVIDIA = Request(vendors=("nvidia",))


def findings_of(text: str, path: Optional[Path] = None) -> list[Finding]:
    """Return the findings of a check of the host *text*, with the image *path* if one is given."""
    host = open_host(text)
    if path is None:
        made = plan(host, NVIDIA)
        return [*made.findings, *check(host, made)]
    with open_image(path) as image:
        made = plan(host, NVIDIA, image=image)
        return [*made.findings, *check(host, made, image)]


def severe(findings: list[Finding]) -> list[tuple[str, str, str]]:
    """Return severity, code and subject of the errors and warnings."""
    return sorted((each.severity, each.code, each.subject) for each in findings if each.severity != "note")
