"""Completion: what a shell gets to hear when somebody presses tab."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpubind.cli.commands.completion import SHELLS
from gpubind.cli.declarations import COMPLETION
from gpubind.model import CAPABILITIES
from gpubind.model.data import BUNDLED_HOSTS
from tests.support.commands import gpubind
from tests.test_help import COMMANDS

CASES = {
    "gpubind ch": ["check"],
    "gpubind ": COMMANDS,
    "gpubind check --host deb": ["debian13-nvidia550"],
    "gpubind plan --host ": list(BUNDLED_HOSTS),
    "gpubind plan --caps com": ["compute", "compat32"],
    "gpubind plan --caps compute,ut": ["compute,utility"],
    "gpubind plan --caps ": [*CAPABILITIES, "all"],
    "gpubind plan --format ap": ["apptainer", "apptainer-env"],
    "gpubind plan --like apptainer-1.6": ["apptainer-1.6"],
    "gpubind plan --source driv": ["driver"],
    "gpubind plan --vendor-neutral ": ["auto", "host", "image"],
    "gpubind plan --vendor-n": ["--vendor-neutral"],
    "gpubind gpus --gpus ": ["all", "none"],
    "gpubind check --only uvm-missing,cuda-too-n": ["uvm-missing,cuda-too-new"],
    "gpubind check --ignore cuda-too-n": ["cuda-too-new"],
    "gpubind check --format ju": ["junit"],
    "gpubind check --backend podm": ["podman"],
    "gpubind exec --backend podm": ["podman"],
    "gpubind explain no-lib": ["no-libcuda"],
    "gpubind explain unknown-ho": ["unknown-host"],
    "gpubind completion ": list(SHELLS),
}
"""Command lines up to where tab is pressed, with what may come there."""
NOTHING = (
    "gpubind check --image /usr/b",
    "gpubind wrap -- apptainer --",
    "gpubind exec --nv ./image program --h",
    "gpubind plan --caps compute --caps utility ",
)
"""Here a shell completes files, or nothing."""


def asked(shell: str, line: str) -> subprocess.CompletedProcess[str]:
    """What gpubind answers *shell*, which asks by variables."""
    words = line.split(" ")
    variables = {
        COMPLETION: f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    return gpubind(env=variables)


def candidates(shell: str, answer: str) -> list[str]:
    """The words in *answer*, which has other things beside them in each shell's own form."""
    if shell == "zsh":
        return re.findall(r'[(\s]"([^"]*)"', answer)
    return [line.partition("\t")[0] for line in answer.splitlines() if line]


def in_shell(shell: str, line: str, tmp_path: Path) -> list[str]:
    """What *shell* itself makes of typer's script and of the answers. fish and zsh can be asked without a terminal."""
    program = tmp_path / "gpubind"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpubind "$@"\n')
    program.chmod(0o755)
    scripts = {
        "bash": 'eval "$(gpubind completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_gpubind_completion gpubind; printf "%s\\n" "${COMPREPLY[@]}"',
        "fish": 'gpubind completion fish | source; complete -C "$argv[1]"',
        "zsh": "compdef() { }; _files() { }; _arguments() { print -r -- _arguments $@ }; "
        'eval "$(gpubind completion zsh)"; words=("$@"); CURRENT=$#; _gpubind_completion',
    }
    words = [line] if shell == "fish" else line.split(" ")
    before = {"bash": ["--norc", "-c"], "fish": ["--no-config", "-c"], "zsh": ["-fc"]}[shell]
    name = [] if shell == "fish" else [shell]
    environ = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [shell, *before, scripts[shell], *name, *words], capture_output=True, text=True, check=True, env=environ
    )
    assert done.stderr == ""
    return candidates(shell, done.stdout)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("line", CASES)
def test_every_shell_gets_the_words_that_may_come(shell: str, line: str) -> None:
    done = asked(shell, line)
    assert (done.stderr, done.returncode) == ("", 0)
    assert sorted(candidates(shell, done.stdout)) == sorted(CASES[line])


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("line", NOTHING)
def test_where_files_are_meant_no_words_come(shell: str, line: str) -> None:
    done = asked(shell, line)
    assert (done.stderr, candidates(shell, done.stdout)) == ("", [])


@pytest.mark.parametrize(
    "line", ["gpubind check --host deb", "gpubind explain no-lib", "gpubind plan --caps com", "gpubind ch"]
)
def test_the_shells_that_are_installed_complete_by_the_script(line: str, tmp_path: Path) -> None:
    installed = [shell for shell in SHELLS if shutil.which(shell)]
    assert "bash" in installed
    for shell in installed:
        assert sorted(in_shell(shell, line, tmp_path)) == sorted(CASES[line])


def test_an_option_is_described_in_a_line() -> None:
    lines = asked("fish", "gpubind plan --").stdout.splitlines()
    assert "--caps\tDriver capabilities, separated by commas" in lines
    assert all(line.startswith("--") for line in lines)


def test_a_shell_that_typer_has_no_script_for_is_refused() -> None:
    done = gpubind("completion", "tcsh")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown-shell: unknown shell `tcsh`\n")
