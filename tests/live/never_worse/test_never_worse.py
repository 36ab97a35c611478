"""Nothing that works with `apptainer exec --nv` is worse with gpubind.

NEVER_WORSE_SEED and NEVER_WORSE_STARTS choose other starts, and more of them. docs/runtimes.md shows what the default
ones came to: `pytest -m live tests/live/never_worse --update-golden` writes it anew.
"""

from __future__ import annotations

import functools

import pytest

from tests.live.machine import Machine
from tests.live.never_worse import report
from tests.live.never_worse.compare import WORSE
from tests.live.never_worse.run import Row, compared
from tests.live.never_worse.sample import DEFAULT_SEED, DEFAULT_STARTS, SEED, STARTS, starts
from tests.support import golden

pytestmark = pytest.mark.live

PAGE, PART = golden.DOCS / "runtimes.md", "never worse, starts"


@functools.cache
def rows(machine: Machine) -> list[Row]:
    """The starts of this session, made once."""
    return compared(machine, starts(SEED), STARTS)


def test_no_start_is_worse_than_the_real_programs(trixie: Machine) -> None:
    seen = rows(trixie)
    print(f"NEVER_WORSE_SEED={SEED} NEVER_WORSE_STARTS={STARTS}", report.not_startable(seen), sep="\n")  # noqa: T201
    print(report.how_to_repeat(trixie))  # noqa: T201
    number = sum(row.outcome == WORSE for row in seen)
    if number:
        pytest.fail(f"{number} of {STARTS} starts are worse (seed {SEED}):\n{report.worse(seen)}", pytrace=False)


def test_nearly_every_start_can_be_made_on_the_rig(trixie: Machine) -> None:
    seen = rows(trixie)
    assert sum(row.startable for row in seen) == STARTS
    assert sum(not row.startable for row in seen) < 0.1 * STARTS


def test_the_table_in_the_docs_is_what_was_seen(trixie: Machine) -> None:
    if (SEED, STARTS) != (DEFAULT_SEED, DEFAULT_STARTS):
        return  # other starts than the page is about
    seen = report.summary(rows(trixie))
    if golden.is_updating or counted(golden.generated(PAGE, PART)) != counted(seen):
        golden.assert_golden(PAGE, seen, part=PART)


def counted(table: str) -> dict[str, tuple[int, int]]:
    """By way to start: how many starts are worse, and how many there are.

    What of the others is better and what equal may change with a machine's mood; the page shows one run.
    """
    lines = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in table.splitlines()[2:]]
    return {way: (int(counts[0]), sum(map(int, counts))) for way, *counts in lines}
