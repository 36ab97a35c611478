"""The line about a start in the system log."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubind.launch.start import log_start, prepare_start
from gpubind.launch.target import StartRequest, StartTarget
from gpubind.machine import system
from gpubind.model import Request
from gpubind.model.notice import Message, Notice
from gpubind.planner.planning import PlanQuery
from gpubind.runtimes import RUNTIMES
from gpubind.runtimes.runtime import PreparedStart
from tests.support.driver import host, kernel, rhel
from tests.support.images import glibc, image

MACHINE = host(rhel(), kernel())
REQUEST = StartRequest(
    lambda: MACHINE, PlanQuery(Request(vendors=("nvidia",))), {"SLURM_JOB_ID": "1234"}, elsewhere=True, dry_run=True
)


@pytest.fixture(scope="module")
def prepared() -> PreparedStart:
    return prepare_start(REQUEST, StartTarget(RUNTIMES["bwrap"], "bwrap", MACHINE, image(glibc("2.36"))))


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    monkeypatch.setattr(system, "SYSTEM_LOG", f"{tmp_path}/log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(system.SYSTEM_LOG)
        receiver.setblocking(False)
        yield receiver


def test_the_line_names_job_user_runtime_image_gpus_and_plan(prepared: PreparedStart, journal: socket.socket) -> None:
    log_start(REQUEST._replace(log_start=True, dry_run=False), prepared, "/apps/my app\n.sif")
    facts = rf"job=1234 uid=1000 runtime=bwrap image=/apps/my app\\x0a\.sif gpus=2 plan={prepared.plan.digest}"
    assert re.fullmatch(rf"<14>gpubind\[[0-9]+\]: start {facts}", journal.recv(4096).decode())


def test_without_a_job_the_line_says_so(prepared: PreparedStart, journal: socket.socket) -> None:
    log_start(REQUEST._replace(log_start=True, dry_run=False, environ={"SLURM_JOB_ID": ""}), prepared, "a.sif")
    assert b" job=- uid=" in journal.recv(4096)


@pytest.mark.parametrize(("is_requested", "dry_run"), [(True, True), (False, False)])
def test_a_start_that_is_only_printed_or_not_to_be_logged_has_no_line(
    prepared: PreparedStart, journal: socket.socket, is_requested: bool, dry_run: bool
) -> None:
    log_start(REQUEST._replace(log_start=is_requested, dry_run=dry_run), prepared, "a.sif")
    with pytest.raises(BlockingIOError):
        journal.recv(4096)


def test_a_start_without_a_plan_has_no_line(prepared: PreparedStart, journal: socket.socket) -> None:
    empty = prepared._replace(plan=prepared.plan._replace(drivers=()))
    log_start(REQUEST._replace(log_start=True, dry_run=False), empty, "a.sif")
    with pytest.raises(BlockingIOError):
        journal.recv(4096)


def test_a_log_that_takes_no_line_is_reported_and_does_not_end_the_start(
    prepared: PreparedStart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "SYSTEM_LOG", f"{tmp_path}/none")
    messages: list[Message] = []
    log_start(REQUEST._replace(log_start=True, dry_run=False, report=messages.append), prepared, "a.sif")
    text = "the system log has no line about this start: No such file or directory"
    assert messages == [Notice("warning", "start-not-logged", text)]
