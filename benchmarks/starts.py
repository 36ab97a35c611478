"""Container starts on the rig's GPU node, as the ordinary user: gpubind exec beside apptainer exec --nv. As root.

    python benchmarks/starts.py [--runs N]

The same image and command for all, in turns, in one run; `tests/live/rig/build` makes the rig.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]

from live.conftest import dependencies
from live.machine import DRIVER, INSIDE_CONTAINERS, RIG, Bind, Machine

IMAGE = f"{INSIDE_CONTAINERS}/bookworm-sb"
GPUBIND = ["python3", "-m", "gpubind"]
COMMANDS = {
    "python3 -c pass": ["python3", "-c", "pass"],
    "apptainer exec": ["apptainer", "exec", IMAGE, "true"],
    "apptainer exec --nv": ["apptainer", "exec", "--nv", IMAGE, "true"],
    "gpubind exec --backend apptainer": [*GPUBIND, "exec", "-q", "--backend", "apptainer", IMAGE, "true"],
    "gpubind exec --backend bwrap": [*GPUBIND, "exec", "-q", "--backend", "bwrap", IMAGE, "true"],
    "gpubind check --image": [*GPUBIND, "check", "-q", "--image", IMAGE],
    "gpubind plan --json": [*GPUBIND, "plan", "--json"],
}
# Runs on the node: medians in milliseconds, as JSON.
TIMER = """
import json, os, statistics, subprocess, sys, time
commands, runs = json.loads(sys.argv[1]), int(sys.argv[2])
times = {name: [] for name in commands}
for number in range(runs + 2):
    for name, command in commands.items():
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if number >= 2:
            times[name].append((time.perf_counter() - start) * 1e3)
print(json.dumps({name: statistics.median(values) for name, values in times.items()}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15, help="runs of each command [15]")
    options = parser.parse_args()
    if os.geteuid() != 0 or not os.path.exists(f"{RIG}/stamps/sandboxes"):
        print(f"\ncontainer starts were not measured: that needs root and the rig in {RIG} (make live)")
        return
    node = Machine(f"{RIG}/hosts/trixie", dependencies(RIG, "3.13"), DRIVER)
    env = {"PYTHONPATH": ":".join(bind.target for bind in node.modules), "PYTHONPYCACHEPREFIX": "/tmp/gpubind-bench"}
    binds = [*node.modules, Bind(f"{RIG}/ct", INSIDE_CONTAINERS)]
    command = ["python3", "-c", TIMER, json.dumps(COMMANDS), str(options.runs)]
    medians = json.loads(node.run(command, user=True, driver=True, binds=binds, env=env).stdout)
    bare, nv = medians["python3 -c pass"], medians["apptainer exec --nv"]
    print(f"\n{'on the rig, as a user':<44}{'median ms':>10}{'x bare':>8}{'x apptainer --nv':>18}")
    for name, median in medians.items():
        print(f"{name:<44}{median:>10.1f}{median / bare:>8.2f}{median / nv:>18.2f}")


if __name__ == "__main__":
    main()
