"""Run trusted programs from the standard directories, within the budget of time."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import Union

from gpubind.host.base import RunResult
from gpubind.machine.answers import has_access, real_path, reason
from gpubind.machine.budget import current
from gpubind.machine.listener import mark_uncacheable
from gpubind.machine.trust import acts_as_root, writable_by_others
from gpubind.model import Missing
from gpubind.model.layouts import WSL_LIBRARIES

PROGRAM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
ENVIRON = MappingProxyType({"PATH": ":".join(PROGRAM_DIRECTORIES), "LC_ALL": "C"})


def find_program(name: str) -> Union[str, Missing]:
    """Return the real path of the program *name* in the standard directories, or of Windows' driver (WSL).

    Missing (`absent`) if there is none; for root also (`forbidden`) if others could change it.
    """
    places = (f"{directory}/{name}" for directory in (*PROGRAM_DIRECTORIES, WSL_LIBRARIES))
    place = next((place for place in places if has_access(place, os.X_OK)), None)
    if place is None:
        return Missing("absent", f"no `{name}` in {':'.join(PROGRAM_DIRECTORIES)}")
    if acts_as_root() and (writable := writable_by_others(place)):
        return Missing("forbidden", f"`{writable}` can be written by users other than root; not run as root")
    return real_path(place)


def run_program(argv: tuple[str, ...], timeout_s: float) -> Union[RunResult, Missing]:
    """Return the result of the program `argv[0]` of the standard directories, with no environment but `ENVIRON`.

    Missing if it fails as described at `run_captured`, or if the command's budget of time is used up. An ELF file is
    asked for its version only once, until the file changes.
    """
    program = find_program(argv[0])
    if isinstance(program, Missing):
        return program
    if argv[1:] != ("--version",):
        mark_uncacheable(f"`{argv[0]}` was asked")
        return _answer(program, argv, timeout_s)
    from gpubind.memo.versions import version_of

    answers: list[Union[RunResult, Missing]] = []

    def version(program: str) -> str:
        answers.append(_answer(program, argv, timeout_s))
        return answers[0].stdout if isinstance(answers[0], RunResult) and not answers[0].status else ""

    text = version_of(program, version)
    return RunResult(0, text, "") if text else answers[0]


def _answer(program: str, argv: tuple[str, ...], timeout_s: float) -> Union[RunResult, Missing]:
    import time

    from gpubind.machine.programs import run_captured

    budget = current()
    left_s = timeout_s if budget is None else min(timeout_s, budget.left("milliseconds") / 1000)
    if left_s <= 0:
        return Missing("unreadable", f"`{argv[0]}` is not asked: helper programs took all the time that they may")
    started = time.monotonic()
    try:
        status, *texts = run_captured(program, argv, f"`{argv[0]}`", left_s, ENVIRON)
    except OSError as error:
        return Missing("unreadable", reason(error))
    finally:
        if budget is not None:
            took = int(1000 * (time.monotonic() - started))
            budget.take("milliseconds", min(took, budget.left("milliseconds")))
    return RunResult(status, *(text.decode("utf-8", "surrogateescape") for text in texts))
