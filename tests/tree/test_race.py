"""A tree that changes while it is read: whatever is exchanged meanwhile, nothing outside the root is seen."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from build.trees import Dir, Item, Link, make_tree

from gpubind.image.environment import read_environment
from gpubind.model import Missing
from gpubind.tree.live import DIRECTORIES_LIMIT, LiveTree

RUNS = int(os.environ.get("GPUBIND_RACES", "300"))
AT_FDCWD, RENAME_EXCHANGE = -100, 2
SECRET = "/SECRET-OF-ANOTHER"


@contextlib.contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """A process that exchanges *one* and *other* all the time, each time in one step (renameat2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    assert libc.renameat2(*words) == 0, os.strerror(ctypes.get_errno())
    child = os.fork()
    if child == 0:
        while os.getppid() != 1:
            libc.renameat2(*words)
        os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


ENVIRONMENT: dict[str, Item] = {"/.singularity.d/env/10-a.sh": "export LD_LIBRARY_PATH=/own\n"}


@pytest.mark.parametrize("level", ["/.singularity.d", "/.singularity.d/env", "/.singularity.d/env/10-a.sh"])
def test_a_directory_that_is_exchanged_for_a_link_out_of_the_image_shows_nothing_of_there(
    tmp_path: Path, level: str
) -> None:
    secret = {path: str(text).replace("/own", SECRET) for path, text in ENVIRONMENT.items()}
    make_tree(tmp_path / "priv", secret)
    make_tree(tmp_path / "image", ENVIRONMENT)
    trap = tmp_path / "image" / "trap"
    trap.symlink_to(f"{tmp_path}/priv{level}")
    seen: list[object] = []
    with exchanging(Path(f"{tmp_path}/image{level}"), trap):
        # On a busy machine one side of the exchange may not be met for a while.
        while len(seen) < RUNS or (len({*seen}) < 2 and len(seen) < 100 * RUNS):
            seen.append(read_environment(LiveTree(f"{tmp_path}/image"))[0].get("LD_LIBRARY_PATH"))
    assert {*seen} == {None, "/own"}, seen.count(SECRET)


def test_a_directory_that_was_looked_at_stays_the_one_that_it_was(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "r", {"/d/a": b"own", "/other": Dir()})
    assert not isinstance(tree.lstat("/d/a"), Missing)
    os.rename(tmp_path / "r" / "d", tmp_path / "r" / "away")
    make_tree(tmp_path / "priv", {"/a": b"theirs"})
    (tmp_path / "r" / "d").symlink_to(tmp_path / "priv")
    assert tree.read("/d/a") == b"own"


def test_no_more_directories_stay_open_than_a_process_can_spare(tmp_path: Path) -> None:
    deep = "/d" * 500
    make_tree(tmp_path, {f"{deep}/file": b"x", **{f"/{number}/file": b"y" for number in range(300)}, "/l": Link("0")})
    before = len(os.listdir("/proc/self/fd"))
    tree = LiveTree(str(tmp_path))
    assert tree.read(f"{deep}/file") == b"x"
    assert [tree.read(f"/{number}/file") for number in range(300)] == [b"y"] * 300
    assert len(os.listdir("/proc/self/fd")) <= before + 1 + DIRECTORIES_LIMIT
    assert tree.read(f"{deep}/file") == b"x"
    del tree
    assert len(os.listdir("/proc/self/fd")) == before
