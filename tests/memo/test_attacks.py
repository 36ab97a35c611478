"""What others, and a bad day of the machine, may try with a memo: each does nothing."""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import resource
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpubind
from gpubind.machine import system
from gpubind.memo import files, storing
from gpubind.memo.questions import DIGEST_SIZE, run_query
from gpubind.memo.recorder import Recorder
from tests.law.__main__ import PROGRAM
from tests.support.apart import apart
from tests.support.memo import IS_ROOT, Bench
from tests.support.race import exchanging

OTHER = 1234
"""A user who is not root; no such account has to exist."""


def kept(bench: Bench, words: tuple[str, ...]) -> Path:
    """The file of the memo of *words*, which answers from now on."""
    for _ in range(3):
        bench.settle()
        bench.with_memo(words)
    assert bench.served, "no memo is kept"
    return next(file for file in bench.memos.iterdir() if file.name != "versions")


# A question that could not be answered.


@pytest.mark.parametrize("limit", [*range(12, 41, 4), 64])
def test_an_answer_that_was_made_with_too_few_descriptors_is_not_kept(limit: int, bench: Bench) -> None:
    words = bench.commands()["plan"]
    bench.settle()
    bench.without(words)  # which loads the modules: a process with no descriptor left would load none

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        bench.with_memo(words)

    apart(limited)
    assert bench.with_memo(words) == bench.without(words)


def failing(name: str, number: int) -> Callable[..., Any]:
    real = getattr(os, name)

    def fail(*arguments: Any, **words: Any) -> Any:
        real(*arguments, **words)
        raise OSError(number, os.strerror(number))

    return fail


ASKS: dict[str, Callable[[str], Any]] = {
    "stat": system.stat,
    "lstat": system.lstat,
    "readlink": lambda path: system.readlink(f"{path}/link"),
    "listdir": system.listdir,
    "open": lambda path: system.open_file(f"{path}/file"),
    "read": lambda path: system.open_file(f"{path}/file").read(1),
    "pread": lambda path: system.open_file(f"{path}/file").read_at(0, 1),
    "fstat": lambda path: system.open_file(f"{path}/file").facts(),
}


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT])
@pytest.mark.parametrize("name", ASKS)
def test_after_an_error_that_does_not_say_what_is_there_nothing_is_kept(
    name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_text("x")
    recorder, told = Recorder(lambda status: None), None
    with monkeypatch.context() as patch:
        patch.setattr(os, name, failing(name, number))
        with recorder:
            try:
                ASKS[name](str(tmp_path))
            except OSError as error:
                told = error.errno
    assert told == number
    assert os.strerror(number) in (recorder.refused or "")


def test_a_file_that_cannot_be_read_to_its_end_is_no_answer() -> None:
    path = "/proc/self/mem"  # reading its first byte is an error of input and output
    with Recorder(lambda status: None) as recorder:
        opened = system.open_file(path).stream()
        before, recorder.refused = recorder.refused, None
        with opened, pytest.raises(OSError, match="Input/output"):
            opened.read(1)
    assert before != recorder.refused
    assert "Input/output" in str(recorder.refused)


def test_a_file_that_the_caller_may_not_read_is_an_answer(roots_own: Path) -> None:
    file = roots_own / "file"
    file.write_text("x")
    file.chmod(0)

    def asked_by_an_ordinary_user() -> tuple[object, object]:
        if IS_ROOT:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
        with Recorder(lambda status: None) as recorder, pytest.raises(PermissionError):
            system.open_file(str(file))
        return recorder.refused, recorder.questions["access"]

    assert apart(asked_by_an_ordinary_user) == (None, {(str(file), os.R_OK, False): False})


# What is opened when a memo is asked.


def test_a_link_that_was_put_in_the_place_of_a_file_or_of_a_directory_above_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in/a").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    for place in ("in/a", "out"):
        (tmp_path / place / "file").write_text("the same")
    path = str(tmp_path / "in/a/file")
    right = run_query("content", path)
    assert isinstance(right, tuple)
    os.unlink(path)
    os.symlink("../../out/file", path)
    assert (run_query("content", path), run_query("opened", path)) != (right, right)
    assert isinstance(run_query("content", path), int)
    shutil.rmtree(tmp_path / "in/a")
    (tmp_path / "in/a").symlink_to("../out")
    assert {type(run_query(kind, path)) for kind in ("content", "opened")} == {int}
    assert isinstance(run_query("names", str(tmp_path / "in/a")), int)


@pytest.mark.parametrize("kind", ["content", "opened"])
def test_a_fifo_that_is_exchanged_for_a_file_is_never_opened(kind: str, tmp_path: Path) -> None:
    """Whoever opened it would let its writer in."""
    path, fifo = tmp_path / "file", tmp_path / "fifo"
    path.write_text("x")
    os.mkfifo(fifo)
    met: list[int] = []
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            with contextlib.suppress(OSError):
                met.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))

    writer = threading.Thread(target=write)
    (tmp_path / "link").symlink_to("fifo")
    with exchanging(path, tmp_path / "link"):
        writer.start()
        for _ in range(2000):
            run_query(kind, str(path))
        is_over.set()
        writer.join()
    assert met == []


