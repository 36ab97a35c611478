"""A host from a record: it answers as the live host did when it was recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Optional, TypeVar, Union

from gpubind.errors import NotRecordedError
from gpubind.files import Tree
from gpubind.files.facts import FileFact
from gpubind.files.tree import FactsTree
from gpubind.host.base import SEARCHED, Host, Identity, ListFile, RunResult, Uname, plan_variables, shipped_liblist
from gpubind.host.record import Record, RecordedEntry, RecordedRoot
from gpubind.model import ABSENT, Missing, Stat

T = TypeVar("T")


class RecordedTree(FactsTree):
    """The files of a recorded host. A name that is missing from a recorded listing is absent.

    A path that the survey did not cover is `unrecorded` if *is_lenient*, and otherwise an error: `NotRecordedError`
    (`not-recorded`).
    """

    def __init__(self, recorded: RecordedRoot, label: str, *, is_lenient: bool = False) -> None:
        super().__init__(recorded.root)
        self._recorded = recorded
        self._label = label
        self._is_lenient = is_lenient

    @cached_property
    def lenient(self) -> Tree:
        if self._is_lenient:
            return self
        lenient = RecordedTree(self._recorded, self._label, is_lenient=True)
        lenient.unseen = self.unseen
        return lenient

    def _entry(self, path: str) -> Union[RecordedEntry, Missing]:
        parent, _, name = path.rpartition("/")
        directory = self._recorded.directories.get(parent or "/")
        if directory is None:
            return self._unrecorded(path)
        entry = directory.entries.get(name)
        if entry is None:
            if name in directory.others or directory.listed is False:
                return self._unrecorded(path)
            return RecordedEntry(directory.listed if isinstance(directory.listed, Missing) else ABSENT)
        return entry

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        return self._of(path, lambda entry: entry.stat)

    def _readlink(self, path: str) -> Union[str, Missing]:
        return self._of(path, lambda entry: entry.link)

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        directory = self._recorded.directories.get(path)
        if directory is None or directory.listed is False:
            return self._unrecorded(path)
        if isinstance(directory.listed, Missing):
            return directory.listed
        present = [name for name, entry in directory.entries.items() if entry.stat != ABSENT]
        return present + list(directory.others)

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        body = self._body(path)
        if isinstance(body, bytes) and len(body) > limit:
            return Missing("unreadable", f"larger than {limit} bytes")
        return body

    def _head(self, path: str, size: int) -> Union[bytes, Missing]:
        body = self._body(path)
        return body if isinstance(body, Missing) else body[:size]

    def _body(self, path: str) -> Union[bytes, Missing]:
        return self._of(path, lambda entry: entry.body)

    def _recorded_fact(self, path: str, fact: FileFact[Any]) -> Any:
        return self._of(path, lambda entry: getattr(entry, fact.name))

    def _of(self, path: str, part: Callable[[RecordedEntry], Union[T, Missing, None]]) -> Union[T, Missing]:
        entry = self._entry(path)
        value = entry if isinstance(entry, Missing) else part(entry)
        return self._unrecorded(path) if value is None else value

    def _unrecorded(self, path: str) -> Missing:
        message = f"the record `{self._label}` does not cover this path"
        if self._is_lenient:
            return Missing("unrecorded", message)
        raise NotRecordedError(
            "not-recorded",
            message,
            where=path,
            why="it was made by a survey that did not look there",
            hint="record the host again, with the same --library-path, --cdi-dir and --list, or plan on the host",
        )


class RecordedHost(Host):
    """The host in *record*, called *label* in messages.

    *environ* is the environment of the plan's task, if given; the variables in `SEARCHED` are always the record's.
    """

    _tree: type[RecordedTree] = RecordedTree

    def __init__(self, record: Record, label: str, environ: Optional[Mapping[str, str]] = None) -> None:
        self.label = label
        self.driver: Tree = self._tree(record.driver, label)
        self.dev: Tree = self.driver if record.dev is None else self._tree(record.dev, label)
        self.task = environ
        self.hostname = record.hostname
        variables = record.environ if environ is None else plan_variables(environ)
        of_task = {name: value for name, value in variables.items() if name not in SEARCHED}
        self.environ = {**of_task, **{name: record.environ[name] for name in SEARCHED if name in record.environ}}
        self.uname = Uname(record.release, record.machine)
        self.identity = Identity(record.euid, record.groups)
        self._lists = {entry.name: entry for entry in record.lists}
        self._runs = {run.argv: run for run in record.runs}

    def liblist(self, name: str) -> ListFile:
        entry = self._lists.get(name)
        if entry is None:
            return shipped_liblist(name)
        return ListFile(entry.label, entry.text.encode("utf-8", "surrogateescape"), shipped=False)

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Union[RunResult, Missing]:
        run = self._runs.get(argv)
        if run is None:
            return Missing("absent", f"`{argv[0]}` was not run, or gave no answer, when this host was recorded")
        return run.missing or RunResult(run.status, run.stdout, run.stderr)
