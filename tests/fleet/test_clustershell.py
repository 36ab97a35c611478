"""The nodes that ClusterShell reaches, by its own worker for programs of this machine: each has one row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.commands import BARE, HOST, gpubind
from tests.support.fleet import GOOD, FakeCluster
from tests.test_zip import PACKAGE, pack


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    made = FakeCluster(tmp_path / "cluster")
    made.clustershell("exec")
    return made


def fleet(cluster: FakeCluster, *words: str) -> CompletedProcess[str]:
    """With the exec worker `%h` is the name of the node, by which the program that stands for gpubind knows it."""
    return gpubind("fleet", words[0], "--engine", "clustershell", "--host=%h", *words[1:], env=cluster.environ)


def statuses(done: CompletedProcess[str]) -> dict[str, str]:
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({line["node"] for line in lines}) == len(lines)
    return {line["node"]: line["status"] for line in lines}


def test_each_node_has_an_answer_or_a_reason(cluster: FakeCluster) -> None:
    ways = {"n2": "echo garbage", "n3": "exit 3", "n4": "kill -9 $$", "n5": "sleep 60", "n6": "cat /dev/zero"}
    cluster.on_nodes(GOOD, **ways)
    done = fleet(cluster, "check", "--json", "-w", "n[1-7]", "--timeout", "5")
    expected = {"n1": "answered", "n2": "garbled", "n3": "crashed", "n4": "crashed", "n5": "timed-out"}
    assert statuses(done) == {**expected, "n6": "garbled", "n7": "answered"}
    assert done.returncode == 1


def test_what_is_late_ends_on_its_node_too(cluster: FakeCluster) -> None:
    cluster.on_nodes(GOOD, n1='echo $$ > "$CLUSTER/pid"; exec sleep 60')
    assert statuses(fleet(cluster, "check", "--json", "-w", "n1", "--timeout", "2")) == {"n1": "timed-out"}
    pid = int((cluster.directory / "pid").read_text())
    while os.path.exists(f"/proc/{pid}") and b"Z" not in Path(f"/proc/{pid}/stat").read_bytes().split()[2]:
        time.sleep(0.01)


def test_groups_of_clustershells_configuration_are_sets_of_nodes(cluster: FakeCluster) -> None:
    (cluster.directory / "groups.conf").write_text("[Main]\ndefault: local\n[local]\nmap: echo n[1-3]\n")
    done = fleet(cluster, "check", "-w", "@gpu")
    assert done.stdout.splitlines()[1].split()[:3] == ["n[1-3]", "3", "ok"]


def test_the_fanout_bounds_how_many_nodes_are_asked_at_once(cluster: FakeCluster) -> None:
    cluster.on_nodes(GOOD, n2='test ! -e "$CLUSTER/busy"', n1='touch "$CLUSTER/busy"; sleep 0.2; rm "$CLUSTER/busy"')
    done = fleet(cluster, "check", "--json", "-w", "n[1-2]", "--fanout", "1")
    assert [json.loads(line)["exit"] for line in done.stdout.splitlines()] == [0, 0]


def test_a_worker_with_one_program_for_many_nodes_is_refused(cluster: FakeCluster) -> None:
    cluster.clustershell("pdsh")
    done = fleet(cluster, "check", "-w", "n1")
    assert done.returncode == 6
    assert done.stderr.startswith("error: no-engine: ClusterShell's worker `pdsh` is not supported\n")


def test_a_damaged_configuration_of_clustershell_is_an_error_that_names_it(cluster: FakeCluster) -> None:
    (cluster.directory / "defaults.conf").write_text("[task.default\n")
    done = fleet(cluster, "check", "-w", "n1")
    assert done.returncode == 6
    assert "defaults.conf" in done.stderr


def test_one_file_sends_itself_to_nodes_that_have_no_gpubind(cluster: FakeCluster, tmp_path: Path) -> None:
    pack(tmp_path / "gpubind.pyz")
    cluster.program("python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    site = os.pathsep.join(path for path in sys.path if path not in ("", str(PACKAGE.parent)))
    words = ("fleet", "check", "--bootstrap", "--engine=clustershell", "--host=%h", f"--nodes={HOST}", "--json")
    command = [sys.executable, "gpubind.pyz", *words]
    environ = {**cluster.environ, "PYTHONPATH": site}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, cwd=tmp_path)
    assert (statuses(done), done.stderr) == ({HOST: "answered"}, "")


NOT_READ = """
import sys
from logging import getLogger
from gpubind.fleet.answers import FleetRequest, AnswerCollector
from gpubind.fleet.clustershell import ask_clustershell
request = FleetRequest(("n1",), (), "clustershell", 30, None, True)
listener = AnswerCollector("0", ("n1",), lambda answer: print(answer.node, answer.status, answer.why))
ask_clustershell(request, ("sh", "-c", "exit 3"), sys.argv[1], listener)
getLogger("ClusterShell.Worker.EngineClient").warning("Broken pipe")
getLogger("another").warning("what others log is told")
"""


def test_a_node_that_does_not_read_what_it_is_sent_is_a_row_and_nothing_else(cluster: FakeCluster) -> None:
    """ClusterShell logs it if the node's program ends between its start and the first write."""
    (cluster.directory / "sent").write_bytes(bytes(8 << 20))
    command = [sys.executable, "-c", NOT_READ, str(cluster.directory / "sent")]
    environ = {**cluster.environ, "PYTHONPATH": BARE["PYTHONPATH"]}
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("n1 crashed it ended with status 3\n", "what others log is told\n")


@pytest.mark.parametrize(
    "nodes", ["a;b", "$(id)", "-oProxyCommand=x", "a b", "../x", "n[1-999999999999]", "n[", "", "a'"]
)
def test_what_a_shell_or_an_option_could_misread_is_not_the_name_of_a_node(cluster: FakeCluster, nodes: str) -> None:
    done = gpubind("fleet", "check", f"--nodes={nodes}", env=cluster.environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: bad-nodes: ")


def test_without_clustershell_the_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "ClusterShell.py").write_text("raise ImportError")
    environ = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{BARE['PYTHONPATH']}", "PATH": BARE["PATH"]}
    command = [sys.executable, "-m", "gpubind", "fleet", "check", "-w", "n1"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert done.returncode == 4
    assert done.stderr == (
        "error: missing-package: the Python package `ClusterShell` is needed for sets of nodes\n"
        "  hint:  `pipx inject gpubind ClusterShell`, in a virtual environment `pip install ClusterShell`, "
        "or python3-clustershell of the distribution\n"
    )
