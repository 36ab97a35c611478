"""What nodes print, and what becomes of it: each node has one answer, whatever it prints."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any, Optional

import pytest

from gpubind.documents.fleet import CheckedNode, NodeAnswer, NodeError, answer_line
from gpubind.fleet import answers
from gpubind.fleet.answers import ANSWER_LIMIT, NOISE_LIMIT, AnswerCollector, command_on_nodes
from gpubind.machine import system
from tests.support.measure import is_less_work

NONCE = "0123abcd"
CHECK: dict[str, Any] = {"schema": "gpubind.check/1", "plan": "d" * 64, "checked": {"drivers": []}, "findings": []}
OK = json.dumps(CHECK)
FINDING = {"code": "uvm-missing", "severity": "error", "vendor": "nvidia", "subject": "/dev/nvidia-uvm", "what": "gone"}


def line(body: str, status: int = 0, node: str = "n1", nonce: str = NONCE) -> bytes:
    return f'{{"fleet":"{nonce}","node":"{node}","document":{body},"exit":{status},"end":"{nonce}"}}\n'.encode()


def heard(*chunks: bytes, error: bytes = b"", status: Optional[int] = 0, is_named: bool = False) -> NodeAnswer:
    """The answer of node n1, which prints *chunks*."""
    found: list[NodeAnswer] = []
    listener = AnswerCollector(NONCE, ["n1"], found.append)
    if error:
        listener.receive("n1", True, error)
    for chunk in chunks:
        listener.receive("n1", False, chunk, is_named=is_named)
    listener.finish_node("n1", status)
    (answer,) = found
    return answer


@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
def test_an_answer_is_put_together_from_pieces_of_any_size(size: int) -> None:
    data = line(json.dumps({**CHECK, "findings": [FINDING]}), 1)
    answer = heard(*(data[at : at + size] for at in range(0, len(data), size)))
    assert (answer.status, answer.exit) == ("answered", 1)
    assert isinstance(answer.result, CheckedNode)
    assert [finding.code for finding in answer.result.findings] == ["uvm-missing"]


def test_what_a_login_prints_around_an_answer_is_ignored() -> None:
    assert heard(b"Welcome to n1\n" + line(OK) + b"bye\n").is_good


def test_an_answer_with_another_nonce_is_not_one() -> None:
    assert heard(line(OK, nonce="ffff")).status == "garbled"


def test_a_node_that_knows_its_name_answers_for_no_other() -> None:
    answer = heard(line(OK, node="n2"), is_named=True)
    assert (answer.status, answer.why) == ("garbled", "it answers as `n2`")


def test_a_killed_node_answers_for_no_other_either() -> None:
    answer = heard(line(OK, 137, node="n2"), is_named=True, status=137)
    assert (answer.status, answer.why) == ("garbled", "it answers as `n2`")


def test_of_two_answers_in_one_piece_the_first_counts() -> None:
    assert heard(line(OK) + line("nonsense", 1)).is_good


def test_beginnings_of_answers_are_little_work() -> None:
    begun = line(OK).partition(OK.encode())[0]
    data = begun * (ANSWER_LIMIT // len(begun) // 8) + f'"end":"{NONCE}"}}'.encode()
    assert is_less_work(lambda: heard(data), 50)


def test_the_document_of_an_error_is_an_answer() -> None:
    error = {"schema": "gpubind.error/1", "code": "no-image", "what": "the image cannot be read", "where": None}
    answer = heard(line(json.dumps(error), 4))
    assert answer.status == "answered"
    assert not answer.is_good
    assert answer.result == NodeError("no-image", "the image cannot be read")


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        ("nonsense", 0, ("garbled", "it prints `nonsense`")),
        ('{"schema":"gpubind.check/1","findings":3}', 0, ("garbled", "a list is wanted, not a number")),
        ('{"schema":"other/1"}', 0, ("garbled", "its schema is `other/1`")),
        ("[]", 1, ("garbled", "its schema is `none`")),
        ("[" * 100_000, 0, ("garbled", "100000 bytes in all")),
        ("NaN", 0, ("garbled", "it prints `NaN`")),
        (OK[:-1] + ', "x": 1e999}', 0, ("garbled", "it prints `{")),
        (OK[:-1] + ', "x": NaN}', 0, ("garbled", "it prints `{")),
        ("", 127, ("crashed", "gpubind is not in the node's PATH (with --bootstrap: python3)")),
        ("", 137, ("crashed", "gpubind was killed by signal 9")),
        ("", 70, ("crashed", "gpubind ended with status 70: sh: gpubind: not found")),
    ],
)
def test_what_is_no_document_is_said_as_such(body: str, status: int, expected: tuple[str, str]) -> None:
    answer = heard(line(body, status), error=b"sh: gpubind: not found\n")
    assert (answer.status, answer.document, answer.result) == (expected[0], None, None)
    assert expected[1] in answer.why


@pytest.mark.parametrize(
    ("printed", "error", "status", "expected"),
    [
        (b"", b"ssh: connect to host n1 port 22: Connection refused", 255, "unreachable"),
        (b"", b"", 1, "crashed"),
        (b"\x1b[2J\x07", b"", 0, "garbled"),
        (line(OK)[:-40], b"", 0, "garbled"),
    ],
)
def test_a_node_without_an_answer_has_a_status_and_a_reason(
    printed: bytes, error: bytes, status: int, expected: str
) -> None:
    answer = heard(printed, error=error, status=status)
    assert answer.status == expected
    assert answer.why


def test_of_an_error_the_line_that_says_so_is_the_reason() -> None:
    error = b"slow file system\nerror: unreadable-host: the host cannot be read\n  where: /sys\n"
    assert heard(error=error, status=4).why == "error: unreadable-host: the host cannot be read"


def test_a_node_is_not_listened_to_after_too_much_noise() -> None:
    found: list[NodeAnswer] = []
    listener = AnswerCollector(NONCE, ["n1", "n2"], found.append)
    goes_on = [listener.receive("n1", False, b"x" * 8192) for _ in range(2 * NOISE_LIMIT // 8192)]
    assert goes_on.index(False) == NOISE_LIMIT // 8192
    assert not any(goes_on[goes_on.index(False) :])
    assert listener.waiting == ("n2",)
    assert found[0].status == "garbled"
    assert len(found[0].why) < 200


def test_an_answer_without_an_end_is_cut_off() -> None:
    listener = AnswerCollector(NONCE, ["n1"], lambda answer: None)
    assert listener.receive("n1", False, line(OK)[:60])
    assert listener.receive("n1", False, b"x" * (ANSWER_LIMIT - 100))
    assert not listener.receive("n1", False, b"x" * 100)


def test_incomplete_answers_of_all_nodes_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "HELD_LIMIT", 1000)
    listener = AnswerCollector(NONCE, ["n1", "n2"], lambda answer: None)
    assert listener.receive("n1", False, b"x" * 600)
    assert not listener.receive("n2", False, b"x" * 600)
    assert listener.receive("n1", False, b"x" * 300)


def test_a_node_that_is_asked_again_starts_with_nothing() -> None:
    found: list[NodeAnswer] = []
    listener = AnswerCollector(NONCE, ["n1"], found.append)
    listener.receive("n1", False, b"half an")
    listener.reset(["n1"])
    listener.receive("n1", False, line(OK))
    assert [answer.is_good for answer in found] == [True]


def test_a_step_that_is_killed_has_not_answered_yet() -> None:
    found: list[NodeAnswer] = []
    listener = AnswerCollector(NONCE, ["n1"], found.append)
    assert listener.receive("n1", False, line("", 137), is_named=True)
    assert not found
    listener.finish_node("n1", 0)
    assert found[0].why == "gpubind was killed by signal 9"


def test_what_follows_the_answer_of_a_killed_step_is_neither_kept_nor_read() -> None:
    """Each piece has the end of an answer, which a node knows from its command line."""
    pieces = [line("", 137, node="n1"), *[f'"end":"{NONCE}"}}'.encode() * 100] * 6000]
    assert sum(map(len, pieces)) > ANSWER_LIMIT
    found: list[NodeAnswer] = []

    def listen() -> None:
        listener = AnswerCollector(NONCE, ["n1"], found.append)
        for piece in pieces:
            listener.receive("n1", False, piece, is_named=True)
        listener.finish_node("n1", 0)

    assert is_less_work(listen, 20)
    assert [answer.why for answer in found] == ["gpubind was killed by signal 9"]


@pytest.mark.parametrize("status", [0, 137])
def test_an_answer_that_is_too_long_is_none_also_if_it_is_complete(status: int) -> None:
    data = line(OK[:-1] + f', "x": "{"x" * ANSWER_LIMIT}"}}', status)
    assert heard(data, is_named=True).status == "garbled"


def test_why_gpubind_crashed_may_come_after_the_answer() -> None:
    found: list[NodeAnswer] = []
    listener = AnswerCollector(NONCE, ["n1"], found.append)
    assert listener.receive("n1", False, line("", 1))
    listener.receive("n1", True, b"Traceback (most recent call last):\nSyntaxError: source code cannot\x1b[2J\n")
    listener.finish_node("n1", 0)
    assert [answer.why for answer in found] == ["gpubind ended with status 1: SyntaxError: source code cannot\x1b[2J"]


def test_of_a_long_standard_error_the_last_line_is_kept() -> None:
    assert heard(line("", 1), error=b"a line\n" * 10_000 + b"the last\n").why == "gpubind ended with status 1: the last"


@pytest.mark.parametrize(
    ("document", "status", "why"),
    [
        (CHECK, 1, "exit 1 after its answer: ok"),
        (CHECK, 70, "exit 70 after its answer: ok"),
        ({**CHECK, "verdict": "ok"}, 137, "exit 137 after its answer: ok"),
        ({**CHECK, "verdict": "ok"}, 1, "exit 1 after its answer: ok"),
        ({**CHECK, "verdict": "warning"}, 4, "exit 4 after its answer: warning, by its verdict: no finding says so"),
        ({**CHECK, "verdict": "error"}, 0, "exit 0 after its answer: error, by its verdict: no finding says so"),
        (
            {**CHECK, "verdict": "error", "findings": [FINDING]},
            137,
            "exit 137 after its answer: error uvm-missing (/dev/nvidia-uvm)",
        ),
        ({"schema": "gpubind.error/1", "code": "c", "what": "x"}, 0, "exit 0 after its answer: c: x"),
        ({"schema": "gpubind.snapshot/1", "name": "n1", "facts": []}, 1, "exit 1 after its answer: answered"),
    ],
)
def test_an_exit_code_that_is_not_of_the_verdict_makes_an_answer_failed(
    document: dict[str, Any], status: int, why: str
) -> None:
    answer = heard(line(json.dumps(document), status))
    assert (answer.status, answer.exit, answer.why, answer.is_good) == ("failed", status, why, False)
    assert (answer.document, answer.result) == (document, None)


def test_of_a_failed_answer_what_gpubind_calls_an_error_is_the_reason() -> None:
    """`plan --strict` has errors that no plan contains."""
    found: list[NodeAnswer] = []
    listener = AnswerCollector(NONCE, ["n1"], found.append)
    assert listener.receive("n1", False, line(json.dumps({**CHECK, "schema": "gpubind.plan/1"}), 1))
    listener.receive("n1", True, b"slow file system\nerror: uvm-missing: it is missing\n  hint: load it\n")
    listener.finish_node("n1", 0)
    assert [answer.why for answer in found] == ["exit 1 after its answer: ok; error: uvm-missing: it is missing"]


def test_a_node_that_prints_without_end_after_its_answer_is_not_listened_to() -> None:
    listener = AnswerCollector(NONCE, ["n1"], lambda answer: None)
    assert listener.receive("n1", False, line("", 1))
    assert listener.receive("n1", False, b"x" * NOISE_LIMIT)
    assert not listener.receive("n1", False, b"x")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"verdict": "ok"}, 0),
        ({"verdict": "warning"}, 0),
        ({"verdict": "warning"}, 1),
        ({"verdict": "error"}, 1),
        ({"schema": "gpubind.plan/1", "findings": [FINDING]}, 0),
        ({"schema": "gpubind.plan/1", "findings": [FINDING]}, 1),
    ],
)
def test_the_exit_codes_of_a_verdict_are_those_of_the_command(changes: dict[str, Any], status: int) -> None:
    assert heard(line(json.dumps({**CHECK, **changes}), status)).status == "answered"


@pytest.mark.parametrize("status", ["99999999999999999999", "256", "-1", ""])
def test_an_exit_status_that_no_program_has_is_garbage(status: str) -> None:
    answer = heard(line(OK).replace(b'"exit":0', f'"exit":{status}'.encode()))
    assert (answer.status, answer.exit) == ("garbled", None)
    assert answer.why == f"`{status}` is not the exit status of a program"


def test_a_verdict_of_an_error_is_one_though_no_finding_says_so() -> None:
    answer = heard(line(json.dumps({**CHECK, "verdict": "error"}), 1))
    assert isinstance(answer.result, CheckedNode)
    assert answer.result.worst == "error"
    assert answer_line(answer) == "error, by its verdict: no finding says so"


def run_on_node(
    *words: str, is_sent: bool = False, path: str, program: bytes = b"", **environ: str
) -> Iterator[NodeAnswer]:
    nonce = system.random_name()
    argv = command_on_nodes(words, nonce, 20, is_sent=is_sent)
    done = subprocess.run(argv, input=program, capture_output=True, env={"PATH": path, **environ}, check=False)
    found: list[NodeAnswer] = []
    listener = AnswerCollector(nonce, ["n1"], found.append)
    listener.receive("n1", True, done.stderr)
    listener.receive("n1", False, done.stdout)
    listener.finish_node("n1", done.returncode)
    assert done.stdout.count(b"\n") == 1
    yield from found


def test_words_reach_gpubind_as_they_are() -> None:
    words = ["a b", "$(id)", "`id`", "'", '"', "\\", "*", "%h", ";", "-", ""]
    program = (
        'import json, sys\ndocument = {"schema": "gpubind.error/1", "code": "c", "what": str(sys.argv[1:])}\n'
        "print(json.dumps(document))\nsys.exit(4)"
    )
    (answer,) = run_on_node(*words, is_sent=True, path="/usr/bin:/bin", program=program.encode())
    assert isinstance(answer.result, NodeError)
    assert answer.result.what == str(words)


def test_a_program_that_is_sent_lies_in_a_private_directory_and_is_removed() -> None:
    program = (
        "import json, os, sys\nd = os.path.dirname(sys.argv[0])\n"
        "what = json.dumps([d, os.stat(d).st_mode & 0o777, os.stat(sys.argv[0]).st_mode & 0o777])\n"
        'print(json.dumps({"schema": "gpubind.error/1", "code": "c", "what": what}))\nsys.exit(4)'
    )
    (answer,) = run_on_node("check", is_sent=True, path="/usr/bin:/bin", program=program.encode())
    assert isinstance(answer.result, NodeError)
    directory, mode, own = json.loads(answer.result.what)
    assert (mode, own, answer.exit) == (0o700, 0o600, 4)
    with pytest.raises(FileNotFoundError):
        subprocess.run(["true"], cwd=directory, check=False)


def test_what_a_job_chooses_is_not_the_nodes() -> None:
    program = (
        "import json, os, sys\nwhat = [name for name in os.environ if name.endswith(('_DEVICES', '_GPUS'))]\n"
        'print(json.dumps({"schema": "gpubind.error/1", "code": "c", "what": str(what)}))\nsys.exit(4)'
    )
    environ = {"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "1", "ROCR_VISIBLE_DEVICES": ""}
    (answer,) = run_on_node("check", is_sent=True, path="/usr/bin:/bin", program=program.encode(), **environ)
    assert isinstance(answer.result, NodeError)
    assert answer.result.what == "[]"


def test_a_node_without_gpubind_says_so() -> None:
    (answer,) = run_on_node("check", path="/usr/bin:/bin")
    assert answer.status == "crashed"
    assert answer.why.startswith("gpubind is not in the node's PATH (")


@pytest.mark.parametrize(
    ("printed", "error", "status", "expected"),
    [
        (b"", b"ssh: Connection refused\n", 255, ("unreachable", "ssh: Connection refused")),
        (b"", b"", 255, ("unreachable", "it ended with status 255")),
        (b"", b"", 254, ("crashed", "it ended with status 254")),
        (b" \n", b"a\n\n b \n\n", 1, ("crashed", "b")),
        (b"x", b"a", 255, ("garbled", "it prints `x`")),
        (b"x" * 100, b"", 0, ("garbled", f"it prints `{'x' * 100}`")),
        (b"x" * 101, b"", 0, ("garbled", f"it prints `{'x' * 100}`, 101 bytes in all")),
        (b"", b"error: " + b"x" * 300, 1, ("crashed", f"error: {'x' * 193}")),
        (line(OK)[:60], b"", 0, ("garbled", f"it prints `{line(OK)[43:60].decode()}`")),
        (line("", 129), b"", 0, ("crashed", "gpubind was killed by signal 1")),
        (line("", 128), b"", 0, ("crashed", "gpubind ended with status 128")),
        (line("", 255), b"", 0, ("crashed", "gpubind was killed by signal 127")),
        (line("", 256), b"", 0, ("garbled", "`256` is not the exit status of a program")),
        (line("x", 2), b"", 0, ("crashed", "gpubind ended with status 2")),
    ],
)
def test_the_reason_why_there_is_no_answer_is_whole(
    printed: bytes, error: bytes, status: int, expected: tuple[str, str]
) -> None:
    answer = heard(printed, error=error, status=status)
    assert (answer.status, answer.why, answer.document) == (*expected, None)
