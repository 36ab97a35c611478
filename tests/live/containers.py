"""Containers that gpubind starts on a machine of the rig, and what they see."""

from __future__ import annotations

import functools
import json
import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.live.machine import CHECKOUT, INSIDE_CONTAINERS, RIG, Bind, Machine

CONTAINERS = Bind(f"{RIG}/ct", INSIDE_CONTAINERS)
LIBDIRS = {"apptainer": "/.singularity.d/libs", "bwrap": "/.gpubind/libs"}

with open(f"{CHECKOUT}/tests/live/rig/inside.py") as _file:
    PROBE = _file.read()


class Case(NamedTuple):
    """A container: of which image, started by whom with what."""

    backend: str
    image: str
    user: bool
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "-".join((self.backend, self.image, "user" if self.user else "root", *self.options))

    @property
    def suite(self) -> str:
        """The release in its image."""
        return self.image.replace(".", "-").partition("-")[0]

    @property
    def libdir(self) -> str:
        """Where the driver's libraries are in it."""
        return LIBDIRS[self.backend]


def image(name: str) -> str:
    """The path of an image, as the machines see it."""
    return f"{INSIDE_CONTAINERS}/{name}"


def privileges(backend: str, *, user: bool) -> tuple[str, ...]:
    """Root of the rig may lack capabilities that apptainer would give to root of the container."""
    return ("--no-privs",) if backend == "apptainer" and not user else ()


def exec_words(backend: str, *, user: bool) -> tuple[str, ...]:
    """`exec` and what it needs to start anything on the rig."""
    return ("exec", "--backend", backend, *(f"--backend-arg={word}" for word in privileges(backend, user=user)))


def start(
    machine: Machine,
    case: Case,
    *command: str,
    env: Mapping[str, str] = {},
    binds: Iterable[Bind] = (),
    driver: bool = True,
    status: int = 0,
) -> subprocess.CompletedProcess[str]:
    """*command* in the container of *case*, started by gpubind."""
    words = [*exec_words(case.backend, user=case.user), *case.options, image(case.image), *command]
    return machine.tried(*words, user=case.user, driver=driver, env=env, binds=[CONTAINERS, *binds], status=status)


@functools.cache
def look(machine: Machine, case: Case) -> dict[str, Any]:
    """What rig/inside.py says in the container of *case*; each container is started once a session."""
    report: dict[str, Any] = json.loads(start(machine, case, "python3", "-c", PROBE).stdout)
    return report


def gone_wrong(report: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """The driver roots of *report*, from rig/hostile.py, with which a container got other bytes, or gpubind failed
    without saying why; each with the exit status and what was said.
    """
    return {
        name: (found["status"], found["said"][-300:])
        for name, found in report.items()
        if (found["status"] != 0 or found["other"]) and not refused(found)
    }


def refused(found: Mapping[str, Any]) -> bool:
    """Whether gpubind said that the runtime cannot say the path, and which path that is."""
    return bool(found["status"] in (6, 125) and "error: " in found["said"] and found["root"] in found["said"])


def library_path(machine: Machine, case: Case, *, env: Mapping[str, str] = {}, binds: Iterable[Bind] = ()) -> list[str]:
    """The elements of LD_LIBRARY_PATH in the container of *case*; with the driver's directory found and working."""
    script = "import ctypes, os; print(os.environ['LD_LIBRARY_PATH']); print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    value, status = start(machine, case, "python3", "-c", script, env=env, binds=binds).stdout.splitlines()
    assert status == "100"
    return value.split(":")


def readable(directory: str) -> str:
    """*directory*, open to the ordinary user: pytest's own are for their owner only."""
    os.chmod(directory, 0o755)
    return directory


def listing(root: str) -> dict[str, tuple[int, ...]]:
    """Everything below *root* with what writing to it would change; but /tmp, which other tests use, and what a link
    to a file changes, which they make.
    """
    found: dict[str, tuple[int, ...]] = {}
    for directory, directories, files in os.walk(root):
        if directory == root:
            directories.remove("tmp")
        for name in (".", *directories, *files):
            facts = os.lstat(os.path.join(directory, name))
            shape = (facts.st_mode, facts.st_uid, facts.st_gid, facts.st_size)
            found[os.path.join(directory, name)] = (*shape, facts.st_mtime_ns)
    return found


EXCLUDES = shlex.join(
    f"--exclude=./{path}/*"
    for path in ("dev", "tmp", "var", "root", *(f"usr/share/{of}" for of in ("doc", "locale", "man")))
)
"""What tar leaves out of a container that becomes an image: no test needs it, and it is half of all."""
MARK = """
marked() {
    for _ in $(seq 100); do
        left=$(grep -ls MARKED=$MARK /proc/[0-9]*/environ)
        test -n "$left" || return
        sleep 0.3
    done
    echo "$left"
}
export MARK=$$-left-by-exec
"""
"""For a shell: what is started with MARKED=$MARK, and has not ended some time later, is found by `marked`; and nothing
that another test starts."""
MOUNTED_IMAGES = """
for _ in $(seq 100); do test -n "$(podman image mount)" || exit 0; sleep 0.5; done
podman image mount
"""
"""For a shell: the images of podman's store that stay mounted; other tests may be looking at one."""
