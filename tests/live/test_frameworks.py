"""Which packages a Python in a container imports, and whether `exec --check` looks at the same ones."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.live.containers import CONTAINERS, exec_words, image
from tests.live.machine import INSIDE_CHECKOUT, INSIDE_PYTHON, PYTHON_ENV, Bind, Machine

pytestmark = pytest.mark.live

HOME = "/home/user"
USERS = "lib/python3.11/site-packages"
SAYS = "import torch; print(torch.__file__)"


class Job(NamedTuple):
    """A start of an interpreter, with what of the user's, and the directory that it imports torch from."""

    packages: str
    program: str = "python3"
    options: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    by: str = "apptainer"


def backend(*words: str) -> tuple[str, ...]:
    return tuple(f"--backend-arg={word}" for word in words)


JOBS = {
    "home": Job(f"{HOME}/.local/{USERS}"),
    "home-as-working-directory": Job(f"{HOME}/.local/{USERS}", options=backend("--no-home")),
    "another-home": Job(f"/mnt/.local/{USERS}", options=backend("--home", f"{HOME}:/mnt")),
    "python-path": Job(f"{HOME}/more", env={"APPTAINERENV_PYTHONPATH": f"{HOME}/more"}),
    "callers-python-path": Job(
        f"{HOME}/more", env={"PYTHONPATH": f"{INSIDE_CHECKOUT}:{INSIDE_PYTHON}:{HOME}/more", "PYTHONNOUSERSITE": "1"}
    ),
    "python-path-by-option": Job(f"{HOME}/more", options=backend(f"--env=PYTHONPATH={HOME}/more")),
    "user-base": Job(f"{HOME}/base/{USERS}", env={"SINGULARITYENV_PYTHONUSERBASE": f"{HOME}/base"}),
    "prepend-path": Job(f"{HOME}/venv/{USERS}", env={"APPTAINERENV_PREPEND_PATH": f"{HOME}/venv/bin"}),
    "venv": Job(f"{HOME}/venv/{USERS}", program=f"{HOME}/venv/bin/python3"),
    "bind": Job(
        "/usr/local/lib/python3.11/dist-packages",
        options=backend("--bind", f"{HOME}/more:/usr/local/lib/python3.11/dist-packages"),
        env={"APPTAINERENV_PYTHONNOUSERSITE": "1"},
    ),
    "pth": Job(f"{HOME}/more", program=f"{HOME}/over/bin/python3"),
    "bwrap-home": Job(f"{HOME}/.local/{USERS}", by="bwrap"),
    "bwrap-python-path": Job(f"{HOME}/more", options=backend("--setenv", "PYTHONPATH", f"{HOME}/more"), by="bwrap"),
    "bwrap-venv": Job(f"{HOME}/venv/{USERS}", program=f"{HOME}/venv/bin/python3", by="bwrap"),
}
NONE = {
    "no-user-site": Job("", env={"APPTAINERENV_PYTHONNOUSERSITE": "1"}),
    "contained": Job("", options=backend("--contain")),
    "empty-venv": Job("", program=f"{HOME}/empty/bin/python3"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Bind:
    """A home with packages, each of which says that it is a torch for CUDA 13."""
    place = tmp_path_factory.mktemp("frameworks") / "home"
    for packages in (f".local/{USERS}", "more", f"base/{USERS}", f"venv/{USERS}"):
        (place / packages / "torch").mkdir(parents=True)
        (place / packages / "torch/__init__.py").write_text("")
        (place / packages / "torch/version.py").write_text("cuda: str = '13.0'\n")
    for venv in ("venv", "over", "empty"):
        (place / venv / "bin").mkdir(parents=True)
        (place / venv / USERS).mkdir(parents=True, exist_ok=True)
        (place / venv / "bin/python3").symlink_to("/usr/bin/python3")
        (place / venv / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (place / "over" / USERS / "more.pth").write_text(f"# more\n{HOME}/more\n")
    subprocess.run(["chmod", "-R", "a+rX", place], check=True)
    for above in (place.parent, *place.parent.parents[:2]):
        os.chmod(above, Path(above).stat().st_mode | 0o755)
    return Bind(str(place), HOME)


def line(job: Job, *options: str) -> list[str]:
    by = image("bookworm-sb") if job.by == "apptainer" else image("bookworm")
    return [*exec_words(job.by, user=True), "--nv", *options, *job.options, by, job.program, "-c", SAYS]


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_the_check_looks_at_the_packages_that_are_imported(trixie: Machine, home: Bind, job: Job) -> None:
    around = {"user": True, "driver": True, "binds": [CONTAINERS, home], "env": {**PYTHON_ENV, **job.env}}
    assert trixie.gpubind(*line(job), **around) == f"{job.packages}/torch/__init__.py\n"  # type: ignore[arg-type]
    refused = trixie.tried(*line(job, "--check"), **around, status=125)  # type: ignore[arg-type]
    assert f"{job.packages}/torch/version.py is for CUDA 13.0" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("job", NONE.values(), ids=NONE)
def test_the_check_passes_over_packages_that_are_not_imported(trixie: Machine, home: Bind, job: Job) -> None:
    around = {"user": True, "driver": True, "binds": [CONTAINERS, home], "env": {**PYTHON_ENV, **job.env}}
    failed = trixie.tried(*line(job), **around, status=1)  # type: ignore[arg-type]
    assert "No module named 'torch'" in failed.stderr
    assert "cuda-too-new" not in trixie.tried(*line(job, "--check"), **around, status=1).stderr  # type: ignore[arg-type]
