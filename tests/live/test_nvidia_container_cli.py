"""nvidia-container-cli as a source: what the real one printed on this node, served by a script in its place."""

from __future__ import annotations

import os
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.live.machine import CHECKOUT, Bind, Machine, document, pairs

pytestmark = pytest.mark.live

PROGRAM = "nvidia-container-cli"
PLACE = "/usr/local/bin"
WHO = pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
OUTPUTS = Path(f"{CHECKOUT}/tests/data/{PROGRAM}")
LIMIT_S = 30


@WHO
def test_its_list_gives_the_same_plan_as_every_other_source(trixie: Machine, tmp_path: Path, user: bool) -> None:
    binds = [serving(tmp_path, output("list.mig0.txt"))]
    plans = {
        source: document(trixie.gpubind("plan", "--json", "--source", source, user=user, driver=True, binds=binds))
        for source in (PROGRAM, "auto", "liblist", "driver")
    }
    assert {source: served(plan) for source, plan in plans.items()} == {
        PROGRAM: PROGRAM,
        "auto": PROGRAM,
        "liblist": "liblist",
        "driver": "driver",
    }
    assert {plan["digest"] for plan in plans.values()} == {plans["liblist"]["digest"]}
    assert passed_over(plans["auto"]) == {}


@WHO
def test_its_list_names_the_files_that_it_printed(trixie: Machine, tmp_path: Path, user: bool) -> None:
    binds = [serving(tmp_path, output("list.mig0.txt"))]
    plan = document(trixie.gpubind("plan", "--json", user=user, driver=True, binds=binds))
    printed = {line for line in (OUTPUTS / "list.mig0.txt").read_text().splitlines() if line.startswith("/usr")}
    bound = {mount["source"] for mount in plan["mounts"]}
    assert sorted(printed - bound) == []
    named = {decision["subject"] for decision in plan["decisions"] if decision["named_by"] == PROGRAM}
    assert {"libcuda.so.1", "libnvidia-ml.so.1", "nvidia-smi"} <= named


def test_its_list_with_mig_gives_the_same_files(trixie: Machine, tmp_path: Path) -> None:
    binds = [serving(tmp_path, output("list.mig1.txt"))]
    plan = document(trixie.gpubind("plan", "--json", driver=True, binds=binds))
    assert served(plan) == PROGRAM
    assert (pairs(plan), plan["digest"]) == (pairs(without(trixie)), without(trixie)["digest"])


def test_a_file_that_it_prints_and_that_is_not_there_is_said_and_left_out(trixie: Machine, tmp_path: Path) -> None:
    gone = "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-gone.so.550.163.01"
    binds = [serving(tmp_path, f"{output('list.mig0.txt')}; echo {gone}")]
    plan = document(trixie.gpubind("plan", "--json", driver=True, binds=binds))
    assert served(plan) == PROGRAM
    assert [decision["verdict"] for decision in plan["decisions"] if decision["path"] == gone] == ["rejected"]
    assert plan["digest"] == without(trixie)["digest"]


@WHO
@pytest.mark.parametrize(
    ("script", "code", "why"),
    [
        ("cat {place}/fail9.txt >&2; exit 1", "initialization-error", "driver not loaded"),
        ("cat {place}/fail18.txt >&2; exit 1", "initialization-error", "version mismatch"),
        ("exit 1", "failed", "ended with 1"),
        ("kill -SEGV $$", "unreadable", ""),
        ("head -c 10000 /dev/urandom", "bad-nvidia-cli", ""),
        ("echo usage: none of your business", "bad-nvidia-cli", ""),
        (":", "bad-nvidia-cli", "empty answer"),
        ("echo /dev/nvidiactl", "no-library", "no library"),
        ("echo /usr/lib64/libcuda.so.550.163.01", "no-library", "none of the 1 libraries"),
    ],
    ids=[
        "driver-not-loaded",
        "mismatch",
        "silent-failure",
        "crash",
        "garbage",
        "text",
        "empty",
        "devices-alone",
        "missing-files",
    ],
)
def test_a_failure_falls_back_and_is_said(
    trixie: Machine, tmp_path: Path, user: bool, script: str, code: str, why: str
) -> None:
    binds = [serving(tmp_path, script.format(place=PLACE))]
    plan = document(trixie.gpubind("plan", "--json", user=user, driver=True, binds=binds))
    reason = passed_over(plan)[PROGRAM]
    assert (served(plan), reason["code"]) == ("liblist", code)
    assert why in reason["why"]


