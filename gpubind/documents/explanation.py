"""The answers of `gpubind explain`, as text or JSON: decisions, the page of a code, messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpubind.documents.text import printable, render_document, wrapped
from gpubind.explanation.answer import Answer
from gpubind.explanation.codes import codes
from gpubind.explanation.decisions import Explanation
from gpubind.explanation.gpu_codes import Rank
from gpubind.explanation.messages import FoundMessage, example, heading
from gpubind.model import Decision

_MARKS = re.compile(r"(`+)(.+?)\1|(?<![\w*])\*([^* `][^*`]*)\*(?![\w*])")
"""Code, or emphasis. Code is tried first, so that an asterisk in it is kept."""
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_VERBATIM_STARTS = ("|", "    ", "```")
"""The beginnings of lines of tables and of code."""
_KEEP_MARK = "\x00"  # stands for a space at which no line may end: commands are copied
_NAMED_BY = {
    "cdi": "a CDI spec",
    "closure": "a library that loads it",
    "completion": "the driver's own files",
    "devices": "the GPUs of the host",
    "driver": "the driver's own files",
    "image": "the image",
    "libc": "--libc",
    "liblist": "the list of driver files",
}
"""How a source of file names is described. Any other name of a source is that of a program, or a line of a list."""


_LINES = 20
"""Maximum lines of the summary of a log."""
_FIRST: dict[Rank, str] = {
    "cause": "The first cause is in line {line}.",
    "general": "Line {line} tells of a failure; its cause is in no line that gpubind knows.",
    "warning": "No failure that gpubind knows is in this log. Line {line} is a warning; the program goes on.",
    "harmless": "No failure that gpubind knows is in this log. What line {line} says is normal.",
}
"""The sentence about a whole log, by the rank of its first message."""
_BESIDE: dict[Rank, str] = {
    "cause": "also in it; these may follow from it:",
    "general": "what follows from a cause like this:",
    "warning": "warnings; the program goes on without these:",
    "harmless": "normal, nothing is wrong:",
}
_ALONE: dict[Rank, str] = {
    "cause": "",
    "general": "",
    "warning": "A warning: the program goes on without it. ",
    "harmless": "This is normal. ",
}


def render_text(answer: Answer, width: int, *, verbose: bool = False) -> str:
    """Return *answer* for people, in lines of *width* columns; with *verbose* every message of a log in full."""
    if answer.page is not None:
        return markdown_to_text(answer.page, width)
    if answer.messages and not verbose and (len(answer.messages) > 1 or answer.asked is None):
        return _log_text(answer, width)
    if answer.messages:
        return "\n".join(_messages_text(answer, width))
    if answer.explanation is not None:
        return _folded(render_explanation(answer.explanation), width)
    subject = "every code of a finding or an error" if answer.asked is None else "findings that mention it"
    head = f"{subject}; `gpubind explain CODE` has more:\n"
    return head + _codes_text(answer.codes)


def _log_text(answer: Answer, width: int) -> str:
    first, *others = answer.messages
    message = first.message
    text = _wrapped(_FIRST[message.rank].format(line=first.line), width) + "\n" + _head(first, width)
    text += markdown_to_text(f"\n{message.means}\n\n{message.do}\n", width)
    if message.codes:
        text += _wrapped(f"findings about it: {', '.join(message.codes)}", width)
    other_lines: list[str] = []
    for rank in dict.fromkeys(match.message.rank for match in others):
        other_lines += [
            _BESIDE[rank],
            *(_cut(f"  line {match.line}: {heading(match)}", width) for match in others if match.message.rank == rank),
        ]
    room = max(_LINES - len(text.splitlines()) - 1, 0)
    if len(other_lines) > room:
        shown = max(room - 1, 0)
        other_lines = [
            *other_lines[:shown],
            _cut(f"{len(others)} other known messages are in it; `gpubind explain -v` has them all", width),
        ]
    return text + ("\n" if other_lines else "") + "".join(f"{line}\n" for line in other_lines)


def _cut(line: str, width: int) -> str:
    line = printable(line)
    return line if len(line) <= width else f"{line[: width - 3]}..."


def _head(match: FoundMessage, width: int) -> str:
    """Return the line of the log, followed by the full message if the line has only a part of it."""
    full_message = example(match)
    return _wrapped(heading(match), width) + (
        "" if full_message is None else _wrapped(f"in full, for example: {full_message}", width)
    )


def _messages_text(answer: Answer, width: int) -> Iterator[str]:
    is_log = len(answer.messages) > 1 or answer.asked is None
    for match in answer.messages:
        message = match.message
        text = (f"line {match.line}: " if is_log else "") + _head(match, width)
        text += markdown_to_text(f"\n{_ALONE[message.rank]}{message.means}\n\n{message.do}\n", width)
        if message.codes:
            text += "\nfindings about it; `gpubind explain CODE` has more:\n" + _codes_text(message.codes)
        yield text
        if match is answer.messages[0] and answer.explanation is not None:
            yield "on this host:\n" + _folded(render_explanation(answer.explanation), width)


def _wrapped(line: str, width: int) -> str:
    return "".join(f"{printable(part)}\n" for part in wrapped(line, width))


def _codes_text(some: Iterable[str]) -> str:
    kinds = dict(codes())
    wide = max(map(len, some))
    return "".join(f"  {code:<{wide}}  {kinds[code]}\n" for code in some)


def render_json(answer: Answer) -> str:
    """Return *answer* as the document `gpubind.explain/1`; what does not apply is null or empty."""
    kinds = dict(codes())
    explained = answer.explanation
    messages = [
        {
            **{name: getattr(match.message, name) for name in ("name", "message", "means", "do", "rank")},
            "line": match.line,
            "library": match.library,
            "codes": match.message.codes,
        }
        for match in answer.messages
    ]
    about = answer.messages[0].message.codes if answer.messages else answer.codes
    first = {name: messages[0][name] for name in ("message", "means", "do")} if messages else None
    members = {
        "asked": answer.asked,
        "page": None if answer.page is None else {"code": answer.page.partition("\n")[0], "text": answer.page},
        "message": first,
        "messages": messages,
        "codes": [{"code": code, "kind": kinds[code]} for code in about],
        "subjects": [
            {"subject": subject, "decisions": decisions}
            for subject, decisions in (() if explained is None else explained.subjects)
        ],
        "searched": () if explained is None else explained.searched,
    }
    return render_document("gpubind.explain/1", members)


def _folded(tree: str, width: int) -> str:
    """Wrap the lines of *tree* to *width* columns. A continued line keeps the indent of its branch; no word is
    broken.
    """
    lines = []
    for line in tree.splitlines():
        stem = line[: len(line) - len(line.lstrip("|`- "))].replace("`-- ", "    ").replace("|-- ", "|   ")
        lines += [line] if len(line) <= width else wrapped(line, width, f"{stem}  ")
    return "".join(f"{line}\n" for line in lines)


def markdown_to_text(page: str, width: int) -> str:
    """Return *page* without the marks of Markdown, its paragraphs wrapped; tables and code stay as they are."""
    lines = []
    for line in _paragraphs(page):
        if line.startswith(_VERBATIM_STARTS):
            lines.append(line)
            continue
        line = _MARKS.sub(_quoted, _LINK.sub(r"\1", line))
        lines += wrapped(line, width, "  " if line.startswith(("- ", "1. ")) else "") or [""]
    return "".join(printable(line.replace(_KEEP_MARK, " ")) + "\n" for line in lines)


def _paragraphs(page: str) -> list[str]:
    paragraphs: list[str] = []
    for line in page.splitlines():
        before = paragraphs[-1] if paragraphs else ""
        if (
            before
            and line
            and not before.startswith(_VERBATIM_STARTS)
            and not line.startswith((*_VERBATIM_STARTS, "- ", "1. "))
        ):
            paragraphs[-1] = f"{before} {line.strip()}"
        else:
            paragraphs.append(line)
    return paragraphs


def _quoted(match: re.Match[str]) -> str:
    """Return the text without marks. Code of several words keeps quotes, which separate it from the sentence."""
    if match.group(3):
        return match.group(3)
    inside = match.group(2).strip()
    return f"`{inside}`".replace(" ", _KEEP_MARK) if " " in inside else inside


def render_explanation(explanation: Explanation) -> str:
    """Return the Decisions as a tree, each subject a root."""
    lines: list[str] = []
    for subject, decisions in explanation.subjects:
        lines.append(printable(subject))
        for number, decision in enumerate(decisions, 1):
            lines += _branch(decision, number == len(decisions))
    if not explanation.subjects:
        lines.append(f"{printable(explanation.name)}: no source names it, and no file of the driver is called so")
    if explanation.searched:
        lines.append("looked in, in this order:")
        lines += [f"  {number}. {printable(place)}" for number, place in enumerate(explanation.searched, 1)]
    return "\n".join(lines) + "\n"


def _branch(decision: Decision, last: bool) -> Iterator[str]:
    stem, bar = ("`-- ", "    ") if last else ("|-- ", "|   ")
    if decision.verdict == "taken":
        head = f"taken: it lands at {decision.target}" if decision.target else f"taken: {decision.rule}"
    else:
        detail = (decision.detail or "").removeprefix(f"{decision.rule}: ")
        head = f"{decision.verdict}: {decision.rule}" + (f": {detail}" if detail else "")
    yield stem + printable(head)
    source = _NAMED_BY.get(decision.named_by or "", decision.named_by)
    named_by = " ".join(filter(None, (source, f"({decision.named_at})" if decision.named_at else "")))
    facts = [("named by", named_by), ("found in", decision.found_by), ("file", decision.path)]
    if decision.verdict == "taken" and decision.detail:
        facts.append(("note", decision.detail))
    for label, value in facts:
        if value:
            yield f"{bar}{label + ':':<10}{printable(value)}"
