"""`gpubind fleet`: what nodes are asked, and what comes of their answers."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpubind.cli.commands import command_of
from gpubind.cli.commands.fleet import node_args
from gpubind.documents.fleet import (
    AnswerGroups,
    CheckedNode,
    NodeAnswer,
    NodeError,
    answer_line,
    answers_table,
    render_answer,
)
from gpubind.errors import UsageError
from gpubind.fleet.nodes import fold_nodes, parse_nodes
from gpubind.model import Finding
from gpubind.model.data import BUNDLED_HOSTS, read_data
from tests.support.commands import BARE, HOST, gpubind
from tests.support.fleet import GOOD, FakeCluster
from tests.support.golden import assert_fits

SCHEMA = json.loads(read_data("model/data/fleet.schema.json"))


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    """Nodes whose gpubind is the real one, and whose names are those of recorded hosts."""
    made = FakeCluster(tmp_path / "cluster")
    made.clustershell("exec")
    made.environ["PYTHONPATH"] = BARE["PYTHONPATH"]
    made.program("gpubind", f'#!/bin/sh\nexec {sys.executable} -m gpubind "$@"\n')
    return made


def fleet(cluster: FakeCluster, *words: str) -> subprocess.CompletedProcess[str]:
    return gpubind("fleet", *words, "--engine=clustershell", f"--nodes={','.join(BUNDLED_HOSTS)}", env=cluster.environ)


def test_nodes_get_the_options_and_all_their_gpus() -> None:
    given = {"nv": True, "image": "a b.sif", "only": ["uvm-missing", "no-gpu"], "completion": False}
    expected = ("--json", "--nv", "--image=a b.sif", "--only=uvm-missing", "--only=no-gpu", "--no-completion")
    assert node_args("check", given) == ("check", *expected, "--gpus=all")


def test_the_users_own_choice_of_gpus_is_sent() -> None:
    assert node_args("plan", {"gpus": "0"}) == ("plan", "--json", "--gpus=0")


def test_an_option_whose_value_is_its_default_is_sent_where_it_is_on_the_line(cluster: FakeCluster) -> None:
    """The configuration of a node would win otherwise: docs/configuration.md has the order."""
    known = {option.parameter for option in command_of("check").shared}
    options = [option for option in command_of("fleet").own_options if option.parameter in known and option.default]
    words = [f"{option.name}={option.default}" if option.metavar else option.name for option in options]
    assert {"--libc=image", "--vendor-neutral=auto", "--completion"} <= {*words}
    cluster.on_nodes(GOOD)
    cluster.program("gpubind", '#!/bin/sh\necho "$@" > "$CLUSTER/words"\ncat "$CLUSTER/document"\n')
    gpubind("fleet", "check", "--engine=clustershell", "-w", "n1", *words, env=cluster.environ)
    assert cluster.log("words") == [f"check --json {' '.join(words)} --gpus=all"]


def test_an_option_that_the_command_does_not_have_is_refused_before_nodes_are_asked() -> None:
    done = gpubind("fleet", "plan", "-w", "n1", "--program", "x")
    assert (done.returncode, done.stderr) == (2, "error: wrong-use: `gpubind plan` does not have --program\n")


def test_no_variable_of_this_machine_changes_what_nodes_are_asked(cluster: FakeCluster) -> None:
    cluster.on_nodes(GOOD)
    cluster.program("gpubind", '#!/bin/sh\necho "$@" > "$CLUSTER/words"\ncat "$CLUSTER/document"\n')
    cluster.environ["GPUBIND_CAPS"] = "compute"
    gpubind("fleet", "check", "--engine=clustershell", "-w", "n1", env=cluster.environ)
    assert cluster.log("words") == ["check --json --gpus=all"]


def test_a_check_of_hosts_is_that_of_each(cluster: FakeCluster) -> None:
    done = fleet(cluster, "check", "--host=%h")
    rows = {line.split()[0]: line.split()[2] for line in done.stdout.splitlines()[1:3]}
    for name in BUNDLED_HOSTS:
        assert rows[name] == gpubind("check", "-q", "--host", name, "--gpus=all").stdout.split()[0]


def test_each_line_of_json_is_valid_and_has_the_document(cluster: FakeCluster) -> None:
    for line in fleet(cluster, "plan", "--nv", "--json", "--host=%h").stdout.splitlines():
        answer = json.loads(line)
        assert_fits(answer, "fleet")
        alone = gpubind("plan", "--nv", "--json", "--gpus=all", "--host", answer["node"])
        assert (answer["document"], answer["exit"]) == (json.loads(alone.stdout), alone.returncode)


def test_lines_that_come_as_nodes_answer_are_no_file(cluster: FakeCluster, tmp_path: Path) -> None:
    done = fleet(cluster, "check", "--format=json", "-o", f"{tmp_path}/answers")
    assert (done.returncode, done.stdout, os.listdir(tmp_path)) == (2, "", ["cluster"])
    assert done.stderr.startswith("error: wrong-use: --json prints the answers as they come")


def test_records_are_files_of_a_directory_that_answer_as_their_nodes(cluster: FakeCluster, tmp_path: Path) -> None:
    record = read_data(f"model/data/hosts/{HOST}.json")
    (cluster.directory / "document").write_bytes(record)
    cluster.program("gpubind", '#!/bin/sh\ncat "$CLUSTER/document"\n')
    done = gpubind(
        "fleet", "record", "--engine=clustershell", "-w", "n[1-2]", "-o", str(tmp_path / "new"), env=cluster.environ
    )
    assert (
        done.stdout == "nodes   number  answer    driver  digest  gpubind\nn[1-2]       2  recorded\n\n2 nodes: 2 ok\n"
    )
    assert sorted(os.listdir(tmp_path / "new")) == ["n1.json", "n2.json"]
    plans = [gpubind("plan", "--nv", "--json", "--host", host).stdout for host in (HOST, f"{tmp_path}/new/n1.json")]
    assert plans[0] == plans[1]


def test_what_is_no_record_is_not_written(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.on_nodes(GOOD)
    done = gpubind(
        "fleet", "record", "--engine=clustershell", "-w", "n1", "-o", str(tmp_path / "new"), env=cluster.environ
    )
    assert "garbled: malformed record of a host: `gpubind.check/1` is not a record of a host" in done.stdout
    assert (done.returncode, os.listdir(tmp_path / "new")) == (1, [])


def test_differences_are_those_of_diff(cluster: FakeCluster) -> None:
    """The nodes are asked about `live`, for which the program here puts the host that the worker names."""
    script = f'#!/bin/sh\nfor word; do :; done\nexec {sys.executable} -m gpubind diff --snapshot "${{word#*=}}"\n'
    cluster.program("gpubind", script)
    done = fleet(cluster, "diff", "--caps=%h")
    assert done.returncode == 1
    assert done.stdout.startswith(gpubind("diff", *BUNDLED_HOSTS).stdout)
    *answers, last = [json.loads(line) for line in fleet(cluster, "diff", "--caps=%h", "--json").stdout.splitlines()]
    assert sorted(one["node"] for one in answers) == sorted(BUNDLED_HOSTS)
    assert last == json.loads(gpubind("diff", *BUNDLED_HOSTS, "--json").stdout)


def test_a_page_has_every_node_and_records_have_none(cluster: FakeCluster, tmp_path: Path) -> None:
    done = fleet(cluster, "check", "--host=%h", "--format=html", "-o", str(tmp_path / "fleet.html"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = (tmp_path / "fleet.html").read_text()
    assert all(name in text for name in BUNDLED_HOSTS)
    for words in (("record", "-o", str(tmp_path / "records"), "--format=html"), ("check", "--json", "--format=html")):
        assert fleet(cluster, *words).returncode == 2
    assert not (tmp_path / "records").exists()


def test_only_gpubind_pyz_can_be_sent() -> None:
    done = gpubind("fleet", "check", "-w", "n1", "--bootstrap")
    assert done.returncode == 2
    assert done.stderr.startswith("error: not-one-file: only gpubind.pyz can be sent to nodes\n")


def hear_interrupts() -> None:
    """A shell lets what it starts in the background ignore them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("engine", ["slurm", "clustershell"])