def test_a_file_of_another_user_is_not_read_through_a_link_while_it_is_exchanged(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("own")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to("secret")
    secret = run_query("content", str(tmp_path / "secret"))
    with exchanging(tmp_path / "file", tmp_path / "link"):
        answers = {run_query("content", str(tmp_path / "file")) for _ in range(2000)}
    assert secret not in answers


def test_what_is_opened_by_a_name_with_links_is_kept_by_the_name_without(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "link").symlink_to("real")
    with Recorder(lambda status: None) as recorder:
        system.open_file(f"{tmp_path}/link/file").close()
        system.listdir(f"{tmp_path}/link")
    assert recorder.refused is None
    assert recorder.questions["link"] == {str(tmp_path / "link"): "real"}
    assert str(tmp_path / "real/file") in recorder.questions["content"]
    assert str(tmp_path / "real") in {**recorder.questions["names"], **recorder.questions["written"]}


# Memos of others.


def forged(file: Path, secret: bytes, **changes: Any) -> None:
    """The memo *file* with *changes*, by somebody who has *secret*."""
    memo = marshal.loads(file.read_bytes()[len(files.FORM) + DIGEST_SIZE :])
    file.write_bytes(files.packed({**memo, **changes}, file.name, secret))


def test_a_memo_without_the_secret_of_its_owner_is_none(bench: Bench) -> None:
    words = bench.commands()["apptainer"]
    file = kept(bench, words)
    served, right = bench.served, bench.without(words)
    forged(file, bytes(files.SECRET_SIZE), become=("/bin/sh", ("sh", "-c", "echo PWNED"), (), {}))
    assert bench.with_memo(words) == right
    assert bench.served == served


def test_a_memo_under_the_name_of_another_is_none(bench: Bench) -> None:
    plan, check = bench.commands()["plan"], bench.commands()["check"]
    file = kept(bench, plan)
    other = file.read_bytes()
    file.unlink()
    bench.served = 0
    file = kept(bench, check)
    file.write_bytes(other)
    served, right = bench.served, bench.without(check)
    assert bench.with_memo(check) == right
    assert bench.served == served


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o666])
def test_a_secret_that_others_could_read_or_write_is_replaced(mode: int, bench: Bench) -> None:
    words = bench.commands()["plan"]
    kept(bench, words)
    secret = bench.base / "state" / files.SECRET
    old = secret.read_bytes()
    secret.chmod(mode)
    served = bench.served
    bench.with_memo(words)
    assert bench.served == served
    assert secret.read_bytes() != old
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    bench.with_memo(words)
    assert bench.served == served + 1


