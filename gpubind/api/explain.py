"""explain: the meaning of a code, a message or a log, and why a plan has or lacks a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Optional

from gpubind.api.verb import verb
from gpubind.errors import GpubindError, NothingToBindError, UsageError
from gpubind.explanation import decisions
from gpubind.explanation.answer import Answer
from gpubind.explanation.codes import codes, explain_code, find_in_pages, similar_names
from gpubind.explanation.decisions import Explanation
from gpubind.explanation.gpu_codes import similar_codes
from gpubind.explanation.messages import (
    FoundMessage,
    find_message,
    nearest_messages,
    search,
    vendor_of_lines,
    vendor_option,
)
from gpubind.formats.driver.names import driver_section
from gpubind.frozen import NamedTuple
from gpubind.model import Plan
from gpubind.model.notice import Message, Notice, ignore

explain = verb(decisions.explain)

_ABOUT_THE_HOST = ("not-looked-at", "writable-by-others")
"""Findings about the files on which the answer depends."""
_LONGEST = 200
"""The number of characters of a name or message that an error repeats."""
_LOGS = (".log", ".out", ".err", ".txt")
"""The suffixes of logs, as Slurm and people name them."""
_NAME = re.compile(r"[^\s`'\"<>|;:()]+")
"""A possible name of a plan."""


class LogInput(NamedTuple):
    """A log, in blocks that end with a line."""

    name: str
    blocks: Iterable[bytes]


class LogFiles(NamedTuple):
    """The caller's functions for files that may be logs."""

    is_log_file: Callable[[str], bool]
    """Whether the file at a path may be a log."""
    read: Callable[[str], Iterable[bytes]]
    """Returns the blocks of the file."""


class ExplainRequest(NamedTuple):
    """What to explain, and where to look up names."""

    text: str
    """A code, a message, a name of a plan, or the path of a log; empty for every code."""
    plan: Callable[[], Plan]
    """Makes the plan in which names are looked up; called for a name, or for the library of a message."""
    log_files: LogFiles
    log: Optional[LogInput] = None
    """A log, in place of `text`."""
    is_full: bool = False
    """Whether the first of several messages also has the plan's Decision on its library."""
    report: Callable[[Message], None] = ignore


def explain_any(request: ExplainRequest) -> Answer:
    """Return the answer to *request*, and report findings about the files on which it depends.

    Errors: `UsageError` (codes `unknown-code`, `empty-log`); `HostReadError` for a log that cannot be read; for a name,
    those of the plan.
    """
    answer = _explain_text(request) if request.log is None else _explain_log(request, request.log)
    if answer.messages and (request.is_full or len(answer.messages) == 1):
        answer = answer._replace(explanation=_explain_library(request, answer.messages[0]))
    return answer


def _explain_text(request: ExplainRequest) -> Answer:
    text, is_log_file = request.text, request.log_files.is_log_file
    if not text.strip():
        return Answer(None, codes=tuple(code for code, _ in codes()))
    if text.startswith(("./", "../")) and (is_log_file(text) or _looks_like_a_log(text)):
        return _explain_log_file(request)
    page = explain_code(text)
    if page is not None:
        return Answer(text, page=page)
    messages = find_message(text)
    if messages:
        return Answer(text, messages)
    about = find_in_pages(text)
    if about:
        return Answer(text, codes=about)
    if is_log_file(text):
        return _explain_name_or_log(request)
    if _looks_like_a_log(text):
        return _explain_log_file(request)
    if _NAME.fullmatch(text) is None:
        raise _unknown(f"`{_short(text)}` is neither a code nor a message that gpubind knows", [text])
    return _explain_name(request)


def _explain_name_or_log(request: ExplainRequest) -> Answer:
    """For a text file that a plan names, return the plan's Decision; for any other file, explain its messages."""
    try:
        return _explain_name(request)
    except (NothingToBindError, UsageError):
        return _explain_log_file(request)


def _explain_log_file(request: ExplainRequest) -> Answer:
    """Errors: as `_explain_log`, and those of reading it."""
    return _explain_log(request, LogInput(request.text, request.log_files.read(request.text)))


