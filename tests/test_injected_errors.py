"""The law of injected errors: one call fails, and the answer is right or says so. `make law` tries some thousands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.law.errors import KINDS, with_shim

CASES = 40


def test_a_call_that_fails_gives_the_right_answer_or_is_told(tmp_path: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-m", "tests.law.errors", "--cases", f"{CASES}", "--job", "0"]
    done = subprocess.run(with_shim(words, str(tmp_path)), capture_output=True, text=True, env=environ, check=False)
    assert done.stdout, done.stderr
    cases, right, said, kinds, silent, _ = json.loads(done.stdout)
    assert silent == []
    assert (cases, right + said) == (CASES, CASES)
    assert said > CASES / 10
    assert all(kinds[kind] for kind in KINDS if kind != "mmap")  # nothing maps a file yet
