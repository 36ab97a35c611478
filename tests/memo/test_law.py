"""The law of the memo: after any change, the answer with the memo is the answer without it, byte for byte."""

from __future__ import annotations

import os
import random
from pathlib import Path

from build.changes import CHANGES
from build.memo import Bench, bench_in

NUMBER = int(os.environ.get("GPUBIND_LAW_CHANGES", "120"))
"""How many changes are tried. `make law` tries some thousands."""
STEPS = 8
"""Changes to one command before the next one has its turn."""


def broken_at(bench: Bench, rng: random.Random, number: int) -> str:
    """Change *bench* as often as *number* says; what broke the law, empty if nothing did."""
    done: list[str] = []
    names = sorted({*bench.commands()} - {"table"})
    name, words = names[0], bench.commands()[names[0]]
    for step in range(number):
        if step % STEPS == 0:
            bench.restore()
            name = rng.choice(names)
            words = bench.commands()[name]
            bench.with_memo(words)
        if rng.random() < 0.3:
            bench.settle()
            bench.with_memo(words)
        change = rng.choice(CHANGES)
        change(bench, rng)
        done.append(change.__name__)
        kept, made = bench.with_memo(words), bench.without(words)
        if kept != made:
            return f"step {step}: {name} after {done[-(step % STEPS) - 1 :]}:\n{kept}\n{made}"
    return ""


def test_after_any_change_the_answer_with_the_memo_is_the_answer_without(tmp_path: Path) -> None:
    seed = int(os.environ.get("GPUBIND_LAW_SEED", "1"))
    with bench_in(tmp_path / "b") as bench:
        assert broken_at(bench, random.Random(seed), NUMBER) == "", f"seed {seed}"
        assert bench.served > NUMBER / 8
        hit = set(bench.changes)
    wanted = {"lstat", "written", "content", "variable"}
    if NUMBER >= 1000:
        wanted |= {"stat", "link", "opened", "names", "user", "variables"}
    assert wanted <= hit
