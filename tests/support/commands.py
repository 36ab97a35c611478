"""Run gpubind as a user does: in a process of its own, with a bare environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from gpubind.model.data import BUNDLED_HOSTS
from tests.support.forked import run_forked
from tests.support.images import glibc
from tests.support.trees import make_tree

HOST = BUNDLED_HOSTS[0]


BARE = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), "GPUBIND_MEMO": "off"}


def gpubind(
    *arguments: str, env: Optional[dict[str, str]] = None, cwd: Optional[Path] = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, with a bare environment plus *env*."""
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "GPUBIND_MEMO": "off",
        **(env or {}),
    }
    return run_forked(arguments, environ, cwd)


def images(tmp_path: Path) -> str:
    """A directory with an image for CUDA 99."""
    spec = {**glibc(), "/usr/local/cuda/version.json": '{"cuda": {"version": "99.0.0"}}'}
    return str(make_tree(tmp_path / "image", spec).root)


def ask(code: str, environ: Mapping[str, str]) -> Any:
    """Return the JSON that *code* prints in a new interpreter, whose environment has only *environ*."""
    whole = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2]), **environ}
    done = subprocess.run([sys.executable, "-c", code], env=whole, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)
