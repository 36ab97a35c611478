"""Sentences for users, docstrings and comments are plain English: nothing that stopped readers comes back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.golden import assert_none
from tests.support.public_sentences import sentences
from tests.support.sources import PACKAGE, modules, nodes

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
    found = (f"{place}: {text}" for place, text in sentences() if re.search(pattern, text))
    assert_none(found, f"{{}}\n  instead of {pattern}: {STOPPED[pattern]}")


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


STOPPED_IN_CODE = {
    r"\balone\b": "only",
    r"\bmostly\b": "usually, most",
    r"\b(has|have) not\b(?! \w+(ed|en)\b)": "does not have",
    r"(?<!there )(?<!There )\b(is|are) no (?!such|longer|more|name for|GPU)": "is not a",
    r"\bof (its|their|his|one's) own\b": "its",
    r"(?<!\*)\bbeside\b": "with, in addition to",
    r"\bbehind\b": "after",
    r"\bdoes not count\b|\bcounts\b(?! (of|from|as|the|by|its|one|in|them|MIG))": "is used, takes precedence",
    r"\b(whoever|somebody|nobody)\b": "the actor by name, or the passive",
    r"\banew\b": "again, recreated",
    r"\bheeded\b": "ignored",
    r"\bmend(s|ed)?\b": "correct",
    r"\bshall\b": "is to, must",
}
"""The same for docstrings and comments of the package."""


def prose() -> Iterator[tuple[str, int, str]]:
    """Yield file, line and text of each docstring and comment of the package."""
    for path in modules():
        for line, text in _prose_of(path):
            yield str(path.relative_to(PACKAGE)), line, text


def _prose_of(path: Path) -> Iterator[tuple[int, str]]:
    for node in nodes(path):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, " ".join(node.value.value.split())
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_no_docstring_and_no_comment_has_what_stopped_readers() -> None:
    assert_none(
        f"{file}:{line}: instead of {pattern} say {STOPPED_IN_CODE[pattern]}: {text[:160]}"
        for file, line, text in prose()
        for pattern in STOPPED_IN_CODE
        if re.search(pattern, text)
    )


def test_each_pattern_finds_its_own_kind() -> None:
    bad = "It alone counts, for nobody has not a place of its own beside it; behind that is no file, made anew, heeded."
    found = Counter(
        pattern for pattern in STOPPED_IN_CODE if re.search(pattern, f"{bad} It is mostly mended, and shall be.")
    )
    assert len(found) == len(STOPPED_IN_CODE)


def _starred(node: ast.AST) -> set[str]:
    """Return the parameters that the docstring of *node*, a function or class, marks with stars."""
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return set()
    return set(re.findall(r"(?<![\w*])\*([a-z_]\w*)\*(?![\w*])", ast.get_docstring(node) or ""))


def test_a_docstring_marks_only_its_own_parameters() -> None:
    def unknown(node: ast.AST, known: frozenset[str], file: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            names = known | {
                each.arg if isinstance(each, ast.arg) else getattr(each.target, "id", "")
                for each in (ast.walk(child) if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else ())
                if isinstance(each, (ast.arg, ast.AnnAssign))
            }
            yield from (f"{file}: {child.name}: *{name}*" for name in _starred(child) - names)  # type: ignore[attr-defined]
            yield from unknown(child, frozenset(names), file)

    assert_none(
        message
        for path in modules()
        for message in unknown(nodes(path)[0], frozenset(), str(path.relative_to(PACKAGE)))
    )
