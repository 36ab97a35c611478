"""Starts by crun and runc."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from tests.live.machine import CHECKOUT, PYTHON_ENV, RIG, Bind, Machine

RUNTIMES = ("crun", "runc")


SUITES = ("bullseye", "bookworm")


USER = 1000


PLACE = "/srv/bundles"


RIG_SCRIPTS = Bind(f"{CHECKOUT}/tests/live/rig", "/srv/rig")


STATE = "/tmp/bundles-state"


class Started(NamedTuple):
    """Who starts which bundle by what."""

    runtime: str
    suite: str
    user: bool

    def __str__(self) -> str:
        return "-".join((self.runtime, self.suite, "user" if self.user else "root"))

    @property
    def bundle(self) -> str:
        """As the machine sees it."""
        return f"{PLACE}/{self}"


ALL = [Started(runtime, suite, user) for runtime in RUNTIMES for suite in SUITES for user in (False, True)]


@contextmanager
def made_bundles(machine: Machine, listed: list[Started]) -> Iterator[Bind]:
    """A bundle for each case: the rig's own root file systems, with directories that belong to who starts them."""
    base = tempfile.mkdtemp(prefix="bundles-", dir=RIG)
    os.chmod(base, 0o755)
    bind = Bind(base, PLACE, readonly=False)
    try:
        for case in listed:
            there = f"{base}/{case}"
            os.mkdir(there)
            subprocess.run(["cp", "-al", f"{RIG}/ct/{case.suite}", f"{there}/rootfs"], check=True)
            if case.user:
                found = ["find", there, "-type", "d", "-exec", "chown", str(USER), "{}", "+"]
                subprocess.run(found, check=True)
            spec = [case.runtime, "spec", *(["--rootless"] if case.user else [])]
            machine.run(["sh", "-ec", f"cd {case.bundle}; {shlex.join(spec)}"], user=case.user, binds=[bind])
            adapt(f"{there}/config.json", case)
        yield bind
    finally:
        shutil.rmtree(base)


def adapt(path: str, case: Started) -> None:
    """What the rig wants of a bundle, and a search path of the bundle's own."""
    with open(path) as file:
        config = json.load(file)
    config["process"]["env"].append("LD_LIBRARY_PATH=/opt/own/lib")
    del config["process"]["rlimits"]
    if case.user:
        proc = {"destination": "/proc", "type": "bind", "source": "/proc", "options": ["rbind"]}
        config["mounts"] = [proc if mount["destination"] == "/proc" else mount for mount in config["mounts"]]
        linux = config["linux"]
        linux["namespaces"] = [namespace for namespace in linux["namespaces"] if namespace["type"] != "pid"]
        del linux["maskedPaths"], linux["readonlyPaths"]
    with open(path, "w") as file:
        json.dump(config, file, indent=1)


def start(
    machine: Machine, bundles: Bind, case: Started, *command: str, options: tuple[str, ...] = (), status: int = 0
) -> subprocess.CompletedProcess[str]:
    """*command* in the container of *case*."""
    words = shlex.join(["python3", "-m", "gpubind", *exec_words(case), *options, case.bundle, *command])
    return shell(machine, bundles, case, f"mkdir -p -m 700 {STATE}; exec {words}", status=status)


def exec_words(case: Started) -> tuple[str, ...]:
    return ("exec", "--backend", case.runtime)


def shell(
    machine: Machine, bundles: Bind, case: Started, script: str, *, status: int = 0, env: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """*script* on the machine, whose /tmp and home are fresh."""
    # su opens a new session, with the login's own environment.
    around = {**PYTHON_ENV, "XDG_RUNTIME_DIR": STATE, **env}
    inside = shlex.join(["env", *(f"{name}={value}" for name, value in around.items()), "sh", "-ec", script])
    if case.user:
        inside = shlex.join(["su", "-", "user", "-c", inside])
    fresh = "mount -t tmpfs -o mode=1777 tmpfs /tmp; mount -t tmpfs -o mode=777 tmpfs /home/user; "
    fresh += "mount -t tmpfs tmpfs /root; "
    binds = [*machine.modules, bundles, RIG_SCRIPTS]
    return machine.run(["sh", "-ec", fresh + inside], driver=True, binds=binds, status=status)
