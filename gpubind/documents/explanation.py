"""`gpubind explain`: why a file is in the plan or not, the meaning of a code or a message; as text or JSON.

A file has its Decisions, a code its page in data/pages.json or data/errors.json, a message its row in
data/messages.json (`messages.py`) with the findings that predict it; a code of CUDA and the like that no message is
about, its row in data/codes.json (`codes.py`). docs/findings.md, docs/errors.md and docs/messages.md are written from
the same data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from textwrap import TextWrapper
from typing import Any, Optional

from gpubind import __version__
from gpubind.documents.codes import Rank
from gpubind.documents.messages import FoundMessage, example, heading
from gpubind.documents.text import printable
from gpubind.formats.driver.liblist import library_stem
from gpubind.frozen import NamedTuple
from gpubind.model import Decision, Plan
from gpubind.model.data import read_data
from gpubind.model.findings import pages, texts
from gpubind.model.plain import plain, text_of
from gpubind.model.verb import verb

SCHEMA = "gpubind.explain/1"
_MARKS = re.compile(r"(`+)(.+?)\1|(?<![\w*])\*([^* `][^*`]*)\*(?![\w*])")
"""Code, then emphasis: in code, an asterisk stays."""
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_AS_IT_IS = ("|", "    ", "```")
"""The beginnings of lines of tables and of code."""
_STAY = "\x00"  # stands for a space at which no line may end: commands are copied
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
"""Descriptions of sources that name files; any other name is that of a program, or the line of a list."""


class Explanation(NamedTuple):
    """The Decisions of a plan about one name."""

    name: str
    subjects: tuple[tuple[str, tuple[Decision, ...]], ...]
    """Each thing that matches, with everything decided about it; empty if no source names it."""
    searched: tuple[str, ...]
    """The searched places of libraries, in order; empty for programs, nodes and other files."""


@verb
def explain(plan: Plan, name: str) -> Explanation:
    """Return every Decision of *plan* about *name*: a soname, a file name, a path, or a pattern of those.

    The closest match is used: the exact name or path, else names that start with it, else names that contain it, else
    entries of lists that mean it (`libcuda.so` for `libcuda.so.1`).
    """
    matchers: list[Callable[[str], bool]] = [lambda text: text == name]
    if re.search(r"[*?\[]", name):
        matchers = [lambda text: fnmatchcase(text, name)]
    else:
        matchers += [lambda text: text.startswith(name), lambda text: name in text]
        if "." in name:  # what an entry of a list means, where no file has the name
            matchers += [lambda text: text == library_stem(name), lambda text: fnmatchcase(name, _last(text))]
    for matches in matchers:
        subjects: dict[str, list[Decision]] = {}
        for decision in plan.decisions:
            if any(matches(text) for text in _texts(decision)):
                subjects.setdefault(decision.subject, []).append(decision)
        if subjects:
            break
    else:
        subjects = {}
    is_library = not subjects or any(".so" in subject for subject in subjects)
    searched = tuple(place for driver in plan.drivers for place in driver.searched) if is_library else ()
    return Explanation(name, tuple((subject, tuple(found)) for subject, found in subjects.items()), searched)


def explain_code(code: str) -> Optional[str]:
    """Return what *code*, of a finding or an error, means, in Markdown; None if there is no such code."""
    code = code.lower()
    if code in texts():
        return "\n\n".join((code, f"*{_kind(code)}*", *pages()[code])) + "\n"
    error = errors().get(code)
    return None if error is None else f"{code}\n\nan error, exit {error['exit']}\n\n{error['means']}\n"


@lru_cache(maxsize=1)
def errors() -> dict[str, Any]:
    """Return data/errors.json: exit status and meaning of each error, by code."""
    loaded: dict[str, Any] = json.loads(read_data("model/data/errors.json"))
    return loaded


def mentioned(seen: str) -> tuple[str, ...]:
    """Return the findings whose page has *seen*, a part of a message."""
    seen = " ".join(seen.split())
    is_quotable = " " in seen or re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|[0-9]{3}", seen)
    quoted = re.compile(rf"(?<![A-Za-z0-9_]){re.escape(seen)}(?![A-Za-z0-9_])", re.IGNORECASE)
    searched = texts() if is_quotable and len(seen) >= 3 else {}
    return tuple(code for code in searched if quoted.search((explain_code(code) or "").replace("`", "")))


def codes() -> tuple[tuple[str, str], ...]:
    """Return every code of a finding or an error, sorted, with its kind: `error, warning; image`, `exit 2`."""
    kinds = {code: f"exit {error['exit']}" for code, error in errors().items()}
    return tuple(sorted({**kinds, **{code: _kind(code) for code in texts()}}.items()))


def near_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return up to three of *known* and of the codes that are similar to *name*, the nearest first."""
    from difflib import get_close_matches  # only where a name means nothing

    every = (*(code for code, _ in codes()), *known)
    folded = {one.lower(): one for one in reversed(every)}
    return tuple(folded[one] for one in get_close_matches(name.lower(), folded, n=3, cutoff=0.75))


