"""`gpubind fleet` on 64 nodes of Slurm, some of them broken, and over ssh: exactly those are named."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.cluster import Cluster, cluster
from tests.live.interpreters import dependencies
from tests.live.machine import CHECKOUT, INSIDE_CHECKOUT, INSIDE_PYTHON, Bind
from tests.live.test_dist import build
from tests.support.fleet import FakeCluster

pytestmark = pytest.mark.live

GPUBIND = f"""#!/bin/sh
export PYTHONPATH={INSIDE_CHECKOUT}:{INSIDE_PYTHON} PYTHONPYCACHEPREFIX=/srv/bytecode
exec /usr/bin/python3 -m gpubind "$@"
"""
ON_NODES = "/usr/local/bin/gpubind"
LIBCUDA = "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.163.01"
NODES = 64
ALL = ("--nv", "-w", f"n[1-{NODES}]")


@pytest.fixture(scope="module")
def binds(rig: str, tmp_path_factory: pytest.TempPathFactory) -> list[Bind]:
    """What puts gpubind on each node."""
    directory = tmp_path_factory.mktemp("fleet")
    (directory / "bytecode").mkdir()
    (directory / "gpubind").write_text(GPUBIND)
    (directory / "gpubind").chmod(0o755)
    return [
        Bind(CHECKOUT, INSIDE_CHECKOUT),
        Bind(dependencies(rig, "3.13"), INSIDE_PYTHON),
        Bind(f"{directory}/gpubind", ON_NODES),
        Bind(f"{directory}/bytecode", "/srv/bytecode", readonly=False),
    ]


@pytest.fixture(scope="module")
def nodes(binds: list[Bind], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of 64 nodes."""
    with cluster(str(tmp_path_factory.mktemp("slurm")), NODES, binds=binds) as made:
        made.run("srun", f"-N{NODES}", "gpubind", "check", "-q", "--nv", "--gpus", "all")  # byte code
        yield made


def fleet(on: Cluster, *words: str, status: int = 1) -> dict[str, dict[str, Any]]:
    """The lines of --json by the names of nodes, each of which has one."""
    printed = on.run("gpubind", "fleet", *words, *ALL, "--json", status=status)
    lines = [json.loads(line) for line in printed.splitlines()]
    answers = {line["node"]: line for line in lines if line["schema"] == "gpubind.fleet/1"}
    assert len(answers) == len([line for line in lines if line["schema"] == "gpubind.fleet/1"]) == NODES
    return answers


def rows(text: str) -> dict[str, str]:
    """The answers of a table by their nodes."""
    return dict(re.findall(r"^(\S+) +[0-9]+  (.*?)(?:  .*)?$", text, re.MULTILINE))


def test_nodes_that_are_as_they_should_be_are_one_row(nodes: Cluster) -> None:
    assert rows(nodes.run("gpubind", "fleet", "check", *ALL)) == {f"n[1-{NODES}]": "ok"}


def test_exactly_the_broken_nodes_are_named_in_groups(nodes: Cluster) -> None:
    for node in ("n3", "n17", "n18"):
        nodes.on(node, "mv", LIBCUDA, "/mnt")
        nodes.on(node, "cp", "/mnt/libcuda.so.550.163.01", LIBCUDA)
        nodes.on(node, "truncate", "-s", "20000000", LIBCUDA)
    nodes.on("n20", "rm", "/dev/nvidia-uvm")
    nodes.on("n40", "sed", "-i", "s/550.163.01/550.90.07/", "/proc/driver/nvidia/version")
    text = nodes.run("gpubind", "fleet", "check", *ALL, status=1)
    assert rows(text) == {
        "n[1-2,4-16,19,21-39,41-64]": "ok",
        "n[3,17-18]": "error library-unreadable (libcuda.so.1)",
        "n20": "error uvm-missing (/dev/nvidia-uvm)",
        "n40": "error driver-mismatch (550.163.01)",
    }
    assert text.endswith("\n64 nodes: 59 ok, 5 error\n")
    told = nodes.run("gpubind", "fleet", "diff", *ALL, status=1)
    assert re.findall("^(n[^ ]*)(?::| differ| \\()", told, re.MULTILINE) == [
        *("n[1-2,4-16,19,21-39,41-64]", "n[3,17-18]", "n20", "n40")
    ]
    assert re.search(r"^n20 differs from n1:\n  lacks +/dev/nvidia-uvm\n", told, re.MULTILINE)


