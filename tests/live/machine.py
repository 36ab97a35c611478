"""Run commands on the rig's machines: root file systems that `rig/enter` makes the real root of a mount namespace."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENTER = os.path.join(CHECKOUT, "tests/live/rig/enter")
RIG = os.environ.get("GPUBIND_RIG") or "/var/tmp/gpubind-rig"
DRIVER = "550.163.01"
"""The driver of the machine `trixie`."""

ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INSIDE_CHECKOUT = "/srv/gpubind"
INSIDE_PYTHON = "/srv/python"
INSIDE_CONTAINERS = "/srv/ct"


class Bind(NamedTuple):
    """A file or directory of this machine that a machine of the rig shall see."""

    source: str
    target: str
    readonly: bool = True

    def __str__(self) -> str:
        return f"{self.source}:{self.target}" + (":ro" if self.readonly else "")


class CommandError(AssertionError):
    """A command that had to succeed did not."""


class Machine(NamedTuple):
    """A root file system of the rig."""

    root: str
    """Where it is on this machine."""
    python: str
    """The directory of gpubind's dependencies for its python3."""
    version: str = ""
    """Of its driver, and of the kernel module that it can be made to have."""

    def run(
        self,
        command: Sequence[str],
        *,
        user: bool = False,
        driver: bool = False,
        binds: Iterable[Bind] = (),
        env: Mapping[str, str] = {},
        status: int = 0,
    ) -> subprocess.CompletedProcess[str]:
        """*command* with this as its root, as root or as the ordinary user, with or without a kernel module.

        *env* is added to what a login gives. Fails unless the command ends with *status*.
        """
        words = ["env", *(f"{name}={value}" for name, value in env.items()), *command]
        if user:
            words = ["su", "-", "user", "-c", shlex.join(words)]
        around = {"PATH": ROOT_PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", "BINDS": " ".join(map(str, binds))}
        if driver:
            around["FAKE_DRIVER"] = self.version
        return checked_run([ENTER, self.root, *words], around, status)

    def tried(
        self,
        *arguments: str,
        user: bool = False,
        driver: bool = False,
        binds: Iterable[Bind] = (),
        env: Mapping[str, str] = {},
        status: int = 0,
    ) -> subprocess.CompletedProcess[str]:
        """This checkout's gpubind, run by the machine's own python3. Fails unless it ends with *status*."""
        command = ["python3", "-m", "gpubind", *arguments]
        env = {**PYTHON_ENV, **env}
        return self.run(command, user=user, driver=driver, binds=[*self.modules, *binds], env=env, status=status)

    def gpubind(
        self,
        *arguments: str,
        user: bool = False,
        driver: bool = False,
        binds: Iterable[Bind] = (),
        env: Mapping[str, str] = {},
        status: int = 0,
    ) -> str:
        """What `tried` writes to standard output."""
        return self.tried(*arguments, user=user, driver=driver, binds=binds, env=env, status=status).stdout

    @property
    def modules(self) -> tuple[Bind, Bind]:
        """What its python3 imports."""
        return Bind(CHECKOUT, INSIDE_CHECKOUT), Bind(self.python, INSIDE_PYTHON)


PYTHON_ENV = {"PYTHONPATH": f"{INSIDE_CHECKOUT}:{INSIDE_PYTHON}", "PYTHONDONTWRITEBYTECODE": "1"}


def here(*command: str, env: Mapping[str, str] = {}, status: int = 0) -> str:
    """What *command* writes to standard output on this machine, with nothing of the caller's environment."""
    around = {"PATH": ROOT_PATH, "HOME": "/root", "LC_ALL": "C.UTF-8"}
    python = {"PYTHONPATH": CHECKOUT, "PYTHONDONTWRITEBYTECODE": "1"}
    return checked_run(command, {**around, **python, **env}, status).stdout


def document(text: str) -> dict[str, Any]:
    """The plan in *text*."""
    plan: dict[str, Any] = json.loads(text)
    return plan


def pairs(plan: Mapping[str, Any]) -> set[tuple[str, str]]:
    """(source, target) of every mount."""
    return {(mount["source"], mount["target"]) for mount in plan["mounts"]}


def checked_run(command: Sequence[str], env: Mapping[str, str], status: int) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env=dict(env), cwd="/", capture_output=True, text=True, timeout=1500)
    if done.returncode != status:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise CommandError(f"exit status {done.returncode}, not {status}: {shlex.join(command)}\n{tail}")
    return done