def test_an_interrupt_prints_what_has_arrived_and_gives_the_nodes_back(cluster: FakeCluster, engine: str) -> None:
    cluster.slurm({"n1": "idle", "n2": "idle"})
    cluster.on_nodes(GOOD, n2='touch "$CLUSTER/begun"; sleep 60')
    words = ["fleet", "check", f"--engine={engine}", "--host=%h" if engine == "clustershell" else "--nv"]
    command = [sys.executable, "-m", "gpubind", *words, "-w", "n[1-2]"]
    with subprocess.Popen(
        command,
        env=cluster.environ,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,  # noqa: PLW1509
    ) as process:
        while not (cluster.directory / "begun").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        printed = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert "not asked: interrupted" in printed
    assert engine == "clustershell" or cluster.log("salloc")[-1] == "ended"


STUBBORN = """#!/bin/sh
trap '' TERM
echo $$ > "$CLUSTER/srun.new"
mv "$CLUSTER/srun.new" "$CLUSTER/srun"
sleep 60
sleep 60
"""


def running(group: str) -> list[str]:
    """The processes of *group* that have not ended."""
    stats = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            stats.append(place.read_text().rpartition(") ")[2].split())
    return [state for state, _, its, *_ in stats if its == group and state not in "ZX"]


@pytest.mark.parametrize(
    "signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM), (signal.SIGHUP, signal.SIGINT)]
)
def test_of_an_impatient_user_nothing_goes_on(cluster: FakeCluster, signals: tuple[int, ...]) -> None:
    """srun does not end when it is asked to. The second signal comes while it has time for that."""
    cluster.slurm({"n1": "idle"})
    cluster.program("srun", STUBBORN)
    environ = {**cluster.environ, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    command = [sys.executable, "-m", "gpubind", "fleet", "check", "--engine=slurm", "-w", "n1"]
    with subprocess.Popen(command, env=environ, preexec_fn=hear_interrupts) as process:  # noqa: PLW1509
        while not (cluster.directory / "srun").exists():
            time.sleep(0.01)
        for number in signals:
            process.send_signal(number)
            time.sleep(0.5)
        assert process.wait(60) == 130
    assert not running(cluster.log("srun")[0])


@pytest.mark.skipif(os.geteuid() != 0, reason="of root")
def test_root_runs_nothing_of_others_for_clustershell(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "ssh").write_text(f"#!/bin/sh\ntouch {tmp_path}/run\n")
    (theirs / "ssh").chmod(0o755)
    (theirs / "groups.conf").write_text(f"[Main]\ndefault: x\n[x]\nmap: touch {tmp_path}/run; echo n1\n")
    theirs.chmod(0o777)
    environ = {"PATH": f"{theirs}:/usr/bin:/bin", "CLUSTERSHELL_CFGDIR": str(theirs)}
    for nodes in ("host.invalid", "@group"):
        done = gpubind("fleet", "check", "--engine=clustershell", "--timeout=9", "-w", nodes, env=environ)
        assert done.returncode in (1, 2)
    assert not (tmp_path / "run").exists()


def test_a_terminal_shows_how_many_nodes_have_answered(cluster: FakeCluster) -> None:
    cluster.on_nodes(GOOD)
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "gpubind", "fleet", "check", "--engine=clustershell", "-w", "n[1-2]"]
    environ = {**cluster.environ, "TERM": "xterm"}
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=child, text=True)
    os.close(child)
    shown = os.read(parent, 100_000).decode()
    assert "2/2" in shown
    assert done.stdout.endswith("2 nodes: 2 ok\n")