def _kind(code: str) -> str:
    """Return the severities of the finding *code*, and what it needs: `error, warning; image`."""
    text = texts()[code]
    return f"{', '.join(text['severity'])}; {text['needs']}"


def _texts(decision: Decision) -> list[str]:
    paths = [path for path in (decision.path, decision.target) if path]
    return [decision.subject, *paths, *map(_last, paths)]


def _last(path: str) -> str:
    return path.rpartition("/")[2]


class Answer(NamedTuple):
    """The answer: a page, messages, findings that mention what was asked, decisions of a plan, or every code."""

    asked: Optional[str]
    """None: every code, or a log."""
    messages: tuple[FoundMessage, ...] = ()
    """The messages of what was asked, the first cause first."""
    codes: tuple[str, ...] = ()
    page: Optional[str] = None
    """The page of a code, in Markdown, with the code as its first line."""
    explanation: Optional[Explanation] = None
    """Of a name; or of the library that the first message is about."""


_LINES = 20
"""Lines that a log is told in, unless all of it is wanted."""
_FIRST: dict[Rank, str] = {
    "cause": "The first cause is in line {line}.",
    "general": "Line {line} tells of a failure; its cause is in no line that gpubind knows.",
    "warning": "No failure that gpubind knows is in this log. Line {line} is a warning; the program goes on.",
    "harmless": "No failure that gpubind knows is in this log. What line {line} says is normal.",
}
"""What the first message of a log says of the whole."""
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
        return unmarked(answer.page, width)
    if answer.messages and not verbose and (len(answer.messages) > 1 or answer.asked is None):
        return _log_text(answer, width)
    if answer.messages:
        return "\n".join(_messages_text(answer, width))
    if answer.explanation is not None:
        return _folded(render_explanation(answer.explanation), width)
    what = "every code of a finding or an error" if answer.asked is None else "findings that mention it"
    head = f"{what}; `gpubind explain CODE` has more:\n"
    return head + _codes_text(answer.codes)


def _log_text(answer: Answer, width: int) -> str:
    """Return what a log says: the first cause in full, then a line for each of the other messages."""
    first, *others = answer.messages
    known = first.message
    text = _wrapped(_FIRST[known.rank].format(line=first.line), width) + "\n" + _head(first, width)
    text += unmarked(f"\n{known.means}\n\n{known.do}\n", width)
    if known.codes:
        text += _wrapped(f"findings about it: {', '.join(known.codes)}", width)
    rest: list[str] = []
    for rank in dict.fromkeys(one.message.rank for one in others):
        rest += [
            _BESIDE[rank],
            *(_cut(f"  line {one.line}: {heading(one)}", width) for one in others if one.message.rank == rank),
        ]
    left = max(_LINES - len(text.splitlines()) - 1, 0)
    if len(rest) > left:
        shown = max(left - 1, 0)
        rest = [
            *rest[:shown],
            _cut(f"{len(others)} other known messages are in it; `gpubind explain -v` has them all", width),
        ]
    return text + ("\n" if rest else "") + "".join(f"{line}\n" for line in rest)


def _cut(line: str, width: int) -> str:
    line = printable(line)
    return line if len(line) <= width else f"{line[: width - 3]}..."


def _head(found: FoundMessage, width: int) -> str:
    """Return the line that was seen, and the message in full where that line is only a part of it."""
    whole = example(found)
    return _wrapped(heading(found), width) + (
        "" if whole is None else _wrapped(f"in full, for example: {whole}", width)
    )


