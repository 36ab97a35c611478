"""RecordedTree: the same answers, from a record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Union

from gpubind.errors import NotRecordedError
from gpubind.formats.elf import ElfFacts, ElfIdent, NotElf
from gpubind.formats.record import RecordedEntry, RecordedRoot
from gpubind.model import Missing, Stat
from gpubind.tree.base import ABSENT, Tree


class RecordedTree(Tree):
    """The files of a recorded host.

    Errors: `NotRecordedError` (code `not-recorded`) for a path outside the survey that made the record; a name that a
    recorded listing lacks is simply absent.
    """

    def __init__(self, recorded: RecordedRoot, label: str) -> None:
        super().__init__(recorded.root)
        self._directories = recorded.directories
        self._label = label

    def _entry(self, path: str) -> RecordedEntry:
        parent, _, name = path.rpartition("/")
        directory = self._directories.get(parent or "/")
        if directory is None:
            self._not_recorded(path)
        entry = directory.entries.get(name)
        if entry is None:
            if name in directory.others or directory.listed is False:
                self._not_recorded(path)
            return RecordedEntry(directory.listed if isinstance(directory.listed, Missing) else ABSENT)
        return entry

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        return self._entry(path).stat

    def _readlink(self, path: str) -> Union[str, Missing]:
        link = self._entry(path).link
        return ABSENT if link is None else link

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        directory = self._directories.get(path)
        if directory is None or directory.listed is False:
            self._not_recorded(path)
        if isinstance(directory.listed, Missing):
            return directory.listed
        present = [name for name, entry in directory.entries.items() if entry.stat != ABSENT]
        return present + list(directory.others)

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        body = self._entry(path).body
        if body is None:
            self._not_recorded(path)
        if isinstance(body, bytes) and len(body) > limit:
            return Missing("unreadable", f"larger than {limit} bytes")
        return body

    def _ident(self, path: str) -> Union[ElfIdent, NotElf, Missing]:
        ident = self._entry(path).ident
        if ident is None:
            self._not_recorded(path)
        return ident

    def _elf(self, path: str) -> Union[ElfFacts, Missing]:
        elf = self._entry(path).elf
        if elf is None:
            self._not_recorded(path)
        return elf

    def _is_stub(self, path: str) -> bool:
        return self._entry(path).stub

    def _not_recorded(self, path: str) -> NoReturn:
        raise NotRecordedError(
            "not-recorded",
            f"the record `{self._label}` does not cover this path",
            where=path,
            why="it was made by a survey that did not look there",
            hint="record the host again with this version of gpubind, or plan on the host itself",
        )
