"""What env starts, as env of coreutils does it when it is asked."""

from __future__ import annotations

import os
import subprocess
from typing import Optional

import pytest

from gpubind.formats.text.env_arguments import DEFAULT_PATH, EnvCall, EnvError, parse_env_arguments


@pytest.mark.parametrize(
    ("argument", "command", "path"),
    [
        ("python3", "python3", None),
        ("python3 -u", "python3 -u", None),
        ("-S python3 -u", "python3", None),
        ("-Spython3 -u", "python3", None),
        ("-vS python3", "python3", None),
        ("-iS python3", "python3", DEFAULT_PATH),
        ("-S -i python3", "python3", DEFAULT_PATH),
        ("-S -u PATH python3", "python3", DEFAULT_PATH),
        ("-S -u HOME python3", "python3", None),
        ("-S A=1 PATH=/opt/bin python3", "python3", "/opt/bin"),
        ("-S -C / -- python3", "python3", None),
        ("-S --chdir=/ --unset HOME python3", "python3", None),
        ("-S --ignore-env python3", "python3", DEFAULT_PATH),
        ("-S 'python3' -u", "python3", None),
        ("--split-string=python3 -u", "python3", None),
        ("-i", None, DEFAULT_PATH),
        ("-", None, DEFAULT_PATH),
        ("-u HOME", None, None),
        ("A=1 python3", None, None),
    ],
)
def test_options_and_assignments_are_followed(argument: str, command: Optional[str], path: Optional[str]) -> None:
    assert parse_env_arguments([argument]) == EnvCall(command, path)


@pytest.mark.parametrize("argument", ["-i python3", "--ignore-environment python3", "-x", "-u", "-S 'a", "-S -0 sh"])
def test_what_env_does_not_understand_starts_nothing(argument: str) -> None:
    assert isinstance(parse_env_arguments([argument]), EnvError)


@pytest.mark.parametrize("argument", ["-S sh", "-iS sh", "-vS sh", "--split-string=sh"])
def test_busybox_does_not_split(argument: str) -> None:
    assert isinstance(parse_env_arguments([argument], busybox=True), EnvError)
    assert parse_env_arguments(["sh"], busybox=True) == EnvCall("sh", None)


WORDS = ["sh", "-S sh", "-iS sh", "-S -i sh", "-i sh", "-S A=1 sh", "--ignore-environment sh", "-x sh", "-S -u A sh"]


@pytest.mark.parametrize("argument", [*WORDS, "sh -x", "-S sh -x", "-vSsh", "-S 'sh'", "-S -0 sh", "-S --null sh"])
def test_env_itself_agrees(argument: str) -> None:
    call = ["/usr/bin/env", argument, "-c", "exit 7"]
    status = subprocess.run(call, capture_output=True, env={"PATH": os.defpath}).returncode
    made = parse_env_arguments([argument])
    assert (status == 7) == (isinstance(made, EnvCall) and made.command == "sh")
