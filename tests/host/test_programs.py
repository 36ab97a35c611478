"""Programs that gpubind asks: those that every Linux has stand for nvidia-container-cli."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpubind.host import RunResult
from gpubind.host.live import LiveHost
from gpubind.host.programs import PROGRAM_DIRECTORIES, run_program
from gpubind.machine.budget import BOUNDS, current, one_command
from gpubind.machine.programs import OUTPUT_LIMIT, run_captured, run_streaming
from gpubind.model import Missing
from tests.support.interrupts import rounds_with_a_process_left


def run(*argv: str, timeout_s: float = 20) -> RunResult:
    answer = run_program(argv, timeout_s)
    assert isinstance(answer, RunResult), answer
    return answer


def test_a_program_answers_with_its_status_and_both_outputs() -> None:
    answer = run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert answer == RunResult(3, "out\n", "err\n")


def test_a_live_host_runs_programs() -> None:
    assert LiveHost("/", "/").run(("sh", "-c", "echo a"), 20) == RunResult(0, "a\n", "")


def test_a_program_sees_no_environment_but_a_path_and_the_c_locale() -> None:
    assert set(run("env").stdout.split()) == {f"PATH={':'.join(PROGRAM_DIRECTORIES)}", "LC_ALL=C"}


def test_a_program_reads_nothing() -> None:
    assert run("cat") == RunResult(0, "", "")


def test_output_that_is_not_utf8_comes_as_surrogate_escapes() -> None:
    assert run("printf", r"a\377").stdout == "a\udcff"


def test_a_program_that_prints_without_end_is_ended() -> None:
    answer = run_program(("sh", "-c", "cat /dev/zero"), 30)
    assert answer == Missing("unreadable", f"`sh` prints more than {OUTPUT_LIMIT} bytes")


def test_a_program_that_is_ended_takes_what_it_has_started_with_it(tmp_path: Path) -> None:
    script = f"sleep infinity & echo $! > {tmp_path}/pid; wait"
    run_program(("sh", "-c", script), 0.5)
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    while not _has_ended(stat):  # a signal reaches all at once, but each dies in its own time
        time.sleep(0.01)


def _has_ended(stat: Path) -> bool:
    """Whether the process is gone, or only waits for init to notice."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_program_that_does_not_answer_in_time_is_ended() -> None:
    answer = run_program(("sleep", "infinity"), 0.2)
    assert answer == Missing("unreadable", "`sleep` did not answer within 0.2 s")


def test_a_program_that_goes_on_printing_is_ended_in_time() -> None:
    answer = run_program(("sh", "-c", "while :; do echo; done"), 0.2)
    assert answer == Missing("unreadable", "`sh` did not answer within 0.2 s")


def test_a_program_that_closes_its_outputs_and_goes_on_is_ended_in_time() -> None:
    answer = run_program(("sh", "-c", "exec >&- 2>&-; sleep infinity"), 0.2)
    assert answer == Missing("unreadable", "`sh` did not answer within 0.2 s")


def test_a_program_that_is_killed_gives_no_answer() -> None:
    answer = run_program(("sh", "-c", "echo half; kill -9 $$"), 10)
    assert answer == Missing("unreadable", "`sh` was killed by signal 9")


def test_a_program_that_closes_its_outputs_and_ends_soon_has_answered() -> None:
    assert run("sh", "-c", "echo a; exec >&- 2>&-; sleep 0.1; exit 4") == RunResult(4, "a\n", "")


def test_a_program_that_cannot_be_killed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that a driver holds in the kernel dies when the driver lets it go."""
    groups = []
    monkeypatch.setattr("os.killpg", lambda group, signal: groups.append(group))
    answer = run_program(("sleep", "infinity"), 0.1)
    monkeypatch.undo()
    os.killpg(groups[0], signal.SIGKILL)
    os.waitpid(groups[0], 0)
    assert answer == Missing("unreadable", "`sleep` did not answer within 0.1 s")


@pytest.mark.parametrize("name", ["gpubind-no-such-program", "../../../../bin/none"])
def test_a_program_that_is_in_no_standard_directory_is_absent(name: str) -> None:
    answer = run_program((name,), 5)
    assert isinstance(answer, Missing)
    assert answer.why == "absent"
    assert name in answer.detail


def test_a_program_gets_the_standard_streams_and_no_other_file() -> None:
    theirs, end = os.pipe()
    os.set_inheritable(theirs, True)
    try:
        assert run("ls", "/proc/self/fd").stdout.split() == ["0", "1", "2", "3"]  # the last is the directory
    finally:
        os.close(theirs)
        os.close(end)


CLOSED = """
import os, tempfile
from gpubind.host.programs import run_program
from gpubind.machine.programs import run_captured
for number in (0, 1, 2):
    os.close(number)
