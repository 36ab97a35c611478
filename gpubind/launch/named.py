"""Find the program of a command line as a shell does. This loads nothing: a line that is passed through needs it."""

from __future__ import annotations

import os

from gpubind.machine import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Optional


def named(name: str, environ: Mapping[str, str]) -> tuple[Optional[str], tuple[str, ...]]:
    """Return the program that *name* stands for, by PATH, and all files of that name; None if none may be executed."""
    places = [name] if "/" in name else [f"{part or '.'}/{name}" for part in environ.get("PATH", os.defpath).split(":")]
    files = tuple(path for path in places if system.is_file(path))
    return next((path for path in files if system.access(path, os.X_OK)), None), files
