"""`/etc/ld.so.conf`: directories, one a line, and includes.

Source: ldconfig(8); glibc `elf/ldconfig.c` `parse_conf`.
"""

from __future__ import annotations

from typing import NamedTuple

LINES_LIMIT = 10_000


class LdSoConf(NamedTuple):
    """The lines of one file, in order: ("directory", path) or ("include", pattern)."""

    lines: tuple[tuple[str, str], ...]


def parse_ldsoconf(text: str) -> LdSoConf:
    """Return the directories and includes of *text*, without `hwcap` and relative paths, as glibc. Never raises."""
    lines: list[tuple[str, str]] = []
    for line in text.split("\n")[:LINES_LIMIT]:
        line = line.partition("#")[0].strip()
        words = line.split()
        if words[:1] == ["include"]:
            lines += [("include", pattern) for pattern in words[1:]]
        elif line.startswith("/") and "\0" not in line:
            lines.append(("directory", line.partition("=")[0].rstrip()))
    return LdSoConf(tuple(lines))
