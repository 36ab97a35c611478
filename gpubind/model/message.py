"""The text of a finding or an error for a terminal or a log, with foreign texts made safe."""

from __future__ import annotations

import re
from typing import Optional

_UNPRINTABLE = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udc9f\udd00-\udfff]"
"""Characters that control a terminal or the direction of text, and bytes that an 8-bit terminal interprets as such."""


def printable(text: str) -> str:
    """Return *text* with characters escaped that could break a line or control a terminal: file names are input."""
    return text if text.isprintable() and text.isascii() else re.sub(_UNPRINTABLE, _escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code - 0xDC00 if 0xDC80 <= code <= 0xDCFF else code:02x}"


def message_lines(
    severity: str, code: str, what: str, where: Optional[str], why: Optional[str], hint: Optional[str]
) -> list[str]:
    """Return the lines `SEVERITY: CODE: what`, then where, why and hint."""
    more = (("where", where), ("why", why), ("hint", hint))
    lines = [f"  {label + ':':<7}{printable(value)}" for label, value in more if value]
    return [f"{severity}: {code}: {printable(what)}", *lines]
