"""Ten thousand nodes: their answers fold in bounded time and memory, whatever some of them print."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.commands import BARE, HOST, gpubind
from tests.support.fleet import FakeCluster

NODES = 10_000
SRUN = """
import os, re, sys
nonce = re.search("[0-9a-f]{32}", " ".join(sys.argv)).group()
nodes = next(word for word in sys.argv if word.startswith("--nodelist=")).partition("=")[2].split(",")
good, bad = open(os.environ["CLUSTER"] + "/documents").read().splitlines()
for number, node in enumerate(nodes):
    body = (bad if node.endswith("003") else good).replace("NODE", node)
    line = '{"fleet":"%s","node":"%s","document":%s,"exit":%d,"end":"%s"}' % (nonce, node, body, "gone" in body, nonce)
    text = "noise \\x1b[31m" * 80 if node.endswith("07") else line
    sys.stdout.write("".join(f"{number:>4}: {text[at:at + 1000]}\\n" for at in range(0, len(text), 1000)))
"""
FINDING = {"code": "uvm-missing", "severity": "error", "vendor": "nvidia", "subject": "/dev/nvidia-uvm", "what": "gone"}


def test_ten_thousand_nodes_take_less_than_10_s_and_200_mb(tmp_path: Path) -> None:
    """Of processor time, with that of the program that prints the answers, 40 MB."""
    cluster = FakeCluster(tmp_path / "cluster")
    cluster.slurm({})
    (cluster.directory / "sinfo").write_text("".join(f"n{number:05}|idle|none\n" for number in range(1, NODES + 1)))
    document = json.loads(gpubind("check", "--nv", "--host", HOST, "--json").stdout)
    document["checked"]["host"], document["ignored"] = "NODE", [{"what": "x" * 3000}]
    documents = [json.dumps({**document, "findings": found}) for found in (document["findings"], [FINDING])]
    (cluster.directory / "documents").write_text("\n".join(documents))
    cluster.program("srun", f"#!{sys.executable}{SRUN}")
    # Its memory is limited, not measured: the most that a child had resident begins with what its parent has.
    command = [
        "prlimit",
        f"--data={200 << 20}",
        sys.executable,
        "-m",
        "gpubind",
        "fleet",
        "check",
        "--engine=slurm",
        "-w",
        f"n[00001-{NODES}]",
    ]
    environ = {**cluster.environ, "PYTHONPATH": BARE["PYTHONPATH"]}
    with open(tmp_path / "out", "w") as out:
        process = subprocess.Popen(command, env=environ, stdout=out)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    text = (tmp_path / "out").read_text()
    assert re.findall("number ([0-9]+)\n    answer ([a-z]+)", text) == [
        ("9890", "ok"),
        ("10", "error"),
        ("100", "garbled"),
    ]
    assert text.endswith("10000 nodes: 9890 ok, 10 error, 100 without an answer\n")
    assert process.returncode == 1
    assert used.ru_utime + used.ru_stime < 10
