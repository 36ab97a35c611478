"""A command under limits: how much work it is, and how much memory it takes."""

from __future__ import annotations

import os
import resource
import sys
from typing import NamedTuple

from tests.support.forked import run_forked
from tests.support.measure import pieces_in

PIECES = 500
MEMORY = 300 << 20
"""What any image and any file of a host may cost; see docs/security.md."""
KILL_AFTER_S = 120


class Cost(NamedTuple):
    """What became of a command, and what it took."""

    status: int
    pieces: float
    """Of work: see `build.measure`."""
    seconds: float
    """Of the processor."""
    memory: int
    """Bytes, at its largest."""
    stdout: str
    stderr: str


def run_bounded(*words: str, **environ: str) -> Cost:
    """Run `gpubind` with *words*."""
    done = run_forked(words, {**os.environ, **environ}, module="tests.support.bounded")
    stderr, _, said = done.stderr.rpartition("\0")
    assert said, f"it was killed: status {done.returncode}\n{done.stderr[-2000:]}"
    pieces, seconds, memory = said.split()
    return Cost(done.returncode, float(pieces), float(seconds), int(memory), done.stdout, stderr)


def main(words: list[str]) -> int:
    """Run `gpubind` with *words* under the limits, and print what it took behind all else."""
    from gpubind.cli.main import main as run

    resource.setrlimit(resource.RLIMIT_CPU, (KILL_AFTER_S, KILL_AFTER_S))
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    status: list[int] = []
    pieces, seconds = pieces_in(lambda: status.append(run(words)))
    sys.stderr.write(f"\0{pieces:.0f} {seconds:.2f} {peak()}\n")
    return status[0]


def peak() -> int:
    """Bytes of memory that this process has had at its largest. What `wait4` says counts the parent's, too."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10
