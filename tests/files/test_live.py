"""The live tree: what holds for files of this machine alone."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from gpubind.errors import HostReadError, UnseenError, UsageError
from gpubind.files.live import LiveTree
from gpubind.model import Missing, RootedPath, Stat
from tests.support.trees import ABSENT, Fifo, Link, make_tree


def test_a_fifo_is_never_opened(tmp_path: Path) -> None:
    """A writer waits until somebody opens the other end: nobody may."""
    tree = make_tree(tmp_path, {"/fifo": Fifo(), "/link": Link("fifo")})
    writer = threading.Thread(target=lambda: os.close(os.open(tmp_path / "fifo", os.O_WRONLY)))
    writer.start()
    try:
        for path in ("/fifo", "/link"):
            for answer in (tree.read(path), tree.ident(path), tree.elf(path), tree.list(path)):
                assert isinstance(answer, Missing)
        time.sleep(0.05)
        assert writer.is_alive()
    finally:
        os.close(os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK))
        writer.join()


def test_a_real_path_has_the_root_before_it(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "r", {"/a/b": b""})
    resolved = tree.resolve("/a/b")
    assert not isinstance(resolved, Missing)
    assert tree.real(resolved) == f"{tmp_path}/r/a/b"
    top = tree.resolve("/")
    assert not isinstance(top, Missing)
    assert tree.real(top) == f"{tmp_path}/r"


def test_the_machine_itself_is_a_tree() -> None:
    tree = LiveTree("/")
    here = os.path.realpath(__file__)
    resolved = tree.resolve(here)
    assert resolved == here
    assert tree.real(resolved) == here
    assert tree.root == "/"


def test_links_in_the_root_itself_are_resolved_at_once(tmp_path: Path) -> None:
    make_tree(tmp_path / "r", {"/a": b"x"})
    os.symlink("r", tmp_path / "link")
    assert LiveTree(f"{tmp_path}/link/").root == f"{tmp_path}/r"


@pytest.mark.parametrize(("name", "why"), [("none", "it does not exist"), ("file", "it is not a directory")])
def test_a_root_that_is_no_directory_is_refused(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(HostReadError) as caught:
        LiveTree(f"{tmp_path}/{name}")
    assert (caught.value.code, caught.value.why, caught.value.exit_code) == ("no-root", why, 4)
    assert caught.value.where == f"{tmp_path}/{name}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may search any directory")
def test_a_root_that_may_not_be_searched_is_refused_and_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir(mode=0)
    with pytest.raises(HostReadError) as caught:
        LiveTree(f"{tmp_path}/r")
    assert (caught.value.code, caught.value.exit_code) == ("no-root", 4)
    assert caught.value.why


def test_answers_stay_the_same_while_files_change(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, {"/d/a": b"1", "/d/l": Link("a")})
    before = (tree.list("/d"), tree.lstat("/d/a"), tree.resolve("/d/l"))
    os.unlink(tmp_path / "d/a")
    (tmp_path / "d/b").write_bytes(b"")
    assert (tree.list("/d"), tree.lstat("/d/a"), tree.resolve("/d/l")) == before
    assert tree.read("/d/l") == ABSENT


@pytest.mark.parametrize(
    "path", ["/a\0b", "/\ud800", "/" + "x" * 300, "/" + "x/" * 3000], ids=["nul", "surrogate", "name", "path"]
)
def test_a_path_that_no_file_can_have_is_missing(tmp_path: Path, path: str) -> None:
    tree = make_tree(tmp_path, {"/a": b""})
    for answer in (tree.lstat(path), tree.stat(path), tree.read(path), tree.list(path), tree.readlink(path)):
        assert isinstance(answer, Missing)


def test_a_file_of_proc_is_read_though_it_says_no_size() -> None:
    data = LiveTree("/").read("/proc/self/stat")
    assert isinstance(data, bytes)
    assert data.startswith(f"{os.getpid()} (".encode())


def test_a_file_that_has_become_a_fifo_is_not_waited_for_and_ends_the_command(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, {"/a": b"x"})
    assert tree.read("/a") == b"x"
    os.unlink(tmp_path / "a")
    os.mkfifo(tmp_path / "a")
    for question in (tree.read, tree.ident, tree.elf):
        with pytest.raises(UnseenError) as caught:
            question("/a")
        assert (caught.value.code, caught.value.why) == ("unreadable-file", "it is not a regular file")
        assert "try again, or look at the file system" in caught.value.hint


def test_a_text_that_is_rewritten_while_it_is_read_is_read_again_and_an_error_if_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else writes between two reads of this process: the size stays, the content does not."""
    file = tmp_path / "ld.so.conf"
    read, writes = os.read, iter([b"/new/new"])

    def interrupted(descriptor: int, size: int) -> bytes:
        data = read(descriptor, min(size, 4))
        text = next(writes, None)
        if text is not None:
            file.write_bytes(text)
            os.utime(file, ns=(1, int.from_bytes(text[-4:], "big")))
        return data

    monkeypatch.setattr(os, "read", interrupted)
    file.write_bytes(b"/old/old")
    assert LiveTree(str(tmp_path)).read("/ld.so.conf") == b"/new/new"
    writes = iter([b"/%07d" % number for number in range(99)])
    with pytest.raises(HostReadError) as caught:
        LiveTree(str(tmp_path)).read("/ld.so.conf")
    assert (caught.value.code, caught.value.why) == ("unreadable-file", "it was changed while it was read")


