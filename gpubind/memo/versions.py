"""What programs print as their version: an ELF file is asked once until it changes.

A runtime takes 30 ms and more to answer what its version is, and the answer stays as long as the program does.
"""

from __future__ import annotations

import contextlib
import posix
from collections.abc import Callable
from typing import Any

from gpubind.machine import listener
from gpubind.memo import files
from gpubind.memo.answer import is_on
from gpubind.memo.questions import first_change
from gpubind.memo.storing import write
from gpubind.memo.trace import Trace

VERSIONS = "versions"
"""The name of the file with what programs have answered about their versions."""


def version_of(program: str, run: Callable[[str], str]) -> str:
    """Return what *program* prints as its version, or printed before; *run* asks it. A script is asked each time.

    Nothing is kept of a command in which it prints nothing.
    """
    listener.report_program(program)
    text = _version_of(program, run)
    if not text:
        listener.mark_uncacheable(f"it does not answer: {program} --version")
    return text


def _version_of(program: str, run: Callable[[str], str]) -> str:
    trace = None
    with contextlib.suppress(OSError):  # there is no /proc
        trace = Trace()
        trace.program(program)
    if trace is None or trace.refused is not None or not is_on():
        return run(program)
    cached = _cached_versions()
    questions, text = cached.get(program, ({}, ""))
    if questions != trace.questions:
        text = run(program)
        if text and first_change(trace.questions) is None:
            with contextlib.suppress(OSError):
                write(VERSIONS, {**cached, program: (trace.questions, text)})
    return str(text)


def _cached_versions() -> dict[str, Any]:
    """Return the answers of programs about their versions, each with its trace."""
    opened = files.open_place()
    if opened is None:
        return {}
    place, secret = opened
    try:
        return files.read_memo(place, VERSIONS, secret) or {}
    finally:
        posix.close(place)
