"""worker.py   run the jobs of standard input, two at a time, and write what each gave to standard output; as JSON.

For use as root inside a machine of the rig. A job: `argv`, `env`, `cwd`, `user` (whether the ordinary user runs it).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WORKERS = 2
LIMIT = 120
USER = {"user": 1000, "group": 1000, "extra_groups": ()}


def main() -> None:
    jobs = json.load(sys.stdin)
    with ThreadPoolExecutor(WORKERS) as pool:
        json.dump(list(pool.map(done, jobs)), sys.stdout)


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
