"""The law of the memo: after any change, the answer with the memo is the answer without it, byte for byte."""

from __future__ import annotations

from tests.support.memo import IS_ROOT
from tests.support.trials import run_engine

CHANGES = 56
"""`make law` tries some thousands."""


def test_after_any_change_the_answer_with_the_memo_is_the_answer_without() -> None:
    result = run_engine("tests.law", "--changes", f"{CHANGES}")
    assert result["broken"] == []
    mounts_and_lists, roots = {"a_read_only_mount", "an_access_list"}, {"a_device_node", "an_owner", "a_group"}
    assert set(result["notes"]) <= mounts_and_lists | (set() if IS_ROOT else roots)
    assert result["counts"]["served"] > CHANGES / 8
    noticed = {kind for kind, times in result["counts"].items() if times}
    assert noticed >= {"lstat", "written", "content"}
    assert len(noticed) > 6  # which of the rare kinds are among so few changes depends on all that is drawn
