"""Find a program in PATH, ask its version, replace this process by it. The only exec in the tree."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import NoReturn, Optional

from gpubind.errors import RuntimeLimitError, StartError

PROBE_TIMEOUT_S = 10.0


def find_program(name: str, environ: Mapping[str, str]) -> Optional[str]:
    """The absolute path of program *name*, by PATH; None if there is none. Relative PATH entries do not count."""
    for directory in environ.get("PATH", os.defpath).split(":"):
        path = f"{directory}/{name}"
        if directory.startswith("/") and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def need_program(name: str, environ: Mapping[str, str]) -> str:
    """As `find_program`. Errors: `RuntimeLimitError` (code `no-runtime`) if there is none."""
    path = find_program(name, environ)
    if path is None:
        hint = f"install {name}, load its module, or choose another runtime with --backend"
        raise RuntimeLimitError("no-runtime", f"`{name}` is not in PATH", where=environ.get("PATH", ""), hint=hint)
    return path


def probe_version(program: str) -> str:
    """What `PROGRAM --version` prints; empty if it does not answer."""
    import subprocess

    try:
        done = subprocess.run(
            (program, "--version"), stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout[:4096].decode("utf-8", "replace")


def execute(argv: tuple[str, ...], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by *argv*: exit code, signals and terminal are then the program's own."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    try:
        os.execve(argv[0], argv, dict(environ))
    except OSError as error:
        why = error.strerror or str(error)
        raise StartError("not-started", f"`{argv[0]}` cannot be started", where=argv[0], why=why) from error
