"""The recorder hears each query of gpubind/machine/system.py, with all that its signature needs, and each change."""

from __future__ import annotations

import ast
import errno
import os
import posix
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpubind
from gpubind.machine import listener, system
from gpubind.machine.writing import replace
from gpubind.memo import questions
from gpubind.memo.recorder import Recorder
from tests.support.golden import assert_none

PACKAGE = Path(gpubind.__file__).parent


def test_nothing_is_asked_of_a_file_that_its_signature_does_not_have() -> None:
    had = {"st_mode", "st_uid", "st_gid", "st_rdev", "st_size"}
    # trust.py notes the device itself. The others tell one opened file from another, and whether it is written to while
    # it is read; no answer has them.
    noted = {"machine/trust.py": {"st_dev"}, "machine/answers.py": {"st_mtime_ns"}}
    noted["files/blob.py"] = {"st_dev", "st_ino", "st_mtime_ns"}
    other = []
    for path in (path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "memo"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        module = str(path.relative_to(PACKAGE))
        found = {name for name in names if name.startswith("st_")} - had
        other += [f"gpubind/{module}: `{name}`" for name in sorted(found - noted.get(module, set()))]
    assert_none(other, "{} is not in a file's signature: ask only what `facts` in gpubind/memo/questions.py has")


QUERIES: dict[str, tuple[Callable[[str], Any], str]] = {
    "stat": (system.stat, "stat"),
    "exists": (system.exists, "stat"),
    "is_file": (system.is_file, "stat"),
    "is_directory": (system.is_directory, "stat"),
    "lstat": (system.lstat, "lstat"),
    "real_path": (system.real_path, "lstat"),
    "readlink": (system.readlink, "link"),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_recorded(name: str, tmp_path: Path) -> None:
    query, kind = QUERIES[name]
    path = tmp_path / "it"
    if kind == "link":
        path.symlink_to("file")
    else:
        path.touch()
    with Recorder(lambda status: None) as recorder:
        query(str(path))
    assert str(path) in recorder.questions[kind]


def test_below_an_open_directory_the_whole_path_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("x")
    (tmp_path / "a/b/link").symlink_to("file")
    with Recorder(lambda status: None) as recorder:
        top = system.open_directory(str(tmp_path), os.O_PATH)
        below = top.directory("a", os.O_PATH)
        (tmp_path / "a").rename(tmp_path / "c")  # what was asked for was below `a`, whatever it is called by now
        place = below.directory("b")
        place.lstat("file")
        place.readlink("link")
        place.names()
        for opened in (top, below, place):
            opened.close()
    inner = f"{tmp_path}/a/b"
    assert {f"{tmp_path}/a", inner, f"{inner}/file"} <= recorder.questions["lstat"].keys()
    assert f"{inner}/link" in recorder.questions["link"]
    assert inner in {**recorder.questions["names"], **recorder.questions["written"]}


def _replace(path: str) -> None:
    with system.open_directory(os.path.dirname(path)) as place:
        replace(place, "new", b"x")


CHANGES: dict[str, Callable[[str], Any]] = {
    "mkdir": system.mkdir,
    "directories": lambda path: system.make_directories(f"{path}/x"),
    "open": lambda path: system.open_file(path, os.O_CREAT | os.O_WRONLY).close(),
    "replace": _replace,
    "symlink": lambda path: system.symlink("x", path),
    "rename": lambda path: system.rename(f"{path}.old", path),
    "chmod": lambda path: system.chmod(f"{path}.old", 0o600),
    "unlink": lambda path: system.unlink(f"{path}.old"),
    "rmdir": lambda path: system.rmdir(f"{path}.directory"),
    "remove_tree": lambda path: system.remove_tree(f"{path}.directory"),
    "temporary": lambda path: system.temporary_file().close(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_command_that_changes_something_is_not_kept(change: str, tmp_path: Path) -> None:
    (tmp_path / "new.old").touch()
    (tmp_path / "new.directory").mkdir()
    with Recorder(lambda status: None) as recorder:
        CHANGES[change](str(tmp_path / "new"))
    assert recorder.refused


def test_after_an_error_nothing_is_heard_any_more() -> None:
    with pytest.raises(RuntimeError), Recorder(lambda status: None) as recorder:
        raise RuntimeError
    assert listener.recorder is None
    assert recorder.refused


def test_a_recorder_begins_with_nothing() -> None:
    recorder = Recorder(lambda status: None)
    assert (recorder.printed, recorder.why, recorder.verbose) == ([], "", False)
    assert (recorder.command, recorder.looks_at_program, recorder.become, recorder.refused) == (None, False, None, None)
    assert not any(recorder.questions.values())


def test_the_end_of_a_recording_is_told_once_with_the_status() -> None:
    told: list[int] = []
    with Recorder(told.append) as recorder:
        assert listener.recorder is recorder
        recorder.finish(3)
        assert listener.recorder is None
    assert (told, recorder.refused) == ([3], None)
    for error, why in ((SystemExit, None), (ValueError, "it failed"), (KeyboardInterrupt, "it failed")):
        with pytest.raises(error), Recorder(told.append) as recorder:
            raise error
        assert recorder.refused == why
    assert told == [3]


def _twice(recorder: Recorder, path: Path) -> None:
    recorder.refuse("a")
    recorder.refuse("b")


def _otherwise(recorder: Recorder, path: Path) -> None:
    recorder.note("link", "/x", "a")
    recorder.note("link", "/x", "b")


def _fifo(recorder: Recorder, path: Path) -> None:
    os.mkfifo(path / "f")
    recorder.opened(f"{path}/f")


REFUSALS: dict[str, tuple[Callable[[Recorder, Path], None], str]] = {
    "first": (_twice, "a"),
    "other answer": (_otherwise, "changed meanwhile: /x"),
    "error": (lambda recorder, path: recorder.failed(errno.EIO, "/x"), "Input/output error: /x"),
    "no number": (lambda recorder, path: recorder.failed(None, "/x"), "Input/output error: /x"),
    "number": (lambda recorder, path: recorder.note("stat", "/x", errno.EMFILE), "Too many open files: /x"),
    "gone": (
        lambda recorder, path: recorder.not_opened("/x", (1,), OSError(errno.ENOENT, "x")),
        "changed meanwhile: /x",
    ),
    "fifo": (_fifo, "no regular file: {}/f"),
    "script": (lambda recorder, path: recorder.program(f"{path}/script"), "a script says its version: {}/script"),
    "program": (lambda recorder, path: recorder.program(f"{path}/none"), "not readable: {}/none"),
    "large": (lambda recorder, path: recorder.opened(f"{path}/large"), "just written: {}/large"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_why_nothing_is_kept_is_said_whole(case: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh")
    (tmp_path / "large").write_bytes(bytes((64 << 10) + 1))
    recorder = Recorder(lambda status: None)
    act, why = REFUSALS[case]
    act(recorder, tmp_path)
    assert recorder.refused == why.format(tmp_path)


def test_a_young_file_is_compared_by_content_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(64 << 10))
    recorder = Recorder(lambda status: None)
    for _ in range(2):
        recorder.opened(f"{tmp_path}/file")
    assert (recorder.refused, [*recorder.questions["content"]]) == (None, [f"{tmp_path}/file"])


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EISDIR])
def test_an_error_that_is_an_answer_is_kept(number: int) -> None:
    recorder = Recorder(lambda status: None)
    recorder.note("stat", "/x", number)
    assert (recorder.refused, recorder.questions["stat"]) == (None, {"/x": number})


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        *(("link", errno.EINVAL), ("attribute", errno.ENODATA), ("attribute", errno.EOPNOTSUPP)),
        *(("terminal", errno.ENOTTY), ("terminal", errno.EBADF), ("terminal", errno.EINVAL)),
    ],
)
def test_some_errors_are_answers_to_one_kind_of_question_only(kind: str, number: int) -> None:
    recorder, other = Recorder(lambda status: None), Recorder(lambda status: None)
    recorder.note(kind, "/x", number)
    other.note("stat", "/x", number)
    assert (recorder.refused, other.refused) == (None, f"{os.strerror(number)}: /x")


@pytest.mark.parametrize(("kind", "is_by_name"), [("opened", True), ("content", False)])
def test_the_facts_of_a_file_of_a_network_are_asked_by_its_name(
    kind: str, is_by_name: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path.resolve() / "file"
    opened: list[str] = []
    path.write_text("x")
    whole = posix.open

    def note(name: str, flags: int, *more: int) -> int:
        opened.extend([name] if not flags & os.O_PATH else [])
        return whole(name, flags, *more)

    monkeypatch.setattr(posix, "open", note)
    assert questions.ASKED[kind](str(path))
    assert (opened == [str(path)]) is is_by_name
