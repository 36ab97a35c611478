"""Where a statement of shell ends; what becomes of whole scripts is checked against shells in test_shell.py."""

from __future__ import annotations

import pytest

from gpubind.formats.text.shell_statement import end_of_statement


@pytest.mark.parametrize(
    ("statement", "rest"),
    [
        ("if a; then b; fi", "\nV=1"),
        ("for x in 1 2; do echo $x; done", "\nV=1"),
        ("while a; do if b; then c; fi; done", "\nV=1"),
        ("case $a in (x|y) b;; *) c;; esac", "\nV=1"),
        ("{ a; b; }", "\nV=1"),
        ("( a; b )", "\nV=1"),
        ("a && b", "\nV=1"),
        ("a |\n b", "\nV=1"),
        ("echo 'fi; done' \"}\" $(a; b) `c; d` ${e:-;}", "\nV=1"),
        ("echo a\\\nb", "\nV=1"),
    ],
)
def test_a_statement_ends_with_its_line_once_it_is_complete(statement: str, rest: str) -> None:
    end = end_of_statement(statement + rest, 0)
    assert end is not None
    assert (statement + rest)[end:].lstrip("\n") == "V=1"


@pytest.mark.parametrize(
    "text", ["if a; then b", "'open", '"open', "$(a", "${a", "`a", "{ a", "case a in", "f() { a; }\n"]
)
def test_what_does_not_end_or_changes_what_follows_is_told(text: str) -> None:
    assert end_of_statement(text, 0) is None
