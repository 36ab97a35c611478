"""python -m tests.live.table [--update]: compare docs/runtimes-tested.md with what the live tests saw, or rewrite it.

Each test writes its facts into a file of its own (`shows` in conftest.py), so several processes may run them. A fact is
about a runtime and one thing that was asked of it: `yes`, or in few words what is otherwise.
"""

from __future__ import annotations

import argparse
import difflib
import glob
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from tests.live.machine import CHECKOUT

SEEN = f"{CHECKOUT}/.live-seen"
PAGE = f"{CHECKOUT}/docs/runtimes-tested.md"
YES = "yes"

RUNTIMES: Mapping[str, tuple[str, ...]] = {
    "version": ("version",),
    "cuInit 100": ("bullseye", "bookworm"),
    "no GLIBC failure": ("bullseye loads", "bookworm loads"),
    "LD_LIBRARY_PATH is kept": ("the image's", "the user's"),
    "nodes": ("chosen ones usable", "others absent"),
    "mounts": ("read-only", "a write fails"),
    "the child's exit code": ("exit code",),
    "signals end the child": ("SIGTERM", "SIGINT"),
    "standard input": ("standard input",),
    "terminal": ("terminal",),
    "nothing left behind": ("nothing left",),
}
"""Title of a column -> what is asked of each runtime."""
ENGINES: Mapping[str, tuple[str, ...]] = {
    "version": ("version",),
    "the requested GPU, and no other": ("index",),
    "no request, no GPU": ("none",),
    "a GPU that is missing: the engine says why": ("unknown",),
    "a new driver between `create` and `start`": ("update",),
    "`setup --undo`": ("undo",),
}
"""The same of each engine whose OCI runtime is gpubind; the words are those of the commands in test_oci_runtime.py."""
TABLES: Mapping[str, tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]] = {
    "runtimes": (
        RUNTIMES,
        (
            *("apptainer", "bwrap", "docker", "podman, root", "podman, rootless", "crun", "runc", "ch-run"),
            *("systemd-nspawn", "proot", "udocker, P1"),
        ),
    ),
    "engines": (
        ENGINES,
        tuple(f"{name}, oci-runtime" for name in ("docker", "podman", "podman, rootless", "containerd")),
    ),
}
"""The columns and the rows of each table."""
ASKED: Mapping[str, tuple[str, ...]] = {
    row: tuple(asked for several in columns.values() for asked in several)
    for columns, rows in TABLES.values()
    for row in rows
}
"""Row -> what is asked."""

TEXT = """# Runtimes, as tested

The live tests wrote this page: `make live` compares it with their results, and [CONTRIBUTING](../CONTRIBUTING.md) has
the command that rewrites it. On a Debian host with the NVIDIA driver 550.163.01 and no GPU, `gpubind exec` and
`gpubind wrap` started containers of bullseye (glibc 2.31) and bookworm (2.36) by each runtime. There `cuInit` of the
real driver returns 100 (no device) if it was found and loaded, and opening a device node without a driver fails with
ENXIO.

The answer is `yes`, or the difference:

{runtimes}
[Runtimes](runtimes.md) has the arguments of each runtime, with the reasons.

Engines that call gpubind as their [OCI runtime](oci-runtime.md), registered by `gpubind setup`:

{engines}"""


class Fact(NamedTuple):
    """What a test saw."""

    row: str
    asked: str
    said: str


class Shows(Protocol):
    """What a test calls when its assertions hold."""

    def __call__(self, row: str, asked: str, said: str = YES) -> None: ...


def write(test: str, facts: Iterable[Fact]) -> None:
    """Keep the *facts* of that test, in place of earlier ones."""
    os.makedirs(SEEN, exist_ok=True)
    with open(f"{SEEN}/{hashlib.sha256(test.encode()).hexdigest()[:20]}.json", "w") as file:
        json.dump({"test": test, "facts": list(facts)}, file)


def read() -> list[Fact]:
    """The facts of all tests."""
    facts: list[Fact] = []
    for path in glob.glob(f"{SEEN}/*.json"):
        with open(path) as file:
            facts += [Fact(*fact) for fact in json.load(file)["facts"]]
    return facts


def untested(facts: Iterable[Fact]) -> list[str]:
    """What no test has seen of which runtime."""
    seen = {(fact.row, fact.asked) for fact in facts}
    wanted = ((row, asked) for row, several in ASKED.items() for asked in several)
    return [": ".join(one) for one in wanted if one not in seen]


def page(facts: Iterable[Fact]) -> str:
    """The whole page."""
    facts = list(facts)
    return TEXT.format(**{name: _table(facts, columns, rows) for name, (columns, rows) in TABLES.items()})


def _table(facts: Iterable[Fact], columns: Mapping[str, tuple[str, ...]], rows: Iterable[str]) -> str:
    lines = [("", *columns), ("---",) * (1 + len(columns))]
    lines += [(row, *(_cell(facts, row, asked) for asked in columns.values())) for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(facts: Iterable[Fact], row: str, asked: tuple[str, ...]) -> str:
    said = {
        one: "; ".join(sorted({fact.said for fact in facts if (fact.row, fact.asked) == (row, one)} - {YES}))
        for one in asked
    }
    told = [f"{one}: {what}" if len(asked) > 1 else what for one, what in said.items() if what]
    return "; ".join(told) or YES


def without_versions(page: str) -> str:
    """*page* without the versions of the runtimes, which a distribution raises as it likes."""
    lines = page.splitlines(True)
    for at, line in enumerate(lines):
        cells = line.split("|")
        if cells[1:] and cells[1].strip() in ASKED:  # the version is in the next one
            lines[at] = "|".join((*cells[:2], " ", *cells[3:]))
    return "".join(lines)


def differs(there: str, seen: str) -> bool:
    """Tell how the page that is *there* differs from what was *seen*, and whether in more than versions."""
    sys.stderr.writelines(difflib.unified_diff(there.splitlines(True), seen.splitlines(True), PAGE, "as seen"))
    if there != seen and without_versions(there) == without_versions(seen):
        sys.stderr.write("note: only versions differ; the page has those of the last --update\n")
        return False
    return there != seen


def main() -> int:
    parser = argparse.ArgumentParser(prog="table", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the page anew")
    options = parser.parse_args()
    facts = read()
    missing = untested(facts)
    if missing:
        sys.stderr.write("no live test has seen:\n" + "".join(f"  {one}\n" for one in missing))
        return 1
    made = page(facts)
    if options.update:
        with open(PAGE, "w") as file:
            file.write(made)
        return 0
    with open(PAGE) as file:
        return int(differs(file.read(), made))


if __name__ == "__main__":
    sys.exit(main())
