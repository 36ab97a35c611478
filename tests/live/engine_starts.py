"""Starts by podman and docker."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tests.live.containers import CONTAINERS
from tests.live.machine import CHECKOUT, ENTER, PYTHON_ENV, ROOT_PATH, Bind, Machine

DAEMON = f"/var/tmp/gpubind-dockerd-{os.getpid()}"


SOCKET = f"unix://{DAEMON}/socket"


MIGRATED = 'podman system migrate > /dev/null 2>&1; "$@"; s=$?; podman system migrate > /dev/null 2>&1; exit $s'
"""An ordinary user's podman leaves a process that pins its mounts, and those of one run are not the next one's."""


RIG_SCRIPTS = Bind(f"{CHECKOUT}/tests/live/rig", "/srv/rig")


LIMITS = ("nofile=20000:20000", "nproc=32768:32768")


IMPORT = "tar -C /srv/ct/{suite} {excludes} -c . | {program} import {changes} - engines:{suite}"


@contextmanager
def dockerd(machine: Machine, *words: str, binds: Iterable[Bind] = (), driver: bool = False) -> Iterator[None]:
    """A dockerd of its own on *machine*, with a store of its own."""
    directory = machine.root + DAEMON
    os.makedirs(directory)
    own = ["--iptables=false", "--bridge=none", f"--data-root={DAEMON}/data", f"--exec-root={DAEMON}/exec"]
    own += ["-H", SOCKET, f"--pidfile={DAEMON}/pid"]
    bound = " ".join(map(str, (CONTAINERS, *binds)))
    around = {"PATH": ROOT_PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", "BINDS": bound}
    if driver:
        around["FAKE_DRIVER"] = machine.version
    with open(f"{directory}/log", "w") as log:
        daemon = subprocess.Popen(
            [ENTER, machine.root, "dockerd", *own, *words], env=around, cwd="/", stdout=log, stderr=log
        )
    try:
        _wait_for(f"{directory}/socket", daemon)
        yield
    finally:
        daemon.terminate()
        daemon.wait(60)
        shutil.rmtree(directory)


def _wait_for(socket: str, daemon: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        if os.path.exists(socket):
            return
        assert daemon.poll() is None
        time.sleep(0.1)
    raise AssertionError("dockerd does not start")


class Engine(NamedTuple):
    """A program that starts an image, and for whom."""

    program: str
    image: str
    user: bool = False

    def __str__(self) -> str:
        return "-".join((self.program, self.image.replace("/", "_"), "user" if self.user else "root"))

    @property
    def arguments(self) -> tuple[str, ...]:
        """What it needs on the rig, which has no nft, and lacks the right to raise limits.

        The made-up driver covers parts of /proc, and so the kernel lets no ordinary user mount another one.
        """
        limits = ("--pid=host",) if self.user else tuple(f"--ulimit={word}" for word in LIMITS)
        words = ("--network=none", *limits) if self.program == "podman" else ()
        return tuple(f"--backend-arg={word}" for word in words)

    @property
    def row(self) -> str:
        """Which row of docs/runtimes-tested.md it is."""
        return "docker" if self.program == "docker" else f"podman, {'rootless' if self.user else 'root'}"

    @property
    def has_configuration(self) -> bool:
        """Whether the image is one that was imported with `CONFIGURATION`."""
        return self.image.startswith("engines:")


def run(
    machine: Machine, engine: Engine, *words: str, env: Mapping[str, str] = {}, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """*words* on the machine, as the one for whom *engine* starts images."""
    around = {**PYTHON_ENV, **({"DOCKER_HOST": SOCKET} if engine.program == "docker" else {}), **env}
    command = ["sh", "-c", MIGRATED, "sh", *words] if engine.user else list(words)
    binds = [*machine.modules, CONTAINERS, RIG_SCRIPTS]
    return machine.run(command, user=engine.user, driver=True, binds=binds, env=around, status=status)


def gpubind(engine: Engine, *command: str, action: str = "exec", options: Sequence[str] = ()) -> list[str]:
    """The words that start *command*."""
    words = [action, "--backend", engine.program, *engine.arguments, *options, engine.image, *command]
    return ["python3", "-m", "gpubind", *words]


def start(machine: Machine, engine: Engine, *command: str, options: Sequence[str] = (), status: int = 0) -> str:
    """What *command* says in a container."""
    return run(machine, engine, *gpubind(engine, *command, options=options), status=status).stdout
