"""The versions that programs print: an ELF file is queried once until it changes.

A runtime takes at least 30 ms to print its version, and the version changes only with the program.
"""

from __future__ import annotations

import contextlib
import posix
from collections.abc import Callable
from typing import Any, Optional

from gpubind.machine import listener
from gpubind.memo import files
from gpubind.memo.answer import is_enabled
from gpubind.memo.questions import first_change
from gpubind.memo.storing import write
from gpubind.memo.trace import Trace

VERSIONS = "versions"
"""The name of the file with the printed versions of programs."""


class ProgramVersion:
    """The version of *program*, as far as it is known before the program runs."""

    def __init__(self, program: str) -> None:
        self.questions: Optional[dict[str, Any]] = None
        """The signature of the file; None if it has none, as a script: such a program is queried each time."""
        self.text = ""
        """What the same file printed before; empty if that is unknown."""
        with contextlib.suppress(OSError):  # without /proc
            trace = Trace(listener.recorder)
            trace.program(program)
            self.questions = trace.questions if trace.refused is None else None
        if self.questions is None:
            return
        listener.report_program(program)
        questions, text = _cached_versions().get(program, ({}, "")) if is_enabled() else ({}, "")
        if questions == self.questions:
            self.text = str(text)


def version_of(program: str, run: Callable[[str], str], known: Optional[ProgramVersion] = None) -> str:
    """Return what *program* prints as its version, from the store or by *run*. A script is queried each time.

    *known*: as known before the program was started, if it runs already. A command in which the program prints nothing
    is not stored.
    """
    listener.report_program(program)
    known = known or ProgramVersion(program)
    text = known.text or run(program)
    if not text:
        listener.mark_uncacheable(f"it does not answer: {program} --version")
    elif known.questions and not known.text and is_enabled() and first_change(known.questions) is None:
        with contextlib.suppress(OSError):
            write(VERSIONS, {**_cached_versions(), program: (known.questions, text)})
    known.text = text
    return text


def _cached_versions() -> dict[str, Any]:
    opened = files.open_place()
    if opened is None:
        return {}
    place, secret = opened
    try:
        return files.read_memo(place, VERSIONS, secret) or {}
    finally:
        posix.close(place)
