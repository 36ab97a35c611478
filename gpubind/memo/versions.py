"""The versions that programs print: an ELF file is queried once until it changes.

A runtime takes at least 30 ms to print its version, and the version changes only with the program.
"""

from __future__ import annotations

import contextlib
import posix
from collections.abc import Callable
from typing import Any

from gpubind.machine import listener
from gpubind.memo import files
from gpubind.memo.answer import is_enabled
from gpubind.memo.questions import first_change
from gpubind.memo.storing import write
from gpubind.memo.trace import Trace

VERSIONS = "versions"
"""The name of the file with the printed versions of programs."""


def version_of(program: str, run: Callable[[str], str]) -> str:
    """Return what *program* prints as its version, from the store or by *run*. A script is queried each time.

    A command in which the program prints nothing is not stored.
    """
    listener.report_program(program)
    text = _version_of(program, run)
    if not text:
        listener.mark_uncacheable(f"it does not answer: {program} --version")
    return text


def _version_of(program: str, run: Callable[[str], str]) -> str:
    trace = None
    with contextlib.suppress(OSError):  # without /proc
        trace = Trace()
        trace.program(program)
    if trace is None or trace.refused is not None or not is_enabled():
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
    opened = files.open_place()
    if opened is None:
        return {}
    place, secret = opened
    try:
        return files.read_memo(place, VERSIONS, secret) or {}
    finally:
        posix.close(place)
