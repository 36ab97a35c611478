"""Find the program of a command line as a shell does. It is loaded for lines that are passed through: it imports
nothing.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Optional


def resolve_program(
    name: str, environ: Mapping[str, str], is_file: Callable[[str], bool], is_program: Callable[[str], bool]
) -> tuple[Optional[str], tuple[str, ...]]:
    """Return the first executable file *name* in PATH, or None, and all files of that name.

    *is_file*, *is_program*: query the machine in the way that the caller's memo can record.
    """
    places = [name] if "/" in name else [f"{part or '.'}/{name}" for part in environ.get("PATH", os.defpath).split(":")]
    files = tuple(path for path in places if is_file(path))
    return next((path for path in files if is_program(path)), None), files
