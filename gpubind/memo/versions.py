"""Answers that outlast one command: the versions that programs print, and the facts of content that never changes.

A runtime takes at least 30 ms to print its version, which changes only with the program. So an ELF file is run for its
version only once, until it changes. The facts of content are stored under a name that identifies the content. They are
believed on the same conditions as a memo, as long as gpubind's own code is the same.
"""

from __future__ import annotations

import contextlib
import posix  # `os` may be a recorder's
from collections.abc import Callable
from typing import Any, Optional

from gpubind.machine import listener
from gpubind.memo import files
from gpubind.memo.answer import is_enabled
from gpubind.memo.questions import digest, first_change
from gpubind.memo.storing import note_modules, write
from gpubind.memo.trace import Trace

VERSIONS = "versions"
"""The name of the file with the printed versions of programs."""


class ProgramVersion:
    """The version of *program*, as far as it is known before the program runs."""

    def __init__(self, program: str) -> None:
        self.questions: Optional[dict[str, Any]] = None
        """The signature of the file; None if it has none, for example because it is a script. Such a program is run
        each time.
        """
        self.text = ""
        """The output of the same file at an earlier time; empty if that is unknown."""
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


def content_name(text: str) -> str:
    """Return the name under which the facts of the content that *text* identifies are remembered."""
    return f"content-{digest(text.encode('utf-8', 'surrogateescape')).hex()}"


def known_content(name: str) -> dict[str, Any]:
    """Return the facts remembered under *name*; empty if there are none."""
    opened = files.open_place()
    if opened is None:
        return {}
    place, secret = opened
    try:
        memo = files.read_memo(place, name, secret)
        if memo is None or first_change(memo["trace"]) is not None:
            return {}
        with contextlib.suppress(OSError):
            posix.utime(name, dir_fd=place)  # the oldest are removed first
        content: dict[str, Any] = memo["known"]
        return content
    finally:
        posix.close(place)


def keep_content(name: str, content: dict[str, Any]) -> None:
    """Remember *content* under *name*, merged with what other commands have stored meanwhile. Errors: `OSError`."""
    trace = Trace()
    note_modules(trace, with_packages=False)  # packages unpack to the same content in each version
    if trace.refused is not None:
        return
    others = known_content(name)
    merged = {kind: {**others.get(kind, {}), **content.get(kind, {})} for kind in {**others, **content}}
    write(name, {"trace": {kind: answers for kind, answers in trace.questions.items() if answers}, "known": merged})
