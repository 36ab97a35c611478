"""Speed, as ratios in one run: machines differ and are noisy, ratios much less.

    python benchmarks/bench.py [--runs N] [--root DIR]

Whole commands are timed against the bare interpreter and against `import typer`; planning in a warm interpreter in
milliseconds; the ld cache by its size. The host is a tree made from the recorded host that ships: the same names, links
and sizes of directories, with ELF headers for libraries. --root DIR takes a real one.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

import gpubind
from gpubind.documents.text import render_json
from gpubind.formats.driver.liblist import parse_liblist
from gpubind.formats.elf.ldcache import ENTRIES_LIMIT, parse_ldcache
from gpubind.model.data import BUNDLED_HOSTS, read_data
from tests.support.amd import opt
from tests.support.elf import elf
from tests.support.ldcache import build_ldcache, entry
from tests.support.trees import make_tree

LIBRARY = elf("libx.so.1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30, help="runs of each command [30]")
    parser.add_argument("--root", help="a real driver root instead of the made one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.root or str(make_host(Path(scratch) / "host"))
        commands(root, options.runs, scratch)
        planning(root, options.runs)
        ldcache(options.runs)


def make_host(root: Path) -> Path:
    """The recorded host as files: directories, links, ELF headers, small texts. Device nodes are left out."""
    record = json.loads(read_data(f"model/data/hosts/{BUNDLED_HOSTS[0]}.json"))
    for directory, content in record["trees"]["driver"]["directories"].items():
        place = root / directory.lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        for name in content.get("others", ()):
            (place / name).touch()
        for name, facts in content.get("entries", {}).items():
            make_entry(place / name, facts)
    return root


def make_entry(path: Path, facts: Any) -> None:
    if facts is None or path.exists() or path.is_symlink():
        return
    if isinstance(facts, str):
        path.symlink_to(facts)
    elif facts.get("type") == "dir":
        path.mkdir()
    elif facts.get("type", "file") == "file":
        body = base64.b64decode(facts.get("base64", "")) or facts.get("text", "").encode()
        path.write_bytes(LIBRARY if "ident" in facts else body)


def commands(root: str, runs: int, scratch: str) -> None:
    python = sys.executable
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONPYCACHEPREFIX": f"{scratch}/pycache"}
    environ["GPUBIND_MEMO"] = "off"  # what a memo is worth, memo.py measures
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed gpubind has its .pyc files
    script = [python, str(REPOSITORY / "packaging/gpubind")]
    plan = [*script, "plan", "--nv", "--root", root, "--dev-root", root]
    rocm = make_tree(f"{scratch}/rocm", opt()).root
    rows = {
        "python -c pass": [python, "-c", "pass"],
        "python -c 'import typer'": [python, "-c", "import typer"],
        "gpubind --version": [*script, "--version"],
        "gpubind plan --nv --json": [*plan, "--json"],
        "gpubind plan --nv --like apptainer --json": [*plan, "--json", "--like", "apptainer"],
        "gpubind plan --nv --format table": [*plan, "--format", "table"],
        "gpubind plan --nv --json --host NAME": [*script, "plan", "--json", "--host", BUNDLED_HOSTS[0]],
        "gpubind plan --rocm --json": [*script, "plan", "--rocm", "--json", "--root", rocm],
        "gpubind explain libcuda.so.1": [*script, "explain", "libcuda.so.1", "--root", root],
    }
    times: dict[str, list[float]] = {name: [] for name in rows}
    for number in range(runs + 2):  # in turns, so that noise falls on all alike; the first two fill caches
        for name, command in rows.items():
            start = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ, check=True)
            if number >= 2:
                times[name].append((time.perf_counter() - start) * 1e3)
    bare = statistics.median(times["python -c pass"])
    typer = statistics.median(times["python -c 'import typer'"])
    print(f"{'command':<44}{'median ms':>10}{'x bare':>8}{'x typer':>9}{'peak MiB':>10}")
    for name, command in rows.items():
        median = statistics.median(times[name])
        print(
            f"{name:<44}{median:>10.1f}{median / bare:>8.2f}{median / typer:>9.2f}{peak_mib(command, environ):>10.1f}"
        )


def peak_mib(command: list[str], environ: dict[str, str]) -> float:
    """The peak resident size of *command*, in MiB, measured by a process that has no other child."""
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, env=environ, check=True
    )
    return int(done.stdout) / 1024


def median_ms(work: Callable[[], object], runs: int) -> float:
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def planning(root: str, runs: int) -> None:
    """One plan in a warm interpreter: reading the host included, every fact asked for anew."""

    def fresh(**request: Any) -> gpubind.Plan:
        return gpubind.plan(gpubind.LiveHost(root, root), gpubind.Request(**request))

    made = fresh()
    print("\nin a warm interpreter                       median ms")
    print(f"{'plan':<44}{median_ms(fresh, runs):>9.2f}")
    print(f"{'plan, no completion':<44}{median_ms(lambda: fresh(completion=False), runs):>9.2f}")
    print(f"{'plan --like apptainer':<44}{median_ms(lambda: fresh(like='apptainer'), runs):>9.2f}")
    print(f"{'document as JSON':<44}{median_ms(lambda: render_json(made), runs):>9.2f}")
    print("beside: what `apptainer exec --nv` spends on planning the same host is 4.0 to 4.5 ms (Go, 1.4.5)")


def ldcache(runs: int) -> None:
    """Parsing an ld cache and finding the driver's names in it, by its size."""
    names = [e.text for e in parse_liblist(read_data("etc/nvliblist.conf"), "x").entries if e.kind == "library"]
    print(f"\n{'ld cache entries':<20}{'KiB':>8}{'ms':>8}{'us an entry':>13}")
    for count in (1_000, 10_000, ENTRIES_LIMIT):
        others = [entry(f"libother{number}.so.{number % 9}") for number in range(count - 20)]
        data = build_ldcache(others + [entry(f"{name}.1") for name in names[:20]])
        rounds = max(3, runs // 5)
        milliseconds = median_ms(lambda data=data: list(parse_ldcache(data).entries_with_prefix(names)), rounds)  # type: ignore[misc]
        print(f"{count:<20}{len(data) / 1024:>8.0f}{milliseconds:>8.2f}{milliseconds * 1e3 / count:>13.3f}")
    print(f"peak of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
