"""What `gpubind explain` prints."""

from __future__ import annotations

import pytest

from gpubind import plan
from gpubind.documents.explanation import render_text
from gpubind.explanation.answer import Answer
from gpubind.explanation.decisions import explain
from gpubind.explanation.messages import find_message
from gpubind.model import Request
from tests.support.driver import host, kernel, rhel

PLAN = plan(host(rhel(), kernel()), Request())


@pytest.mark.parametrize("width", [40, 60, 100])
def test_a_file_is_explained_in_lines_that_fit_and_no_word_is_broken(width: int) -> None:
    answer = Answer("libcuda.so.1", explanation=explain(PLAN, "libcuda.so.1"))
    text = render_text(answer, width)
    assert text.split() == render_text(answer, 1000).split()
    assert all(len(line) <= width or len(line.split()) == 1 for line in text.splitlines())


def test_a_message_that_no_finding_foretells_ends_with_what_to_do() -> None:
    seen = "Torch not compiled with CUDA enabled"
    text = render_text(Answer(seen, find_message(seen)), 80)
    assert "findings" not in text
    assert text.endswith("without.\n")


def test_findings_that_only_mention_a_number_are_not_said_to_be_about_it() -> None:
    assert render_text(Answer("255", codes=("device-number",)), 80).startswith("findings that mention")
