"""What the words of a command line may be, for typer's completion in a shell. Each function loads what it lists.

No `from __future__ import annotations`: typer reads the annotations as they are.
"""

from collections.abc import Sequence

SHELLS = ("bash", "zsh", "fish")


def shells() -> Sequence[str]:
    return SHELLS


def hosts() -> Sequence[str]:
    from gpubind.model.data import HOSTS

    return HOSTS


def capabilities(incomplete: str) -> Sequence[str]:
    from gpubind.model import CAPABILITIES

    return _behind_commas(incomplete, (*CAPABILITIES, "all"))


def sources() -> Sequence[str]:
    from gpubind.planner.request import SOURCES

    return SOURCES


def sides() -> Sequence[str]:
    from typing import get_args

    from gpubind.model import Side

    return get_args(Side)


def flavours() -> Sequence[str]:
    from gpubind.planner.like import FLAVOURS

    return tuple(FLAVOURS)


def runtimes() -> Sequence[str]:
    from gpubind.runtimes import RUNTIMES

    return (*RUNTIMES, "auto")


def plan_formats() -> Sequence[str]:
    from gpubind.documents import FORMATS
    from gpubind.runtimes import PLAN_FORMATS

    return (*FORMATS, *PLAN_FORMATS, "sh")


def check_formats() -> Sequence[str]:
    from gpubind.documents import CHECK_FORMATS

    return CHECK_FORMATS


def every_code() -> Sequence[str]:
    """Of findings and errors."""
    from gpubind.documents.explanation import codes

    return [code for code, _ in codes()]


def findings(incomplete: str) -> Sequence[str]:
    """Codes of findings."""
    from gpubind.rules.table import RULES

    return _behind_commas(incomplete, sorted(rule.code for rule in RULES))


def choices_of_gpus() -> Sequence[str]:
    return ("all", "none")


def _behind_commas(incomplete: str, words: Sequence[str]) -> Sequence[str]:
    before = incomplete[: incomplete.rfind(",") + 1]
    return [before + word for word in words]
