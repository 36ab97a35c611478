"""The questions that a command has asked so far, each with the signature of its answer.

What is asked is signed before it is read, and all of it is asked again in the end: what was read in between was true.
"""

from __future__ import annotations

import io
import os
import posix
import stat
import time
from typing import Any, Optional

from gpubind.memo.asked import AskedEnviron
from gpubind.memo.filesystems import FileSystems, is_young
from gpubind.memo.questions import ASKED, ask, facts, hash_of, signature

SMALL = 64 << 10
"""A young file of up to so many bytes is compared by content."""


class Trace:
    """All questions, by their kinds; or why no trace can be made of them."""

    def __init__(self) -> None:
        self.questions: dict[str, dict[Any, Any]] = {kind: {} for kind in ASKED}
        self.refused: Optional[str] = None
        """Why the answer cannot be kept."""
        self._callers = dict(os.environ)
        self.environ = AskedEnviron(self._callers, self)
        self._file_systems = FileSystems()

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