def test_the_fallback_gives_the_complete_plan(trixie: Machine, tmp_path: Path) -> None:
    plan = document(trixie.gpubind("plan", "--json", driver=True, binds=[serving(tmp_path, "exit 1")]))
    assert (pairs(plan), plan["digest"]) == (pairs(without(trixie)), without(trixie)["digest"])


def test_a_source_that_was_asked_for_and_does_not_serve_is_a_finding(trixie: Machine, tmp_path: Path) -> None:
    arguments = ("plan", "--json", "--source", PROGRAM)
    plan = document(trixie.gpubind(*arguments, driver=True, binds=[serving(tmp_path, "exit 1")]))
    assert "source-failed" in {finding["code"] for finding in plan["findings"]}
    plan = document(trixie.gpubind(*arguments, driver=True))
    assert passed_over(plan)[PROGRAM]["code"] == "absent"


def test_one_that_hangs_is_given_up_with_what_it_has_started(trixie: Machine, tmp_path: Path) -> None:
    seconds = "86397"  # nobody else sleeps as long
    begun = time.monotonic()
    plan = document(trixie.gpubind("plan", "--json", driver=True, binds=[serving(tmp_path, f"sleep {seconds}; :")]))
    took = time.monotonic() - begun
    for _ in range(100):  # what is killed ends in its own time
        if running(f"sleep {seconds}"):
            time.sleep(0.3)
    left = running(f"sleep {seconds}")
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert passed_over(plan)[PROGRAM]["code"] == "unreadable"
    assert took >= LIMIT_S
    assert left == []


@pytest.mark.parametrize("changeable", ["script", "directory"])
def test_root_does_not_run_what_others_may_change(trixie: Machine, tmp_path: Path, changeable: str) -> None:
    marker = tmp_path / "marker"
    marker.mkdir(mode=0o777)
    bind = serving(tmp_path, "echo ran > /srv/marker/ran")
    Path(bind.source if changeable == "directory" else f"{bind.source}/{PROGRAM}").chmod(0o777)
    binds = [bind, Bind(str(marker), "/srv/marker", readonly=False)]
    plan = document(trixie.gpubind("plan", "--json", driver=True, binds=binds))
    assert (served(plan), passed_over(plan)[PROGRAM]["code"]) == ("liblist", "forbidden")
    assert not (marker / "ran").exists()


def serving(directory: Path, script: str) -> Bind:
    """A directory for /usr/local/bin of a machine, with *script* as the program that answers `list`."""
    programs = directory / "programs"
    programs.mkdir()
    programs.chmod(0o755)
    for path in OUTPUTS.iterdir():
        (programs / path.name).write_bytes(path.read_bytes())
        (programs / path.name).chmod(0o644)
    program = programs / PROGRAM
    program.write_text(f'#!/bin/sh\n[ "$*" = list ] || exit 64\n{script}\n')
    program.chmod(0o755)
    return Bind(str(programs), PLACE)


def output(name: str) -> str:
    """A command that prints what the real program printed."""
    assert (OUTPUTS / name).exists()
    return f"cat {shlex.quote(f'{PLACE}/{name}')}"


def without(machine: Machine) -> dict[str, Any]:
    """The plan of the machine as it is: it has no such program."""
    return document(machine.gpubind("plan", "--json", driver=True))


def served(plan: dict[str, Any]) -> str:
    """Which source named the files."""
    name: str = plan["drivers"][0]["source"]["served"]
    return name


def passed_over(plan: dict[str, Any]) -> dict[str, Any]:
    """Which sources did not serve, and why."""
    return {passed["source"]: passed for passed in plan["drivers"][0]["source"]["passed_over"]}


def running(command: str) -> list[int]:
    """The processes on this machine whose command line is *command*."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().rstrip(b"\0").split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b" ".join(words).decode("utf-8", "replace") == command:
            found.append(int(path.parent.name))
    return found
