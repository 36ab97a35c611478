"""The questions of a command so far, each with the signature of its answer.

Each input is signed before it is read, and once more at the end. So the bytes that were read are those that are signed.
"""

from __future__ import annotations

import errno
import io
import os
import posix
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from gpubind.machine import system
from gpubind.memo.filesystems import FileSystems, Trust, is_young
from gpubind.memo.questions import ASKED, digest, facts, hash_of, run_query, signature
from gpubind.model.environ import Environ
from gpubind.model.files import ANSWERS

_FORBIDDEN = (errno.EACCES, errno.EPERM)
_ANSWERS = (*ANSWERS, errno.EISDIR)
"""The errors that are answers. Others, such as too many open files or a missing server, are not."""
_MORE_ANSWERS = {
    "link": (errno.EINVAL,),
    "attribute": (errno.ENODATA, errno.EOPNOTSUPP),
    "terminal": (errno.ENOTTY, errno.EBADF, errno.EINVAL, errno.ENOTSUP),
}
"""Further errors that are answers, by the kind of question: the path is not a link, the attribute does not exist, the
descriptor is not a terminal.
"""
SMALL = 64 << 10
"""The maximum bytes of a recently written file that is compared by content."""


class CallersEnviron(Environ):
    """The caller's environment. The trace gets each variable that is read; of a changed copy, only the unchanged
    variables.
    """

    def __init__(self, values: Mapping[str, str], trace: Any) -> None:
        super().__init__(values)
        self._trace = trace

    def __getitem__(self, name: str) -> str:
        if name not in self.changed_names:
            self._trace.variable(name)
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        self._trace.variables()
        return super().__iter__()

    def __len__(self) -> int:
        self._trace.variables()
        return super().__len__()


class Trace:
    """The questions by their kinds, or the reason why there is no valid trace.

    If it is within *another* trace, both share their file systems.
    """

    def __init__(self, another: Optional[Trace] = None) -> None:
        self.questions: dict[str, dict[Any, Any]] = {kind: {} for kind in ASKED}
        self.refused: Optional[str] = None
        """Why the answer cannot be stored."""
        self.callers = dict(os.environ)
        self.environ = CallersEnviron(self.callers, self)
        self._file_systems: FileSystems = FileSystems() if another is None else another._file_systems

    def trust(self, path: str, device: int) -> Trust:
        return self._file_systems.trust(path, device)

    def refuse(self, why: str) -> None:
        self.refused = self.refused or why

    def note(self, kind: str, question: Any, answer: Any) -> None:
        if type(answer) is int:  # the number of an error
            self.failed(answer, question, _MORE_ANSWERS.get(kind, ()))
        previous = self.questions[kind].setdefault(question, answer)
        if previous != answer:
            self.refuse(f"changed meanwhile: {question}")

    def failed(self, number: Optional[int], question: Any, answers: tuple[int, ...] = ()) -> None:
        """Note the error *number* of a question. Unless that error is an answer, nothing can be stored."""
        if number not in (*_ANSWERS, *answers):
            self.refuse(f"{os.strerror(number or errno.EIO)}: {question}")

    def not_opened(self, path: Optional[str], looks: Any, error: OSError) -> None:
        """Note that *path* could not be opened. The error must agree with *looks*, its facts that were noted before."""
        self.failed(error.errno, path)
        if error.errno == errno.ENOENT and looks is not None:
            self.refuse(f"changed meanwhile: {path}")
        if error.errno in _FORBIDDEN and looks is not None:
            # If access(2) allows it, an unknown rule forbids it: then the check before storing finds a change.
            self.note("access", (path, os.R_OK, False), False)

    def variable(self, name: str) -> None:
        if name not in self.questions["variable"]:
            self.note("variable", name, hash_of(self.callers.get(name)))

    def variables(self) -> None:
        self.note("variables", "", tuple(sorted(self.callers)))

    def own_locale(self) -> bool:
        """Return whether Python has set LC_CTYPE for itself. The rest of the environment is ignored."""
        answer = bool(run_query("locale", ""))
        self.note("locale", "", answer)
        return answer

    def output(self, question: tuple[Any, ...], text: bytes) -> None:
        """Note that a program printed *text*."""
        self.note("output", question, digest(text))

    def program(self, path: str) -> None:
        """Note that the program *path* is queried for its version. A script may run other programs."""
        self.opened(system.real_path(path))
        try:
            with io.open_code(path) as file:
                if file.read(4) != b"\x7fELF":
                    self.refuse(f"a script says its version: {path}")
        except OSError:
            self.refuse(f"not readable: {path}")

    def opened(self, path: str) -> None:
        """Note the file or directory *path*, which is about to be read."""
        if any(path in self.questions[kind] for kind in ("written", "opened", "content")):
            return
        now = time.time_ns()
        try:
            stat_result = posix.stat(path)
        except OSError as error:
            self.note("stat", path, error.errno or 0)
            return
        if stat.S_ISDIR(stat_result.st_mode):
            self.note("stat", path, facts(stat_result))
            return
        if not stat.S_ISREG(stat_result.st_mode):
            self.refuse(f"no regular file: {path}")
            return
        trust = self.trust(path, stat_result.st_dev)
        young = is_young(stat_result, now, trust)
        if trust == "none" or (young and stat_result.st_size <= SMALL):
            self._note_read("content", path)
        elif young:
            self.refuse(f"just written: {path}")
        elif trust == "opened":
            self._note_read("opened", path)
            self._note_file_system(path, stat_result.st_dev)
        else:
            self.written(path, stat_result)

    def _note_read(self, kind: str, path: str) -> None:
        answer = run_query(kind, path)
        if answer == ():
            self.refuse(f"no honest times, and too large to be compared: {path}")
        if isinstance(answer, int) and answer not in _FORBIDDEN:
            self.refuse(f"not readable as it was: {path}")
        self.note(kind, path, answer)

    def written(self, path: str, stat_result: os.stat_result) -> None:
        """Note *path* by its times, and the file system that keeps them."""
        self.note("written", path, signature(stat_result))
        self._note_file_system(path, stat_result.st_dev)

    def _note_file_system(self, path: str, device: int) -> None:
        for kind, question in self._file_systems.standing(path, device) or ():
            if question not in self.questions[kind]:
                self.note(kind, question, run_query(kind, question))

    def listed(self, path: str) -> None:
        """Note the directory *path*, which is about to be listed."""
        if path in self.questions["names"] or path in self.questions["written"]:
            return
        now = time.time_ns()
        try:
            stat_result = posix.stat(path)
        except OSError as error:
            self.note("names", path, error.errno or 0)
            return
        if not stat.S_ISDIR(stat_result.st_mode):
            self.note("names", path, errno.ENOTDIR)
            return
        trust = self.trust(path, stat_result.st_dev)
        if trust != "times" or is_young(stat_result, now, trust):
            self._note_read("names", path)
        else:
            self.written(path, stat_result)
