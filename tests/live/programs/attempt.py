"""attempt.py IMAGE PROGRAM...   what check says of each program in the image, and whether it starts there. As JSON.

Runs on a machine of the rig. check is asked in this process; each program is started by Apptainer with the words that
`gpubind plan --format apptainer` prints.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import gpubind
from gpubind.host import Host
from gpubind.model import Request
from gpubind.planner.placement import SINGULARITY

REQUEST = ("--nv", "--caps", "compute,utility")


def main(reference: str, programs: list[str]) -> None:
    host = gpubind.open_host(None)
    image = gpubind.open_image(reference)
    request = Request(caps=("compute", "utility"), caps_explicit=True)
    plan = gpubind.plan(host, request, None, image, SINGULARITY)
    command = [sys.executable, "-m", "gpubind", "plan", *REQUEST, "--image", reference, "--format", "apptainer"]
    words = shlex.split(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    with ThreadPoolExecutor(2) as starters:
        started = {program: starters.submit(start, [*words, reference, program]) for program in programs}
        said = {program: findings(host, plan, image, program) for program in programs}
        answers = {program: (*said[program], *started[program].result()) for program in programs}
    json.dump(answers, sys.stdout)


def findings(host: Host, plan: gpubind.Plan, image: object, program: str) -> tuple[list[str], list[str]]:
    """The codes of the error findings about *program*, and of the warnings."""
    found = gpubind.check(host, plan, image, backend="apptainer", program=program)  # type: ignore[arg-type]
    about = [finding for finding in found if finding.code.startswith("program")]
    errors = [finding.code for finding in about if finding.severity == "error"]
    return errors, [finding.code for finding in about if finding.severity != "error"]


def start(words: list[str]) -> tuple[int, str]:
    """The exit status of Apptainer, and what was written."""
    try:
        done = subprocess.run(
            ["apptainer", "exec", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=20,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return 124, "without end"
    return done.returncode, done.stdout.strip()[-300:]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