def test_a_record_of_each_node_is_written(nodes: Cluster) -> None:
    nodes.run("gpubind", "fleet", "record", "-w", "n[1-4]", "-o", "/srv/slurm/records")
    written = os.listdir(f"{nodes.directory}/records")
    assert sorted(written) == ["n1.json", "n2.json", "n3.json", "n4.json"]
    codes = [
        nodes.run("gpubind", "check", "-q", "--nv", "--host", f"/srv/slurm/records/{name}", status=status)
        for name, status in (("n1.json", 0), ("n3.json", 1))
    ]
    assert codes == ["ok\n", "error library-unreadable\n"]


def test_nodes_without_gpubind_are_sent_one_that_leaves_nothing(nodes: Cluster, tmp_path: Path) -> None:
    shutil.copy(build(tmp_path / "dist"), f"{nodes.directory}/gpubind.pyz")
    for node in ("n1", "n2"):
        nodes.on(node, "umount", ON_NODES)
        nodes.on(node, "rm", ON_NODES)
    without = nodes.run("gpubind", "fleet", "check", "--nv", "-w", "n[1-2]", status=1)
    assert [answer[: answer.find(":")] for answer in rows(without).values()] == ["crashed"]
    words = ("fleet", "check", "--bootstrap", "--nv", "-w", "n[1-2]")
    sent = nodes.run("env", f"PYTHONPATH={INSIDE_PYTHON}", "python3", "/srv/slurm/gpubind.pyz", *words)
    assert rows(sent) == {"n[1-2]": "ok"}
    assert nodes.on("n1", "ls", "/tmp") == ""


def test_in_an_allocation_only_its_nodes_are_asked(nodes: Cluster) -> None:
    words = ("gpubind", "fleet", "check", "--nv", "-w", "n[4-7]")
    text = nodes.run("salloc", "--quiet", "--nodelist=n[4-6]", "--nodes=3", *words, status=1)
    assert [(one, answer[:9]) for one, answer in rows(text).items()] == [("n[4-6]", "ok"), ("n7", "not asked")]


def test_a_node_that_is_gone_and_one_that_prints_garbage_are_said_to_be(nodes: Cluster) -> None:
    """The last one with these nodes: Slurm takes minutes to clean up after it."""
    printing = f"umount {ON_NODES}; printf '#!/bin/sh\\nprintf \"\\033[2J%09999999d\"\\n' > {ON_NODES}"
    nodes.on("n50", "sh", "-c", printing + f"; chmod +x {ON_NODES}")
    nodes.on("n33", "sh", "-c", "kill $(cat /run/slurmd.pid)")
    answers = fleet(nodes, "check")
    assert {answers[node]["status"] for node in answers if node not in ("n1", "n2", "n33", "n50")} == {"answered"}
    assert [answers[node]["status"] for node in ("n33", "n50")] == ["unreachable", "garbled"]
    assert answers["n50"]["why"].startswith("it prints `\x1b[2J0000")


def test_a_node_that_hangs_is_said_to_be_late_and_keeps_no_other_from_answering(
    binds: list[Bind], tmp_path: Path
) -> None:
    with cluster(str(tmp_path), 4, binds=binds) as nodes:
        nodes.on("n3", "sh", "-c", "kill -STOP $(cat /run/slurmd.pid)")
        text = nodes.run("gpubind", "fleet", "check", "--nv", "-w", "n[1-4]", "--timeout", "20", status=1)
    assert rows(text) == {"n[1-2,4]": "ok", "n3": "timed out: no answer within 20 s"}


EPILOG = """#!/bin/sh
[ "$(hostname)" != n4 ] || sleep 100
"""


