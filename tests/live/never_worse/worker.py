"""worker.py   run the jobs of standard input, two at a time, and write what each gave to standard output; as JSON.

For use as root inside a machine of the rig. A job: `argv`, `env`, `cwd`, `user` (whether the ordinary user runs it).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

WORKERS = 2
LIMIT = 120
USER = {"user": 1000, "group": 1000, "extra_groups": ()}


def main() -> None:
    jobs = json.load(sys.stdin)
    with dockerd(jobs), ThreadPoolExecutor(WORKERS) as pool:
        json.dump(list(pool.map(done, jobs)), sys.stdout)


@contextmanager
def dockerd(jobs: list[dict[str, Any]]) -> Iterator[None]:
    """A daemon for the jobs that are about docker: `created.sh`. It ends with this process."""
    its = [job for job in jobs if any(word.startswith("docker ") for word in job["argv"])]
    if not its:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="docker", dir="/srv/nw") as directory:
        of = {"DOCKER_HOST": f"unix://{directory}/socket"}
        for job in its:
            job["env"].update(of)
        command = ["unshare", "--mount", "setpriv", "--pdeathsig", "TERM", its[0]["argv"][0], "daemon"]
        daemon = subprocess.Popen(command, env={**its[0]["env"], **of}, stdin=subprocess.DEVNULL)
        try:
            yield
        finally:
            daemon.terminate()
            daemon.wait()


def done(job: dict[str, Any]) -> dict[str, Any]:
    """How the job ended, and what it wrote. Status 124: not within the limit."""
    identity: dict[str, Any] = USER if job["user"] else {}
    try:
        run = subprocess.run(
            job["argv"],
            env=job["env"],
            cwd=job["cwd"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT,
            start_new_session=True,
            **identity,
        )
    except subprocess.TimeoutExpired as error:
        return {"status": 124, "stdout": "", "stderr": f"not within {LIMIT} s: {text(error.stderr)}"}
    return {"status": run.returncode, "stdout": text(run.stdout), "stderr": text(run.stderr)}


def text(data: Any) -> str:
    return os.fsdecode(data or b"").encode("utf-8", "replace").decode()


if __name__ == "__main__":
    main()
