"""Codes of findings and errors: their pages, their kinds, and similar names.

A finding has its page in data/pages.json, an error in data/errors.json. docs/findings.md and docs/errors.md are
written from the same data. Variables have theirs in data/variables.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Optional

from gpubind.model.data import table
from gpubind.model.findings import finding_texts


def explain_code(code: str) -> Optional[str]:
    """Return the page of *code*, a finding or an error, in Markdown; None if there is no such code.

    *code* may be the former code of an error, which older logs contain.
    """
    code = code.lower()
    if code in finding_texts():
        return "\n\n".join((code, f"*{_kind(code)}*", *table("pages")[code])) + "\n"
    errors = table("errors")
    code = next((present for present, error in errors.items() if error.get("former") == code), code)
    error = errors.get(code)
    if error is None:
        return None
    former = f"\n\nThe code of this error was `{error['former']}` before." if "former" in error else ""
    return f"{code}\n\nan error, exit {error['exit']}\n\n{error['means']}{former}\n"


def explain_variable(text: str) -> Optional[str]:
    """Return what the variable of *text*, NAME or NAME=VALUE, changes and why a plan sets it; None for any other."""
    name, _, value = text.partition("=")
    paragraphs = None if any(map(str.isspace, value)) else table("variables").get(name)
    if paragraphs is None:
        return None
    codes = ", ".join(f"`{code}`" for code in find_in_pages(name))
    about = (f"Findings about it: {codes}.",) if codes else ()
    return "\n\n".join((name, "*a variable*", *paragraphs, *about)) + "\n"


def find_in_pages(seen: str) -> tuple[str, ...]:
    """Return the findings whose pages contain *seen*, a part of a message."""
    seen = " ".join(seen.split())
    is_quotable = " " in seen or re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|[0-9]{3}", seen)
    quoted = re.compile(rf"(?<![A-Za-z0-9_]){re.escape(seen)}(?![A-Za-z0-9_])", re.IGNORECASE)
    searched = finding_texts() if is_quotable and len(seen) >= 3 else {}
    return tuple(code for code in searched if quoted.search((explain_code(code) or "").replace("`", "")))


def codes() -> tuple[tuple[str, str], ...]:
    """Return every code of a finding or an error, sorted, with its kind: `error, warning; image`, `exit 2`."""
    kinds = {code: f"exit {error['exit']}" for code, error in table("errors").items()}
    return tuple(sorted({**kinds, **{code: _kind(code) for code in finding_texts()}}.items()))


def similar_names(name: str, known_names: Iterable[str]) -> tuple[str, ...]:
    """Return up to three of *known_names* and the codes that are similar to *name*, the nearest first."""
    from difflib import get_close_matches  # only where a name means nothing

    every = (*(code for code, _ in codes()), *known_names)
    folded = {candidate.lower(): candidate for candidate in reversed(every)}
    return tuple(folded[candidate] for candidate in get_close_matches(name.lower(), folded, n=3, cutoff=0.75))


def _kind(code: str) -> str:
    text = finding_texts()[code]
    return f"{', '.join(text['severity'])}; {text['needs']}"
