"""What the user brings, really started: `exec --check` starts each job that works, and stops each that does not."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from tests.live.containers import CONTAINERS, exec_words
from tests.live.machine import INSIDE_CONTAINERS, RIG, Bind, Machine

pytestmark = pytest.mark.live

HOME = "/home/user"
OWN_IMAGE = "/srv/own"
SOURCE = "int part(void) { return 0; }"
MAIN = "int part(void); int main(void) { return part(); }"


class Job(NamedTuple):
    """A program, in which image, with what of the user's."""

    program: str
    options: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    image: str = f"{INSIDE_CONTAINERS}/bookworm.sif"
    cwd: str = HOME
    by: str = "apptainer"


def backend(*words: str) -> tuple[str, ...]:
    return tuple(f"--backend-arg={word}" for word in words)


PLAIN = f"{INSIDE_CONTAINERS}/bookworm"
IN_IMAGE = f"{OWN_IMAGE}/image"
WORKS = {
    "library-path-in-the-image": Job(
        "/opt/t/solve", env={"APPTAINERENV_LD_LIBRARY_PATH": "/opt/t/lib"}, image=IN_IMAGE
    ),
    "library-path-by-option": Job("/opt/t/solve", backend("--env=LD_LIBRARY_PATH=/opt/t/lib"), image=IN_IMAGE),
    "library-path-in-the-home": Job("./solve", env={"APPTAINERENV_LD_LIBRARY_PATH": f"{HOME}/lib"}),
    "bind": Job("./solve", env={"APPTAINER_BIND": f"{HOME}/lib/libpart.so:/usr/lib/x86_64-linux-gnu/libpart.so"}),
    "bind-of-a-directory": Job(
        "/opt/mine/solve",
        backend("--bind", f"{HOME}:/opt/mine"),
        {"APPTAINERENV_LD_LIBRARY_PATH": "/opt/mine/link"},
    ),
    "mount": Job(
        "/opt/mine/solve",
        backend("--mount", f"type=bind,source={HOME},destination=/opt/mine"),
        {"SINGULARITYENV_LD_LIBRARY_PATH": "/opt/mine/lib"},
    ),
    "containlibs": Job("./solve", env={"APPTAINER_CONTAINLIBS": f"{HOME}/lib/libpart.so"}),
    "preload": Job("./solve", env={"APPTAINERENV_LD_PRELOAD": f"{HOME}/lib/libpart.so"}),
    "prepend-path": Job("alone", env={"APPTAINERENV_PREPEND_PATH": f"{HOME}/bin"}),
    "append-path": Job("alone", env={"APPTAINERENV_APPEND_PATH": f"{HOME}/bin"}),
    "path": Job("alone", backend(f"--env=PATH={HOME}/bin:/usr/bin:/bin")),
    "working-directory": Job("../user/bin/alone"),
    "tmp": Job("/tmp/alone"),
    "script-of-the-home": Job("./run.sh"),
    "runpath": Job("./found"),
    "bwrap-home": Job("./found", image=PLAIN, by="bwrap"),
    "bwrap-bind": Job("/mnt/bin/alone", backend("--ro-bind", HOME, "/mnt"), image=PLAIN, by="bwrap"),
    "bwrap-tmp": Job("/tmp/alone", image=PLAIN, by="bwrap"),
    "bwrap-library-path": Job(
        "solve",
        backend("--setenv", "LD_LIBRARY_PATH", f"{HOME}/link", "--setenv", "PATH", HOME),
        image=PLAIN,
        by="bwrap",
    ),
}
FAILS = {
    "missing": (Job("./nothing"), "program-missing"),
    "missing-in-the-home": (Job(f"{HOME}/nothing"), "program-missing"),
    "not-bound": (Job(f"{OWN_IMAGE}/home/bin/alone"), "program-missing"),
    "no-library": (Job("./solve"), "program-library-missing"),
    "library-elsewhere": (
        Job("./solve", env={"APPTAINERENV_LD_LIBRARY_PATH": f"{HOME}/bin"}),
        "program-library-missing",
    ),
    "no-mode": (Job("./data"), "program-not-executable"),
    "contained": (Job(f"{HOME}/bin/alone", backend("--no-home"), cwd="/"), "program-missing"),
    "bwrap-missing": (Job("./nothing", image=PLAIN, by="bwrap"), "program-missing"),
    "bwrap-no-library": (Job("./solve", image=PLAIN, by="bwrap"), "program-library-missing"),
    "bwrap-not-bound": (Job(f"{OWN_IMAGE}/home/bin/alone", image=PLAIN, by="bwrap"), "program-missing"),
}


