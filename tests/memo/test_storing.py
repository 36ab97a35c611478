"""Where memos lie, what is believed, and which answers are not kept at all."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Optional

import pytest

from gpubind.errors import UnseenError, UsageError
from gpubind.host.base import RunResult
from gpubind.host.programs import run_program
from gpubind.machine import listener as asked
from gpubind.memo import files, storing, versions
from gpubind.memo.questions import first_change
from gpubind.memo.recorder import Recorder
from gpubind.memo.trace import SMALL, Trace
from gpubind.model import data
from gpubind.model.data import READ
from tests.support.memo import Bench

MEMO = {"trace": {}, "printed": [], "verbose": False, "status": 0, "become": None, "rest": None}


def kept(bench: Bench, words: tuple[str, ...]) -> Path:
    """The file of the memo of *words*."""
    bench.with_memo(words)
    bench.settle()
    bench.with_memo(words)
    (file,) = bench.memos.iterdir()
    return file


def test_a_damaged_memo_is_none(bench: Bench) -> None:
    words = bench.commands()["plan"]
    file = kept(bench, words)
    whole, right = file.read_bytes(), bench.without(words)
    for damaged in (
        b"",
        whole[:100],
        whole[:-1],
        whole + b"x",
        whole[:500] + bytes([whole[500] ^ 1]) + whole[501:],
        b"x" + whole[1:],
    ):
        file.write_bytes(damaged)
        served = bench.served
        assert bench.with_memo(words) == right
        assert bench.served == served


def test_a_memo_that_others_may_write_or_a_link_to_one_is_none(bench: Bench, tmp_path: Path) -> None:
    words = bench.commands()["plan"]
    file = kept(bench, words)
    served = bench.served
    file.chmod(0o666)
    bench.with_memo(words)
    file.unlink(missing_ok=True)
    storing.write("x", dict(MEMO))
    os.symlink("x", file)
    bench.with_memo(words)
    assert bench.served == served


def test_an_answer_is_kept_although_the_directories_of_memos_are_made_before_it_is_there(bench: Bench) -> None:
    """So the second start after a boot is served: the version of the runtime is kept in the middle of the first."""
    bench.memos.rmdir()
    recorder = Recorder(lambda status: None)
    with recorder:
        storing.write(versions.VERSIONS, dict(MEMO))
    assert (bench.memos / versions.VERSIONS).is_file()
    assert first_change(recorder.questions) is None


def test_a_directory_that_others_may_look_into_holds_no_memos(bench: Bench) -> None:
    bench.memos.chmod(0o755)
    bench.with_memo(bench.commands()["plan"])
    assert list(bench.memos.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_directory_of_somebody_else_holds_no_memos(bench: Bench) -> None:
    os.chown(bench.memos, 1000, 1000)
    bench.with_memo(bench.commands()["plan"])
    assert list(bench.memos.iterdir()) == []


def test_roots_memos_lie_where_nobody_else_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp/of-somebody")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert list(files.directories()) == ["/run/gpubind/memo"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert next(iter(files.directories())) == "/tmp/of-somebody/gpubind/memo"


def test_the_oldest_memos_go(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "FILES_LIMIT", 3)
    for number in range(6):
        storing.write(f"{number}", dict(MEMO))
        os.utime(bench.memos / f"{number}", (number, number))
    assert sorted(file.name for file in bench.memos.iterdir()) == ["3", "4", "5"]


def test_turned_off_there_is_no_memo(bench: Bench) -> None:
    bench.environ["GPUBIND_MEMO"] = "off"
    bench.with_memo(bench.commands()["plan"])
    assert list(bench.memos.iterdir()) == []


def test_starts_of_other_commands_share_a_memo(bench: Bench) -> None:
    exec_, image = bench.commands()["apptainer"], str(bench.image)
    kept(bench, exec_)
    served = bench.served
    for command in (("true", "y"), ("false",), ("true", "--", "-x")):
        words = (*exec_[: exec_.index(image) + 1], *command)
        outcome = bench.with_memo(words)
        assert outcome == bench.without(words)
        assert outcome.became is not None
        assert outcome.became[1][-len(command) :] == command
    assert bench.served == served + 3


def test_a_program_that_was_looked_for_is_part_of_the_question(bench: Bench) -> None:
    exec_, image = bench.commands()["bwrap"], str(bench.image)
    kept(bench, exec_)
    words = exec_[: exec_.index(image) + 1]
    served = bench.served
    assert bench.with_memo((*words, "true", "other", "arguments")).became is not None
    assert bench.served == served + 1
    assert bench.with_memo((*words, "no-such-program")).status == 127


def test_the_callers_other_variables_go_on_as_they_are(bench: Bench) -> None:
    words = bench.commands()["apptainer"]
    kept(bench, words)
    bench.environ["SLURM_ARRAY_TASK_ID"] = "7"
    served = bench.served
    outcome = bench.with_memo(words)
    assert bench.served == served + 1
    assert outcome == bench.without(words)
    assert outcome.became is not None
    assert ("SLURM_ARRAY_TASK_ID", "7") in outcome.became[2]


def test_a_plan_that_is_written_to_a_file_is_not_kept(bench: Bench) -> None:
    words = (*bench.commands()["plan"], "-o", str(bench.work / "plan.json"))
    for _ in range(2):
        bench.with_memo(words)
        bench.settle()
    assert list(bench.memos.iterdir()) == []
    (bench.work / "plan.json").unlink()
    bench.with_memo(words)
    assert (bench.work / "plan.json").exists()


def test_a_generated_file_that_is_gone_is_made_again(bench: Bench) -> None:
    words = bench.commands()["apptainer"]
    kept(bench, words)
    staged = sorted((bench.home / ".cache/gpubind").iterdir())
    assert staged
    for file in staged:
        file.unlink()
    assert bench.with_memo(words) == bench.without(words)
    assert sorted((bench.home / ".cache/gpubind").iterdir()) == staged


def test_a_start_with_a_damaged_skeleton_takes_another_one_and_is_kept(bench: Bench) -> None:
    words = bench.commands()["user"]
    kept(bench, words)
    skeleton = next(place for place in (bench.home / ".cache/gpubind").iterdir() if place.name.endswith("-skeleton"))
    next(place for place in skeleton.rglob("*") if place.is_file()).unlink()
    kept(bench, words)
    assert bench.with_memo(words) == bench.without(words)


def test_a_file_that_was_just_written_is_compared_or_the_answer_is_not_kept(bench: Bench) -> None:
    small, large = bench.work / "small", bench.work / "large"
    small.write_bytes(b"x")
    large.write_bytes(b"x" * (SMALL + 1))
    recorder = Recorder(lambda status: None)
    recorder.opened(str(small))
    assert str(small) in recorder.questions["content"]
    assert recorder.refused is None
    recorder.opened(str(large))
    assert recorder.refused == f"just written: {large}"


def test_a_program_that_was_run_or_a_script_that_says_its_version_is_not_believed_again(bench: Bench) -> None:
    script = bench.work / "script"
    script.write_text("#!/bin/sh\n")
    with Recorder(lambda status: None) as recorder:
        asked.report_program(str(script))
    assert recorder.refused == f"a script says its version: {script}"


def test_a_program_is_asked_for_its_version_once_as_long_as_it_is_the_same(bench: Bench) -> None:
    program, asked_for = bench.work / "program", []

    def ask(path: str) -> str:
        asked_for.append(path)
        return f"version {len(asked_for)}"

    def version() -> str:
        bench.settle()
        return versions.version_of(str(program), ask)

    program.write_bytes(b"\x7fELF one")
    assert (version(), version()) == ("version 1", "version 1")
    found = program.stat()
    program.write_bytes(b"\x7fELF two")
    os.utime(program, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert (version(), version()) == ("version 2", "version 2")
    program.write_bytes(b"#!/bin/sh\n")
    assert (version(), version()) == ("version 3", "version 4")


def test_a_helper_program_is_started_for_its_version_once_and_the_command_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.base / "standard").mkdir(exist_ok=True)
    shutil.copy("/usr/bin/env", bench.base / "standard")
    bench.settle()
    with Recorder(lambda status: None) as recorder:
        first = run_program(("env", "--version"), 10)
    assert isinstance(first, RunResult)
    assert first.stdout
    monkeypatch.setattr(os, "posix_spawn", None)
    assert run_program(("env", "--version"), 10) == first
    assert recorder.refused is None
    with Recorder(lambda status: None) as recorder, pytest.raises(TypeError):
        run_program(("env", "-0"), 10)
    assert recorder.refused == "`env` was asked"


def test_an_answer_about_a_version_has_the_same_bytes_asked_and_known(bench: Bench) -> None:
    program = bench.base / "standard" / "engine"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\necho engine 1.2\necho a warning >&2\n")
    program.chmod(0o755)
    assert run_program(("engine", "--version"), 10) == RunResult(0, "engine 1.2\n", "")
    program.write_text("#!/bin/sh\necho engine 1.2\nexit 3\n")
    assert run_program(("engine", "--version"), 10) == RunResult(3, "engine 1.2\n", "")


def test_to_ask_a_program_for_its_version_is_no_question_about_the_callers_variables(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a job, for example: each job would make a memo of its own, and be served by none."""
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    with Recorder(lambda status: None) as recorder:
        versions.version_of("/bin/true", lambda program: "1.0\n")
    assert "SLURM_JOB_ID" not in recorder.questions["variable"]
    assert not recorder.questions["variables"]


