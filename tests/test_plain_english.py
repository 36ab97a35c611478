"""What a user may be told is plain English: nothing of what stopped readers comes back."""

from __future__ import annotations

import re

import pytest

from tests.support.public_sentences import sentences

STOPPED = {
    r"\balone\b": "only",
    r"\bmostly\b": "usually, most",
    r"\bthe better one\b": "better",
    r"\bwords?\b": "arguments",
    r"\bin \w+'s words\b": "",
    r"\bno (file|source|manifest|record) tells\b": "is not in any",
    r"\blets? (these|some|what)\b.*\b(not )?(count|be)\b": "does not count",
    r"(?<!there )\b(is|are) no (?!such|longer|more|name for|GPU)": "is not a",
    r"(?<!there )\bis none\b(?! of)": "is not one",
    r"\bwaits for programs\b": "would be loaded",
    r"\bmends?\b": "correct",
    r"\bcounts from is\b|\bcount from the\b": "is relative to",
    r"\bdecided from both\b": "",
    r"\bwhat is known of\b": "",
    r"\bsh on top\b": "--format sh",
    r"\bthe later first\b": "the last wins",
    r"\blawful\b|\bheart\b|\bremarks?\b": "exclusive, core, findings",
    r"\bparts? of (a|the|that) GPU\b|\bhas the parts\b": "MIG device",
    r"\bbehind (it|a|the)\b": "after",
    r"\bb'|\bcodec\b|\bof type (str|int|bool|list|dict)\b|\bNoneType\b|\bTraceback\b": "no Python",
    r"\bshall\b": "is to, must",
}
"""What stopped a reader, and what to say in its place."""


@pytest.mark.parametrize("pattern", STOPPED)
def test_no_sentence_has_what_stopped_readers(pattern: str) -> None:
    assert [f"{place}: {text}" for place, text in sentences() if re.search(pattern, text)] == []


def test_the_sentences_of_every_kind_are_looked_at() -> None:
    found = list(sentences())
    assert len(found) > 1500
    for place in (
        "gpubind plan --help",
        "data/findings.json: ",
        "data/messages.json: ",
        "data/errors.json",
        "gpubind/",
    ):
        assert any(where.startswith(place) for where, _ in found)
