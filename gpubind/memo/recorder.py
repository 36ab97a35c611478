"""Write down each question that a command asks of this machine, with the signature of its answer.

The recorder stands where some functions of `os`, `os.environ`, `open` and `pwd.getpwuid` stand (`stand_ins`), from when
the command line begins to run until the answer is there, or until anything fails: so a module need not know of it, and
one that is written next year cannot forget it. Nothing stands there unless `gpubind` is the program that runs: `import
gpubind` loads none of this. tests/memo/test_asked.py lists every function of the machine's that gpubind calls, and why
each of them is recorded, is no question, or ends the recording: with any other, it fails.

What is asked is signed before it is read, and all of it is asked again in the end: what was read in between was true.
A file that is opened below an open directory is noted by the whole path that the directory was opened by.
A command that writes, removes or renames anything is not kept.
"""

from __future__ import annotations

import io
import os
import posix
import stat
import time
from collections.abc import Callable
from typing import Any, Optional, Union

from gpubind.memo import asked
from gpubind.memo.asked import AskedEnviron
from gpubind.memo.filesystems import FileSystems, is_young
from gpubind.memo.questions import ASKED, ask, facts, hash_of, signature
from gpubind.memo.stand_ins import StandIns

SMALL = 64 << 10
"""A young file of up to so many bytes is compared by content."""


class Recorder:
    """The questions of one command, and what it has answered so far. A context manager: within, everything is seen."""

    def __init__(self, done: Callable[[int], None]) -> None:
        self.questions: dict[str, dict[Any, Any]] = {kind: {} for kind in ASKED}
        self.printed: list[Union[str, bytes]] = []
        self.refused: Optional[str] = None
        """Why the answer cannot be kept."""
        self.why = ""
        """Why no memo served."""
        self.verbose = False
        self.command: Optional[tuple[str, ...]] = None
        """The end of the user's words that is for the container; None if they have no such end."""
        self.looks_at_program = False
        self.become: Optional[tuple[str, tuple[str, ...], Any]] = None
        self._done = done
        self._callers = dict(os.environ)
        self.environ = AskedEnviron(self._callers, self)
        self._file_systems = FileSystems()
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

    def refuse(self, why: str) -> None:
        self.refused = self.refused or why

    def note(self, kind: str, question: Any, answer: Any) -> None:
        known = self.questions[kind].setdefault(question, answer)
        if known != answer:
            self.refuse(f"changed meanwhile: {question}")

    def variable(self, name: str) -> None:
        if name not in self.questions["variable"]:
            self.note("variable", name, hash_of(self._callers.get(name)))

    def variables(self) -> None:
        self.note("variables", "", tuple(sorted(self._callers)))

    def own_locale(self) -> bool:
        """Whether Python has set LC_CTYPE for itself. The rest of the environment does not count."""
        answer = bool(ask("locale", ""))
        self.note("locale", "", answer)
        return answer

    def program(self, path: str) -> None:
        """A program that says its version. Of a script, others say it."""
        self.opened(path)
        try:
            with io.open_code(path) as file:
                if file.read(4) != b"\x7fELF":
                    self.refuse(f"a script says its version: {path}")
        except OSError:
            self.refuse(f"not readable: {path}")

    def opened(self, path: str) -> None:
        """The file or directory *path* is about to be read."""
        if any(path in self.questions[kind] for kind in ("written", "opened", "content")):
            return
        now = time.time_ns()
        try:
            found = posix.stat(path)
        except OSError as error:
            self.note("stat", path, error.errno or 0)
            return
        if stat.S_ISDIR(found.st_mode):
            self.note("stat", path, facts(found))
            return
        if not stat.S_ISREG(found.st_mode):
            self.refuse(f"no regular file: {path}")
            return
        trust = self._file_systems.trust(path, found.st_dev)
        young = is_young(found, now, trust)
        if trust == "none" or (young and found.st_size <= SMALL):
            answer = ask("content", path)
            if answer == ():
                self.refuse(f"no honest times, and too large to be compared: {path}")
            self.note("content", path, answer)
        elif young:
            self.refuse(f"just written: {path}")
        elif trust == "opened":
            self.note("opened", path, ask("opened", path))
        else:
            self.note("written", path, signature(found))

    def listed(self, path: str) -> None:
        """The directory *path* is about to be listed."""
        if path in self.questions["names"] or path in self.questions["written"]:
            return
        now = time.time_ns()
        try:
            found = posix.stat(path)
        except OSError as error:
            self.note("names", path, error.errno or 0)
            return
        trust = self._file_systems.trust(path, found.st_dev)
        if trust != "times" or is_young(found, now, trust):
            self.note("names", path, ask("names", path))
        else:
            self.note("written", path, signature(found))
