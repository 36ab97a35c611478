"""Write down each question that a command asks of this machine, with the signature of its answer.

The recorder stands where some functions of `os`, `os.environ`, `open` and `pwd.getpwuid` stand (`stand_ins`), from when
the command line begins to run until the answer is there, or until anything fails: so a module need not know of it, and
one that is written next year cannot forget it. Nothing stands there unless `gpubind` is the program that runs: `import
gpubind` loads none of this. tests/memo/test_asked.py lists every function of the machine's that gpubind calls, and why
each of them is recorded, is no question, or ends the recording: with any other, it fails.

A file that is opened below an open directory is noted by the whole path that the directory was opened by.
A command that writes, removes or renames anything is not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional, Union

from gpubind import observe as asked
from gpubind.memo.stand_ins import StandIns
from gpubind.memo.trace import Trace


class Recorder(Trace):
    """The questions of one command, and what it has answered so far. A context manager: within, everything is seen."""

    def __init__(self, done: Callable[[int], None]) -> None:
        super().__init__()
        self.printed: list[Union[str, bytes]] = []
        self.why = ""
        """Why no memo served."""
        self.verbose = False
        self.command: Optional[tuple[str, ...]] = None
        """The end of the user's words that is for the container; None if they have no such end."""
        self.looks_at_program = False
        self.become: Optional[tuple[str, tuple[str, ...], Any]] = None
        self._done = done
        self._stand_ins = StandIns(self)

    def __enter__(self) -> Recorder:
        self._stand_ins.begin()
        asked.recorder = self
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *exception: object) -> None:
        if kind is not None and not issubclass(kind, SystemExit):
            self.refuse("it failed")
        self.stop()

    def stop(self) -> None:
        """Look at nothing any more."""
        asked.recorder = None
        self._stand_ins.end()

    def finish(self, status: int) -> None:
        """The answer is there, with exit code *status*: nothing is looked at any more."""
        self.stop()
        self._done(status)
