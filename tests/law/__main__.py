"""`python -m tests.law --changes 5000 --seed 7`: the law of the memo, in several processes.

After any change, and after any error while an answer was made, the answer with the memo is the answer without it, byte
for byte. Each command runs in a child of its own that has gpubind's modules, as a new process would after it had loaded
them, and remembers nothing of other runs. Some answers without a memo are made by programs of their own, too.
"""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from gpubind.memo.answer import SWITCH
from gpubind.memo.questions import ASKED
from tests.support.apart import apart
from tests.support.changes import CHANGES, Change, a_read_only_mount, why_not_drawn
from tests.support.faults import FAULTS
from tests.support.memo import IS_ROOT, Bench, Outcome, bench_in
from tests.support.privileges import leave_mounts, obey_permissions
from tests.support.trials import BrokenLawError, Engine, Kinds, Tally, main

STEPS = 8
"""Changes to one command before the next one has its turn."""
WHOLE = 25
"""Of so many commands, one runs as whole programs, too, with a memo and without."""
SIMPLE = ("plan", "columns", "cdi", "sif")
"""Commands of which nothing is made up, no user and no runtime: a whole program gives the same answer."""
_LATE = ("rich", "typer.rich", "pygments", "markdown_it", "gpubind.cli.tables")
"""These hold the environment that they were loaded with."""
OF_MOUNTS = (errno.EROFS, errno.EBUSY, errno.EXDEV)
"""The errors of a change that a read-only mount forbids."""
T = TypeVar("T")
PROGRAM = """
import os, sys
base = os.environ.pop("BASE")
from gpubind.memo import files
files.directories = lambda: iter([f"{base}/memos"])
files.secret_directory = lambda: f"{base}/state"
files._above = lambda path: [base]
import gpubind.host.programs
gpubind.host.programs.PROGRAM_DIRECTORIES = (f"{base}/standard",)
from gpubind.__main__ import main
sys.exit(main())
"""
"""gpubind as its console script runs it, with its memos and helper programs below a bench."""


def load_modules(bench: Bench, commands: Iterable[tuple[str, ...]]) -> None:
    """Load what *commands* load, once for all children."""

    def loaded() -> list[str]:
        for words in commands:
            bench.without(words)
        return sorted(sys.modules)

    for name in apart(loaded):
        if not name.startswith(_LATE) and name != "__main__":
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


class Law:
    """The law, tried on *bench*."""

    def __init__(self, bench: Bench, drawn: Sequence[Change]) -> None:
        self.bench = bench
        self.drawn = drawn
        self.rng = random.Random()
        self.name = ""
        self.is_whole = False
        self.obeys = False
        """Whether modes and access control lists count for the command, as they do for all users but root."""
        self.done: list[str] = []
        """The changes since the bench was restored."""

    def case(self, rng: random.Random) -> None:
        """Change the machine several times for one command."""
        self.rng = rng
        self.begin()
        for _ in range(STEPS):
            broken = self.step()
            if broken:
                who = ", by a user who obeys permissions" * self.obeys
                raise BrokenLawError(f"{self.name}{who} after {', '.join(self.done)}\n{broken}")

    def with_memo(self) -> Outcome:
        bench, words = self.bench, self.bench.commands()[self.name]
        outcome, bench.served, bench.changes = self.run(lambda: (bench.with_memo(words), bench.served, bench.changes))
        return outcome

    def run(self, work: Callable[[], T]) -> T:
        def obeying() -> T:
            obey_permissions()
            return work()

        return apart(obeying if self.obeys else work)

    def without(self) -> Outcome:
        words = self.bench.commands()[self.name]
        return self.run(lambda: self.bench.without(words))

    def begin(self) -> None:
        """Another command, on a bench as it was at first."""
        self.bench.restore()
        self.name = self.rng.choice(sorted(self.bench.commands()))
        self.bench.has_terminal = self.name == "table"
        self.obeys = IS_ROOT and self.rng.random() < 0.5
        self.is_whole = (
            not self.obeys
            and self.name in SIMPLE
            and self.rng.random() < len(self.bench.commands()) / len(SIMPLE) / WHOLE
        )
        self.done = []
        self.with_memo()

    def bad_day(self) -> None:
        """The command runs while something fails: whatever it answers, nothing of that may be kept."""
        fault, words = self.rng.choice(FAULTS), self.bench.commands()[self.name]
        childs = random.Random(self.rng.getrandbits(32))  # what a child draws is no choice of this process
        if self.rng.random() < 0.5:
            self.bench.settle()

        def run() -> None:
            with suppress(Exception), fault(childs):
                self.bench.with_memo(words)

        self.run(run)
        self.done.append(fault.__name__)

    def step(self) -> str:
        """One change; empty, or how the law was broken by it."""
        if self.rng.random() < 0.3:
            self.bench.settle()
            self.with_memo()
        change = self.rng.choice(self.drawn)
        self.done.append(change.__name__)
        try:
            change(self.bench, self.rng)
        except OSError as error:
            if error.errno not in OF_MOUNTS:
                raise
            self.done[-1] += f" ({error.strerror})"
        if self.rng.random() < 0.4:
            self.bad_day()
        kept, made = self.with_memo(), self.without()
        if kept != made:
            return f"with the memo: {kept}\nwithout: {made}"
        for memo in ("on", "off") if self.is_whole else ():
            whole = whole_program(self.bench, self.bench.commands()[self.name], memo)
            if whole != made:
                return f"a whole program, memo {memo}: {whole}\nwithout: {made}"
        return ""


def whole_program(bench: Bench, words: tuple[str, ...], memo: str) -> Outcome:
    environ = {**bench.environ, SWITCH: memo, "PYTHONPATH": os.pathsep.join(sys.path), "BASE": str(bench.base)}
    command = [sys.executable, "-c", PROGRAM, *words]
    done = subprocess.run(command, capture_output=True, env=environ, cwd=bench.work, check=False)
    lines = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith(b"ERROR: ld.so: ")]
    return Outcome(done.returncode, done.stdout, b"".join(lines), None)  # ld.so has words of its own for LD_PRELOAD


@contextmanager
def opened(tally: Tally, options: argparse.Namespace) -> Iterator[Kinds]:
    """Make a bench; count how often a memo was served, and how often each kind of question found a change.

    The kinds of changes that cannot be made here are notes, each with the reason.
    """
    with tempfile.TemporaryDirectory() as place, bench_in(Path(place) / "b") as bench:
        load_modules(bench, bench.commands().values())
        unable = why_not_drawn(bench.work)
        if a_read_only_mount not in unable:
            leave_mounts()
        law = Law(bench, [change for change in CHANGES if change not in unable])
        yield {"changes": law.case}
        bench.unmount()
        tally.counts.update({"served": bench.served, **{kind: bench.changes.count(kind) for kind in ASKED}})
        tally.notes.update({change.__name__: why for change, why in unable.items()})


if __name__ == "__main__":
    sys.exit(main(Engine("tests.law", __doc__, "changes", 5000, opened, each=STEPS)))
