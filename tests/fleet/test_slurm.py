"""The nodes of a Slurm cluster: each has one row, whatever Slurm does. Here programs stand for Slurm's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.support.commands import gpubind
from tests.support.fleet import GOOD, FakeCluster

SIX = dict.fromkeys(("n1", "n2", "n3", "n4", "n5", "n6"), "idle")


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    made = FakeCluster(tmp_path / "cluster")
    made.slurm(SIX)
    return made


def fleet(cluster: FakeCluster, *words: str, **environ: str) -> CompletedProcess[str]:
    return gpubind("fleet", *words, env={**cluster.environ, **environ})


def statuses(done: CompletedProcess[str]) -> dict[str, str]:
    """The status of each node, of the lines of --json."""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({line["node"] for line in lines}) == len(lines)
    return {line["node"]: line["status"] for line in sorted(lines, key=lambda line: str(line["node"]))}


def test_nodes_with_equal_answers_are_one_row(cluster: FakeCluster) -> None:
    done = fleet(cluster, "check", "-w", "n[1-6]")
    assert done.stdout == (
        "nodes   number  answer  driver  digest        gpubind\n"
        f"n[1-6]       6  ok              {'d' * 12}  1\n\n6 nodes: 6 ok\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_one_step_in_one_allocation_asks_all_nodes(cluster: FakeCluster) -> None:
    fleet(cluster, "check", "-w", "n[1-6]", "--timeout", "20")
    (step,) = cluster.log("srun")
    assert step.startswith("--jobid=7 --overlap --ntasks=6 ")
    assert "--nodelist=n1,n2,n3,n4,n5,n6" in step
    asked, ended = cluster.log("salloc")
    assert asked.startswith("--nodes=6 --nodelist=n[1-6] ")
    assert "--immediate=20 --time=2 " in asked
    assert ended == "ended"


def test_the_fanout_is_the_number_of_nodes_of_a_step(cluster: FakeCluster) -> None:
    done = fleet(cluster, "check", "-w", "n[1-6]", "--fanout", "4")
    assert [re.findall("--nodelist=([^ ]*)", step)[0] for step in cluster.log("srun")] == ["n1,n2,n3,n4", "n5,n6"]
    assert done.stdout.endswith("6 nodes: 6 ok\n")


def test_within_an_allocation_no_other_one_is_made_and_other_nodes_are_not_asked(cluster: FakeCluster) -> None:
    done = fleet(cluster, "check", "--json", "-w", "n[1-3]", SLURM_JOB_ID="9", SLURM_JOB_NODELIST="n[2-3]")
    assert statuses(done) == {"n1": "not-asked", "n2": "answered", "n3": "answered"}
    assert "--jobid=9 " in cluster.log("srun")[0]
    assert not (cluster.directory / "salloc").exists()
    assert done.returncode == 1


def test_nodes_on_which_slurm_starts_nothing_are_not_asked(cluster: FakeCluster) -> None:
    cluster.slurm({**SIX, "n1": "down*|Not responding", "n2": "drained|broken fan", "n3": "allocated", "n4": "idle*"})
    done = fleet(cluster, "check", "-w", "n[1-7]")
    assert re.findall("^(n[^ ]*) .*unreachable: (.*)", done.stdout, re.MULTILINE) == [
        ("n1", "Slurm says down*: Not responding"),
        ("n2", "Slurm says drained: broken fan"),
        ("n3", "Slurm says allocated: jobs have all of it; ask within an allocation, or by --engine clustershell"),
        ("n4", "Slurm says idle*"),
        ("n7", "Slurm does not know it"),
    ]
    assert "--nodelist=n5,n6 " in cluster.log("srun")[0]
    assert done.stdout.endswith("\n7 nodes: 2 ok, 5 without an answer\n")


def test_a_step_that_does_not_reach_a_node_is_started_again_without_it(cluster: FakeCluster) -> None:
    done = fleet(cluster, "check", "-w", "n[1-6]", DEAD="n3 n5")
    assert re.findall("^(n[^ ]*) +([0-9]) +(.*?)  ", done.stdout.replace("\n", "  \n"), re.MULTILINE) == [
        ("n[1-2,4,6]", "4", "ok"),
        ("n[3,5]", "2", "unreachable: Connection refused"),
    ]
    assert len(cluster.log("srun")) == 2
    assert len(cluster.log("salloc")) == 2  # of one allocation


def test_without_an_allocation_each_node_has_the_reason(cluster: FakeCluster) -> None:
    done = fleet(cluster, "check", "-w", "n[1-2]", REFUSED="salloc")
    why = "Unable to allocate resources: Access denied; ask by --engine clustershell"
    assert f"unreachable: Slurm gave no allocation: {why}\n" in done.stdout


LATE = "and gave no allocation: Unable to allocate resources: Connection timed out; ask by --engine clustershell"


@pytest.mark.parametrize(
    ("busy", "asked", "expected"),
    [
        (0, ["n[1-6]"], {}),
        (1, ["n[1-6]", "n[1-3,5-6]"], {"n4": "completing"}),
        (2, ["n[1-6]", "n[1-3,5-6]", "n[1-3,6]"], {"n4": "completing", "n5": "mixed"}),
    ],
)
def test_nodes_that_slurm_does_not_give_are_named_and_keep_no_other_from_answering(
    cluster: FakeCluster, busy: int, asked: list[str], expected: dict[str, str]
) -> None:
    cluster.slurm({**SIX, "n4": "completing", "n5": "mixed"})
    done = fleet(cluster, "check", "-w", "n[1-6]", BUSY=str(busy))
    calls = [re.findall("--nodelist=([^ ]*) .*--immediate=([0-9]*)", call) for call in cluster.log("salloc")]
    assert [call[0] for call in calls if call] == [(nodes, "60" if at else "5") for at, nodes in enumerate(asked)]
    lost = dict(re.findall("^(n[^ ]*) .*unreachable: (.*)", done.stdout, re.MULTILINE))
    assert lost == {node: f"Slurm says {state}, {LATE}" for node, state in expected.items()}
    assert f"6 nodes: {6 - len(expected)} ok" in done.stdout


def test_a_cluster_that_gives_nothing_is_asked_once_for_each_kind_of_node(cluster: FakeCluster) -> None:
    cluster.slurm({**SIX, "n4": "completing"})
    done = fleet(cluster, "check", "-w", "n[1-6]", BUSY="9")
    assert len(cluster.log("salloc")) == 2
    assert "unreachable: Slurm gave no allocation: Unable to allocate resources: Connection timed out; " in done.stdout
    assert done.stdout.endswith("\n6 nodes: 6 without an answer\n")


def test_the_last_line_of_a_crashed_program_is_in_its_row(cluster: FakeCluster) -> None:
    cluster.on_nodes(GOOD, n2="echo one >&2; echo 'SyntaxError: null bytes' >&2; exit 1")
    done = fleet(cluster, "check", "-w", "n[1-2]")
    assert re.findall("^n2 .*", done.stdout, re.MULTILINE)[0].split(None, 2)[2].strip() == (
        "crashed: gpubind ended with status 1: SyntaxError: null bytes"
    )


def test_each_way_to_fail_is_said_as_such_and_keeps_no_other_from_answering(cluster: FakeCluster) -> None:
    cluster.on_nodes(GOOD, n2="echo garbage", n3="exit 3", n4="kill -9 $$", n5="sleep 60")
    done = fleet(cluster, "check", "--json", "-w", "n[1-6]", "--timeout", "3")
    expected = {"n1": "answered", "n2": "garbled", "n3": "crashed", "n4": "crashed", "n5": "timed-out"}
    assert statuses(done) == {**expected, "n6": "answered"}
    assert done.returncode == 1


def test_a_long_answer_is_whole_though_srun_breaks_its_lines(cluster: FakeCluster) -> None:
    document: dict[str, Any] = {**json.loads(GOOD), "ignored": ["long " * 10_000]}
    cluster.on_nodes(json.dumps(document, indent=1))
    done = fleet(cluster, "check", "--json", "-w", "n1")
    assert json.loads(done.stdout)["document"] == document


def test_no_answer_steers_the_terminal_or_the_lines_of_json(cluster: FakeCluster) -> None:
    subject = '\x1b[2J\u202e\n{"node": "n9"}'
    finding = {"code": "x", "severity": "error", "vendor": None, "subject": subject, "what": subject}
    bad = json.dumps({"schema": "gpubind.error/1", "code": "\x1b[31m", "what": "x"})
    others = {"n2": r"printf '\033]0;x\007\r\n{}\n'", "n3": f"printf %s '{bad}'"}
    cluster.on_nodes(json.dumps({**json.loads(GOOD), "findings": [finding]}), **others)
    shown = fleet(cluster, "check", "-w", "n[1-3]").stdout
    assert not [character for character in shown if not (character.isprintable() or character == "\n")]
    expected = {"n1": "answered", "n2": "garbled", "n3": "garbled"}
    assert statuses(fleet(cluster, "check", "--json", "-w", "n[1-3]")) == expected


def test_no_variable_of_gpubind_reaches_a_node(cluster: FakeCluster) -> None:
    cluster.program("gpubind", '#!/bin/sh\nenv > "$CLUSTER/environ"\ncat "$CLUSTER/document"\n')
    fleet(cluster, "check", "-w", "n1", GPUBIND_CAPS="compute")
    assert not [line for line in cluster.log("environ") if line.startswith("GPUBIND_")]


def test_slurm_that_is_not_there_is_an_error_with_a_hint(cluster: FakeCluster) -> None:
    (cluster.bin / "salloc").unlink()
    done = fleet(cluster, "check", "-w", "n1", "--engine", "slurm", PATH=str(cluster.bin))
    assert done.returncode == 6
    assert done.stderr.startswith("error: no-engine: `salloc` of Slurm is not in PATH\n")
    assert "--engine clustershell" in done.stderr
