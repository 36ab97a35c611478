"""A short run of the fuzzer, always the same; and what longer runs have found, ever after."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, seeds_of, take

FOUND = Path(__file__).parent / "found"
NAMES = {name.strip("/").replace("/", "+"): name for name in TARGETS}
SECONDS = 20


@pytest.mark.parametrize("name", TARGETS)
def test_good_inputs_are_taken(name: str) -> None:
    for seed in seeds_of(name):
        take(name, seed)


def test_what_was_found_once_is_mended() -> None:
    for file in sorted(FOUND.glob("*@*")):
        take(NAMES[file.name.partition("@")[0]], file.read_bytes())


def test_a_short_run_finds_nothing() -> None:
    words = ["--cases", "3000", "--seed", "1", "--jobs", "1", "--seconds", str(SECONDS)]
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
