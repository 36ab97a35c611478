"""What the laws have in common that are tried in several processes."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Sequence
from typing import Optional


def read_arguments(doc: Optional[str], counted: str, number: int) -> argparse.Namespace:
    """Return the command line of the law in *doc*: how many of what is *counted*, and in how many processes."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(f"--{counted}", type=int, default=number, help=f"in all [{number}]")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [one a processor]")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_jobs(command: Sequence[str], jobs: int) -> list[tuple[int, bytes]]:
    """Run *command* with the number of its job as the last word, *jobs* times at once.

    Return the exit status of each, and what it printed.
    """
    started = [subprocess.Popen([*command, f"{job}"], stdout=subprocess.PIPE) for job in range(jobs)]
    printed = [one.communicate()[0] for one in started]
    return [(one.returncode, output) for one, output in zip(started, printed)]