def test_what_is_remembered_of_an_image_is_believed_as_a_memo_is(bench: Bench) -> None:
    known = {"_list": {"/": ["etc"]}}
    versions.keep_content("one", known)
    assert versions.known_content("one") == known
    versions.keep_content("one", {"_list": {"/etc": []}})  # of another process
    assert versions.known_content("one") == {"_list": {"/": ["etc"], "/etc": []}}
    data = (bench.memos / "one").read_bytes()
    shutil.copyfile(bench.memos / "one", bench.memos / "other")
    (bench.memos / "other").chmod(0o600)
    (bench.memos / "one").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert versions.known_content("one") == versions.known_content("other") == {}


def test_what_is_remembered_of_an_image_was_read_by_this_very_code(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "module.py"
    code.write_text("1")
    monkeypatch.setattr(versions, "note_modules", lambda trace, **_: trace.written(str(code), os.stat(code)))
    versions.keep_content("one", {"_list": {}})
    assert versions.known_content("one")
    code.write_text("22")
    assert versions.known_content("one") == {}


def test_gpubinds_own_data_is_signed_as_its_modules_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("table.json", "missing.json"):
        monkeypatch.setitem(READ, str(tmp_path / name), True)
    (tmp_path / "table.json").touch()
    trace = Trace()
    storing.note_modules(trace)
    assert {str(tmp_path / "table.json"), str(tmp_path / "missing.json")} <= trace.questions["written"].keys()


def test_an_answer_without_data_that_could_not_be_read_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READ, "/x/table.json", False)
    trace = Trace()
    storing.note_modules(trace)
    assert trace.refused == "gpubind's own data could not be read"


