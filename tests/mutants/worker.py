"""Runs tests in a copy of the tree: a process that has loaded what is slow to load, and forks for each request.

A request is a line of JSON on standard input, the answer a line on standard output.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Optional

import pytest

_SLOW = (
    "hypothesis",
    "jsonschema",
    "jinja2",
    "prometheus_client",
    "rich.console",
    "typer",
    "yaml",
    "elftools.elf.elffile",
)
_RUNNING, _ROWS = Path.cwd() / "running", Path.cwd() / "rows"


class Row:
    """What one test did."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.failed = False
        self.marks = b""


class Watch:
    """A plugin that runs the tests of *order* in that order, and sees which blocks each of them runs."""

    def __init__(self, order: Mapping[str, float], table: Optional[str]) -> None:
        self._order = {name: place for place, name in enumerate(order)}
        self._limits = order
        self._marks = bytearray(0)
        if table:
            import mmap

            with open(table, "r+b") as file:
                self._marks = mmap.mmap(file.fileno(), 0)  # type: ignore[assignment]
        self._caches: list[Any] = []
        self._modules = 0
        self.rows: dict[str, Row] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._order:
            ranked = [(self._place(item), item) for item in items]
            items[:] = [item for place, item in sorted(ranked, key=lambda row: row[0]) if place < len(self._order)]

    def _place(self, item: pytest.Item) -> int:
        of_file = self._order.get(item.nodeid.partition("::")[0], len(self._order))
        return self._order.get(item.nodeid, of_file)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        row = self.rows[item.nodeid] = Row()
        _RUNNING.write_text(item.nodeid)
        if self._marks:
            self._forget()
            self._marks[:] = bytes(len(self._marks))
        signal.alarm(
            0 if self._marks else 20 + int(10 * self._limits.get(item.nodeid, 1))
        )  # it kills a test that hangs
        try:
            return (yield)
        finally:
            signal.alarm(0)
            row.marks = bytes(self._marks)

    def _forget(self) -> None:
        """Clear what gpubind keeps from one call to the next, or only the first test would run it."""
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            loaded = [module for name, module in sys.modules.items() if name.startswith("gpubind")]
            self._caches = [
                value for module in loaded for value in vars(module).values() if hasattr(value, "cache_clear")
            ]
        for cache in self._caches:
            cache.cache_clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = self.rows[report.nodeid]
        row.seconds += report.duration
        row.failed = row.failed or report.failed


def _run(request: Mapping[str, Any]) -> int:
    """Run the tests of a request in this process, and leave the rows in a file."""
    watch = Watch(request["order"], request["table"])
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", *request["options"]]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is loaded already
    status = int(pytest.main([*options, *request["files"]], plugins=[watch]))
    with _ROWS.open("wb") as file:
        pickle.dump({name: (row.seconds, row.failed, row.marks) for name, row in watch.rows.items()}, file)
    return status


def _serve() -> None:
    for name in _SLOW:
        import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        _ROWS.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            os.setsid()
            log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for number in (1, 2):
                os.dup2(log, number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os._exit(_run(request))
        sys.stdout.write(f"{_end_of(child, request['limit'])}\n")
        sys.stdout.flush()


def _end_of(child: int, limit: float) -> int:
    """Wait for a child; return its status, or minus the signal that ended it. Nothing of its session is left."""
    end = time.monotonic() + limit
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if not done and time.monotonic() < end:
            time.sleep(0.02)
            continue
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(status if done else os.waitpid(child, 0)[1])


if __name__ == "__main__":
    _serve()