answer = run_program(("sh", "-c", "cat; echo out; echo err >&2"), 20)
with tempfile.TemporaryFile(dir=os.environ["PLACE"]) as into:
    status = run_captured("/bin/sh", ("sh", "-c", "cat; echo out; echo err >&2"), "sh", 20, {}, into=into)
    assert into.fileno() == 0 and into.seek(0) == 0 and into.read() == b"out\\n"
raise SystemExit((*answer, *status) != (0, "out\\n", "err\\n", 0, b"", b"err\\n"))
"""


def test_a_program_gets_its_streams_where_gpubind_has_none(tmp_path: Path) -> None:
    environ = {**os.environ, "PLACE": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", CLOSED], env=environ, timeout=60).returncode == 0


def test_a_program_runs_where_the_c_library_makes_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def spawn(*_: object, **__: object) -> int:
        raise NotImplementedError("setsid is not supported on this system")

    monkeypatch.setattr(os, "posix_spawn", spawn)
    answer = run("sh", "-c", "cut -d' ' -f1,6 /proc/$$/stat; echo err >&2; cat; exit 3")
    process, session = answer.stdout.split()
    assert (answer.status, answer.stderr, process) == (3, "err\n", session)
    assert run_program(("sleep", "infinity"), 0.2) == Missing("unreadable", "`sleep` did not answer within 0.2 s")


def test_a_program_runs_and_nothing_slow_is_loaded_for_it() -> None:
    code = "import sys; from gpubind.host.programs import run_program; assert run_program(('true',), 20).status == 0\n"
    code += "print(*{'subprocess', 'selectors', 'signal', 'threading', 'locale'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "\n"


def test_an_interrupt_while_a_program_is_started_leaves_nothing_of_it() -> None:
    setup = "from gpubind.host.programs import run_program"
    assert rounds_with_a_process_left(setup, 'run_program(("sleep", "60"), 30)') == 0


@pytest.mark.parametrize("size", [OUTPUT_LIMIT, OUTPUT_LIMIT + 1])
@pytest.mark.parametrize("stream", ["", " >&2"])
def test_a_program_prints_up_to_a_limit(size: int, stream: str) -> None:
    answer = run_program(("sh", "-c", f"head -c {size} /dev/zero{stream}"), 20)
    assert isinstance(answer, RunResult) is (size == OUTPUT_LIMIT)


def test_time_that_programs_took_is_taken_from_the_command_and_none_is_asked_without_it() -> None:
    with one_command():
        budget = current()
        assert budget is not None
        assert run("true") == RunResult(0, "", "")
        left = budget.left("milliseconds")
        assert left < BOUNDS["milliseconds"].amount or left == BOUNDS["milliseconds"].amount
        assert budget.take("milliseconds", left - 100)
        assert run_program(("sleep", "infinity"), 9) == Missing("unreadable", "`sleep` did not answer within 0.1 s")
        assert budget.left("milliseconds") == 0
        why = "`true` is not asked: helper programs took all the time that they may"
        assert run_program(("true",), 9) == Missing("unreadable", why)


def test_a_program_that_is_nowhere_is_missing_with_the_directories() -> None:
    why = "no `gpubind-none` in /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert run_program(("gpubind-none",), 5) == Missing("absent", why)


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:
        run_captured(f"{tmp_path}/none", ("none",), "`none`", 5, {})
    assert (caught.value.errno, caught.value.strerror) == (
        errno.ENOENT,
        "`none` cannot be started: No such file or directory",
    )


def test_the_output_of_a_program_goes_to_a_file_and_its_input_is_one(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"abc")
    chunks: list[tuple[bool, bytes]] = []
    with open(tmp_path / "in", "rb") as reads, open(tmp_path / "out", "wb") as into:
        status = run_streaming(
            *("/bin/sh", ("sh", "-c", "cat; echo e >&2; exit 5"), "`sh`", 9, {"PATH": "/usr/bin:/bin"}),
            lambda is_error, chunk: chunks.append((is_error, chunk)),
            reads=reads,
            into=into,
        )
    assert (status, (tmp_path / "out").read_bytes()) == (5, b"abc")
    assert [chunk for chunk in chunks if chunk[1]] == [(True, b"e\n")]
