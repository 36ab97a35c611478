"""What `gpubind explain` prints: pages without Markdown, in lines that fit; or JSON (data/explain.schema.json)."""

from __future__ import annotations

import re
from textwrap import TextWrapper
from typing import NamedTuple, Optional

from gpubind.documents.explanation import Explanation, Message, heading
from gpubind.documents.text import printable, render_explanation
from gpubind.model.plain import plain, text_of
from gpubind.version import __version__

SCHEMA = "gpubind.explain/1"
_QUOTED = re.compile(r"(`+)(.+?)\1")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_AS_IT_IS = ("|", "    ", "```")
"""How lines of tables and of code begin."""
_STAY = "\x00"  # stands for a space at which no line may end: commands are copied


class Answer(NamedTuple):
    """What is known of what was asked: a page, a message with codes, decisions of a plan, or every code."""

    asked: Optional[str]
    """None: every code."""
    message: Optional[Message] = None
    codes: tuple[tuple[str, str], ...] = ()
    """Codes, each with what it may be."""
    page: Optional[str] = None
    """The page of a code, in Markdown, with the code as its first line."""
    explanation: Optional[Explanation] = None


def render_text(answer: Answer, width: int) -> str:
    """Return *answer* for people, in lines of *width* columns."""
    if answer.page is not None:
        return unmarked(answer.page, width)
    if answer.explanation is not None:
        return _folded(render_explanation(answer.explanation), width)
    text = ""
    if answer.message is not None:
        known = answer.message
        head = heading(known.message, answer.asked or "")
        text = unmarked(f"{head}\n\n{known.means}\n\n{known.do}\n", width) + "\n"
    if not answer.codes:
        return text.rstrip("\n") + "\n"
    if answer.asked is not None:
        about = "findings about it" if answer.message is not None else "findings that mention it"
        text += f"{about}; `gpubind explain CODE` has more:\n"
    wide = max(len(code) for code, _ in answer.codes)
    return text + "".join(f"  {code:<{wide}}  {kind}\n" for code, kind in answer.codes)


def render_json(answer: Answer) -> str:
    """Return *answer* as the document `gpubind.explain/1`; what does not apply is null or empty."""
    found = answer.explanation
    message = None
    if answer.message is not None:
        message = {name: getattr(answer.message, name) for name in ("message", "means", "do")}
    subjects = () if found is None else found.subjects
    document = {
        "schema": SCHEMA,
        "gpubind": __version__,
        "asked": answer.asked,
        "page": None if answer.page is None else {"code": answer.page.partition("\n")[0], "text": answer.page},
        "message": message,
        "codes": [{"code": code, "kind": kind} for code, kind in answer.codes],
        "subjects": [{"subject": subject, "decisions": decisions} for subject, decisions in subjects],
        "searched": () if found is None else found.searched,
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
        line = _QUOTED.sub(_quoted, _LINK.sub(r"\1", line))
        line = re.sub(r"(?<![\w*])\*([^* ][^*]*)\*(?![\w*])", r"\1", line)
        wrapper.subsequent_indent = "  " if line.startswith(("- ", "1. ")) else ""
        lines += wrapper.wrap(line) or [""]
    return "".join(printable(line.replace(_STAY, " ")) + "\n" for line in lines)


def _paragraphs(page: str) -> list[str]:
    """Return each paragraph of *page* in one line."""
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
    inside = match.group(2).strip()
    return f"`{inside}`".replace(" ", _STAY) if " " in inside else inside
