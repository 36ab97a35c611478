"""python -m tests.live.never_worse [--seed N] [--starts N] [--way NAME] [--only TEXT] [--machine DIR]: worse starts."""

from __future__ import annotations

import argparse
import itertools
import sys
import time

from tests.live.interpreters import dependencies
from tests.live.machine import DRIVER, RIG, Machine
from tests.live.never_worse import report
from tests.live.never_worse.compare import WORSE
from tests.live.never_worse.run import compared
from tests.live.never_worse.sample import SEED, STARTS, starts
from tests.live.never_worse.ways import WAYS

LOOKED_AT = 100_000
"""Starts that are dealt at most to find those of --only."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="never_worse", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--starts", type=int, default=STARTS)
    parser.add_argument("--only", default="", metavar="TEXT", help="starts alone whose description holds TEXT")
    parser.add_argument("--way", choices=WAYS, help="all starts go this way")
    parser.add_argument("--machine", default=f"{RIG}/hosts/trixie", help="a copy of that one, with another Apptainer")
    options = parser.parse_args()
    machine = Machine(options.machine, dependencies(RIG, "3.13"), DRIVER)
    dealt = (
        start for start in itertools.islice(starts(options.seed, options.way), LOOKED_AT) if options.only in str(start)
    )
    began = time.monotonic()
    rows = compared(machine, dealt, options.starts)
    sys.stdout.write(report.how_to_repeat(machine) + "\n")
    sys.stdout.write(report.not_startable(rows) + "\n")
    sys.stdout.write(report.worse(rows) + "\n")
    sys.stdout.write(report.summary(rows) + "\n" + report.by_rule(rows))
    sys.stdout.write(f"seed {options.seed}, {len(rows)} starts, {time.monotonic() - began:.0f} s\n")
    return int(any(row.outcome == WORSE for row in rows))


if __name__ == "__main__":
    sys.exit(main())