def answer(node: str, *codes: str, digest: str = "d") -> NodeAnswer:
    findings = tuple(Finding(code, "error", None, "x", "what") for code in codes)
    return NodeAnswer(node, "answered", int(bool(codes)), "", {}, CheckedNode(digest, (), findings))


def test_answers_fold_by_digest_and_findings() -> None:
    folding = AnswerGroups()
    answers = [answer("n1"), answer("n2", "a"), answer("n3"), answer("n4", digest="e"), answer("n5", "b"), answer("n6")]
    for one in (*answers, NodeAnswer("n7", "timed-out", None, "late"), NodeAnswer("n8", "timed-out", None, "late")):
        folding.add(one)
    groups = [fold_nodes(group.nodes) for group in folding.groups()]
    assert groups == ["n[1,3,6]", "n2", "n4", "n5", "n[7-8]"]


def rows(*answers: NodeAnswer) -> list[tuple[str, ...]]:
    folding = AnswerGroups()
    for one in answers:
        folding.add(one)
    table = answers_table(folding.groups(), fold_nodes)
    return [tuple(column.title for column in table.columns), *(tuple(row) for row in table.rows)]


def test_rows_that_differ_only_in_the_build_of_gpubind_name_it() -> None:
    new, old = (answer(node)._replace(document={"gpubind": f"0.1.0+g{node}"}) for node in ("n1", "n2"))
    assert rows(new, old) == [
        ("nodes", "number", "answer", "gpubind"),
        ("n1", "1", "ok", "0.1.0+gn1"),
        ("n2", "1", "ok", "0.1.0+gn2"),
    ]


