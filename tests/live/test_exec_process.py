"""`gpubind exec` as a process: it becomes the runtime's, passes everything through, and leaves nothing behind."""

from __future__ import annotations

import shlex

import pytest

from tests.live.containers import CONTAINERS, MARK, Case, exec_words, image, listing, start
from tests.live.machine import PYTHON_ENV, RIG, Machine
from tests.live.signals import NUMBERS, SIGNALLED
from tests.live.table import Shows

pytestmark = pytest.mark.live

BACKEND = pytest.mark.parametrize("backend", ["bwrap", "apptainer"])
WHO = pytest.mark.parametrize("user", [False, True], ids=["root", "user"])


@WHO
def test_bubblewrap_leaves_the_image_as_it_was(trixie: Machine, user: bool) -> None:
    for name in ("bookworm", "bookworm-sb", "busybox"):
        before = listing(f"{RIG}/ct/{name}")
        start(trixie, Case("bwrap", name, user), "/bin/sh", "-c", "echo > /tmp/x; rm /tmp/x; ! echo > /etc/x")
        assert listing(f"{RIG}/ct/{name}") == before


@BACKEND
@WHO
def test_no_mount_and_no_process_is_left(trixie: Machine, backend: str, user: bool, shows: Shows) -> None:
    words = gpubind(backend, user=user)
    script = f"""{MARK}
        cat /proc/self/mountinfo > /dev/shm/before
        MARKED=$MARK {words} true
        cat /proc/self/mountinfo | cmp - /dev/shm/before && marked || echo nothing is left
    """
    assert shell(trixie, script, user=user).splitlines() == ["nothing is left"]
    shows(backend, "nothing left")


@BACKEND
@WHO
@pytest.mark.parametrize("status", [0, 1, 42, 255])
def test_the_exit_code_is_the_childs(trixie: Machine, backend: str, user: bool, status: int, shows: Shows) -> None:
    start(trixie, Case(backend, "bookworm", user), "sh", "-c", f"exit {status}", status=status)
    shows(backend, "exit code")


@BACKEND
@WHO
@pytest.mark.parametrize("signal", ["TERM", "HUP", "INT"])
def test_a_signal_to_the_process_ends_the_child(
    trixie: Machine, backend: str, user: bool, signal: str, shows: Shows
) -> None:
    started, *ended = shell(trixie, signalled(backend, user=user, signal=signal), user=user).splitlines()
    assert started.startswith({"bwrap": "/usr/bin/bwrap", "apptainer": "Apptainer runtime parent"}[backend])
    assert ended == [f"ended {128 + NUMBERS[signal]}"]
    if signal != "HUP":
        shows(backend, f"SIG{signal}")


@BACKEND
def test_standard_input_and_output_are_the_childs(trixie: Machine, backend: str, shows: Shows) -> None:
    assert shell(trixie, f"echo through | {gpubind(backend, user=True)} cat | cat", user=True) == "through\n"
    shows(backend, "standard input")


@BACKEND
def test_a_terminal_is_the_childs(trixie: Machine, backend: str, shows: Shows) -> None:
    inside = f"{gpubind(backend, user=True)} sh -c 'test -t 0 && test -t 1 && echo a terminal'"
    assert shell(trixie, f"script -qec {shlex.quote(inside)} /dev/null", user=True) == "a terminal\n"
    shows(backend, "terminal")


@WHO
@pytest.mark.parametrize(("command", "status"), [("/etc/passwd", 126), ("nothere", 127), ("/nothere", 127)])
def test_bubblewraps_child_that_cannot_start_is_told_as_by_a_shell(
    trixie: Machine, user: bool, command: str, status: int
) -> None:
    start(trixie, Case("bwrap", "bookworm", user), command, status=status)


def test_a_program_that_the_plan_brings_is_found(trixie: Machine) -> None:
    start(trixie, Case("bwrap", "bookworm", True), "nvidia-smi", status=9)


@pytest.mark.parametrize("backend", ["auto", "bwrap", "apptainer", "singularity"])
def test_a_runtime_that_is_missing_is_said(nv535: Machine, backend: str) -> None:
    words = ["exec", "--backend", backend, image("bookworm"), "true"]
    assert "no-runtime" in nv535.tried(*words, user=True, driver=True, binds=[CONTAINERS], status=125).stderr


def test_a_runtime_that_nobody_knows_is_wrong_use(trixie: Machine) -> None:
    done = trixie.tried("exec", "--backend", "sarus", image("bookworm"), "true", binds=[CONTAINERS], status=2)
    assert "unknown-backend" in done.stderr


@BACKEND
@WHO
def test_without_a_gpu_it_warns_and_starts(trixie: Machine, backend: str, user: bool) -> None:
    nothing = ("--root", "/srv/ct/busybox/home", "--dev-root", "/srv/ct/busybox/home")
    done = start(trixie, Case(backend, "bookworm", user, nothing), "echo", "started", driver=False)
    assert done.stdout == "started\n"
    assert "warning: nothing-to-bind" in done.stderr
    case = Case(backend, "bookworm", user, (*nothing, "--require-gpu"))
    done = start(trixie, case, "echo", "started", driver=False, status=125)
    assert (done.stdout, "error: nothing-to-bind" in done.stderr) == ("", True)


def gpubind(backend: str, *, user: bool) -> str:
    """What starts a command in bookworm, for a shell."""
    return shlex.join(["python3", "-m", "gpubind", *exec_words(backend, user=user), "-q", image("bookworm")])


def signalled(backend: str, *, user: bool, signal: str) -> str:
    """`SIGNALLED` for one backend."""
    return SIGNALLED.format(start=gpubind(backend, user=user), signal=signal)


def shell(machine: Machine, script: str, *, user: bool) -> str:
    """What *script* says on the machine."""
    binds = [*machine.modules, CONTAINERS]
    return machine.run(["sh", "-ec", script], user=user, driver=True, binds=binds, env=PYTHON_ENV).stdout
