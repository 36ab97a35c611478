"""What options, variables and configuration of Apptainer or SingularityCE come to: values, places, /dev."""

from __future__ import annotations

from typing import Literal, NamedTuple, Optional

from gpubind.runtimes.apptainer.options import PREFIXES, is_clean, is_contained, is_literal
from gpubind.runtimes.edits import is_utf8
from gpubind.runtimes.runtime import Start

_EVALUATED = frozenset("$`\\")
"""What makes the container's shell change a value."""


class Said(NamedTuple):
    """The user's own value for a variable of the container."""

    text: Optional[str]
    """As the user wrote it; None where only the program's shell can tell it."""
    plain: bool
    """Whether it arrives as it is written: nothing evaluates it."""


def said(start: Start, name: str) -> Optional[Said]:
    """Return what the user says for variable *name* of the container; None if the user says nothing.

    --env wins over --env-file, and that over the prefixed variables.
    """
    text: Optional[str]
    if name in start.user.options.env:
        text = start.user.options.env[name]
    elif name in start.user.env_files:
        text = start.user.env_files[name]
    elif start.user.has_unread_env_files:
        text = None
    else:
        variables = (f"{prefix}ENV_{name}" for prefix in PREFIXES.get(start.runtime.name, ()))
        text = next(
            (start.caller.environ[variable] for variable in variables if variable in start.caller.environ), None
        )
        if text is None:
            return None
    if text is not None and not is_utf8(text):
        text = None  # not UTF-8: no option can say it again, and the program has it already
    return Said(text, text is not None and (is_literal(start.user.options) or not _EVALUATED & set(text)))


def overrides(start: Start, name: str) -> bool:
    """Whether the user's options, files or variables keep the caller's own value of *name* from the container."""
    return is_clean(start.user.options) or said(start, name) is not None


def dev_of(start: Start) -> Literal["whole", "minimal", "none"]:
    """What the container's /dev will be: the host's, one that holds only what is put there, or none from outside."""
    if "dev" in start.user.options.all("no-mount"):
        return "none"
    if is_contained(start.user.options) or start.facts.directive("mount dev") == "minimal":
        return "minimal"
    return "none" if start.facts.directive("mount dev") == "no" else "whole"


def is_fixed(start: Start) -> bool:
    """Return whether the program can make no places in the container that the image lacks."""
    layers = (start.facts.directive("enable overlay", "yes"), start.facts.directive("enable underlay", "yes"))
    return start.user.options.has("writable") or layers == ("no", "no")
