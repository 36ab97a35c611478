"""os-release: what a distribution calls itself. Source: os-release(5)."""

from __future__ import annotations

import re
from typing import Optional

_ASSIGNMENT = re.compile(r"^([A-Z_]+)=(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\s\"']*))\s*$", re.MULTILINE)


def parse_os_release(text: str) -> Optional[str]:
    """Return the name and version of the distribution, `Debian 12`; None if *text* does not tell its name."""
    values = {name: double or single or plain for name, double, single, plain in _ASSIGNMENT.findall(text)}
    name = values.get("NAME", "").replace(" GNU/Linux", "")
    return f"{name} {values.get('VERSION_ID', '')}".strip()[:80] if name else None
