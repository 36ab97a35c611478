"""attempt.py IMAGE PROGRAM...        what check says of each program in the image, and whether it starts there
attempt.py --host IMAGE < ROWS       the same for programs of this machine: [directory, options of Apptainer, program]
attempt.py --bare PROGRAM...         the same for programs of this machine that run without a container

Runs on a machine of the rig, and writes JSON: errors, warnings, exit status, what was written. check is asked in this
process; each program is started by Apptainer, with the words that `gpubind plan --format apptainer` prints. What is on
this machine is for `gpubind exec --check` to say, which knows the options.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Optional

import gpubind
from gpubind.host import Host
from gpubind.model import Request
from gpubind.planner.placement import SINGULARITY_LAYOUT

REQUEST = ("--nv", "--caps", "compute,utility")
SECONDS = 20
"""A script that starts itself has no end."""


def in_image(reference: str, programs: list[str]) -> dict[str, object]:
    host = gpubind.open_host(None)
    image = gpubind.open_image(reference)
    request = Request(caps=("compute", "utility"))
    plan = gpubind.plan(host, request, None, image, SINGULARITY_LAYOUT)
    words = planned(reference)
    with ThreadPoolExecutor(2) as starters:
        started = {program: starters.submit(start, [*words, reference, program]) for program in programs}
        said = {program: findings(host, plan, image, program) for program in programs}
        return {program: (*said[program], *started[program].result()) for program in programs}


def without_container(programs: list[str]) -> dict[str, object]:
    host = gpubind.open_host(None)
    plan = gpubind.plan(host, Request(caps=("compute", "utility")))
    answers: dict[str, object] = {}
    for program in programs:
        said = findings(host, plan, None, program, backend=None)
        status, text = run(["sh", "-c", '"$0"', program], "/tmp")
        answers[program] = (*said, status, text[-300:])
    return answers


def findings(
    host: Host, plan: gpubind.Plan, image: object, program: str, backend: Optional[str] = "apptainer"
) -> tuple[list[str], list[str]]:
    """The codes of the error findings about *program*, and of the warnings."""
    found = gpubind.check(host, plan, image, backend=backend, program=program)  # type: ignore[arg-type]
    about = [finding for finding in found if finding.code.startswith("program")]
    errors = [finding.code for finding in about if finding.severity == "error"]
    return errors, [finding.code for finding in about if finding.severity != "error"]


def on_host(reference: str, rows: list[tuple[str, list[str], str]]) -> list[object]:
    words = planned(reference)
    with ThreadPoolExecutor(2) as workers:
        return list(workers.map(lambda row: one_on_host(reference, words, *row), rows))


def one_on_host(reference: str, words: list[str], directory: str, options: list[str], program: str) -> object:
    command = [sys.executable, "-m", "gpubind", "exec", "--backend", "apptainer", *REQUEST, "--check"]
    command += [*(f"--backend-arg={option}" for option in options), reference, program]
    _, said = run(command, directory)
    errors = re.findall(r"^error: (program-[a-z-]+):", said, re.MULTILINE)
    warnings = re.findall(r"^warning: (program-[a-z-]+):", said, re.MULTILINE)
    return errors, warnings, *start([*words, *options, reference, program], directory)


def planned(reference: str) -> list[str]:
    """The plan for the image, as Apptainer's words."""
    command = [sys.executable, "-m", "gpubind", "plan", *REQUEST, "--image", reference, "--format", "apptainer"]
    return shlex.split(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def start(words: list[str], directory: str = "/tmp") -> tuple[int, str]:
    """The exit status of Apptainer, and the end of what was written."""
    status, text = run(["apptainer", "exec", *words], directory)
    return status, text[-300:]


def run(command: list[str], directory: str) -> tuple[int, str]:
    pipe = subprocess.PIPE
    try:
        done = subprocess.run(
            command, stdout=pipe, stderr=subprocess.STDOUT, cwd=directory, timeout=SECONDS, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return 124, "without end"
    return done.returncode, done.stdout.strip()


if __name__ == "__main__":
    if sys.argv[1] == "--host":
        answers: object = on_host(sys.argv[2], json.load(sys.stdin))
    else:
        answers = without_container(sys.argv[2:]) if sys.argv[1] == "--bare" else in_image(sys.argv[1], sys.argv[2:])
    json.dump(answers, sys.stdout)
