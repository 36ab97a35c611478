"""Completion: what the shell itself makes of the script."""

from __future__ import annotations

import re
import subprocess

import pytest
from test_cli import gpubind
from test_help import COMMANDS

from gpubind.cli.shells import FINDINGS, SHELLS
from gpubind.data import HOSTS
from gpubind.model import CAPABILITIES


def completed(*words: str) -> list[str]:
    """What bash completes the last of *words* to."""
    ask = (
        f"{gpubind('completion', 'bash').stdout}\n"
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }\n'
        '_gpubind; [[ ${#COMPREPLY[@]} == 0 ]] || printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", ask, "bash", "gpubind", *words], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("ch",), ["check"]),
        (("check", "--host", "deb"), ["debian13-nvidia550"]),
        (("check", "--host", "=", "mi"), ["mi300x-rocm62"]),
        (("plan", "--caps", "comput"), ["compute"]),
        (("plan", "--caps", "compute,ut"), ["compute,utility"]),
        (("check", "--only", "uvm-missing,cuda-too-n"), ["uvm-missing,cuda-too-new"]),
        (("check", "--format", "ju"), ["junit"]),
        (("plan", "--format", "apptainer-"), ["apptainer-env"]),
        (("exec", "--backend", "podm"), ["podman"]),
        (("plan", "--like", "apptainer-1.5"), ["apptainer-1.5"]),
        (("plan", "--vendor-neutral", "im"), ["image"]),
        (("explain", "cuda-too-n"), ["cuda-too-new"]),
        (("explain", "unknown-ho"), ["unknown-host"]),
        (("plan", "--vendor-n"), ["--vendor-neutral"]),
        (("completion", ""), list(SHELLS)),
        (("wrap", "--", "apptainer", "--"), []),
    ],
)
def test_bash_completes_values_and_options(words: tuple[str, ...], found: list[str]) -> None:
    assert completed(*words) == found


def test_bash_completes_all_there_is_and_files_where_files_are_meant() -> None:
    assert completed("") == [*COMMANDS, "--version", "--help"]
    assert completed("plan", "--caps", "") == [*CAPABILITIES, "all"]
    assert completed("check", "--ignore", "") == list(FINDINGS)
    assert completed("check", "--image", "/usr/bin/basenam") == ["/usr/bin/basename"]
    assert completed("plan", "--host", "/usr/bin/basenam") == ["/usr/bin/basename"]
    assert completed("plan", "--root", "/us") == ["/usr"]
    assert completed("exec", "/usr/bin/basenam") == ["/usr/bin/basename"]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_has_every_command_option_and_host(shell: str) -> None:
    script = gpubind("completion", shell).stdout
    options = set(re.findall(r"--([a-z][a-z-]+)", gpubind("completion", "bash").stdout)) - {"version"}
    assert len(options) > 40
    for name in options:
        assert re.search(rf"(--|-l ){name}\b", script), name
    for word in (*COMMANDS, *HOSTS, *CAPABILITIES, *FINDINGS):
        assert word in script
