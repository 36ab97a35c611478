"""The version of a program is queried while the image is opened, and no process is left of it."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pytest

from gpubind.errors import CheckError, HostReadError, UnseenError
from gpubind.host.open import open_host
from gpubind.image.reference import parse_reference
from gpubind.launch import execute
from gpubind.launch.execute import VersionProbe
from gpubind.launch.target import StartRequest, StartTarget, with_target
from gpubind.memo.questions import first_change
from gpubind.memo.recorder import Recorder
from gpubind.memo.versions import version_of
from gpubind.planner.planning import PlanQuery
from gpubind.runtimes import RUNTIMES
from tests.support.images import glibc
from tests.support.interrupts import rounds_with_a_process_left
from tests.support.memo import Bench
from tests.support.trees import make_tree

VERSION = VersionProbe.version
"""A bench replaces it."""


@pytest.fixture
def program(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program that prints a version."""
    monkeypatch.setattr(VersionProbe, "version", VERSION)
    path = bench.work / "apptainer"
    shutil.copy(str(shutil.which("env")), path)
    bench.settle()
    return str(path)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that are started. They print nothing and never end."""
    started, spawn = [], os.posix_spawn

    def spawn_sleep(_: str, __: object, environ: Any, **more: Any) -> int:
        started.append(spawn("/bin/sleep", ("sleep", "infinity"), environ, **more))
        return started[-1]

    monkeypatch.setattr(os, "posix_spawn", spawn_sleep)
    return started


def assert_ended(children: list[int]) -> None:
    assert children
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def fails(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


ENDS: dict[str, tuple[Callable[[], Any], str, Callable[[StartTarget], Any], type[BaseException]]] = {
    "the host": (fails(HostReadError("x", "x")), "image", fails(AssertionError()), HostReadError),
    "the image": (open_host, "none", fails(AssertionError()), HostReadError),
    "the plan": (open_host, "image", fails(CheckError("x", "x")), CheckError),
    "the user": (fails(KeyboardInterrupt()), "image", fails(AssertionError()), KeyboardInterrupt),
}


@pytest.mark.parametrize("cause", ENDS)
def test_a_start_that_ends_early_leaves_no_process(
    cause: str, program: str, children: list[int], tmp_path: Path
) -> None:
    opens, name, make, error = ENDS[cause]
    make_tree(tmp_path / "image", glibc())
    request = StartRequest(opens, PlanQuery(), {}, check=True)
    image = parse_reference(str(tmp_path / name), RUNTIMES["apptainer"])
    with pytest.raises(error):
        with_target(request, RUNTIMES["apptainer"], program, image, make)
    assert_ended(children)


def test_the_program_runs_before_the_host_is_opened(program: str, children: list[int]) -> None:
    def opens() -> Any:
        assert os.waitpid(children[0], os.WNOHANG) == (0, 0)
        return open_host()

    request = StartRequest(opens, PlanQuery(), {})
    with_target(request, RUNTIMES["apptainer"], program, None, lambda _: None)
    assert_ended(children)


def test_a_program_that_does_not_answer_in_time_is_an_error_and_is_queried_again(
    program: str, children: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "_PROBE_TIMEOUT_S", 0.1)
    probe = VersionProbe()
    probe.start(program)
    for count in (1, 2):
        with pytest.raises(UnseenError, match=execute.VERSION_ERROR):
            probe.version(program)
        assert len(children) == count
    assert_ended(children)


def test_a_program_that_cannot_be_started_has_no_version(program: str) -> None:
    Path(program).chmod(0o644)
    probe = VersionProbe()
    with Recorder(lambda _: None) as recorder:
        probe.start(program)
        assert probe.version(program) == ""
    assert recorder.refused == f"it does not answer: {program} --version"


def test_the_error_of_a_start_is_reported_when_the_version_is_needed(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_spawn", fails(OSError(errno.EMFILE, os.strerror(errno.EMFILE))))
    probe = VersionProbe()
    probe.start(program)
    with pytest.raises(UnseenError, match=execute.VERSION_ERROR):
        probe.version(program)


def test_a_known_version_starts_nothing(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = VersionProbe().version(program)
    assert "env" in first
    monkeypatch.setattr(os, "posix_spawn", None)
    probe = VersionProbe()
    probe.start(program)
    assert probe.version(program) == first


def test_the_memo_has_the_same_questions_however_the_version_is_known(program: str) -> None:
    """The first start would otherwise depend on each variable: the number of a job is another in the next one."""
    questions = []
    for is_early in (True, False, True):
        with Recorder(lambda _: None) as recorder:
            probe = VersionProbe()
            if is_early:
                probe.start(program)
            assert probe.version(program)
        assert recorder.refused is None
        questions.append(recorder.questions)
    assert questions[0] == questions[1] == questions[2]
    assert not questions[0]["variable"]


def test_a_program_that_changes_while_it_runs_is_stored_nowhere(program: str) -> None:
    probe = VersionProbe()
    with Recorder(lambda _: None) as recorder:
        probe.start(program)
        os.replace(shutil.copy(str(shutil.which("true")), f"{program}.new"), program)
        assert "env" in probe.version(program)
    assert first_change(recorder.questions) == program
    assert version_of(program, lambda _: "another") == "another"


def test_an_interrupt_before_the_answer_is_read_leaves_no_process(program: str, children: list[int]) -> None:
    def interrupt(frame: FrameType, *_: object) -> None:
        if frame.f_code.co_name == "run_streaming":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), closing(VersionProbe()) as probe:
        probe.start(program)
        sys.settrace(interrupt)
        probe.version(program)
    assert_ended(children)


SLEEPS = """
import select, time  # all that is needed later: an interrupt of an import can get lost in Python
from contextlib import closing
import gpubind.machine.answers, gpubind.machine.programs, gpubind.memo.versions
from gpubind.launch.execute import VersionProbe
spawn = os.posix_spawn
os.posix_spawn = lambda program, argv, *values, **more: spawn("/bin/sleep", ("sleep", "60"), *values, **more)
"""
PROBED = """
with closing(VersionProbe()) as probe:
    probe.start("/bin/sleep")
    if rng.random() < 0.5:
        probe.version("/bin/sleep")
    time.sleep(60)  # the other work, which the interrupt ends
"""


def test_an_interrupt_leaves_no_process() -> None:
    assert rounds_with_a_process_left(SLEEPS, PROBED) == 0
