"""A short run of the fuzzer, always the same; and what longer runs have found, ever after."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, seeds_of, take
from tests.support.trials import run_engine

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
    assert run_engine("tests.fuzz", "--cases", "3000", "--seconds", f"{SECONDS}")["broken"] == []
