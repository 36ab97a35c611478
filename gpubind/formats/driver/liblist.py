"""nvliblist.conf and rocmliblist.conf: one name a line.

The syntax is that of `gpuliblist` in the sources of Apptainer and SingularityCE, so that a site can use its own file.
Lines are trimmed; empty lines and lines that start with `#` are skipped. There are no inline comments, quotes or
variables. There are two additions, which those programs silently skip: `[section]` lines, and globs in absolute paths.
"""

from __future__ import annotations

from typing import Literal, Optional

from gpubind.errors import FormatError
from gpubind.frozen import NamedTuple
from gpubind.model import CAPABILITIES

VENDOR_NEUTRAL = "vendor-neutral"
SECTIONS = (*CAPABILITIES, VENDOR_NEUTRAL)
LINE_LIMIT = 4096
ENTRIES_LIMIT = 10_000

EntryKind = Literal["library", "library-path", "file", "binary"]


class ListEntry(NamedTuple):
    """One entry of a list file."""

    text: str
    """As written, trimmed: `libcuda.so`, `nvidia-smi`, `/usr/share/nvidia/nvoptix.bin`."""
    kind: EntryKind
    """`library`: a prefix of names in the ld cache; `library-path`, `file`: absolute; `binary`: searched in PATH."""
    section: Optional[str]
    """Its section; None before the first."""
    line: int
    """1-based."""


class LibList(NamedTuple):
    """A parsed list file."""

    label: str
    """Its source, without the name of a user: `/etc/gpubind/nvliblist.conf`."""
    entries: tuple[ListEntry, ...]

    def location(self, entry: ListEntry) -> str:
        """Return `label:line` of *entry*."""
        return f"{self.label}:{entry.line}"


def entry_kind(text: str) -> EntryKind:
    """Return the kind of an entry by Apptainer's test: `.so` anywhere means a library, a leading slash a path."""
    absolute = text.startswith("/")
    if ".so" in text:
        return "library-path" if absolute else "library"
    return "file" if absolute else "binary"


def library_stem(name: str) -> str:
    """Return the common part of an entry and all names that it can match: `libcuda.so.1` -> `libcuda.so`.

    The target of a library's links may be called `libcuda`.
    """
    return name.partition(".so")[0] + ".so"


def parse_liblist(data: bytes, label: str) -> LibList:
    """Return the entries of *data*, in file order.

    Errors: `FormatError` (code `bad-liblist`) with the line: a byte order mark, a NUL byte, an overlong line, an
    unknown section.
    """
    entries: list[ListEntry] = []
    section: Optional[str] = None
    if data.startswith(b"\xef\xbb\xbf"):
        raise _malformed(label, 1, "a byte order mark", "save it as plain UTF-8; the mark would hide the first entry")
    for number, line in enumerate(data.decode("utf-8", "surrogateescape").split("\n"), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if "\0" in text:
            raise _malformed(label, number, "a NUL byte", "list files are plain text")
        if len(text) > LINE_LIMIT:
            raise _malformed(label, number, f"{len(text)} characters", f"a line holds {LINE_LIMIT} at most")
        if text.startswith("["):
            section = text[1:-1].strip()
            if not text.endswith("]") or section not in SECTIONS:
                raise _malformed(label, number, f"unknown section `{text}`", "sections are " + ", ".join(SECTIONS))
            continue
        if len(entries) >= ENTRIES_LIMIT:
            raise _malformed(label, number, f"over {ENTRIES_LIMIT} entries", "is this a list file?")
        entries.append(ListEntry(text, entry_kind(text), section, number))
    return LibList(label, tuple(entries))


def _malformed(label: str, line: int, why: str, hint: str) -> FormatError:
    return FormatError(
        "bad-liblist", "malformed list file", place=f"line {line}", where=f"{label}:{line}", why=why, hint=hint
    )
