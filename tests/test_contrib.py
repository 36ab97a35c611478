"""contrib/ is short, says at its head what it is for, and has no fault that shellcheck knows."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(path for path in (ROOT / "contrib").rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix in (".sh", ".nhc")]
OF_ANOTHER = (".path", ".timer")
"""Units that only start one of the same name."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_short_and_says_how_it_is_installed(path: Path) -> None:
    lines = path.read_text().splitlines()
    head = "\n".join(takewhile(lambda line: line.startswith("#"), lines))
    wanted = (
        ["see there"]
        if path.suffix in OF_ANOTHER
        else ["\n# Install  ", "\n# Exit  " if path in SCRIPTS else "\n# Fails  "]
    )
    assert [word for word in wanted if word not in head] == []
    assert len(lines) < 70


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(path: Path) -> None:
    shellcheck, shell = Path(sys.executable).parent / "shellcheck", "bash" if path.suffix == ".nhc" else "sh"
    done = subprocess.run([shellcheck, "--shell", shell, path], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


HOOKS = ROOT / "contrib" / "slurm"
SHOWN = """NodeName=n1 Arch=x86_64
   State={} ThreadsPerCore=1
   Reason={} [root@2026-01-01T00:00:00]
   Comment=a [b]
"""
UVM = "gpubind: uvm-missing(/dev/nvidia-uvm)"
BY_HAND = f"{UVM} - resume by hand"


class Ran(NamedTuple):
    """What a hook did."""

    status: int
    stdout: str
    updates: str
    """The command lines of `scontrol update`."""
    logged: str
    """The command lines of `logger`."""


def run(
    directory: Path, hook: str, gpubind: str, shown: str = "", environ: Mapping[str, str] = MappingProxyType({})
) -> Ran:
    """Run a hook on node n1, with *gpubind* as a shell script in the place of gpubind, and a limit of one second.

    *shown*: what Slurm shows of the node.
    """
    (directory / "shown").write_text(shown)
    programs = {
        "gpubind": gpubind,
        "scontrol": f'case $1 in show) cat {directory}/shown ;; *) echo "$@" >> {directory}/updates ;; esac',
        "logger": f'printf "%s\\n" "$*" >> {directory}/logged',
    }
    text = (HOOKS / hook).read_text().replace("PATH=/usr/sbin", f"PATH={directory}:/usr/sbin")
    text = re.sub("(?m)^limit=[0-9]+", "limit=1", text)
    for name, commands in programs.items():
        (directory / name).write_text(f"#!/bin/sh\n{commands}\n")
        (directory / name).chmod(0o755)
        text = re.sub(f"(?m)^{name}=.*", f"{name}={directory / name}", text)
    done = subprocess.run(
        ["/bin/sh", "-c", text],
        env={"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7", **environ},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    written = [(directory / name).read_text() if (directory / name).exists() else "" for name in ("updates", "logged")]
    return Ran(done.returncode, done.stdout, *written)


def healthcheck(directory: Path, shown: str, line: str, status: int) -> tuple[int, str]:
    """Return the exit code of the health check of a node whose check prints *line*, and what it asks of Slurm."""
    (directory / "line").write_text(line)
    ran = run(directory, "healthcheck.sh", f"cat {directory}/line; exit {status}", shown)
    return ran.status, ran.updates


@pytest.mark.parametrize("subject", ["/dev/nvidia-uvm", "/dev/a [b", "State=IDLE Reason=x"])
@pytest.mark.parametrize(("state", "mark"), [("IDLE+DRAIN", ""), ("MIXED+DRAIN", " - resume by hand")])
def test_a_reason_that_the_node_has_is_not_given_again(tmp_path: Path, subject: str, state: str, mark: str) -> None:
    line = f"gpubind: uvm-missing({subject})"
    assert healthcheck(tmp_path, SHOWN.format(state, line + mark), line, 1) == (1, "")


@pytest.mark.parametrize("line", ["", "Traceback (most recent call last):"])
def test_a_gpubind_that_does_not_start_says_nothing_about_the_node(tmp_path: Path, line: str) -> None:
    assert healthcheck(tmp_path, SHOWN.format("IDLE+DRAIN", UVM), line, 1) == (0, "")


@pytest.mark.parametrize(
    ("state", "reason", "given"),
    [
        ("IDLE", "none", UVM),
        ("IDLE+PLANNED", BY_HAND, UVM),
        ("MIXED", "none", BY_HAND),
        ("ALLOCATED", "none", BY_HAND),
        ("IDLE+COMPLETING", "none", BY_HAND),
        ("IDLE+INVALID_REG", "none", BY_HAND),
        ("IDLE+DRAIN", "gpubind: other(x)", UVM),
        ("IDLE+DRAIN", "gpubind: other(x) - resume by hand", BY_HAND),
    ],
)
def test_the_reason_of_a_node_with_a_job_says_that_it_is_not_resumed(
    tmp_path: Path, state: str, reason: str, given: str
) -> None:
    """Slurm keeps the reason of a node that has been resumed; it says nothing about the next drain."""
    asked = healthcheck(tmp_path, SHOWN.format(state, reason), UVM, 1)
    assert asked == (1, f"update nodename=n1 state=drain reason={given}\n")


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("IDLE+DRAIN", BY_HAND),
        ("MIXED+DRAIN", UVM),
        ("IDLE+COMPLETING+DRAIN", UVM),
        ("IDLE+DRAIN+INVALID_REG", UVM),
        ("IDLE+DRAIN", "Epilog error"),
        ("IDLE+DRAIN", f"see ticket :{UVM}"),
        ("DOWN+DRAIN", UVM),
        ("IDLE", UVM),
    ],
)
def test_a_node_that_slurm_may_have_drained_is_not_resumed(tmp_path: Path, state: str, reason: str) -> None:
    assert healthcheck(tmp_path, SHOWN.format(state, reason), "gpubind: ok", 0) == (0, "")


