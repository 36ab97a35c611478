"""explain: the meaning of a code, a message or a log, and why a plan has or lacks a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Optional

from gpubind.api.verb import verb
from gpubind.errors import GpubindError, NothingToBindError, UsageError
from gpubind.explanation import decisions
from gpubind.explanation.answer import Answer
from gpubind.explanation.codes import codes, explain_code, explain_variable, find_in_pages, similar_names
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
from gpubind.machine.answers import inspection_error, is_file, lexists
from gpubind.machine.regular import open_regular, read_beginning
from gpubind.model import Plan
from gpubind.model.notice import Message, Notice, ignore

explain = verb(decisions.explain)

_ABOUT_THE_HOST = ("not-looked-at", "writable-by-others")
"""Findings about the files of the host, on which the answer depends."""
_LONGEST = 200
"""The number of characters of a name or message that an error repeats."""
_BLOCK = 1 << 20
_LONGEST_LOG = 64 << 20
"""Maximum bytes of a log that are read."""
_PROGRAM = b"\x7fELF"
"""The first bytes of an ELF file."""
_LOGS = (".log", ".out", ".err", ".txt")
"""The suffixes of logs, as Slurm and people name them."""
_NAME = re.compile(r"[^\s`'\"<>|;:()]+")
"""A possible name of a plan."""


class ExplainRequest(NamedTuple):
    """What to explain, and where to look up names."""

    text: str
    """A code, a message, a variable, a name of a plan, or the path of a log; empty for every code."""
    plan: Callable[[], Plan]
    """Makes the plan in which names are looked up. It is called for a name, or for the library in a message."""
    log: Optional[BinaryIO] = None
    """A log on standard input, in place of `text`."""
    is_full: bool = False
    """Whether the first of several messages also has the plan's Decision on its library."""
    report: Callable[[Message], None] = ignore


def explain_any(request: ExplainRequest) -> Answer:
    """Return the answer to *request*, and report findings about the files on which it depends.

    Errors: `UsageError` (codes `unknown-code`, `empty-log`); `HostReadError` for a log that cannot be read; for a name,
    those of the plan.
    """
    answer = _explain_text(request) if request.log is None else _explain_log(request, "standard input", request.log)
    if answer.messages and (request.is_full or len(answer.messages) == 1):
        answer = answer._replace(explanation=_explain_library(request, answer.messages[0]))
    return answer


def _explain_text(request: ExplainRequest) -> Answer:
    text = request.text
    if not text.strip():
        return Answer(None, codes=tuple(code for code, _ in codes()))
    if text.startswith(("./", "../")) and (_is_log_file(text) or _looks_like_a_log(text)):
        return _explain_log_file(request)
    page = explain_code(text)
    if page is not None:
        return Answer(text, page=page)
    messages = find_message(text)
    if messages:
        return Answer(text, messages)
    page = explain_variable(text)
    if page is not None:
        return Answer(text, page=page)
    about = find_in_pages(text)
    if about:
        return Answer(text, codes=about)
    if _is_log_file(text):
        try:
            return _explain_name(request)
        except (NothingToBindError, UsageError):  # no plan names this text file
            return _explain_log_file(request)
    if _looks_like_a_log(text):
        return _explain_log_file(request)
    if _NAME.fullmatch(text) is None:
        raise _unknown(f"`{_short(text)}` is neither a code nor a message that gpubind knows", [text])
    return _explain_name(request)


def _is_log_file(path: str) -> bool:
    """Return whether *path* is a regular file but not an ELF file. An unreadable file is taken for a log."""
    if "\n" in path or not is_file(path):
        return False
    try:
        return read_beginning(path, len(_PROGRAM)) != _PROGRAM
    except OSError:
        return True  # `_explain_log_file` reports why it is unreadable


def _explain_log_file(request: ExplainRequest) -> Answer:
    """Errors: as `_explain_log`."""
    path = request.text
    try:
        file = open_regular(path)
    except OSError as error:
        from gpubind.image.open import suggest_path

        unread = inspection_error(path, error, "a log cannot be read")
        unread.hint = unread.hint if lexists(path) else suggest_path(path)
        raise unread from error
    with file.stream() as log:
        return _explain_log(request, path, log)


def _blocks(file: BinaryIO, name: str, report: Callable[[Message], None]) -> Iterator[bytes]:
    """Yield blocks of whole lines. A line that is longer than a block is split."""
    remainder = b""
    for _ in range(_LONGEST_LOG // _BLOCK):
        data = file.read(_BLOCK)
        if not data:
            break
        block, end, remainder = (remainder + data).rpartition(b"\n")
        yield block + end if end else remainder
        remainder = remainder if end else b""
    else:
        report(Notice("warning", "not-looked-at", f"{name}: only its first {_LONGEST_LOG >> 20} MiB were read"))
    if remainder:
        yield remainder


def _looks_like_a_log(path: str) -> bool:
    """Return whether *path* is named like a log, although there is no such file, or the file is not a log."""
    return path.endswith(_LOGS) and _NAME.fullmatch(path) is not None


def _explain_log(request: ExplainRequest, name: str, log: BinaryIO) -> Answer:
    """Errors: `HostReadError`; `UsageError` (`empty-log`; `unknown-code` if no line is a known message)."""
    try:
        search_result = search(_blocks(log, name, request.report))
    except OSError as error:
        raise inspection_error(name, error, "a log cannot be read") from error
    if search_result.not_searched is not None:
        why = f"the lines before line {search_result.not_searched} cost too much: the rest of the log was not searched"
        request.report(Notice("warning", "not-looked-at", f"{name}: {why}"))
    if not search_result.lines:
        hint = "give a log: `gpubind explain FILE` or `gpubind explain < FILE`; `gpubind explain ''` lists every code"
        raise UsageError("empty-log", f"{name} is empty: there is no log to explain", hint=hint)
    if not search_result.found:
        what = f"no line of the {search_result.lines} of {name} is a message that gpubind knows"
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
    """Return the plan's Decision on a name. On a host without a driver, return the effect of the missing file instead.

    Errors: `UsageError` (code `unknown-code`) if nothing has that name; `NothingToBindError` on a host without a
    driver, for a name that is not one of a driver's files.
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
