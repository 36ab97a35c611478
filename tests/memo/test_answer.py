"""When a memo is believed, by whom, and what a user sees of it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

import gpubind
from gpubind.machine.budget import BOUNDS
from gpubind.memo import answer, files
from gpubind.memo.answer import memo_keys
from gpubind.memo.questions import ASKED, first_change
from gpubind.model.data import BUNDLED_HOSTS
from tests.law.__main__ import PROGRAM
from tests.support.memo import IS_ROOT, Bench

WORDS = ("plan", "--json")


def kept(bench: Bench, words: tuple[str, ...]) -> None:
    """Have *words* answered by a memo from now on."""
    for _ in range(2):
        bench.settle()
        bench.with_memo(words)
    bench.settle()
    served = bench.served
    bench.with_memo(words)
    assert bench.served == served + 1, "no memo is kept"


def agree(bench: Bench, words: tuple[str, ...]) -> None:
    assert bench.with_memo(words) == bench.without(words)


def _ids(patch: pytest.MonkeyPatch, kind: str) -> None:
    for name in (f"get{kind}", f"gete{kind}"):
        patch.setattr(os, name, lambda: 7)


VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("AMD_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"),
    *("PATH", "HOME", "PWD", "LD_LIBRARY_PATH"),
)
OTHERS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "user": lambda patch: _ids(patch, "uid"),
    "group": lambda patch: _ids(patch, "gid"),
    "groups": lambda patch: patch.setattr(os, "getgroups", lambda: [44]),
    "directory": lambda patch: patch.chdir("/"),
    "terminal": lambda patch: patch.setattr(os, "isatty", lambda descriptor: descriptor == 0),
    "machine": lambda patch: patch.setattr(os, "uname", lambda: ("Linux", "x", "6.1", "1", "x86_64")),
    "rights": lambda patch: patch.setattr(answer, "_rights", lambda: (b"CapEff:\t0",)),
    "Python": lambda patch: patch.setattr(sys, "version", "3.99"),
    "path": lambda patch: patch.setenv("PATH", "/opt"),
    **{name: lambda patch, name=name: patch.setenv(name, "/1") for name in VARIABLES},  # type: ignore[misc]
    "form": lambda patch: patch.setattr(answer, "FORM", b"gpubind memo 0\n"),
    "version": lambda patch: patch.setattr(gpubind, "__version__", "99"),
    "copy of gpubind": lambda patch: patch.setattr(answer, "__file__", "/opt/gpubind/memo/answer.py"),
    "interpreter": lambda patch: patch.setattr(sys, "executable", "/opt/python"),
    "modules": lambda patch: patch.setattr(sys, "path", ["/opt"]),
    "name": lambda patch: patch.setattr(sys, "argv", ["/opt/gpubind"]),
    "file names": lambda patch: patch.setattr(sys, "getfilesystemencoding", lambda: "latin-1"),
    "output": lambda patch: patch.setattr(sys, "stderr", None),
}


@pytest.mark.parametrize("other", OTHERS)
def test_who_asks_and_where_is_part_of_the_question(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(answer.SWITCH, "on")
    before = memo_keys(WORDS)
    assert before == memo_keys(WORDS)
    OTHERS[other](monkeypatch)
    assert set(before).isdisjoint(memo_keys(WORDS))


def test_a_program_with_rights_of_another_user_has_no_memo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(answer.SWITCH, "on")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert memo_keys(WORDS) == ()


def test_the_user_has_the_last_word_whether_there_is_a_memo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(answer.SWITCH)
    assert memo_keys(WORDS)
    for said, is_on in (("off", False), ("0", False), ("on", True), ("1", True)):
        monkeypatch.setenv(answer.SWITCH, said)
        assert bool(memo_keys(WORDS)) is is_on


def test_plans_checks_and_starts_have_a_memo_and_other_commands_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(answer.SWITCH, "on")
    for kept_words in (("plan",), ("check",), ("exec", "i", "c"), ("run", "i"), ("shell", "i"), ("wrap", "bwrap")):
        assert memo_keys(kept_words) != ()
    for words in ((), ("--version",), ("record", "-o", "-"), ("explain", "libcuda.so.1"), ("pln",)):
        assert memo_keys(words) == ()


@pytest.mark.parametrize("command", ["plan", "check", "apptainer", "wrap"])
def test_with_vv_alone_the_user_is_told_whether_a_memo_served(
    command: str, bench: Bench, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = bench.commands()[command]
    words = (words[0], "-vv", *words[1:])
    told: list[str] = []
    whole = bench._outcome

    def outcome(run: Callable[[], int]) -> object:
        made = whole(run)
        told.extend(line for line in made.stderr.decode().splitlines() if line.startswith("memo: "))
        return made

    monkeypatch.setattr(bench, "_outcome", outcome)
    kept(bench, words)
    assert told[0] == "memo: not served: there is no place for memos yet"
    assert told[-1] == "memo: served"
    version = bench.host / "sys/module/nvidia/version"
    version.write_text("550.54.15\n")
    bench.with_memo(words)
    assert f"memo: not served: changed: {version}" in told
    told.clear()
    bench.with_memo((words[0], "-v", *words[2:]))
    assert told == []


def test_a_page_is_kept_only_if_its_time_is_given(bench: Bench) -> None:
    words = ("check", *bench.root, "--format", "html")
    bench.with_memo(words)
    assert [*bench.memos.iterdir()] == []
    bench.environ["SOURCE_DATE_EPOCH"] = "0"
    kept(bench, words)
    bench.environ["SOURCE_DATE_EPOCH"] = "86400"
    assert b"1970-01-02" in bench.with_memo(words).stdout


def test_a_memo_of_another_form_is_none(bench: Bench) -> None:
    words = bench.commands()["plan"]
    kept(bench, words)
    (file,) = bench.memos.iterdir()
    secret = files.read_secret()
    assert secret is not None
    served, memo = bench.served, files.unpacked(file.read_bytes(), file.name, secret)
    assert memo is not None
    file.write_bytes(files.packed({**memo, "trace": {**memo["trace"], "new": {}}}, file.name, secret))
    file.chmod(0o600)
    agree(bench, words)
    file.write_bytes(file.read_bytes().replace(files.FORM, files.FORM.replace(b"3", b"9")))
    agree(bench, words)
    assert bench.served == served
    assert first_change({"new": {}}) == "new"
    assert "new" not in ASKED


def test_where_no_memo_can_be_written_nobody_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    words = bench.commands()["plan"]

    def full(*arguments: object, **more: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", full)
        agree(bench, words)
    bench.memos.rmdir()
    bench.memos.write_text("")
    agree(bench, words)


def test_a_link_to_the_place_of_memos_counts_only_where_nobody_else_may_put_one(bench: Bench) -> None:
    (bench.base / "theirs").mkdir(0o700)
    (bench.base / "links").mkdir(0o700)
    (bench.base / "links/link").symlink_to("../theirs")
    (bench.base / "theirs/memo").mkdir(0o700)

    def is_opened(path: str) -> bool:
        opened = files.open_directory(str(bench.base / path))
        if opened is not None:
            os.close(opened)
        return opened is not None

    assert is_opened("links/link/memo")
    (bench.base / "theirs").chmod(0o777)
    assert not is_opened("links/link/memo")
    assert not is_opened("theirs/memo")


def test_a_memo_holds_no_value_of_a_variable_that_the_plan_does_not_print(bench: Bench) -> None:
    names = ("NVIDIA_VISIBLE_DEVICES", "APPTAINERENV_TOKEN", "GPUBIND_BOUNDS", "TERM", "TOKEN")
    for name in names:
        bench.environ[name] = f"secret-{name}"
    for command in ("plan", "check", "apptainer"):
        bench.with_memo(bench.commands()[command])
        bench.settle()
        outcome = bench.with_memo(bench.commands()[command])
        shown = outcome.stdout + outcome.stderr + repr(outcome.became[:2] if outcome.became else "").encode()
        for file in bench.memos.iterdir():
            for name in names:
                if f"secret-{name}".encode() not in shown:
                    assert f"secret-{name}".encode() not in file.read_bytes()
            file.unlink()


def test_a_bound_that_the_user_widens_counts_at_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOUNDS, "facts", BOUNDS["facts"]._replace(amount=10))
    words = bench.commands()["apptainer"]
    words = tuple(word for word in words if word != "-q")
    kept(bench, words)
    assert b"over-bounds" in bench.with_memo(words).stderr
    bench.environ["GPUBIND_BOUNDS"] = "1000"
    agree(bench, words)
    assert b"over-bounds" not in bench.with_memo(words).stderr


@pytest.mark.skipif(not IS_ROOT, reason="an ordinary user's programs are anybody's")
def test_a_program_that_others_may_change_by_now_is_not_started(bench: Bench) -> None:
    words = bench.commands()["apptainer"]
    bench.base.chmod(0o755)
    kept(bench, words)
    (bench.base / "bin").chmod(0o777)
    agree(bench, words)
    assert bench.with_memo(words).became is None


@pytest.mark.parametrize("command", ["plan --json", "exec --dry-run --backend systemd-nspawn /usr ls"])
@pytest.mark.parametrize("output", ["/dev/full", "closed", "pipe"])
def test_an_answer_that_cannot_be_written_ends_as_without_a_memo(output: str, command: str, bench: Bench) -> None:
    environ = {**bench.environ, "BASE": str(bench.base), "PYTHONPATH": os.pathsep.join(sys.path)}
    environ["PATH"] = os.environ["PATH"]
    first, *rest = command.split()
    line = [sys.executable, "-c", PROGRAM, first, "--host", BUNDLED_HOSTS[0], *rest]
    for _ in range(2):
        bench.settle()
        subprocess.run(
            line, env={**environ, "GPUBIND_MEMO": "on"}, stdout=subprocess.DEVNULL, check=True, cwd=bench.work
        )
    assert len(list(bench.memos.iterdir())) == 1

    def end(memo: str) -> tuple[int, bytes]:
        shell = {"/dev/full": '"$@" > /dev/full', "closed": '"$@" >&-', "pipe": 'sleep 0.1; "$@"'}[output]
        reading, writing = os.pipe()
        os.close(reading)
        around = {**environ, "GPUBIND_MEMO": memo}
        words = ["sh", "-c", shell, "sh", *line]
        done = subprocess.run(words, env=around, stdout=writing, stderr=subprocess.PIPE, check=False, cwd=bench.work)
        os.close(writing)
        return done.returncode, done.stderr

    assert end("on") == end("off")


def test_a_start_that_a_memo_serves_loads_next_to_nothing(bench: Bench) -> None:
    code = PROGRAM.replace("import gpubind.host.programs\n", "").replace(
        "gpubind.host.programs.PROGRAM_DIRECTORIES", "_"
    )
    code = code.replace("sys.exit(main())", "main(); print(*sys.modules, file=sys.stderr)")
    environ = {**bench.environ, "BASE": str(bench.base), "PYTHONPATH": os.pathsep.join(sys.path), "GPUBIND_MEMO": "on"}

    def loaded(code: str) -> set[str]:
        bench.settle()
        line = [sys.executable, "-c", code, *bench.commands()["plan"]]
        done = subprocess.run(line, env=environ, capture_output=True, text=True, check=True, cwd=bench.work)
        return set(done.stderr.split())

    loaded(code)
    memo = {f"gpubind.memo{name}" for name in ("", ".answer", ".files", ".questions")}
    more = loaded(code) - loaded("import sys; print(*sys.modules, file=sys.stderr)")
    assert more == {"__future__", "_blake2", "gpubind", "gpubind.__main__", *memo}


def test_a_command_line_has_a_name_for_each_beginning_up_to_a_limit_and_one_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(answer.SWITCH, "on")
    words = ["plan", *(f"--{number}" for number in range(answer.ARGS_LIMIT + 5))]
    keys = memo_keys(words)
    assert len(keys) == len(set(keys)) == answer.ARGS_LIMIT + 1
    assert keys[:3] == memo_keys(words[:3])
    assert keys[-1] == memo_keys([*words])[-1] != memo_keys(words[:-1])[-1]
    assert len(memo_keys(words[: answer.ARGS_LIMIT])) == answer.ARGS_LIMIT
    assert [len(key) for key in keys[:2]] == [40, 40]
