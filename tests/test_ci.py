"""The recipes of docs/ci.md and the batch script of docs/howto.md run, as copied from there.

docker, pip and Slurm's commands have stand-ins; the commands of the recipes and gpubind are the real ones.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
import yaml

from tests.support.commands import BARE
from tests.support.elf import elf
from tests.support.example import USR
from tests.support.golden import assert_golden
from tests.support.images import glibc
from tests.support.layers import archive, docker_archive, tar
from tests.support.trees import make_tree

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs/examples"
LANGUAGES = {"github.yml": "yaml", "gitlab-ci.yml": "yaml", "Jenkinsfile": "groovy", "Dockerfile": "dockerfile"}
LIBRARIES = ("libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "librt.so.1")
DOCKERFILE = (EXAMPLES / "ci/Dockerfile").read_text()
GPUBIND = f'#!/bin/sh\nexec {sys.executable} -m gpubind "$@"\n'


class Recipe(NamedTuple):
    """The shell steps of a recipe, and what else it says."""

    steps: list[str]
    environ: dict[str, str]
    report: str
    """The file with the report."""


def recipe(name: str) -> Recipe:
    text = (EXAMPLES / "ci" / name).read_text()
    if name == "github.yml":
        document = yaml.safe_load(text)
        steps = document["jobs"]["gpubind"]["steps"]
        (report,) = [step["with"]["sarif_file"] for step in steps if "with" in step]
        return Recipe([step["run"] for step in steps if "run" in step], document["env"], report)
    if name == "gitlab-ci.yml":
        job = yaml.safe_load(text)["gpubind"]
        return Recipe(job["script"], job["variables"], job["artifacts"]["reports"]["junit"])
    environ = dict(re.findall(r"^        (\w+) = '(.*?)'", text, re.MULTILINE))
    report = re.search("testResults: '(.*?)'", text)
    assert report is not None
    return Recipe(re.findall("^ +sh '(.*)'$", text, re.MULTILINE), environ, report[1])


def saved(cuda: str) -> bytes:
    """An archive of `docker save` with an image for *cuda*."""
    spec = {**glibc("2.36"), **{f"{USR}/{name}": elf(name) for name in LIBRARIES}}
    return archive(docker_archive([tar({**spec, "/usr/local/cuda/version.json": version(cuda)})], []))


def version(cuda: str) -> str:
    return json.dumps({"cuda": {"version": cuda}})


def programs(directory: Path, **texts: str) -> dict[str, str]:
    """Write shell scripts into *directory*; return an environment with it in PATH."""
    directory.mkdir()
    for name, text in {"gpubind": GPUBIND, **texts}.items():
        (directory / name).write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)
    return {**BARE, "PATH": f"{directory}:{BARE['PATH']}"}


def run(directory: Path, line: str, environ: Mapping[str, str]) -> int:
    return subprocess.run(["sh", "-e", "-c", line], env=environ, cwd=directory, capture_output=True).returncode


@pytest.mark.parametrize("name", ["github.yml", "gitlab-ci.yml", "Jenkinsfile"])
@pytest.mark.parametrize(("cuda", "status"), [("12.2.0", 0), ("13.0.1", 1), ("", 4)])
def test_a_recipe_fails_for_an_image_that_does_not_run(tmp_path: Path, name: str, cuda: str, status: int) -> None:
    read = recipe(name)
    (tmp_path / "app.tar").write_bytes(saved(cuda) if cuda else b"")
    environ = programs(
        tmp_path / "bin",
        docker='case "$1 $2 $3" in "build -t app") ;; "save app ") cat app.tar ;;\n'
        '"run --rm -i") [ "$4" = gpubind ]; shift 4; exec gpubind "$@" ;; *) exit 9 ;; esac',
        pip='[ "$#-$1" = 2-install ]',
        python3='[ "$*" = "-m venv .gpubind" ]; mkdir .gpubind; ln -s ../bin .gpubind/bin',
    )
    (tmp_path / ".gpubind").mkdir() if name != "Jenkinsfile" else None
    *before, check = read.steps
    assert [run(tmp_path, step, {**environ, **read.environ}) for step in before] == [0] * len(before)
    assert run(tmp_path, check, {**environ, **read.environ}) == status
    report = tmp_path / read.report
    if status < 4:
        assert len(subjects(report)) == len(re.findall("--host", read.environ["HOSTS"]))


def subjects(report: Path) -> list[Any]:
    """What *report* has for each check."""
    if report.suffix == ".sarif":
        runs = json.loads(report.read_text())["runs"]
        return sorted({each["automationDetails"]["id"] for each in runs})  # as the upload of several wants them
    return ElementTree.parse(report).getroot().findall("testsuite")


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_page_shows_the_files_that_the_tests_run(name: str) -> None:
    text = (EXAMPLES / "ci" / name).read_text()
    assert_golden(ROOT / "docs/ci.md", f"```{LANGUAGES[name]}\n{text}```\n", part=f"ci/{name}")


def test_the_image_of_gpubind_runs_as_nobody_and_is_built_from_a_checkout() -> None:
    """No test builds it: that needs python:slim."""
    lines = [line.split(" ", 1) for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]
    assert [text for name, text in lines if name == "FROM"] == ["python:slim AS build", "python:slim"]
    assert dict(lines)["USER"] == "nobody"
    assert dict(lines)["ENTRYPOINT"] == '["gpubind"]'
    for name, text in lines:
        if name == "COPY" and "--from" not in text:
            assert (ROOT / text.split()[0]).exists()


def test_the_batch_script_of_the_how_to_is_the_one_that_the_tests_run() -> None:
    text = (EXAMPLES / "job.sh").read_text()
    assert_golden(ROOT / "docs/howto.md", f"```bash\n{text}```\n", part="job.sh")


GOOD, NO_UVM, OLD = "driver:580,gpu:a100", "driver:470,gpu:h100", "driver:535,gpu:a100"


@pytest.mark.parametrize(
    ("host", "restarts", "status", "done"),
    [
        (GOOD, 0, 0, ["srun gpubind exec --nv app.sif python train.py"]),
        (NO_UVM, 0, 1, ["scontrol requeue 7"]),
        (NO_UVM, 3, 1, []),
        (OLD, 0, 1, []),
        ("driver:999,gpu:a100", 0, 0, ["srun gpubind exec --nv app.sif python train.py"]),
    ],
    ids=["good", "the node's fault", "the third time", "the image's fault", "no answer"],
)
def test_the_batch_script_requeues_for_a_fault_of_the_node_and_stops_for_one_of_the_image(
    tmp_path: Path, host: str, restarts: int, status: int, done: list[str]
) -> None:
    spec = {**glibc("2.36"), **{f"{USR}/{name}": elf(name) for name in LIBRARIES}}
    python = elf(kind=2, needed=("libc.so.6",), interpreter="/lib64/ld-linux-x86-64.so.2")
    make_tree(tmp_path / "app.sif", {**spec, "/usr/local/cuda/version.json": version("13.0.1")})
    (tmp_path / "app.sif/usr/bin").mkdir(parents=True, exist_ok=True)
    (tmp_path / "app.sif/usr/bin/python").write_bytes(python)
    (tmp_path / "app.sif/usr/bin/python").chmod(0o755)
    log = f'echo "${{0##*/}} $*" >> {tmp_path}/log'
    gpubind = GPUBIND.replace('"$@"', f'"$@" --host {host}')
    environ = programs(tmp_path / "bin", gpubind=gpubind, srun=log, scontrol=log)
    environ.update(SLURM_JOB_ID="7", SLURM_RESTART_COUNT=str(restarts))
    ended = subprocess.run(["bash", EXAMPLES / "job.sh"], cwd=tmp_path, env=environ, capture_output=True, text=True)
    logged = (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []
    assert (ended.returncode, logged) == (status, done), ended.stdout + ended.stderr
