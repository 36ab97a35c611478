"""Reports to the memo's recorder, if there is one: output, and inputs that no trace can sign.

`gpubind.machine.system` reports each query and each change.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Optional, Union

recorder: Any = None
"""The `gpubind.memo.recorder.Recorder` of this command's questions; None if there is none."""


def report_printed(text: Union[str, bytes]) -> None:
    """Report that *text* was written: bytes to standard output, or a line to standard error."""
    if recorder is not None:
        recorder.printed.append(text)


def mark_uncacheable(why: str) -> None:
    """Report that the answer cannot be stored: it depends on unsigned input, or the command has effects."""
    if recorder is not None:
        recorder.refuse(why)


def noted(kind: str, question: Any, answer: Any) -> None:
    """Report the *answer* to a *question* of that *kind*, asked outside of `gpubind.machine.system`."""
    if recorder is not None:
        recorder.note(kind, question, answer)


def report_program(path: str) -> None:
    """Report that the program *path* was asked for its version."""
    if recorder is not None:
        recorder.program(path)


def printed_by(
    program: str, argv: tuple[str, ...], passed: tuple[str, ...], added: tuple[tuple[str, str], ...], text: bytes
) -> None:
    """Report that *program* printed *text* for *argv*, and prints the same until one of its inputs changes.

    Its environment was the caller's variables *passed*, and *added*.
    """
    if recorder is not None:
        recorder.output((program, argv, passed, added), text)


def why_not_served() -> Optional[str]:
    """Return why no memo has answered. Answers that are stored from now on will report that they come from a memo."""
    if recorder is None:
        return None
    recorder.verbose = True
    why: str = recorder.why
    return why


def report_command(command: tuple[str, ...], *, is_looked_at: bool) -> None:
    """Report that the arguments end with *command*, the one in the container. If *is_looked_at*, its program was
    checked.
    """
    if recorder is not None:
        recorder.command, recorder.looks_at_program = command, is_looked_at


def report_exec(path: str, argv: tuple[str, ...], environ: Mapping[str, str]) -> None:
    """Report that the process is about to execute the program *path*; this stores the answer."""
    if recorder is not None:
        recorder.become = (path, argv, environ)
        recorder.finish(0)
