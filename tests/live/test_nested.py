"""Containers in containers, of gpubind's starts and of Apptainer's own --nv, as an ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from tests.live.containers import CONTAINERS, image
from tests.live.machine import PYTHON_ENV, RIG, Bind, Machine, document

pytestmark = pytest.mark.live

WITH_RUNTIMES = "/srv/runtimes"
"""Where the machine, and the containers on it, see the image that has the runtimes."""
RUNTIMES = (
    "/usr/bin/apptainer",
    "/usr/bin/bwrap",
    "/usr/lib/x86_64-linux-gnu/apptainer",
    "/etc/apptainer",
    "/var/lib/apptainer",
)
THEIR_LIBRARIES = ("libcap", "libpcre2-8", "libseccomp", "libselinux", "libsqlite3")
WORDS = {
    "apptainer": ("--backend-arg=--userns", "--backend-arg=--bind=/srv"),
    "bwrap": ("--backend-arg=--ro-bind", "--backend-arg=/srv", "--backend-arg=/srv"),
}
"""By which a runtime's containers have the checkout and the images, too."""
PYTHON, PLAN = ("python3", "-m", "gpubind"), ("plan", "--nv", "--json")
DRIVER_IN_IT = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); ctypes.CDLL('libnvidia-ml.so.1'); print(c.cuInit(0))"


@pytest.fixture(scope="module")
def binds(trixie: Machine) -> Iterator[tuple[Bind, ...]]:
    """trixie-sb with the machine's runtimes, and the other images. A copy costs links alone."""
    directory = tempfile.mkdtemp(prefix="nested-", dir=RIG)
    os.chmod(directory, 0o755)
    with_runtimes, libraries = f"{directory}/image", "/usr/lib/x86_64-linux-gnu"
    subprocess.run(["cp", "-al", f"{RIG}/ct/trixie-sb", with_runtimes], check=True)
    needed = [f"{libraries}/{n}" for n in os.listdir(trixie.root + libraries) if n.startswith(THEIR_LIBRARIES)]
    for path in (*RUNTIMES, *needed):
        if not os.path.lexists(with_runtimes + path):
            os.makedirs(os.path.dirname(with_runtimes + path), exist_ok=True)
            subprocess.run(["cp", "-al", trixie.root + path, with_runtimes + path], check=True)
    yield (CONTAINERS, Bind(with_runtimes, WITH_RUNTIMES))
    shutil.rmtree(directory)


def ran(machine: Machine, binds: tuple[Bind, ...], *words: str) -> str:
    """What these words write, for an ordinary user of a machine with a loaded kernel module."""
    seen = [*machine.modules, *binds]
    return machine.run(words, user=True, driver=True, binds=seen, env=PYTHON_ENV).stdout


def around(*runtimes: str) -> list[str]:
    """The words by which gpubind starts what follows in a container of the last runtime, in those of the others."""
    words: list[str] = []
    for runtime in runtimes:
        words += [*PYTHON, "exec", "-q", "--nv", "--backend", runtime, *WORDS[runtime], WITH_RUNTIMES]
    return words


def bound(plan: str) -> set[str]:
    return {mount["target"] for mount in document(plan)["mounts"]}


@pytest.mark.parametrize("outer", ["apptainer", "bwrap"])
@pytest.mark.parametrize("inner", ["apptainer", "bwrap"])
def test_two_containers_deep_all_is_planned_and_the_driver_answers(
    trixie: Machine, binds: tuple[Bind, ...], outer: str, inner: str
) -> None:
    def run(*words: str) -> str:
        return ran(trixie, binds, *words)

    inside = around(outer, inner)
    on_host = run(*PYTHON, *PLAN)
    assert len(bound(on_host)) > 40
    assert bound(run(*inside, *PYTHON, *PLAN)) == bound(on_host)
    third = [*PYTHON, "exec", "-q", "--nv", "--backend", inner, image("bookworm-sb"), "python3", "-c", DRIVER_IN_IT]
    assert run(*inside, *third) == "100\n"
    found = run(*inside, *PYTHON, "check", "--nv", "--json")
    assert document(found)["verdict"] == "ok"


@pytest.mark.parametrize("inner", ["apptainer", "bwrap"])
def test_in_a_container_of_apptainers_own_nv_its_libraries_are_planned(
    trixie: Machine, binds: tuple[Bind, ...], inner: str
) -> None:
    def run(*words: str) -> str:
        return ran(trixie, binds, "apptainer", "-s", *flags, WITH_RUNTIMES, *words)

    flags = ("exec", "--userns", "--nv", "--bind", "/srv")

    names = set(run("ls", "/.singularity.d/libs").split())
    planned = {target.rpartition("/")[2] for target in bound(run(*PYTHON, *PLAN, "--image", image("trixie-sb")))}
    assert len(names) > 30 and names <= planned
    words = ("exec", "-q", "--nv", "--backend", inner, image("bookworm-sb"), "python3", "-c", DRIVER_IN_IT)
    assert run(*PYTHON, *words) == "100\n"