def _looks_like_a_log(path: str) -> bool:
    """Return whether *path* is named like a log, but there is no file, or it is not a log."""
    return path.endswith(_LOGS) and _NAME.fullmatch(path) is not None


def _explain_log(request: ExplainRequest, log: LogInput) -> Answer:
    """Errors: `UsageError`, code `empty-log` if *log* is empty, `unknown-code` if no line is a known message."""
    search_result = search(log.blocks)
    if search_result.not_searched is not None:
        why = f"the lines before line {search_result.not_searched} cost too much: the rest of the log was not searched"
        request.report(Notice("warning", "not-looked-at", f"{log.name}: {why}"))
    if not search_result.lines:
        hint = "give a log: `gpubind explain FILE` or `gpubind explain < FILE`; `gpubind explain ''` lists every code"
        raise UsageError("empty-log", f"{log.name} is empty: there is no log to explain", hint=hint)
    if not search_result.found:
        what = f"no line of the {search_result.lines} of {log.name} is a message that gpubind knows"
        raise _unknown(what, search_result.complaints)
    return Answer(None, search_result.found)


def _explain_library(request: ExplainRequest, message: FoundMessage) -> Optional[Explanation]:
    """Return the Decision on the library of *message*; None if it names none, or the host has no driver."""
    if message.library is None:
        return None
    try:
        return decisions.explain(_plan(request), message.library)
    except NothingToBindError:
        return None
    except GpubindError as error:
        request.report(error)  # the message itself is known
        return None


def _plan(request: ExplainRequest) -> Plan:
    plan = request.plan()
    for finding in plan.findings:
        if finding.code in _ABOUT_THE_HOST:
            request.report(finding)
    return plan


def _missing(name: str) -> tuple[FoundMessage, ...]:
    """Return the message that a program prints if the driver's library, program or node *name* is missing."""
    last = name.rpartition("/")[2]
    forms = (f"{last}: cannot open shared object file", f"{last}: command not found", f"stat {name}: no such file")
    match = next((match for form in forms for match in find_message(form)), None)
    is_file = ".so" in last or name.startswith("/dev/") or driver_section(last) is not None
    is_any = match is None or match.message.libraries == ("*",)
    return () if not is_file or is_any or match is None else (match._replace(text=name),)


def _explain_name(request: ExplainRequest) -> Answer:
    """Return the plan's Decision on a name; on a host without a driver, the effect of the missing file.

    Errors: `UsageError` (code `unknown-code`) where nothing has that name; `NothingToBindError` for another file's
    name on a host without a driver.
    """
    name, plan = request.text, None
    try:
        plan = _plan(request)
    except NothingToBindError:
        about = _missing(name)
        if about:
            text = "this host has no driver and no GPU; this is what a program says without that file"
            request.report(Notice("note", "", text))
            return Answer(name, about)
        if "/" in name or ".so" in name or driver_section(name) is not None:
            raise  # no plan can answer for another file's name
    explanation = None if plan is None else decisions.explain(plan, name)
    if explanation is not None and explanation.subjects:
        return Answer(name, explanation=explanation)
    near = similar_names(name, () if plan is None else [decision.subject for decision in plan.decisions])
    files = "no file of the plan has this name" if plan is not None else "this host has no driver that could name it"
    raise _unknown(
        f"`{_short(name)}` is neither a code nor a message that gpubind knows, and {files}",
        [name],
        where="" if explanation is None else "looked in " + ", ".join(explanation.searched),
        near=near,
    )


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."


def _unknown(what: str, lines: Sequence[str], *, where: str = "", near: Sequence[str] = ()) -> UsageError:
    """Return the error about unknown *lines*. It suggests the names in *near*, else the nearest messages."""
    near = similar_codes(lines) or near
    if near:
        hint = "did you mean " + " or ".join(f"`{name}`" for name in near) + "?"
    else:
        nearest = nearest_messages(lines)
        suggestion = f"did you mean {' or '.join(f'`{name}`' for name in nearest)}? " if nearest else ""
        vendor = vendor_of_lines(lines)
        option = f"{vendor_option(vendor)} " if vendor is not None else ""
        hint = f"{suggestion}`gpubind check {option}--image IMAGE`, on the node of the job, looks for the cause"
    return UsageError("unknown-code", what, where=where, hint=hint)