def test_data_is_read_at_the_second_try_and_else_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [errno.EIO]

    def get_data(path: str) -> bytes:
        if failures:
            number = failures.pop()
            raise OSError(number, os.strerror(number))
        return Path(path).read_bytes()

    monkeypatch.setattr(data.__spec__.loader, "get_data", get_data)
    assert data.read_data("model/data/cuda.json")
    failures += [errno.EIO, errno.EIO]
    with pytest.raises(UnseenError) as caught:
        data.read_data("model/data/cuda.json")
    error = caught.value
    path = str(Path(data.__file__).parent / "cuda.json")
    assert (error.code, error.what, error.where) == ("unreadable-file", "a file cannot be read", path)
    assert (error.why, error.hint) == (os.strerror(errno.EIO), "")
    assert not all(READ.values())
    assert data.read_data("model/data/cuda.json")
    assert all(READ.values())


def test_data_that_is_cut_off_twice_is_an_error_and_data_that_does_not_ship_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data.__spec__.loader, "get_data", lambda path: b"x")
    with pytest.raises(UnseenError) as caught:
        data.read_data("model/data/cuda.json")
    assert caught.value.why == "it was changed while it was read"
    monkeypatch.undo()
    assert data.read_data("model/data/cuda.json")
    with pytest.raises(UsageError) as refused:
        data.read_data("model/data/none.json")
    package = str(Path(data.__file__).parents[2])
    error = refused.value
    assert (error.code, error.what, error.where) == ("no-data", "gpubind ships no `model/data/none.json`", package)
    assert (error.why, error.hint) == ("", "reinstall gpubind")