def _messages_text(answer: Answer, width: int) -> Iterator[str]:
    """Yield each message in full, with its findings and what is so on this host."""
    is_log = len(answer.messages) > 1 or answer.asked is None
    for found in answer.messages:
        known = found.message
        text = (f"line {found.line}: " if is_log else "") + _head(found, width)
        text += unmarked(f"\n{_ALONE[known.rank]}{known.means}\n\n{known.do}\n", width)
        if known.codes:
            text += "\nfindings about it; `gpubind explain CODE` has more:\n" + _codes_text(known.codes)
        yield text
        if found is answer.messages[0] and answer.explanation is not None:
            yield "on this host:\n" + _folded(render_explanation(answer.explanation), width)


def _wrapped(line: str, width: int) -> str:
    lines = TextWrapper(width, break_long_words=False, break_on_hyphens=False).wrap(line)
    return "".join(f"{printable(one)}\n" for one in lines)


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
            **{name: getattr(found.message, name) for name in ("name", "message", "means", "do", "rank")},
            "line": found.line,
            "library": found.library,
            "codes": found.message.codes,
        }
        for found in answer.messages
    ]
    about = answer.messages[0].message.codes if answer.messages else answer.codes
    first = {name: messages[0][name] for name in ("message", "means", "do")} if messages else None
    document = {
        "schema": SCHEMA,
        "gpubind": __version__,
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
    return text_of(plain(document))


def _folded(tree: str, width: int) -> str:
    """Return the lines of *tree* in *width* columns, the rest of each below its begin; no word is broken."""
    lines = []
    for line in tree.splitlines():
        stem = line[: len(line) - len(line.lstrip("|`- "))].replace("`-- ", "    ").replace("|-- ", "|   ")
        wrapper = TextWrapper(width, subsequent_indent=f"{stem}  ", break_long_words=False, break_on_hyphens=False)
        lines += [line] if len(line) <= width else wrapper.wrap(line)
    return "".join(f"{line}\n" for line in lines)


def unmarked(page: str, width: int) -> str:
    """Return *page* without the marks of Markdown, its paragraphs wrapped; tables and code stay as they are."""
    wrapper = TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    lines = []
    for line in _paragraphs(page):
        if line.startswith(_AS_IT_IS):
            lines.append(line)
            continue
        line = _MARKS.sub(_quoted, _LINK.sub(r"\1", line))
        wrapper.subsequent_indent = "  " if line.startswith(("- ", "1. ")) else ""
        lines += wrapper.wrap(line) or [""]
    return "".join(printable(line.replace(_STAY, " ")) + "\n" for line in lines)


def _paragraphs(page: str) -> list[str]:
    paragraphs: list[str] = []
    for line in page.splitlines():
        before = paragraphs[-1] if paragraphs else ""
        if before and line and not before.startswith(_AS_IT_IS) and not line.startswith((*_AS_IT_IS, "- ", "1. ")):
            paragraphs[-1] = f"{before} {line.strip()}"
        else:
            paragraphs.append(line)
    return paragraphs


def _quoted(match: re.Match[str]) -> str:
    """Words keep their quotes, so that they are not read on; one word needs none."""
    if match.group(3):
        return match.group(3)
    inside = match.group(2).strip()
    return f"`{inside}`".replace(" ", _STAY) if " " in inside else inside


def render_explanation(explanation: Explanation) -> str:
    """Return the Decisions as a tree, each subject a root."""
    lines: list[str] = []
    for subject, decisions in explanation.subjects:
        lines.append(printable(subject))
        for number, decision in enumerate(decisions):
            last = number == len(decisions) - 1
            lines += _branch(decision, last)
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
    named_by = " ".join(
        part
        for part in (
            _NAMED_BY.get(decision.named_by or "", decision.named_by),
            f"({decision.named_at})" if decision.named_at else "",
        )
        if part
    )
    facts = [("named by", named_by), ("found in", decision.found_by), ("file", decision.path)]
    if decision.verdict == "taken" and decision.detail:
        facts.append(("note", decision.detail))
    for label, value in facts:
        if value:
            yield f"{bar}{label + ':':<10}{printable(value)}"
