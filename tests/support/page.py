"""The part of a page that a test writes: what stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def generated(page: str, name: str) -> str:
    """The part *name* of the *page* of docs/."""
    return _parts(page, name)[1]


def hold(page: str, name: str, text: str, *, update: bool) -> None:
    """Hold that the part *name* of the *page* is *text*; with *update* (`--update-golden`) make it so."""
    before, there, after = _parts(page, name)
    if update:
        (DOCS / page).write_text(before + text + after)
    else:
        assert there == text


def _parts(page: str, name: str) -> tuple[str, str, str]:
    text = (DOCS / page).read_text()
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    start, stop = text.index(begin) + len(begin), text.index(end)
    return text[:start], text[start:stop], text[stop:]
