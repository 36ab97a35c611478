"""dlall.py [DIRECTORY...]   dlopen every library there, each in a process of its own; which fail and why, as JSON."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys

DIRECTORIES = ("/.gpubind/libs", "/.singularity.d/libs")


def main(directories: list[str]) -> None:
    paths = sorted(path for directory in directories for path in glob.glob(f"{directory}/*.so*"))
    answers = {os.path.basename(path): why_not(path) for path in paths}
    loaded = [name for name, why in answers.items() if not why]
    failed = {name: why for name, why in answers.items() if why}
    json.dump({"loaded": loaded, "failed": failed}, sys.stdout, indent=1)
    sys.stdout.write("\n")


def why_not(path: str) -> str:
    """What the loader has against the library; empty if it loads."""
    command = [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", path]
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stderr.strip().splitlines() or ["crashed"])[-1] if done.returncode else ""


if __name__ == "__main__":
    main(sys.argv[1:] or list(DIRECTORIES))
