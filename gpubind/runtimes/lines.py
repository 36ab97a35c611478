"""Arguments as text for a shell: those of a plan on one line, or a whole command line with an option a line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from gpubind.errors import RuntimeLimitError
from gpubind.runtimes.edits import Words
from gpubind.runtimes.record import Form

_NOT_RAW = re.compile(r"[\s\"'\\*?\[\]]")


def form_of(program: str) -> Form:
    """Return the words of *program* on one line."""
    return Form(lambda printed: raw(printed.words, program), lambda printed: quoted(printed.words, program))


def raw(made: Words, program: str) -> str:
    """Return the options on one line, to be split by a shell: `singularity exec $(gpubind plan ...) image cmd`.

    Errors: `RuntimeLimitError` (code `not-raw`) for a word that a shell would not leave whole: quotes cannot protect
    it there, for what a substitution gives is split but not unquoted.
    """
    _need_no_unset(made, program)
    for word in made.options:
        if _NOT_RAW.search(word):
            raise RuntimeLimitError(
                "not-raw",
                "an argument of this plan does not survive an unquoted substitution",
                where=word,
                why="it holds white space, a quote, a backslash or a wildcard",
                hint=f"use `gpubind exec`, `eval` with `--format {program} --format sh`, or `--format {program}-env`",
            )
    return " ".join(made.options) + "\n"


def quoted(made: Words, program: str) -> str:
    """Return the options on one line, quoted for `eval`. Errors: as `raw`, for what no option says."""
    _need_no_unset(made, program)
    return " ".join(shlex.quote(word) for word in made.options) + "\n"


def an_option_a_line(words: Sequence[str], first: int, last: int) -> str:
    """*words* quoted for a shell, each option among them with its value on a line of its own.

    What stands before *first* is one line, and so is what stands from *last* on.
    """
    lines = [list(words[:first])]
    for word in words[first:last]:
        if word.startswith("-"):
            lines.append([])
        lines[-1].append(word)
    lines.append(list(words[last:]))
    return " \\\n  ".join(shlex.join(line) for line in lines if line) + "\n"


def _need_no_unset(made: Words, program: str) -> None:
    """Errors: `RuntimeLimitError` (`unsayable-unset`) where the caller's variable has to go: --env can only set."""
    if made.unset:
        raise RuntimeLimitError(
            "unsayable-unset",
            f"no option of {program} keeps {made.unset[0]} out of the container",
            why="the plan takes it away, and set to nothing it would hide every GPU",
            hint=f"unset it yourself, or use `gpubind exec` or `--format {program}-env`",
        )
