"""A cluster to ask: programs that stand for Slurm's, and for gpubind on its nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

SALLOC = """#!/bin/sh
echo "$@" >> "$CLUSTER/salloc"
case " $REFUSED " in *" salloc "*) echo "salloc: error: Unable to allocate resources: Access denied" >&2; exit 1;; esac
if [ $(wc -l < "$CLUSTER/salloc") -le "${BUSY:-0}" ]; then
  echo "salloc: error: Unable to allocate resources: Connection timed out" >&2; exit 1
fi
while [ "$1" != sh ]; do shift; done
export SLURM_JOB_ID=7
"$@"
echo ended >> "$CLUSTER/salloc"
"""
SINFO = """#!/bin/sh
cat "$CLUSTER/sinfo"
"""
SRUN = """#!{python}
import os, subprocess, sys, threading
words = sys.argv[1:]
at = words.index("sh")
options = dict(word.partition("=")[::2] for word in words[:at])
nodes = options["--nodelist"].split(",")
with open(os.environ["CLUSTER"] + "/srun", "a") as log:
    print(*words[:at], file=log)
dead = [node for node in nodes if node in os.environ.get("DEAD", "").split()]
data = sys.stdin.buffer.read()
def start(node):
    environ = {{**os.environ, "SLURMD_NODENAME": node}}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(words[at:], env=environ, **pipes)
def print_of(number, process):
    for stream, printed in zip((sys.stdout.buffer, sys.stderr.buffer), process.communicate(data)):
        for line in printed.split(b"\\n")[:-1]:
            pieces = [line[start : start + 1000] for start in range(0, len(line), 1000)] or [b""]
            stream.write(b"".join(b"%2d: %s\\n" % (number, piece) for piece in pieces))
            stream.flush()
for node in dead:
    print(f"srun: error: Task launch for StepId=7.0 failed on node {{node}}: Connection refused", file=sys.stderr)
reached = [(place, node) for place, node in enumerate(nodes) if node not in dead and not (dead and place % 2)]
threads = [threading.Thread(target=print_of, args=(place, start(node))) for place, node in reached[::-1]]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
if dead:
    print("srun: error: Application launch failed: Connection refused", file=sys.stderr)
sys.exit(bool(dead))
"""
CHECK = {"schema": "gpubind.check/1", "gpubind": "1", "plan": "d" * 64, "checked": {"drivers": []}, "findings": []}
GOOD = json.dumps(CHECK)


class FakeCluster:
    """Programs below *directory*, which stand first in PATH."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bin = directory / "bin"
        self.bin.mkdir(parents=True)
        self.environ = {"PATH": f"{self.bin}:/usr/bin:/bin", "CLUSTER": str(directory), "HOME": str(directory)}
        self.on_nodes(GOOD)

    def program(self, name: str, text: str) -> None:
        """Make the program *name*."""
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def slurm(self, states: Mapping[str, str]) -> None:
        """Make Slurm's programs; *states*: of nodes, `idle` or `down*|the reason`."""
        self.program("salloc", SALLOC)
        self.program("sinfo", SINFO)
        self.program("srun", SRUN.format(python=sys.executable))
        lines = (f"{node}|{state if '|' in state else f'{state}|none'}\n" for node, state in states.items())
        (self.directory / "sinfo").write_text("".join(lines))

    def clustershell(self, worker: str) -> None:
        """Let ClusterShell's configuration name *worker*."""
        (self.directory / "defaults.conf").write_text(f"[task.default]\ndistant_workername: {worker}\n")
        self.environ["CLUSTERSHELL_CFGDIR"] = str(self.directory)

    def on_nodes(self, document: str, **others: str) -> None:
        """Let gpubind print *document* on each node; *others*: what a shell does on a node instead."""
        cases = "".join(f"{node}) {commands};;\n" for node, commands in others.items())
        (self.directory / "document").write_text(document)
        usual = '*) echo "$NODE: a warning" >&2; cat "$CLUSTER/document";;\n'
        head = "NODE=$SLURMD_NODENAME\nfor word; do case $word in --host=*) NODE=${word#*=};; esac; done\n"
        self.program("gpubind", f"#!/bin/sh\n{head}case $NODE in\n{cases}{usual}esac\n")

    def log(self, name: str) -> list[str]:
        """Return the calls of a program."""
        return (self.directory / name).read_text().splitlines()
