"""explain: what a code, a message or a log means, and why a file is in a plan or not."""

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
"""Findings about the files that the answer depends on."""
_LONGEST = 200
"""Characters of a name or message that an error repeats."""
_LOGS = (".log", ".out", ".err", ".txt")
"""How the names of logs end, as Slurm and people write them."""
_NAME = re.compile(r"[^\s`'\"<>|;:()]+")
"""What may be a name of a plan."""


class LogInput(NamedTuple):
    """A log, in blocks that end with a line."""

    name: str
    blocks: Iterable[bytes]


class LogFiles(NamedTuple):
    """How the caller reads files that may be logs."""

    is_log_file: Callable[[str], bool]
    """Whether there is a file at a path that may be a log."""
    read: Callable[[str], Iterable[bytes]]
    """Returns its blocks."""


class ExplainRequest(NamedTuple):
    """What is to be explained, and where names are looked up."""

    text: str
    """A code, a message, a name of a plan, or the path of a log; empty for every code."""
    plan: Callable[[], Plan]
    """Makes the plan in which names are looked up; called for a name, or for the library of a message."""
    log_files: LogFiles
    log: Optional[LogInput] = None
    """A log in the place of `asked`."""
    is_full: bool = False
    """Whether also the first of several messages has what the plan decided about its library."""
    report: Callable[[Message], None] = ignore


def explain_any(request: ExplainRequest) -> Answer:
    """Return the answer to *request*. Findings about the files on which the answer depends are reported.

    Errors: `UsageError` (codes `unknown-code`, `empty-log`); `HostReadError` for a log that cannot be read; for a name,
    those of the plan.
    """
    answer = _explain_text(request) if request.log is None else _explain_log(request, request.log)
    if answer.messages and (request.is_full or len(answer.messages) == 1):
        answer = answer._replace(explanation=_explain_library(request, answer.messages[0]))
    return answer


def _explain_text(request: ExplainRequest) -> Answer:
    """Return the answer to a code, a message, a part of one, a name of a plan, or the path of a log."""
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
    """Return the answer to a text file: what the plan decided about it; of any other file, its messages."""
    try:
        return _explain_name(request)
    except (NothingToBindError, UsageError):
        return _explain_log_file(request)


def _explain_log_file(request: ExplainRequest) -> Answer:
    """Return the answer to the log whose path is asked. Errors: as `_explain_log`, and those of reading it."""
    return _explain_log(request, LogInput(request.text, request.log_files.read(request.text)))


def _looks_like_a_log(path: str) -> bool:
    """Return whether *path* is the name of a log, though there is no such file, or what is there is none."""
    return path.endswith(_LOGS) and _NAME.fullmatch(path) is not None


def _explain_log(request: ExplainRequest, log: LogInput) -> Answer:
    """Return the answer to *log*.

    Errors: `UsageError` (code `empty-log`) if there is nothing in it, (code `unknown-code`) if no line is a known
    message.
    """
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
    """Return what is so on this host of the library that *message* is about; None without one, or without a driver."""
    if message.library is None:
        return None
    try:
        return decisions.explain(_plan(request), message.library)
    except NothingToBindError:
        return None
    except GpubindError as error:
        request.report(error)  # the message is known all the same
        return None


def _plan(request: ExplainRequest) -> Plan:
    plan = request.plan()
    for finding in plan.findings:
        if finding.code in _ABOUT_THE_HOST:
            request.report(finding)
    return plan


def _missing(name: str) -> tuple[FoundMessage, ...]:
    """Return the message that a program prints where the driver's library, program or node *name* is missing."""
    last = name.rpartition("/")[2]
    forms = (f"{last}: cannot open shared object file", f"{last}: command not found", f"stat {name}: no such file")
    match = next((match for form in forms for match in find_message(form)), None)
    is_file = ".so" in last or name.startswith("/dev/") or driver_section(last) is not None
    is_any = match is None or match.message.libraries == ("*",)
    return () if not is_file or is_any or match is None else (match._replace(text=name),)


def _explain_name(request: ExplainRequest) -> Answer:
    """Return what the plan decided about a name; on a host without a driver, what it means that the name is missing.

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
            raise  # a file's name: no plan, no answer
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
    """Return the error that nothing is known about *lines*, with what is *near*, else with the nearest messages."""
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
