"""contrib/ is short, says at its head what it is for, and has no fault that shellcheck knows."""

from __future__ import annotations

import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(path for path in (ROOT / "contrib").rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix in (".sh", ".nhc")]
OF_ANOTHER = (".path", ".timer")
"""Units that only start one of the same name."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_short_and_says_how_it_is_installed(path: Path) -> None:
    lines = path.read_text().splitlines()
    head = "\n".join(takewhile(lambda line: line.startswith("#"), lines))
    wanted = (
        ["see there"]
        if path.suffix in OF_ANOTHER
        else ["\n# Install  ", "\n# Exit  " if path in SCRIPTS else "\n# Fails  "]
    )
    assert [word for word in wanted if word not in head] == []
    assert len(lines) < 40


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(path: Path) -> None:
    shellcheck, shell = Path(sys.executable).parent / "shellcheck", "bash" if path.suffix == ".nhc" else "sh"
    done = subprocess.run([shellcheck, "--shell", shell, path], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)
