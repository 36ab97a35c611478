"""`python -m tests.fuzz --cases 1000000 --seed 7`: mutate and run, in several processes, each case within its limits.

A failing input is kept in tests/fuzz/found, where the tests run it ever after. `--target NAME` fuzzes one target.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import multiprocessing
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Optional

from tests.fuzz.mutate import mutated
from tests.fuzz.targets import TARGETS, seeds_of, take
from tests.support.bounded import peak

SECONDS = 2
MEMORY = 300 << 20
FOUND = Path(__file__).parent / "found"
STEP = 500
"""Cases that a process takes at a time."""


Job = tuple[str, int, int, Optional[str]]
"""Seed, first case, the one behind the last, the only target."""


class TooSlow(BaseException):
    """A case takes too long; nothing that catches exceptions catches this."""


class Outcome(NamedTuple):
    """What became of some cases."""

    cases: int
    slowest: float
    slowest_of: str
    memory: int
    """Bytes that the process has had at its largest."""
    faults: tuple[str, ...]


def case_of(seed: str, number: int, only: Optional[str] = None) -> tuple[str, bytes]:
    """The target and the input of a case: the same ever after."""
    rng = random.Random(f"{seed}:{number}")
    name = only or rng.choices(_NAMES, cum_weights=_WEIGHTS)[0]
    seeds = _seeds(name)
    return name, mutated(rng, rng.choice(seeds), seeds, TARGETS[name].words)


_NAMES = list(TARGETS)
_WEIGHTS = list(itertools.accumulate(TARGETS[name].weight for name in _NAMES))
_made: dict[str, list[bytes]] = {}


def _seeds(name: str) -> list[bytes]:
    if name not in _made:
        _made[name] = list(seeds_of(name))
    return _made[name]


def run_case(name: str, data: bytes) -> tuple[float, str]:
    """How long the target takes, and what is wrong with that; empty if nothing is."""
    started = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    fault = ""
    try:
        take(name, data)
    except TooSlow:
        fault = f"over {SECONDS} s"
    except Exception as error:  # noqa: BLE001
        at = traceback.extract_tb(error.__traceback__)[-1]
        fault = f"{type(error).__name__}: {str(error)[:200]} ({Path(at.filename).name}:{at.lineno})"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return time.process_time() - started, fault


def run(job: Job) -> Outcome:
    """The cases of *job*."""
    seed, first, last, only = job
    slowest, slowest_of, faults = 0.0, "", []
    for number in range(first, last):
        name, data = case_of(seed, number, only)
        seconds, fault = run_case(name, data)
        if seconds > slowest:
            slowest, slowest_of = seconds, f"{name}, case {number}"
        if fault:
            place = FOUND / f"{name.strip('/').replace('/', '+')}@{hashlib.sha256(data).hexdigest()[:12]}"
            place.write_bytes(data)
            faults.append(f"{name}, case {number}: {fault}: {place.name}")
    return Outcome(last - first, slowest, slowest_of, peak(), tuple(faults))


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


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, help="stop then, however many cases there were")
    parser.add_argument("--seed", default=str(random.randrange(10**9)))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--target", choices=_NAMES)
    said = parser.parse_args()
    FOUND.mkdir(exist_ok=True)
    say(f"seed {said.seed}, {said.cases} cases, {len(TARGETS)} targets")
    deadline = time.monotonic() + said.seconds if said.seconds else None
    jobs = (
        (said.seed, first, min(first + STEP, said.cases), said.target)
        for first in range(0, said.cases, STEP)
        if deadline is None or time.monotonic() < deadline
    )
    gate = threading.Semaphore(2 * said.jobs)
    cases, slowest, slowest_of, memory, faults = 0, 0.0, "", 0, 0
    with multiprocessing.Pool(said.jobs, limit) as pool:
        for outcome in pool.imap_unordered(run, _in_step(jobs, gate)):
            gate.release()
            cases += outcome.cases
            faults += len(outcome.faults)
            memory = max(memory, outcome.memory)
            if outcome.slowest > slowest:
                slowest, slowest_of = outcome.slowest, outcome.slowest_of
            for fault in outcome.faults:
                say(fault)
    limits = f"slowest {slowest:.2f} s ({slowest_of}), {memory >> 20} MiB"
    say(f"{cases} cases, {faults} faults; {limits}; seed {said.seed}")
    return 1 if faults else 0


def _in_step(jobs: Iterable[Job], gate: threading.Semaphore) -> Iterator[Job]:
    """*jobs*, a few ahead of the processes and no further: the time limit counts when a job is given out."""
    for job in jobs:
        gate.acquire()
        yield job


if __name__ == "__main__":
    sys.exit(main())
