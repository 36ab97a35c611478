"""A plan as documents with variables take it, and what a shell makes of their lines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

import gpubind
from gpubind import plan
from gpubind.host import Host
from gpubind.model import HostPath, Plan, Request
from gpubind.planner.placement import SINGULARITY_LAYOUT
from gpubind.runtimes.apptainer.exports import changes_for, render_shell_lines
from gpubind.runtimes.runtime import PreparedStart, Stage
from tests.support.starts import start_by, words

HOST = gpubind.open_host("debian13-nvidia550")


PLAN = plan(HOST, Request(), layout=SINGULARITY_LAYOUT._replace(isolated=False))


def printed(made: Plan = PLAN, program: str = "apptainer", on: Host = HOST) -> PreparedStart:
    staged = {target: HostPath(f"/staged{target}") for target in made.generated}
    start = start_by(program)
    return PreparedStart(words(made, start, stage=Stage(staged)), start, on, made)


def after_exports(environ: Mapping[str, str], item: PreparedStart) -> dict[str, str]:
    """The variables of Apptainer and SingularityCE once a shell has evaluated the lines of the `-env` format."""
    done = subprocess.run(
        ["sh", "-c", f"{render_shell_lines(changes_for(item))}\nexec env -0"],
        env={**environ, "PATH": os.environ["PATH"]},
        capture_output=True,
    )
    pairs = (line.partition("=") for line in done.stdout.decode().split("\0"))
    return {name: value for name, _, value in pairs if name.startswith(("APPTAINER", "SINGULARITY"))}