def test_rows_that_differ_only_in_notes_name_them() -> None:
    notes = {"n1": ("a", "b"), "n2": ("a",), "n3": ("a", "c"), "n4": ("b", "a")}
    answers = []
    for node, codes in notes.items():
        found = tuple(Finding(code, "note", None, "x", "what") for code in codes)
        answers.append(NodeAnswer(node, "answered", 0, "", {}, CheckedNode("d", (), found)))
    assert [row[::2] for row in rows(*answers)[1:]] == [
        ("n[1,4]", "ok; note b (x)"),
        ("n2", "ok"),
        ("n3", "ok; note c (x)"),
    ]


def test_a_reason_that_names_one_of_several_nodes_is_an_example() -> None:
    lost = [NodeAnswer(f"n{at}", "unreachable", None, f"ssh: connect to host n{at}: refused") for at in (8, 6, 7)]
    assert rows(*lost)[1][:3] == ("n[6-8]", "3", "unreachable: n8, for example: ssh: connect to host n8: refused")


def test_an_error_document_is_never_ok() -> None:
    failed = NodeAnswer("n1", "answered", 0, "", {}, NodeError("no-image", "what"))
    assert not failed.is_good


def test_what_is_wrong_twice_with_one_subject_is_named_once() -> None:
    twice = (Finding("stale-cdi", "warning", None, "/etc/cdi/x.json", what) for what in ("one", "two"))
    answer = NodeAnswer("n1", "answered", 0, "", {}, CheckedNode(findings=tuple(twice)))
    assert answer_line(answer) == "warning stale-cdi (/etc/cdi/x.json)"


def test_reasons_that_differ_in_the_name_of_the_node_fold() -> None:
    folding = AnswerGroups()
    for node in ("n1", "n2"):
        folding.add(NodeAnswer(node, "unreachable", None, f"connect to {node}: Connection refused"))
    assert len(folding.groups()) == 1


def test_nodes_are_a_set_of_clustershell() -> None:
    assert parse_nodes("n[008-010],m1!n9") == ("m1", "n008", "n009", "n010")
    assert fold_nodes(["n3", "n1", "n2", "m1"]) == "m1,n[1-3]"


@pytest.mark.parametrize(
    "text",
    ["n[1-99999]m[1-99999]x[1-99999]y[1-99999]", "n[٠-٩٩٩٩٩٩٩٩]", ",".join(f"n{x}[1-99999]" for x in "abcdefgh")],
)
def test_sets_are_counted_before_names_are_made(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_nodes(text)
    assert caught.value.why == "more than 100000 nodes"


def test_a_name_of_megabytes_is_told_in_a_line() -> None:
    with pytest.raises(UsageError) as caught:
        parse_nodes("n" * 1_000_000)
    assert len(str(caught.value)) < 1000


def test_every_status_is_one_of_the_schema() -> None:
    for status in SCHEMA["properties"]["status"]["enum"]:
        assert_fits(json.loads(render_answer(NodeAnswer("n1", status, None, "why"))), "fleet")