def test_a_node_whose_job_does_not_end_is_named_and_the_others_answer_within_seconds(
    binds: list[Bind], tmp_path: Path
) -> None:
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks/epilog.sh").write_text(EPILOG)
    with cluster(str(tmp_path / "slurm"), 4, hooks=f"{tmp_path}/hooks", binds=binds) as nodes:
        nodes.run("srun", "-N3", "-w", "n[1-3]", "gpubind", "check", "-q", "--nv", "--gpus", "all")  # byte code
        nodes.run("srun", "-w", "n4", "true")
        while nodes.run("sinfo", "--noheader", "--nodes=n4", "--format=%T").strip() != "completing":
            time.sleep(0.1)
        began = time.monotonic()
        text = nodes.run("gpubind", "fleet", "check", "--nv", "-w", "n[1-4]", status=1)
        took = time.monotonic() - began
        assert nodes.run("sinfo", "--noheader", "--nodes=n4", "--format=%T").strip() == "completing"
    why = "Slurm says completing, and gave no allocation: Unable to allocate resources: Connection timed out"
    assert rows(text) == {"n[1-3]": "ok", "n4": f"unreachable: {why}; ask by --engine clustershell"}
    assert took < 30


SSHD = """
Port {port}
{addresses}
HostKey {directory}/host
AuthorizedKeysFile {directory}/user.pub
PidFile {directory}/pid
StrictModes no
UsePAM no
PermitRootLogin yes
SetEnv PATH={path} PYTHONPATH={pythonpath}
"""
SSH = """#!/bin/sh
exec /usr/bin/ssh -F none -p {port} -i {directory}/user -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null \
  -oLogLevel=ERROR "$@"
"""
ADDRESSES = "127.0.0.[1-9]"
BY_ADDRESS = """#!/bin/sh
set -- "$@" --host
case $SSH_CONNECTION in
  *" 127.0.0.3 "*) set -- "$@" mi300x-rocm62;;
  *" 127.0.0.4 "*) sleep 60;;
  *" 127.0.0.5 "*) cat /dev/zero;;
  *" 127.0.0.6 "*) echo "$@"; exit 0;;
  *" 127.0.0.7 "*) kill -9 $$;;
  *) set -- "$@" debian13-nvidia550;;
esac
exec {python} -m gpubind "$@"
"""


def test_over_ssh_each_node_has_an_answer_or_a_reason(tmp_path: Path) -> None:
    """Nine addresses of this machine, of which 127.0.0.8 has no server."""
    made = FakeCluster(tmp_path / "cluster")
    made.clustershell("ssh")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{tmp_path}/{name}"], check=True)
    addresses = "\n".join(f"ListenAddress 127.0.0.{number}" for number in range(1, 10) if number != 8)
    pythonpath, path = os.pathsep.join(filter(None, sys.path)), made.environ["PATH"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    values = {"port": port, "addresses": addresses, "directory": tmp_path, "path": path, "pythonpath": pythonpath}
    (tmp_path / "sshd_config").write_text(SSHD.format(**values))
    made.program("ssh", SSH.format(port=port, directory=tmp_path))
    made.program("gpubind", BY_ADDRESS.format(python=sys.executable))
    os.makedirs("/run/sshd", exist_ok=True)
    subprocess.run(["/usr/sbin/sshd", "-f", f"{tmp_path}/sshd_config", "-E", f"{tmp_path}/log"], check=True)
    try:
        words = ["fleet", "check", "--engine=clustershell", "--nv", "-w", ADDRESSES, "--timeout", "30"]
        environ = {**made.environ, "PYTHONPATH": pythonpath}
        done = subprocess.run([sys.executable, "-m", "gpubind", *words], capture_output=True, text=True, env=environ)
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
    answers = {node: re.sub("[:(].*", "", answer).strip() for node, answer in rows(done.stdout).items()}
    assert answers == {
        "127.0.0.[1-2,9]": "ok",
        "127.0.0.3": "error nothing-to-bind",
        "127.0.0.4": "timed out",
        "127.0.0.[5-6]": "garbled",
        "127.0.0.7": "crashed",
        "127.0.0.8": "unreachable",
    }, done.stderr
