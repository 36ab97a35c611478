"""Copies of the tree in which mutants run, and the map from lines to tests."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from tests.mutants.lines import MARK, Blocks, blocks_of, marked, table_module, users
from tests.mutants.sites import Mutant

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".mutants"
ONLY_SOURCE = ("tests/test_architecture.py", "tests/test_plain_english.py", "tests/mutants/")
"""Tests that read gpubind's source and run none of it: they do not count."""
PROBLEM = (1, 2, 3)
"""Exit statuses of pytest when a test fails, when one cannot be loaded, and when pytest itself fails."""


def say(text: str) -> None:
    """Print a text at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Ran(NamedTuple):
    """What a run of tests gave."""

    status: int
    rows: Mapping[str, tuple[float, bool, bytes]]
    """Of each test: seconds, whether it failed, the marks."""
    last: str
    """The last test that began."""

    @property
    def noticed(self) -> Optional[str]:
        """The test that failed, or why none could run; None if all passed."""
        failed = [name for name, row in self.rows.items() if row[1]]
        if failed:
            return failed[0]
        if self.status < 0:
            return f"{self.last} (killed by signal {-self.status})"
        return "(the tests cannot be loaded)" if self.status in PROBLEM else None


class Copy:
    """A copy of the tree below a temporary directory, with an environment whose Python loads gpubind from the copy."""

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="gpubind-mutants-"))
        self._place.chmod(0o755)
        self.root = self._place / "tree"
        for name in listed_files():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.root / ".venv"], check=True)
        packages = Path(sysconfig.get_path("purelib", vars={"base": f"{self.root}/.venv"}))
        (packages / "copy.pth").write_text(f"{self.root}\n{sysconfig.get_path('purelib')}\n")
        self._changes = 0
        self._worker = subprocess.Popen(
            [self.root / ".venv/bin/python", "-m", "tests.mutants.worker"],
            cwd=self.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        order: Mapping[str, float],
        files: Sequence[str],
        options: Sequence[str] = (),
        table: Optional[Path] = None,
    ) -> Ran:
        """Run the tests of *order* (with their seconds) in *files*; all, if it is empty."""
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        request = {"order": order, "files": files, "options": options, "table": table and str(table)}
        limit = 60 + 5 * sum(order.values()) if order else 3600
        self._worker.stdin.write(json.dumps({**request, "limit": limit}) + "\n")
        self._worker.stdin.flush()
        status = int(self._worker.stdout.readline())
        rows = self.root / "rows"
        running = self.root / "running"
        last = running.read_text() if running.exists() else "?"
        return Ran(status, pickle.loads(rows.read_bytes()) if rows.exists() else {}, last)

    def write(self, file: str, source: bytes) -> None:
        """Replace a file. Its time is a new one, so that no old byte code is taken for it."""
        self._changes += 1
        path = self.root / file
        path.write_bytes(source)
        os.utime(path, (self._changes, self._changes))

    def close(self) -> None:
        """End the worker and remove the copy."""
        self._worker.communicate()
        shutil.rmtree(self._place)


def listed_files() -> list[str]:
    """Return the files of the tree that git does not ignore."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [name for name in names if os.path.lexists(ROOT / name)]


