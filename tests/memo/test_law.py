"""The law of the memo: after any change, the answer with the memo is the answer without it, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.support.memo import IS_ROOT

CHANGES = 50
"""`make law` tries some thousands."""


def test_after_any_change_the_answer_with_the_memo_is_the_answer_without() -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.law", "--changes", f"{CHANGES}", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert done.stdout, done.stderr
    result = json.loads(done.stdout)
    assert result["broken"] == ""
    mounts_and_lists, roots = {"a_read_only_mount", "an_access_list"}, {"a_device_node", "an_owner", "a_group"}
    assert set(result["not_drawn"]) <= mounts_and_lists | (set() if IS_ROOT else roots)
    assert result["served"] > CHANGES / 8
    assert {kind for kind, times in result["kinds"].items() if times} >= {"lstat", "written", "content", "variable"}
