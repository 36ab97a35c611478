"""`gpubind wrap` of a command line that asks for no GPU: it starts as it is, and next to nothing is loaded for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gpubind.launch.execute import callers_environ, execute_line
from gpubind.launch.wrap.unasked import asks_for_no_gpu, may_be_told_by_site

_SWITCHES = ("--check", "--no-check", "--quiet", "--require-gpu", "--verbose", "-q", "-qv", "-v", "-vq", "-vv")
"""Options of `wrap` without a value, which change nothing for a line that is passed through."""
_SITES = ("/etc/apptainer/apptainer.conf", "/etc/singularity/singularity.conf")
"""A program called singularity may be either."""
_SITE_LIMIT = 1 << 20


def pass_through(argv: Sequence[str]) -> None:
    """Become the command line behind `wrap` in *argv*, if it asks for no GPU at a glance; else do nothing.

    Errors: as `execute_line`.
    """
    line = _line(argv)
    if line is None:
        return
    environ = callers_environ()
    if asks_for_no_gpu(line, environ) and not site_switches(line):
        execute_line(line, environ)


def site_switches(words: Sequence[str]) -> tuple[str, ...]:
    """The GPU flags that Apptainer or SingularityCE adds by itself here (`always use nv = yes`), if *words* start one.

    A file that cannot be read adds none: the program will complain of it itself.
    """
    if not may_be_told_by_site(words):
        return ()
    names: dict[str, None] = {}
    for path in _SITES:
        try:
            with open(path, "rb") as file:
                lines = file.read(_SITE_LIMIT).split(b"\n")
        except OSError:  # whatever it is: the program itself reads the file, too
            continue
        for line in lines:
            directive, _, value = (part.strip() for part in line.partition(b"="))
            if value == b"yes" and directive in (b"always use nv", b"always use rocm"):
                names[directive.rpartition(b" ")[2].decode()] = None
    return tuple(names)


def _line(argv: Sequence[str]) -> Optional[tuple[str, ...]]:
    """The command line that is to be wrapped; None where an option has to be read first."""
    at = 1
    while at < len(argv) and argv[at] in _SWITCHES:
        at += 1
    if at < len(argv) and argv[at] == "--":
        at += 1
    elif at < len(argv) and argv[at].startswith("-"):
        return None
    return tuple(argv[at:]) or None
