"""`python -m tests.fuzz --cases 1000000 --seed 7`: mutate and run, in several processes, each case within its limits.

The smallest input of a fault is kept in tests/fuzz/found, where the tests run it ever after. `--target NAME` fuzzes one
target.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, seeds_of, take
from tests.support.bounded import peak
from tests.support.trials import BrokenLawError, Engine, Kinds, Tally, main

SECONDS = 2
SLOW = 0.2
"""Seconds that are worth a line of the report."""
MEMORY = 300 << 20
FOUND = Path(__file__).parent / "found"


class TooSlow(BaseException):
    """A case takes too long; nothing that catches exceptions catches this."""


@cache
def _seeds(name: str) -> list[bytes]:
    return list(seeds_of(name))


def run_case(name: str, data: bytes) -> float:
    """Return how long the target takes. Raise what gets out of it, and where it takes too long."""
    started = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        take(name, data)
    except TooSlow:
        raise BrokenLawError(f"{name}: over {SECONDS} s") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return time.process_time() - started


@contextmanager
def opened(tally: Tally, options: argparse.Namespace) -> Iterator[Kinds]:
    """Limit this process; a case is one input for one target."""
    FOUND.mkdir(exist_ok=True)
    limit()

    def case(name: str, rng: random.Random) -> None:
        data = mutated(rng, rng.choice(_seeds(name)), _seeds(name), TARGETS[name].words)
        tally.counts[name] += 1
        try:
            seconds = run_case(name, data)
        except Exception as error:
            keep(name, data, error)
            raise
        tally.largest("MiB", peak() >> 20)
        if seconds >= SLOW:
            tally.largest(f"seconds of {name}", round(seconds, 2))

    yield {name: partial(case, name) for name in ([options.target] if options.target else TARGETS)}


def keep(name: str, data: bytes, error: Exception) -> None:
    """Write *data* in the place of a larger input that has the same fault."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    fault = f"{type(error).__name__} {Path(at.filename).name}:{at.lineno}"
    place = FOUND / f"{name.strip('/').replace('/', '+')}@{hashlib.sha256(fault.encode()).hexdigest()[:12]}"
    place.write_bytes(data)


def limit() -> None:
    """Let this process have `MEMORY` more than it has, and end a case that takes too long."""

    def stop(number: int, frame: object) -> None:
        raise TooSlow

    signal.signal(signal.SIGPROF, stop)
    for name in TARGETS:  # what is loaded once is no case's
        run_case(name, _seeds(name)[0])
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))


ENGINE = Engine(
    "tests.fuzz",
    __doc__,
    "cases",
    100_000,
    opened,
    {name: target.weight for name, target in TARGETS.items()},
    seed=str(random.randrange(10**9)),
    declare=lambda parser: parser.add_argument("--target", choices=TARGETS),
)


if __name__ == "__main__":
    sys.exit(main(ENGINE))
