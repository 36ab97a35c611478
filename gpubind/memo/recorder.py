"""Record each question of a command to this machine, with the signature of its answer, and the command's output.

`gpubind.machine.system` reports each query to the recorder, from the start of the command line until the answer is
complete, or until an error. A command that writes, removes or renames files is not stored.
tests/machine/test_only_machine_asks.py and a rule of ruff check that no other module queries the operating system.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any, Optional, Union

from gpubind.machine import listener
from gpubind.memo.questions import facts, run_query
from gpubind.memo.trace import Trace

_SIGNATURES: dict[str, Callable[[Any], Any]] = {
    "stat": facts,
    "lstat": facts,
    "link": os.fsdecode,
    "access": bool,
    "attribute": bytes,
    "user": tuple,
    "terminal": tuple,
}
"""The function that signs an answer, by the kind of question."""


class Recorder(Trace):
    """The questions of one command, and its answer so far. A context manager, which records everything inside."""

    def __init__(self, on_finish: Callable[[int], None]) -> None:
        super().__init__()
        self.printed: list[Union[str, bytes]] = []
        self.why = ""
        """Why no memo served."""
        self.verbose = False
        self.command: Optional[tuple[str, ...]] = None
        """The arguments at the end of the line that are the command in the container; None if there are none."""
        self.looks_at_program = False
        self.become: Optional[tuple[str, tuple[str, ...], Any]] = None
        self._on_finish = on_finish

    def __enter__(self) -> Recorder:
        listener.recorder = self
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *exception: object) -> None:
        if kind is not None and not issubclass(kind, SystemExit):
            self.refuse("it failed")
        self.stop()

    def finish(self, status: int) -> None:
        """End the recording; the answer is complete, with exit code *status*."""
        self.stop()
        self._on_finish(status)

    def stop(self) -> None:
        """Stop recording."""
        listener.recorder = None

    def answered(self, kind: str, question: Any, answer: Any) -> None:
        """Note the *answer* to a *question* of that *kind*."""
        self.note(kind, question, _SIGNATURES[kind](answer))

    def opens(self, path: str, flags: int) -> Optional[tuple[int, ...]]:
        """Note that *path*, which contains no links, is about to be opened. Return its facts; None if it is missing.

        If these facts are already noted, they are not queried again: `first_change` does that at the end.
        """
        kind = "lstat" if flags & os.O_NOFOLLOW else "stat"
        looks: Union[int, tuple[int, ...], None] = self.questions[kind].get(path)
        if looks is None:
            looks = run_query(kind, path)
            self.note(kind, path, looks)
        if isinstance(looks, int):
            return None
        if not flags & (os.O_PATH | os.O_DIRECTORY) and not stat.S_ISLNK(looks[0]):
            self.opened(path)
        return looks
