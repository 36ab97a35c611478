"""A command under limits: how much work it is, and how much memory it takes. As a program: run one, and print both."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import NamedTuple

from build.measure import pieces_in

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
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-m", "build.bounded", *words],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        env={**os.environ, "PYTHONPATH": path, **environ},
    )
    stderr, _, said = done.stderr.rpartition("\0")
    assert said, f"it was killed: status {done.returncode}\n{done.stderr[-2000:]}"
    pieces, seconds, memory = said.split()
    return Cost(done.returncode, float(pieces), float(seconds), int(memory), done.stdout, stderr)


def _main() -> int:
    from gpubind.cli.main import main

    resource.setrlimit(resource.RLIMIT_CPU, (KILL_AFTER_S, KILL_AFTER_S))
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    status: list[int] = []
    pieces, seconds = pieces_in(lambda: status.append(main(sys.argv[1:])))
    sys.stderr.write(f"\0{pieces:.0f} {seconds:.2f} {peak()}\n")
    return status[0]


def peak() -> int:
    """Bytes of memory that this process has had at its largest. What `wait4` says counts the parent's, too."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    sys.exit(_main())
