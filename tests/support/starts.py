"""Starts with Apptainer or SingularityCE, as the command line gathers them."""

from __future__ import annotations

from typing import Any

from gpubind.runtimes.apptainer.options import read_options
from gpubind.runtimes.start import Start


def start(*arguments: str, **facts: Any) -> Start:
    """A start with the user's *arguments*; *facts* are fields of `Start`."""
    begun = Start(**{"program": "apptainer", "version": (1, 4, 5), **facts, "arguments": arguments})
    return begun._replace(options=read_options(begun.program, arguments, begun.environ))