def test_the_reason_why_an_answer_is_not_kept_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def why(recorder: Recorder, *args: str, keys: tuple[str, ...] = ("k",)) -> Optional[str]:
        return storing.keep(recorder, [*args], keys, 0)

    monkeypatch.setattr(storing, "note_modules", lambda recorder: None)
    recorder = Recorder(lambda status: None)
    recorder.refuse("a reason")
    assert why(recorder, "plan") == "a reason"
    recorder = Recorder(lambda status: None)
    assert why(recorder, "plan", "x") == "too many words"
    recorder.become = ("/bin/true", ("true", "x"), {})
    assert why(recorder, "exec") == "the environment is another one"
    recorder.become = ("/bin/true", ("true", "y"), recorder.environ)
    recorder.command = ("x",)
    assert why(recorder, "exec", "x") == "the command does not end the words"
    recorder = Recorder(lambda status: None)
    recorder.note("link", "/none", "x")
    assert why(recorder, "plan") == "changed meanwhile: /none"
    monkeypatch.setattr(files, "read_secret", lambda: None)
    monkeypatch.setattr(files, "secret_directory", lambda: None)
    assert storing.write("x", {}) == "there is no place for a secret that is the caller's alone"
    monkeypatch.setattr(files, "read_secret", lambda: b"x" * 32)
    monkeypatch.setattr(files, "directories", lambda: iter(()))
    assert storing.write("x", {}) == "there is no place for memos that is the caller's alone"
    head = len(files.packed({"a": b""}, "x", b"x" * 32))
    assert storing.write("x", {"a": bytes(files.SIZE_LIMIT - head)}) != "it is too large"
    assert storing.write("x", {"a": bytes(files.SIZE_LIMIT - head + 1)}) == "it is too large"


@pytest.mark.parametrize(
    ("command", "args", "checked", "free"),
    [
        (("a", "b"), ("exec", "i", "a", "b"), False, ("a", "b")),
        (("a", "b"), ("exec", "i", "a", "b"), True, ("b",)),
        (("a",), ("exec", "i", "a"), True, None),
        (("a", "b"), ("exec", "i", "a", "c"), False, None),
        (("--", "a"), ("exec", "i", "--", "a"), False, None),
        (None, ("exec", "i"), False, None),
        (("a",), (*("x" * 64), "a"), False, ("a",)),
        (("a",), (*("x" * 65), "a"), False, None),
    ],
)
def test_the_words_that_an_answer_does_not_depend_on(
    command: Optional[tuple[str, ...]], args: tuple[str, ...], checked: bool, free: Optional[tuple[str, ...]]
) -> None:
    recorder = Recorder(lambda status: None)
    recorder.command, recorder.looks_at_program = command, checked
    assert storing._free_args(recorder, [*args]) is None  # nothing is started
    recorder.become = ("/bin/true", args, {})
    assert storing._free_args(recorder, [*args]) == free


def test_the_change_of_an_environment_is_what_is_unset_and_what_is_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBIND_A", "1")
    monkeypatch.setenv("GPUBIND_B", "2")
    recorder = Recorder(lambda status: None)
    made = recorder.environ.changed(("GPUBIND_A",), {"GPUBIND_B": "2", "GPUBIND_C": "3"})
    assert storing._environ_changes(recorder, made) == (("GPUBIND_A",), {"GPUBIND_C": "3"})
    assert storing._environ_changes(recorder, dict(made)) is None


@pytest.mark.parametrize(("count", "size", "left"), [(256, 1, 256), (257, 1, 256), (4, 8 << 20, 4), (5, 8 << 20, 4)])
def test_the_oldest_files_go_above_a_number_and_a_size(count: int, size: int, left: int, tmp_path: Path) -> None:
    for number in range(count):
        path = tmp_path / str(number)
        path.touch()
        os.truncate(path, size)
        os.utime(path, ns=(number, number))
    place = os.open(tmp_path, os.O_RDONLY)
    try:
        storing._drop_oldest(place)
    finally:
        os.close(place)
    assert {int(name) for name in os.listdir(tmp_path)} == {*range(count - left, count)}
