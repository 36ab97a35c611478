"""Hostile images under strace: whatever an image says, nothing else is opened, and nothing is started."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hostile import CASES
from tests.support.looked_at import SECRET

pytestmark = pytest.mark.live

STARTS_AFTER = "/proc/self/statm"
"""What the program opens last before it looks at the first image."""
_OPENED = re.compile(r"^[0-9]+ +open(?:at2?)?\(.* = [0-9]+<(.*)>(?: .*)?$")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], str]:
    """The directory of all images; what was opened while they were looked at; and the whole log."""
    base = tmp_path_factory.mktemp("images")
    references = {}
    for name, make in CASES.items():
        path = base / name
        (path / "outside").mkdir(parents=True)
        (path / "outside" / "secret").write_text(SECRET)
        (path / "secret").write_text(SECRET)
        references[name] = make(path)
    log, spool = base / "log", base / "spool"
    spool.mkdir()
    words = ["strace", "-f", "-y", "-qq", "--seccomp-bpf", "-s", "4096", "-e", "trace=open,openat,openat2,execve"]
    program = [sys.executable, "-m", "tests.support.looked_at", json.dumps(references)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(spool)}
    done = subprocess.run([*words, "-o", str(log), *program], capture_output=True, text=True, env=env)
    assert {line.split(" ")[0] for line in done.stdout.splitlines()} == set(CASES), done.stderr[-4000:]
    text = log.read_text(errors="surrogateescape")
    behind = text[text.index(STARTS_AFTER) :]
    found = [match.group(1) for line in behind.splitlines() if (match := _OPENED.match(line))]
    return base, found, behind


def test_nothing_is_opened_outside_of_an_image(opened: tuple[Path, list[str], str]) -> None:
    base, found, _ = opened
    ours = tuple(str(base / name / "image") for name in CASES)
    loaded = tuple(filter(None, (*sys.path, sys.prefix, sys.base_prefix)))
    outside = [
        path
        for path in found
        if not path.startswith((*ours, str(base / "spool")))
        and not (path.startswith(loaded) and path.endswith((".py", ".pyc", ".so")))
        and path not in (*loaded, *map(os.path.dirname, loaded))  # looked through for modules
    ]
    assert outside == []
    assert any(path.startswith(ours) for path in found)


def test_no_program_is_started(opened: tuple[Path, list[str], str]) -> None:
    _, _, behind = opened
    assert "execve(" not in behind
