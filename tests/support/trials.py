"""Trials of a law: generated cases from a seed, in several processes; the smallest case that breaks it, and its replay.

hypothesis makes every choice of a case, so it can make a broken case smaller, and a blob repeats it. It tries cases in
batches: what it remembers of them stays small, and after a broken case a new batch goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Optional

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.strategies import randoms

BATCH = 500
MOST_BROKEN = 10
"""After so many broken cases a process ends: each takes time to be made smaller."""
_BLOB = re.compile(r"@reproduce_failure\([^,]*, b'([^']*)'\)")

Case = Callable[[random.Random], None]
"""A case makes its choices by the generator that it is given, and raises where the law is broken."""
Kinds = Mapping[str, Case]
"""The kinds of cases by name. Each has its share, whatever chance says."""


class TimeUpError(BaseException):
    """No time is left for another case; hypothesis takes it for no fault."""


class BrokenLawError(AssertionError):
    """A broken law; its text is the whole story."""


class Tally:
    """What the cases of one process came to."""

    def __init__(self) -> None:
        self.cases = 0
        self.counts: Counter[str] = Counter()
        self.most: dict[str, float] = {}
        """Largest values."""
        self.notes: dict[str, str] = {}
        self.broken: list[str] = []

    def largest(self, name: str, value: float) -> None:
        self.most[name] = max(value, self.most.get(name, value))

    def add(self, other: dict[str, Any]) -> None:
        """Add the JSON of another process."""
        self.cases += other["cases"]
        self.counts.update(other["counts"])
        for name, value in other["most"].items():
            self.largest(name, value)
        self.notes.update(other["notes"])
        self.broken += other["broken"]


class Engine(NamedTuple):
    """A law, and how its cases are tried from a command line."""

    module: str
    """The name that `python -m` takes."""
    doc: Optional[str]
    counted: str
    """What the option of the number counts, as `cases`."""
    number: int
    """The default of that option."""
    opened: Callable[[Tally, argparse.Namespace], AbstractContextManager[Kinds]]
    """Prepare a process, and return its cases."""
    weights: Mapping[str, int] = {}
    """How many cases a kind has beside one of the others."""
    each: int = 1
    """How many of what is counted one case tries."""
    seed: str = "1"
    shrinks: bool = True
    """Whether a smaller case says more."""
    declare: Callable[[argparse.ArgumentParser], object] = lambda _: None
    """Declare further options."""
    wrapped: Callable[[list[str], str], list[str]] = lambda command, _: command
    """Return the command of a process, with what it needs in a directory."""


def main(engine: Engine) -> int:
    """Try the number of cases that the command line asks for, and print what they came to as JSON."""
    options = _options(engine)
    if options.job is not None:
        number = -(-getattr(options, engine.counted) // (options.jobs * engine.each))
        with contextlib.redirect_stdout(sys.stderr):  # hypothesis prints there
            tally = tried(engine, number, options)
        json.dump(vars(tally), sys.stdout)
        return 0
    begin, tally = time.monotonic(), Tally()
    sys.stderr.write(f"seed {options.seed}\n")
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", engine.module, *sys.argv[1:], "--seed", options.seed, "--job"]
        command = engine.wrapped(command, place)
        started = [subprocess.Popen([*command, f"{job}"], stdout=subprocess.PIPE) for job in range(options.jobs)]
        for process in started:
            output = process.communicate()[0]
            if output:
                tally.add(json.loads(output))
            else:
                tally.broken.append(f"a process ended with {process.returncode}")
    result = {**vars(tally), "seed": options.seed, "seconds": round(time.monotonic() - begin)}
    sys.stdout.write(json.dumps(result) + "\n")
    return 1 if tally.broken else 0


def run_engine(module: str, *words: str) -> dict[str, Any]:
    """Return the JSON of an engine that runs in one process of its own."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", module, *words, "--seed", "1", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _options(engine: Engine) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {engine.module}",
        description=engine.doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(f"--{engine.counted}", type=int, default=engine.number, help=f"in all [{engine.number}]")
    parser.add_argument("--seed", default=engine.seed)
    parser.add_argument("--seconds", type=float, help="start no case after so many seconds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [one for each processor]")
    parser.add_argument("--replay", metavar="BLOB", help="run the one case that a report names")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    engine.declare(parser)
    options = parser.parse_args()
    if options.replay is not None:
        options.jobs = 1
    return options


def tried(engine: Engine, number: int, options: argparse.Namespace) -> Tally:
    """Return what *number* cases came to in this process."""
    tally = Tally()
    end = time.monotonic() + (options.seconds or float("inf"))
    only, _, blob = (options.replay or "").rpartition(":")
    with engine.opened(tally, options) as kinds, contextlib.suppress(TimeUpError):
        total, before = sum(engine.weights.get(kind, 1) for kind in kinds), 0
        for kind in [only] if blob else kinds:
            weight = engine.weights.get(kind, 1)
            share = number * (before + weight) // total - number * before // total
            before += weight
            _try(engine, kind, kinds[kind], share, tally, end, f"{options.seed}:{options.job}", blob)
    return tally


def _try(engine: Engine, kind: str, case: Case, number: int, tally: Tally, end: float, seed: str, blob: str) -> None:
    """Try *number* cases of a kind, or the one of *blob*."""
    done = 0

    def counted(rng: random.Random) -> None:
        nonlocal done
        if time.monotonic() >= end:
            raise TimeUpError
        case(rng)
        done += 1
        tally.cases += 1

    while done < number and len(tally.broken) < MOST_BROKEN:
        try:
            search(counted, f"{seed}:{kind}:{done}", min(BATCH, number - done), shrinks=engine.shrinks, replay=blob)
        except Exception as error:  # noqa: BLE001 - whatever breaks a case is a story
            stories = [_story(one, kind) for one in getattr(error, "exceptions", (error,))]
            tally.broken += stories
            sys.stderr.writelines(f"{story}\n" for story in stories)
        if blob:
            break


def search(case: Case, seed: str, number: int, *, shrinks: bool = True, replay: str = "") -> None:
    """Try *number* cases, or the one of *replay*. Raise what the smallest case raises that breaks the law."""

    @hypothesis.seed(seed)
    @settings(
        max_examples=number,
        phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(randoms(use_true_random=False))
    def trial(rng: random.Random) -> None:
        case(rng)

    if replay:
        trial = hypothesis.reproduce_failure(hypothesis.__version__, replay.encode())(trial)
    trial()


def _story(error: BaseException, kind: str) -> str:
    story = f"{error}"
    if not isinstance(error, BrokenLawError):
        story = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    blob = _BLOB.search("\n".join(getattr(error, "__notes__", ())))
    return f"{story}\nagain: --replay {kind}:{blob[1]}" if blob else story
