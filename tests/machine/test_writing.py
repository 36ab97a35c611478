"""Directories and files that gpubind writes are the caller's alone, and whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gpubind.machine import system
from gpubind.machine.writing import make_ours, replace, write_if_missing


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_directory_that_others_may_write_to_is_refused(mode: int, tmp_path: Path) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(PermissionError) as caught:
        make_ours(str(tmp_path), 0o700)
    why = "it belongs to another user, or others may write to it"
    assert (caught.value.errno, caught.value.strerror) == (errno.EACCES, why)


def test_a_directory_of_another_user_and_a_link_to_one_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError) as caught:
        make_ours(f"{tmp_path}/link", 0o700)
    assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError):
        make_ours(str(tmp_path), 0o700)


def test_missing_directories_are_made_with_the_mode_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        make_ours(f"{tmp_path}/a/b", 0o755).close()
    finally:
        os.umask(before)
    assert [os.stat(tmp_path / path).st_mode & 0o7777 for path in ("a", "a/b")] == [0o755, 0o755]
    (tmp_path / "a").chmod(0o711)
    make_ours(f"{tmp_path}/a", 0o755).close()
    assert os.stat(tmp_path / "a").st_mode & 0o7777 == 0o711


def test_an_intact_file_is_kept_and_a_damaged_one_or_one_that_others_may_write_to_replaced(tmp_path: Path) -> None:
    place = str(tmp_path / "new")
    path = Path(write_if_missing(place, "name", b"data", 0o700))
    assert (str(path), path.read_bytes(), path.stat().st_mode & 0o7777) == (f"{place}/name", b"data", 0o444)
    inode = path.stat().st_ino
    write_if_missing(place, "name", b"data", 0o700)
    assert path.stat().st_ino == inode
    for mode in (0o464, 0o446):
        path.chmod(mode)
        write_if_missing(place, "name", b"data", 0o700)
        assert (path.read_bytes(), path.stat().st_mode & 0o7777) == (b"data", 0o444)
    for damaged in (b"dat", b"data2"):
        _write(path, damaged)
        write_if_missing(place, "name", b"data", 0o700)
        assert path.read_bytes() == b"data"
    _write(path, b"daTa")
    write_if_missing(place, "name", b"data", 0o700)
    assert path.read_bytes() == b"data"
    assert os.listdir(place) == ["name"]


def _write(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)
    path.chmod(0o444)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EIO])
def test_without_hard_links_a_file_is_renamed(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*paths: object, **more: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    if number == errno.EIO:
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            write_if_missing(str(tmp_path), "name", b"data", 0o700)
        assert os.listdir(tmp_path) == []
    else:
        write_if_missing(str(tmp_path), "name", b"data", 0o700)
        assert ((tmp_path / "name").read_bytes(), os.listdir(tmp_path)) == (b"data", ["name"])


def test_a_file_is_replaced_with_its_mode_and_owner(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with system.open_directory(str(tmp_path)) as place:
            replace(place, "plain", b"a")
            replace(place, "mode", b"b", 0o604, (os.getuid(), os.getgid()))
            replace(place, "mode", b"c", 0o606)
    finally:
        os.umask(before)
    modes = {name: os.stat(tmp_path / name).st_mode & 0o7777 for name in sorted(os.listdir(tmp_path))}
    assert modes == {"mode": 0o606, "plain": 0o640}
    assert (tmp_path / "mode").read_bytes() == b"c"