@pytest.fixture(scope="module")
def places(rig: str) -> Iterator[tuple[Bind, ...]]:
    """A home with programs, and a sandbox with one more; in the rig's file system, for its images are linked."""
    directory = f"{RIG}/brought-{os.getpid()}"
    shutil.rmtree(directory, ignore_errors=True)
    home, image = f"{directory}/home", f"{directory}/image"
    os.makedirs(home)
    subprocess.run(["cp", "-al", f"{rig}/ct/bookworm-sb", image], check=True)
    make(home)
    os.makedirs(f"{image}/opt/t")
    shutil.copytree(f"{home}/lib", f"{image}/opt/t/lib")
    shutil.copy(f"{home}/solve", f"{image}/opt/t/solve")
    subprocess.run(["chmod", "-R", "a+rX", directory], check=True)
    shutil.copytree(f"{home}/bin", f"{directory}/tmp")
    os.chmod(f"{directory}/tmp", 0o1777)
    home_and_tmp = Bind(home, HOME, readonly=False), Bind(f"{directory}/tmp", "/tmp", readonly=False)
    try:
        yield (*home_and_tmp, Bind(directory, OWN_IMAGE), CONTAINERS)
    finally:
        shutil.rmtree(directory)


def make(home: str) -> None:
    """Programs that need libpart.so, or nothing, and what a home has."""
    os.makedirs(f"{home}/lib")
    os.makedirs(f"{home}/bin")
    os.symlink("lib", f"{home}/link")

    def cc(output: str, text: str, *options: str) -> None:
        words = ["gcc", "-x", "c", "-", "-o", f"{home}/{output}", *options]
        subprocess.run(words, input=text, text=True, check=True)

    cc("lib/libpart.so", SOURCE, "-shared", "-fPIC", "-Wl,-soname,libpart.so")
    cc("solve", MAIN, f"-L{home}/lib", "-x", "none", "-lpart")
    cc("found", MAIN, f"-L{home}/lib", "-x", "none", "-lpart", "-Wl,-rpath,$ORIGIN/lib")
    cc("bin/alone", "int main(void) { return 0; }")
    shutil.copy(f"{home}/bin/alone", f"{home}/data")
    os.chmod(f"{home}/data", 0o644)
    with open(f"{home}/run.sh", "w") as script:
        script.write("#!/usr/bin/env bash\nexit 0\n")
    os.chmod(f"{home}/run.sh", 0o755)


def tried(machine: Machine, job: Job, places: tuple[Bind, ...], *options: str, status: int) -> str:
    """What `exec` writes to standard error; it must end with *status*."""
    words = ["python3", "-m", "gpubind", *exec_words(job.by, user=True), *job.options, *options, job.image]
    env = {"PYTHONPATH": "/srv/gpubind:/srv/python", "PYTHONDONTWRITEBYTECODE": "1", **job.env}
    command = ["sh", "-c", 'cd "$1" && shift && "$@"', "sh", job.cwd, *words, job.program]
    binds = [*machine.modules, *places]
    return machine.run(command, user=True, driver=True, env=env, binds=binds, status=status).stderr


@pytest.mark.parametrize("name", WORKS)
def test_a_job_that_works_is_started(trixie: Machine, places: tuple[Bind, ...], name: str) -> None:
    tried(trixie, WORKS[name], places, status=0)
    assert "program-" not in tried(trixie, WORKS[name], places, "--check", status=0)


@pytest.mark.parametrize("name", FAILS)
def test_a_job_that_does_not_work_is_not_started(trixie: Machine, places: tuple[Bind, ...], name: str) -> None:
    job, code = FAILS[name]
    said = tried(trixie, job, places, "--check", status=125)
    assert f"error: {code}" in said
