"""contrib/ is short, says at its head what it is for, and has no fault that shellcheck knows."""

from __future__ import annotations

import subprocess
import sys
from itertools import takewhile
from pathlib import Path

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
    assert len(lines) < 40


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(path: Path) -> None:
    shellcheck, shell = Path(sys.executable).parent / "shellcheck", "bash" if path.suffix == ".nhc" else "sh"
    done = subprocess.run([shellcheck, "--shell", shell, path], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0)


HOOK = (ROOT / "contrib" / "slurm" / "healthcheck.sh").read_text()
DRAINED = """NodeName=n1 Arch=x86_64
   State=IDLE+DRAIN ThreadsPerCore=1
   Reason={} [root@2026-01-01T00:00:00]
   Comment=a [b]
"""


def healthcheck(directory: Path, shown: str, line: str, status: int) -> tuple[int, str]:
    """Run the hook on node n1, of which Slurm shows this, and whose check prints *line*; return what it asks of Slurm.

    *status*: that of the check.
    """
    (directory / "shown").write_text(shown)
    (directory / "line").write_text(line)
    programs = {
        "gpubind": f"cat {directory}/line; exit {status}",
        "scontrol": f"""case $1 in
show) cat {directory}/shown;;
*) echo "$@" >> {directory}/asked;;
esac""",
    }
    text = HOOK.replace("/usr/bin/logger", "true")
    for name, commands in programs.items():
        (directory / name).write_text(f"#!/bin/sh\n{commands}\n")
        (directory / name).chmod(0o755)
        lines = (f"{name}={directory / name}" if old.startswith(f"{name}=") else old for old in text.splitlines())
        text = "\n".join(lines)
    done = subprocess.run(["sh", "-c", text], env={"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n1"}, check=False)
    asked = directory / "asked"
    return done.returncode, asked.read_text() if asked.exists() else ""


@pytest.mark.parametrize("subject", ["/dev/nvidia-uvm", "/dev/a [b", "State=IDLE Reason=x"])
def test_a_reason_that_the_node_has_is_not_given_again(tmp_path: Path, subject: str) -> None:
    line = f"gpubind: uvm-missing({subject})"
    assert healthcheck(tmp_path, DRAINED.format(line), line, 1) == (1, "")


@pytest.mark.parametrize("line", ["", "Traceback (most recent call last):"])
def test_a_gpubind_that_does_not_start_says_nothing_about_the_node(tmp_path: Path, line: str) -> None:
    assert healthcheck(tmp_path, DRAINED.format("gpubind: uvm-missing"), line, 1) == (0, "")
