"""A tree that changes while it is read: whatever is exchanged meanwhile, nothing outside the root is seen."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path

import pytest

from gpubind.errors import UnseenError
from gpubind.files.live import DIRECTORIES_LIMIT, LiveTree
from gpubind.image.environment import read_environment
from gpubind.model import Missing
from tests.support.race import LEVELS, SECRET, racing
from tests.support.trees import Dir, Link, make_tree

RUNS = 300


@pytest.mark.parametrize("level", LEVELS)
def test_a_directory_that_is_exchanged_for_a_link_out_of_the_image_shows_nothing_of_there(
    tmp_path: Path, level: str
) -> None:
    seen: list[object] = []
    with racing(tmp_path, level) as image:
        # On a busy machine one side of the exchange may not be met for a while.
        while len(seen) < RUNS or (len({*seen}) < 2 and len(seen) < 100 * RUNS):
            # A link that has become a directory while it is read is no link: then nobody could look.
            with suppress(UnseenError):
                seen.append(read_environment(LiveTree(image))[0].get("LD_LIBRARY_PATH"))
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
    gc.collect()  # trees of other tests close their directories now, and not in between
    before = len(os.listdir("/proc/self/fd"))
    tree = LiveTree(str(tmp_path))
    assert tree.read(f"{deep}/file") == b"x"
    assert [tree.read(f"/{number}/file") for number in range(300)] == [b"y"] * 300
    assert len(os.listdir("/proc/self/fd")) <= before + 1 + DIRECTORIES_LIMIT
    assert tree.read(f"{deep}/file") == b"x"
    del tree
    assert len(os.listdir("/proc/self/fd")) == before