@pytest.mark.parametrize("number", [errno.ENODATA, errno.EOPNOTSUPP])
def test_a_node_without_an_access_control_list_has_none(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(path: str, name: str, *, follow_symlinks: bool) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "getxattr", get)
    stat = LiveTree("/").lstat("/dev/null")
    assert isinstance(stat, Stat)
    assert (stat.kind, stat.major, stat.minor, stat.acl) == ("char", 1, 3, "")


def test_an_access_control_list_that_cannot_be_read_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(path: str, name: str, *, follow_symlinks: bool) -> bytes:
        assert (path, name, follow_symlinks) == ("/dev/null", "system.posix_acl_access", False)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "getxattr", get)
    with pytest.raises(UnseenError) as caught:
        LiveTree("/").lstat("/dev/null")
    error = caught.value
    hint = "gpubind takes nothing for absent that it could not look at; try again, or look at the file system"
    assert (error.code, error.what, error.where) == ("unreadable-file", "a file cannot be read", "/dev/null")
    assert (error.why, error.hint) == (os.strerror(errno.EIO), hint)


def test_a_root_that_cannot_be_read_has_a_whole_message(tmp_path: Path) -> None:
    with pytest.raises(HostReadError) as caught:
        LiveTree(f"{tmp_path}/none")
    error = caught.value
    assert (error.what, error.where) == ("the root cannot be read", f"{tmp_path}/none")
    assert (error.why, error.hint) == ("it does not exist", "give a directory")


@pytest.mark.parametrize(("descriptors", "kept"), [(-1, 128), (16, 4), (79, 4), (80, 5), (2048, 128), (9999, 128)])
def test_a_tree_keeps_a_part_of_the_descriptors_open(
    descriptors: int, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: descriptors)
    tree = make_tree(tmp_path, {f"/{number}/a": b"" for number in range(kept + 1)})
    assert tree.directories_kept == kept
    for number in range(kept):
        assert tree.has(f"/{number}/a")
    assert len(tree._directories) == kept
    assert tree.has(f"/{kept}/a")
    assert [*tree._directories] == [f"/{kept}"]
    tree.close()
    with pytest.raises(UsageError) as caught:
        tree.lstat("/0/a")
    assert (caught.value.code, caught.value.where) == ("closed", str(tmp_path))


def test_a_closed_tree_answers_no_question(tmp_path: Path) -> None:
    tree = make_tree(tmp_path, {"/a": b"x"})
    assert tree.read("/a") == b"x"
    tree.close()
    tree.close()
    for question in (tree.lstat, tree.stat, tree.list, tree.read, tree.readlink, tree.resolve):
        with pytest.raises(UsageError):
            question("/a")
    with pytest.raises(UsageError):
        tree.open(RootedPath("/a"))
    assert tree.is_closed
