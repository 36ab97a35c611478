"""The law of injected errors: one call fails, and the answer is right or says so. `make law` tries some thousands."""

from __future__ import annotations

from tests.law.errors import KINDS
from tests.support.trials import run_engine

CASES = 40


def test_a_call_that_fails_gives_the_right_answer_or_is_told() -> None:
    result = run_engine("tests.law.errors", "--cases", f"{CASES}")
    counts = result["counts"]
    assert result["broken"] == []
    assert (result["cases"], counts["right"] + counts["said"]) == (CASES, CASES)
    assert counts["said"] > CASES / 10
    assert counts["kept"]
    assert all(counts.get(kind) for kind in KINDS if kind != "mmap")  # nothing maps a file yet
