"""Where the time of a cold command goes: imports, files, programs, planning, rules, output.

    python benchmarks/where.py [--runs N] [--root DIR] [--image IMAGE]

Each command runs in a process of its own that measures itself, so the parts add up to a little more than it takes
unmeasured. What is imported while planning counts as import, what is read while planning as reading.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests"), str(REPOSITORY / "benchmarks")]

from bench import make_host

PARTS = ("interpreter", "imports", "files", "programs", "planning", "rules", "output", "rest")
# Runs in the measured process. A stack of parts: time counts for the innermost.
MEASURED = """
import sys, time
clock = time.perf_counter
took, stack, last = {}, ["rest"], clock()
def switch():
    global last
    now = clock()
    took[stack[-1]] = took.get(stack[-1], 0) + (now - last) * 1e3
    last = now
def timed(part, work):
    def measured(*values, **named):
        switch(); stack.append(part)
        try:
            return work(*values, **named)
        finally:
            switch(); stack.pop()
    return measured
def wrap(part, owner, *names):
    for name in names:
        setattr(owner, name, timed(part, getattr(owner, name)))
import builtins, json
real = builtins.__import__
loaded = timed("imports", real)
def load(name, *values):
    if name in sys.modules and not values[2:3] or name in ("sys", "time"):
        return real(name, *values)
    return loaded(name, *values)
builtins.__import__ = load
from gpubind.cli.main import main
import gpubind.cli.output, gpubind.planner.planning, gpubind.host.live, gpubind.files.live
wrap("files", gpubind.files.live.LiveTree, "_lstat", "_readlink", "_list", "_read", "_ident", "_elf", "open")
wrap("programs", gpubind.host.live.LiveHost, "run")
wrap("planning", gpubind.planner.planning, "plan_host")
if sys.argv[1] == "check":
    import gpubind.rules.table
    wrap("rules", gpubind.rules.table, "check")
wrap("output", gpubind.cli.output, "write_document")
try:
    main(sys.argv[1:])
except SystemExit:
    pass  # what a check finds
switch()
sys.stderr.write("\\n" + json.dumps(took))
"""


def parts_of(words: list[str], environ: dict[str, str]) -> dict[str, float]:
    """What each part of `gpubind WORDS` took, in milliseconds."""
    command = [sys.executable, "-c", MEASURED, *words]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environ)
    took: dict[str, float] = json.loads(done.stderr.splitlines()[-1])
    return took


def bare_ms(runs: int) -> float:
    """What the interpreter takes for nothing."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"])
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="runs of each command [15]")
    parser.add_argument("--root", help="a real driver root instead of the made one")
    parser.add_argument("--image", default="/", help="the image for check [/]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.root or str(make_host(Path(scratch) / "host"))
        environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONPYCACHEPREFIX": f"{scratch}/pycache"}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        environ["GPUBIND_MEMO"] = "off"
        host = ["--nv", "--root", root, "--dev-root", root]
        rows = {
            "plan --json": ["plan", "--json", *host],
            "plan --format table": ["plan", "--format", "table", *host],
            "check": ["check", "-q", *host],
            "check --image": ["check", "-q", *host, "--image", options.image],
        }
        bare = bare_ms(options.runs)
        print(f"\n{'where the time goes, ms':<24}" + "".join(f"{part:>12}" for part in PARTS))
        for name, words in rows.items():
            runs = [parts_of(words, environ) for _ in range(options.runs + 1)][1:]
            medians = [statistics.median(run.get(part, 0.0) for run in runs) for part in PARTS[1:]]
            print(f"{name:<24}" + "".join(f"{part:>12.1f}" for part in (bare, *medians)))


if __name__ == "__main__":
    main()
