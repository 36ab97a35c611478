"""One tree of errors, and the exit codes.

An error is data: *what* happened, *where*, *why*, a *hint*, and a stable kebab-case *code*; docs/errors.md explains it.
Nothing here prints or exits; `gpubind.cli` renders errors, in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Union

from gpubind.frozen import NamedTuple

EXIT_OK = 0
EXIT_FINDING = 1
EXIT_USAGE = 2
EXIT_NOTHING = 3
EXIT_UNREADABLE = 4
EXIT_FORMAT = 5
EXIT_RUNTIME = 6
EXIT_BUG = 70
EXIT_STDOUT_CLOSED = 120
EXIT_NOT_STARTED = 125
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_INTERRUPTED = 130


class GpubindError(Exception):
    """Base of every error that gpubind raises on purpose."""

    exit_code = EXIT_BUG

    def __init__(self, code: str, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.where = where
        self.why = why
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how `pickle` and `copy` rebuild the error: from its fields, because `__init__` differs between the
        classes.
        """
        return Exception.__new__, (type(self), self.what), self.__dict__

    def __str__(self) -> str:
        return f"{self.code}: {self.what}" + (f" ({self.where})" if self.where else "")


def suggest_known(choices: Iterable[str], wrong: str) -> str:
    """Return the hint for the unknown word *wrong*: the *choices* similar to it, then all of them."""
    choices = tuple(choices)
    return did_you_mean(choices, wrong) + "known: " + ", ".join(choices)


def did_you_mean(choices: Iterable[str], wrong: str) -> str:
    """Return a question that offers the *choices* similar to *wrong*; empty if none is similar."""
    from difflib import get_close_matches  # only after a mistake

    near = get_close_matches(wrong.lower(), tuple(choices), n=2)
    return f"did you mean {' or '.join(f'`{name}`' for name in near)}? " if near else ""


def unknown_format(name: str, choices: Iterable[str]) -> UsageError:
    """Return the error for *name*, which is not one of the formats *choices*."""
    return UsageError("unknown-format", f"unknown format `{name}`", hint=suggest_known(choices, name))


class UsageError(GpubindError):
    """The command line requests something impossible."""

    exit_code = EXIT_USAGE
    field = ""
    """The field of `Request` whose value is wrong; empty if none is."""

    def about(self, field: str) -> UsageError:
        """Return this error with *field* as the field of `Request` whose value is wrong."""
        self.field = field
        return self


class WrongUseError(UsageError):
    """gpubind's own command line cannot be parsed; no command has started."""


class NothingToBindError(GpubindError):
    """The host has neither a driver library nor a device node: there is nothing to plan."""

    exit_code = EXIT_NOTHING


class HostReadError(GpubindError):
    """The host, or a file that the user named, could not be read."""

    exit_code = EXIT_UNREADABLE


def missing_package(package: str, purpose: str, where: str = "") -> HostReadError:
    """Return the error for the missing Python package *package* (its name on PyPI), which *purpose* needs."""
    message = f"the Python package `{package}` is needed for {purpose}"
    distributions = f"python3-{package.lower().removeprefix('python-')}"
    hint = f"`pipx inject gpubind {package}`, in a virtual environment `pip install {package}`, or {distributions}"
    return HostReadError("missing-package", message, where=where, hint=f"{hint} of the distribution")


class UnseenError(HostReadError):
    """A file could not be inspected: neither its existence nor its content is known."""


class NotRecordedError(HostReadError):
    """A path is outside the survey of a recorded host."""


class NotStoredError(HostReadError):
    """The store of podman or docker does not have the image."""


class RuntimeLimitError(GpubindError):
    """The runtime is missing, too old, or cannot express the plan; the message names the feature."""

    exit_code = EXIT_RUNTIME


class CheckError(GpubindError):
    """A check before a start found an error; the container is not started."""

    exit_code = EXIT_NOT_STARTED

    def __init__(self, code: str, what: str, *, findings: Iterable[Any] = (), why: str = "", hint: str = "") -> None:
        super().__init__(code, what, why=why, hint=hint)
        self.findings = tuple(findings)
        """The error `Finding`s that prevented the start; empty if no driver has a required GPU."""


class StartError(GpubindError):
    """The runtime was found but the kernel would not start it."""

    exit_code = EXIT_NOT_STARTED


class CommandError(GpubindError):
    """The command to run in the container is missing or, if *found*, not executable."""

    def __init__(self, code: str, what: str, *, found: bool, where: str = "", hint: str = "") -> None:
        super().__init__(code, what, where=where, hint=hint)
        self.exit_code = EXIT_NOT_EXECUTABLE if found else EXIT_NOT_FOUND


class OutputError(GpubindError):
    """A requested file cannot be written."""

    exit_code = EXIT_UNREADABLE


class BoundError(GpubindError):
    """One command would exceed a bound on reading an image or a host: see `gpubind.machine.budget`."""

    exit_code = EXIT_UNREADABLE


class StdoutClosedError(GpubindError):
    """Standard output has no reader any more."""

    exit_code = EXIT_STDOUT_CLOSED


class FormatError(GpubindError):
    """A file is malformed. `place` is the location in it: a line, a byte offset or a key."""

    exit_code = EXIT_FORMAT

    def __init__(
        self, code: str, what: str, *, place: Union[int, str] = "", where: str = "", why: str = "", hint: str = ""
    ) -> None:
        self.place = f"byte {place}" if isinstance(place, int) else place
        super().__init__(code, what, where=where or self.place, why=why, hint=hint)
        self.offset = place if isinstance(place, int) else None
        """The byte offset of the damage in the parsed data; None if the location is not an offset."""

    def in_file(self, path: str) -> FormatError:
        """Return the same error with the file's path, which parsers do not know: they get only bytes."""
        where = f"{path}: {self.place}" if self.place else path
        place = self.place if self.offset is None else self.offset
        return FormatError(self.code, self.what, place=place, where=where, why=self.why, hint=self.hint)

    def behind(self, start: int) -> FormatError:
        """Return the same error with *start* added to its offset, for a parser that got only the bytes from *start*
        on.
        """
        return FormatError(self.code, self.what, place=start + (self.offset or 0), why=self.why, hint=self.hint)


class Format(NamedTuple):
    """A file format, with the texts of the errors about damaged files."""

    code: str
    what: str
    hint: str = ""

    def damaged(self, why: str, place: object = "", hint: str = "") -> FormatError:
        """Return the error about a file that is damaged at *place*: an offset in bytes, a key or a line.

        Without a place, the error is about the whole document.
        """
        place = place if isinstance(place, int) else str(place) or "the whole document"
        return FormatError(self.code, self.what, place=place, why=why, hint=hint or self.hint)


IMAGE_BOMB = Format("image-bomb", "the image unpacks to far more than images do")


def closed_error(label: str) -> UsageError:
    """Return the error for the use of *label*, an image or a host, after it was closed."""
    hint = "open it again, or close it later"
    return UsageError("closed", "an image or a host is used after it was closed", where=label, hint=hint)


@contextmanager
def in_file(path: str) -> Iterator[None]:
    """Name the file *path* in each `FormatError` of the parsers within."""
    try:
        yield
    except FormatError as error:
        raise error.in_file(path) from error
