"""What a host costs to look at: its helper programs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpubind.host import programs
from gpubind.machine.budget import BOUNDS, current, one_command
from gpubind.model import Missing


def test_helper_programs_have_a_time_in_all_and_not_only_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "slow"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(programs, "PROGRAM_DIRECTORIES", (str(tmp_path), *programs.PROGRAM_DIRECTORIES))
    monkeypatch.setattr(programs, "find_program", lambda name: str(tmp_path / name))
    with one_command():
        budget = current()
        assert budget is not None
        assert budget.take("milliseconds", BOUNDS["milliseconds"].amount - 300)
        before = os.times().elapsed
        answers = [programs.run_program(("slow",), 30) for _ in range(64)]
        assert os.times().elapsed - before < 5
    assert all(isinstance(answer, Missing) and answer.why == "unreadable" for answer in answers)
