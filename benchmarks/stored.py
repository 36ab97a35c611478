"""Starts of a large image in docker's store by an ordinary user in group docker, on the rig's GPU node. As root.

    python benchmarks/stored.py [--runs N] [--size MB]

`docker run` beside `gpubind wrap -- docker run --gpus all`, in turns, in one run: always the same line, and with other
options each time, as workflow programs have them. The first start of an image reads it. `more` is the difference of two
starts that follow each other.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from statistics import mean, median, quantiles

from node import node_for

from tests.live.containers import CONTAINERS, EXCLUDES
from tests.live.engine_starts import IMPORT, SOCKET, Engine, dockerd, run
from tests.live.machine import INSIDE_CHECKOUT
from tests.live.test_memo import TMPFS

IMAGE = "engines:bookworm"
PROGRAM = f"{INSIDE_CHECKOUT}/packaging/gpubind"
LARGE = """
cd $(mktemp -d)
head -c {size}M /dev/urandom > blob
printf 'FROM {image}\\nCOPY blob /opt/blob\\n' > Dockerfile
DOCKER_BUILDKIT=0 docker build -q -t large:1 .
rm -r $PWD
"""
# Runs on the node: seconds by the clock and of processor time of each start, as JSON.
TIMER = """
import json, os, resource, subprocess, sys, time, uuid
line = ["docker", "run", "--rm", "--network", "none"]
wrap = [sys.executable, sys.argv[2], "wrap", "-q", "--"]
def others():
    name = uuid.uuid4().hex
    return [f"--cidfile=/home/user/{name}", f"--mount=type=tmpfs,target=/var/lib/{name}", "--workdir=/tmp"]
lines = {
    "docker run": lambda: [*line, "large:1", "true"],
    "wrap, the same line": lambda: [*wrap, *line, "--gpus", "all", "large:1", "true"],
    "wrap, other options": lambda: [*wrap, *line, *others(), "--gpus", "all", "large:1", "true"],
}
def used():
    of = resource.getrusage(resource.RUSAGE_CHILDREN)
    return of.ru_utime + of.ru_stime
def start(name):
    begin, before = time.perf_counter(), used()
    subprocess.run(lines[name](), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin, used() - before
first = [start("wrap, the same line") for _ in range(3)]
times = {name: [] for name in lines}
for _ in range(int(sys.argv[1])):
    for name in lines:
        times[name].append(start(name))
print(json.dumps([first, times]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="runs of each line [20]")
    parser.add_argument("--size", type=int, default=3000, help="megabytes in the image, beside Debian [3000]")
    options = parser.parse_args()
    node = node_for("starts of stored images were")
    if node is None:
        return
    docker = Engine("docker", IMAGE)
    with dockerd(node):
        words = IMPORT.format(program="docker", suite="bookworm", changes="", excludes=EXCLUDES)
        run(node, docker, "sh", "-ec", words)
        run(node, docker, "sh", "-ec", LARGE.format(size=options.size, image=IMAGE))
        modules = ":".join(bind.target for bind in node.modules)
        env = {"DOCKER_HOST": SOCKET, "PYTHONPATH": modules, "PYTHONPYCACHEPREFIX": "/home/user/pycache"}
        user = (
            "setpriv --reuid=user --regid=user --groups=user,docker env -C /home/user HOME=/home/user TMPDIR=/var/tmp"
        )
        script = "\n".join([*TMPFS, f"{user} python3 -c {shlex.quote(TIMER)} {options.runs} {PROGRAM}"])
        binds = [*node.modules, CONTAINERS]
        before = os.getloadavg()[0]
        first, times = json.loads(node.run(["sh", "-ec", script], driver=True, binds=binds, env=env).stdout)
    load = f"{before:.1f} to {os.getloadavg()[0]:.1f}"
    print(f"\nan image of docker, {options.size} MB, {options.runs} starts of each, load {load}")
    print(f"{'':<30}{'s':>8}{'more':>8}{'mean':>8}{'95 %':>8}{'CPU s':>8}")
    for number, (took, of_processor) in enumerate(first, 1):
        print(f"{f'wrap, start {number}':<30}{took:>8.2f}{'':>24}{of_processor:>8.2f}")
    plain = [took for took, _ in times["docker run"]]
    for name, starts in times.items():
        took, of_processor = (median(values) for values in zip(*starts))
        more = [with_plan - alone for (with_plan, _), alone in zip(starts, plain)]
        differences = f"{median(more):>8.2f}{mean(more):>8.2f}{quantiles(more, n=20)[-1]:>8.2f}"
        print(f"{name:<30}{took:>8.2f}{differences}{of_processor:>8.2f}")


if __name__ == "__main__":
    main()