def test_a_secret_in_a_directory_that_others_may_write_to_is_none(bench: Bench) -> None:
    words = bench.commands()["plan"]
    kept(bench, words)
    (bench.base / "state").chmod(0o777)
    served = bench.served
    bench.with_memo(words)
    assert bench.served == served


def test_nothing_of_a_shared_directory_is_believed_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever unpacks an archive in /tmp, or names it as a home, gets no memo out of it."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr(files, "_above", lambda path: [str(shared), os.path.dirname(path)])
    if IS_ROOT:
        monkeypatch.setattr(files, "ROOTS_DIRECTORY", str(shared / "gpubind"))
    for name in ("HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(shared))
    for planted in (*files.directories(), files.secret_directory()):
        os.makedirs(str(planted), mode=0o700, exist_ok=True)
    (Path(str(files.secret_directory())) / files.SECRET).write_bytes(bytes(files.SECRET_SIZE))
    assert files.read_secret() is None
    assert files.open_place() is None
    assert storing.write("x", {}) is not None
    assert not [file for file in shared.rglob("*") if file.is_file() and file.name != files.SECRET]


def test_an_ordinary_users_places_are_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", "/scratch")
    monkeypatch.setenv("HOME", "/home/user")
    assert list(files.directories()) == ["/home/user/.cache/gpubind/memo"]
    assert files.secret_directory() == "/home/user/.local/state/gpubind"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert files.secret_directory() == "/state/gpubind"
    monkeypatch.delenv("HOME")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert (list(files.directories()), files.secret_directory()) == ([], None)


# What is part of the question.


@pytest.mark.parametrize("last", ["--dry-run", "-W", "--bind=/x:/y"])
def test_words_behind_an_image_that_the_runtime_reads_as_options_are_part_of_the_question(
    last: str, bench: Bench
) -> None:
    line = ("wrap", "-q", *bench.root, "--allow-writable", "--", "ch-run", str(bench.image), "true")
    kept(bench, (*line, "x"))
    assert bench.with_memo((*line, last)) == bench.without((*line, last))


def test_code_that_is_changed_between_its_import_and_the_end_is_not_kept(bench: Bench, tmp_path: Path) -> None:
    shutil.copytree(Path(gpubind.__file__).parent, tmp_path / "code/gpubind", symlinks=True)
    shutil.copytree(Path(gpubind.__file__).parent.parent / "etc", tmp_path / "code/etc")
    path = tmp_path / "code/gpubind/documents/text.py"
    change = f"import gpubind.documents.text; open({str(path)!r}, 'a').write('# changed')"
    environ = {**bench.environ, "GPUBIND_MEMO": "on", "BASE": str(bench.base)}
    environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "code"), *sys.path])

    def run(code: str) -> list[Path]:
        bench.settle()
        line = [sys.executable, "-c", code, *bench.commands()["plan"]]
        subprocess.run(line, env=environ, stdout=subprocess.DEVNULL, check=True, cwd=bench.work)
        return [file for file in bench.memos.iterdir() if file.name != "versions"]

    assert run(PROGRAM.replace("sys.exit(main())", f"{change}; sys.exit(main())")) == []
    assert len(run(PROGRAM)) == 1


@pytest.mark.skipif(not IS_ROOT, reason="only root can give directories away")
@pytest.mark.parametrize(
    ("owner", "group", "mode", "is_closed"),
    [
        (1000, 1000, 0o755, True),
        (1000, 1000, 0o775, True),  # the group that this user has alone
        (1000, 44, 0o775, False),
        (1000, 1000, 0o777, False),
        (1000, 1000, 0o1777, False),
        (0, 0, 0o755, True),
        (0, 0, 0o775, False),
        (7, 7, 0o755, False),
    ],
)
def test_above_memos_only_root_and_the_caller_may_write(
    owner: int, group: int, mode: int, is_closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(tmp_path, owner, group)
    tmp_path.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert files.is_closed(str(tmp_path)) is is_closed
