"""A host from a record: it answers as the live host did when it was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Union

from gpubind.files import Tree
from gpubind.files.recorded import RecordedTree
from gpubind.formats.text.record import Record
from gpubind.host.base import Host, Identity, ListFile, RunResult, Uname, plan_variables, shipped_liblist
from gpubind.model import Missing


class RecordedHost(Host):
    """The host in *record*, called *label* in messages.

    *environ* is that of the task of the plan, if given; PATH stays that of the record.
    """

    def __init__(self, record: Record, label: str, environ: Optional[Mapping[str, str]] = None) -> None:
        self.label = label
        self.driver: Tree = RecordedTree(record.driver, label)
        self.dev: Tree = self.driver if record.dev is None else RecordedTree(record.dev, label)
        self.task = environ
        self.hostname = record.hostname
        path = {name: value for name, value in record.environ.items() if name == "PATH"}
        self.environ = record.environ if environ is None else {**plan_variables(environ), **path}
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