def test_a_resumed_node_has_no_old_reason(tmp_path: Path) -> None:
    asked = healthcheck(tmp_path, SHOWN.format("IDLE+DRAIN", UVM), "gpubind: ok", 0)
    assert asked == (0, "update nodename=n1 state=undrain reason=none\n")


HOSTILE = r"""printf 'error: bad: \033[31m`touch seen` $(touch seen)\n  why:   \342\202\254 \\n"\047\n' >&2; exit 5"""
SAFE = r"""exit code 5: error: bad: ?[31m`touch seen` $(touch seen) why: ??? \n"'"""
HANGS = ("sleep 600", "trap '' TERM; sleep 600; sleep 600")


@pytest.mark.parametrize(
    ("gpubind", "said"), [(HOSTILE, SAFE), (HANGS[0], "exit code 124: no answer in 1 s"), (HANGS[1], "exit code 137: ")]
)
def test_a_check_without_an_answer_is_one_line_of_syslog(tmp_path: Path, gpubind: str, said: str) -> None:
    ran = run(tmp_path, "healthcheck.sh", gpubind, SHOWN.format("IDLE", "none"))
    assert (ran.status, ran.updates) == (0, "")
    assert ran.logged.startswith(f"-t gpubind not checked: {said}")
    assert ran.logged.count("\n") == 1


@pytest.mark.parametrize(
    ("gpubind", "said"), [(HOSTILE, SAFE), (HANGS[0], "exit code 124: no answer in 1 s"), (HANGS[1], "exit code 137: ")]
)
def test_a_task_without_a_plan_says_so_in_its_output_and_in_syslog(tmp_path: Path, gpubind: str, said: str) -> None:
    ran = run(tmp_path, "taskprolog.sh", gpubind)
    assert ran.status == 0
    assert ran.stdout.startswith(f"print gpubind: no GPU plan, so a container needs --nv: {said}")
    assert ran.logged == ran.stdout.replace("print gpubind: ", "-t gpubind job 7: ")
    assert ran.stdout.count("\n") == 1


def test_a_long_error_is_cut_at_its_beginning(tmp_path: Path) -> None:
    """The last line of a traceback says what it is."""
    ran = run(tmp_path, "taskprolog.sh", "seq 100000 >&2; echo SyntaxError >&2; exit 1")
    assert ran.stdout.endswith("100000 SyntaxError\n")
    assert len(ran.stdout) < 1000


def test_a_plan_is_printed_as_it_is(tmp_path: Path) -> None:
    ran = run(tmp_path, "taskprolog.sh", r"echo warning >&2; printf '%s\n' 'export A=\033 $B' 'print c'")
    assert ran[:] == (0, "export A=\\033 $B\nprint c\n", "", "")


@pytest.mark.parametrize("variable", ["SLURM_JOB_GPUS", "SLURM_STEP_GPUS"])
def test_a_node_without_gpus_has_no_plan_for_a_task_without_gpus(tmp_path: Path, variable: str) -> None:
    gpubind = "echo nothing >&2; exit 3"
    assert run(tmp_path, "taskprolog.sh", gpubind)[:] == (0, "", "", "")
    assert "exit code 3: nothing" in run(tmp_path, "taskprolog.sh", gpubind, environ={variable: "0"}).stdout


def test_the_job_does_not_choose_the_python_of_a_task_plan(tmp_path: Path) -> None:
    """Its GPUs, its own settings of gpubind and the rest of its PATH count."""
    mine = {"CUDA_VISIBLE_DEVICES": "1", "GPUBIND_CAPS": "compute", "LD_LIBRARY_PATH": "/lib"}
    python = {"PYTHONHOME": "/x", "PYTHONPATH": "/x\nPYTHON=y", "PYTHONUTF8": "2", "LD_PRELOAD": ""}
    ran = run(tmp_path, "taskprolog.sh", "env", environ={**mine, **python, "PATH": "/mine"})
    seen = dict(line.partition("=")[::2] for line in ran.stdout.splitlines())
    assert {name: seen.get(name) for name in (*mine, *python)} == {**mine, **dict.fromkeys(python)}
    assert seen["PATH"] == f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin:/mine"
    assert [name for name in seen if name.startswith("PYTHON")] == ["PYTHONNOUSERSITE"]


def test_root_runs_gpubind_with_an_environment_of_its_own(tmp_path: Path) -> None:
    gpubind = f"env > {tmp_path}/seen; echo gpubind: ok"
    run(tmp_path, "healthcheck.sh", gpubind, SHOWN.format("IDLE", "none"), {"GPUBIND_CAPS": "x", "PYTHONHOME": "/x"})
    names = {line.partition("=")[0] for line in (tmp_path / "seen").read_text().splitlines()}
    assert names <= {"PATH", "PWD", "_", "SHLVL", "OLDPWD"}
