"""Symbol versions: `GLIBC_2.36`.

Source: LSB "Symbol Versioning".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

_VERSION = re.compile(r"^([A-Z]+)_([0-9]+(?:\.[0-9]+)*)$")


def newest(definitions: Iterable[str], prefix: str) -> Optional[str]:
    """Return the newest version among *definitions* that starts with *prefix*: `GLIBC_2.36` -> `2.36`."""
    matches = (_VERSION.match(definition) for definition in definitions)
    versions = (match.group(2) for match in matches if match and match.group(1) == prefix)
    return max(versions, key=numbers, default=None)


def numbers(version: str) -> tuple[int, ...]:
    """`2.36` as what can be compared: `(2, 36)`."""
    return tuple(int(part) for part in version.split("."))


def prefix_of(version: str) -> Optional[str]:
    """`GLIBC` of `GLIBC_2.36`; None for a version of another form."""
    match = _VERSION.match(version)
    return match.group(1) if match else None