def sources_in(root: Path) -> dict[str, bytes]:
    """Return the files of gpubind below *root*."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted((root / "gpubind").rglob("*.py"))}


def test_files(root: Path) -> dict[str, str]:
    """Return the test files below *root* that count, each with a digest."""
    paths = [path for path in sorted((root / "tests").rglob("test_*.py")) if "live" not in path.parts]
    names = [(path, path.relative_to(root).as_posix()) for path in paths]
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for path, name in names if not name.startswith(ONLY_SOURCE)
    }


class Map(NamedTuple):
    """Which tests run which blocks, of the tree of its time."""

    commit: str
    sources: Mapping[str, bytes]
    files: Mapping[str, str]
    """The test files and their digests."""
    rows: Mapping[str, tuple[float, bytes]]
    """Of each test that passes: seconds, and its packed marks."""


def make_map(copies: Sequence[Copy]) -> Map:
    """Run all tests in copies with marks."""
    from concurrent.futures import ThreadPoolExecutor
    from queue import SimpleQueue

    sources, files = sources_in(copies[0].root), test_files(copies[0].root)
    blocks = all_blocks(sources)
    size = max(max(each.of_line.values(), default=0) for each in blocks.values()) + 1
    for copy in copies:
        table = copy.root / "table"
        table.write_bytes(bytes(size))
        table.chmod(0o666)
        copy.write(f"gpubind/{MARK}.py", table_module(str(table), size).encode())
        for file, source in sources.items():
            copy.write(file, marked(source, blocks[file]))
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def chunk_rows(chunk: Sequence[str]) -> Mapping[str, tuple[float, bool, bytes]]:
        copy = free.get()
        rows = copy.run({}, chunk, table=copy.root / "table").rows
        if not rows:
            raise RuntimeError(f"no test ran of {', '.join(chunk)}:\n{(copy.root / 'log').read_text()[-3000:]}")
        say(f"map: {len(rows)} tests of {chunk[0]} to {chunk[-1]}")
        free.put(copy)
        return rows

    names = list(files)
    with ThreadPoolExecutor(len(copies)) as pool:
        done = list(pool.map(chunk_rows, [names[start : start + 12] for start in range(0, len(names), 12)]))
    rows = {name: row for chunk in done for name, row in chunk.items()}
    for copy in copies:
        for file, source in sources.items():
            copy.write(file, source)
    (copies[0].root / f"gpubind/{MARK}.py").unlink()
    failed = {name: seconds for name, (seconds, is_failed, _marks) in rows.items() if is_failed}
    again = copies[0].run(failed, sorted({name.partition("::")[0] for name in failed})).rows if failed else {}
    out = sorted(name for name in failed if name not in again or again[name][1])
    if out:
        say("\n  ".join(("these tests fail in a copy, and do not count:", *out)))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    passed = {name: (row[0], zlib.compress(row[2])) for name, row in rows.items() if name not in out}
    return Map(commit.strip(), sources, files, passed)


def all_blocks(sources: Mapping[str, bytes]) -> dict[str, Blocks]:
    """Number the blocks of all files."""
    blocks: dict[str, Blocks] = {}
    first = 0
    for file, source in sorted(sources.items()):
        blocks[file] = blocks_of(source, first)
        first += len(blocks[file].starts)
    return blocks


class Choice(NamedTuple):
    """The tests for a mutant, with their seconds, in the order in which they run."""

    covering: Mapping[str, float]
    """Those that run its line."""
    others: Mapping[str, float]
    """Those of its module that do not; of its room, if none does."""


class Chooser:
    """Chooses tests by a map; a file of tests that has changed since then stands for its tests, and comes first."""

    def __init__(self, known: Map, sources: Mapping[str, bytes], files: Mapping[str, str]) -> None:
        self._map = known
        self._same = {file for file, source in sources.items() if known.sources.get(file) == source}
        self._blocks = all_blocks(known.sources)
        self._marks = {name: zlib.decompress(marks) for name, (_seconds, marks) in known.rows.items()}
        self._gone = {name for name in known.files if name not in files}
        self._changed = {name for name in files if known.files.get(name) != files[name]}

    def choose(self, mutant: Mutant) -> Choice:
        """Choose the tests for *mutant*: those of its module first, then of its room, the fastest first."""
        blocks = self._blocks_of(mutant)
        names = {name for name, marks in self._marks.items() if any(marks[block] for block in blocks)}
        # Of a new file the map does not know what it runs.
        names |= {name for name in self._changed - self._map.files.keys() if _nearness(name, mutant) < 2}
        covering = self._in_order(names, mutant)
        far = 1 if covering else 2
        near = {name for name in self._map.rows if _nearness(name, mutant) < far}
        near |= {name for name in self._changed if _nearness(name, mutant) < 2}
        others = self._in_order(near, mutant)
        return Choice(covering, {name: seconds for name, seconds in others.items() if name not in covering})

    def _in_order(self, names: Iterable[str], mutant: Mutant) -> dict[str, float]:
        """Return tests in order, with their seconds."""
        chosen: dict[str, float] = {}
        for name in names:
            file = name.partition("::")[0]
            if file not in self._gone:
                key = file if file in self._changed else name
                chosen[key] = chosen.get(key, 0) + self._map.rows.get(name, (1.0,))[0]
        ranks = {name: (name not in self._changed, _nearness(name, mutant), chosen[name], name) for name in chosen}
        return {name: chosen[name] for name in sorted(chosen, key=ranks.__getitem__)}

    def _blocks_of(self, mutant: Mutant) -> set[int]:
        """The blocks that the line of a mutant is in, or that use what it defines; all of a file that has changed."""
        if mutant.file not in self._map.sources:
            return set()
        of_line = self._blocks[mutant.file].of_line
        if mutant.file in self._same:
            if mutant.line in of_line:
                return {of_line[mutant.line]}
            used = users(mutant.file, mutant.line, self._map.sources, self._blocks)
            if used:
                return used
        return set(of_line.values())


def room_of(file: str) -> str:
    """Return the room of a file of gpubind."""
    return file.split("/")[1].partition(".")[0]


def _nearness(test: str, mutant: Mutant) -> int:
    """Return 0 for a test of the module, 1 for one of its room, 2 for others."""
    file = test.partition("::")[0]
    *_before, folder, name = mutant.file.split("/")
    module = folder if name == "__init__.py" else name[: -len(".py")]
    if file.endswith(f"/test_{module}.py"):
        return 0
    return 1 if file.startswith(f"tests/{room_of(mutant.file)}/") else 2
