"""Whose word counts: what root believes, and where root's generated files may stay."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Optional

import pytest

from gpubind.errors import UnseenError
from gpubind.machine import mounts, trust
from gpubind.machine.trust import acts_as_root, is_trusted_path, trusted_environ, why_not_shareable, writable_by_others
from tests.support.trees import Dir, File, make_tree

DIRECTORY, FILE, LINK = stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK


def given(
    monkeypatch: pytest.MonkeyPatch, made: dict[str, tuple[int, int]], links: Optional[dict[str, str]] = None
) -> None:
    """A file system of these paths with mode and owner; what is not named is a directory of root's, 0755."""

    def lstat(path: str) -> os.stat_result:
        mode, uid = made.get(path, (DIRECTORY | 0o755, 0))
        return os.stat_result((mode, 0, 0, 1, uid, uid, 0, 0, 0, 0))

    monkeypatch.setattr(os, "lstat", lstat)
    monkeypatch.setattr(os, "readlink", lambda path: (links or {})[path])


@pytest.mark.parametrize(
    ("made", "links", "part"),
    [
        ({}, {}, None),
        ({"/a/b": (FILE | 0o644, 0)}, {}, None),
        ({"/a/b": (FILE | 0o644, 1000)}, {}, "/a/b"),
        ({"/a/b": (FILE | 0o664, 0)}, {}, "/a/b"),
        ({"/a": (DIRECTORY | 0o755, 1000)}, {}, "/a"),
        ({"/a": (DIRECTORY | 0o777, 0)}, {}, "/a"),
        ({"/a": (DIRECTORY | 0o1777, 0)}, {}, None),
        ({"/a": (DIRECTORY | 0o1777, 0), "/a/b": (FILE | 0o644, 1000)}, {}, "/a/b"),
        ({"/a/b": (LINK | 0o777, 0), "/c": (DIRECTORY | 0o755, 0)}, {"/a/b": "/c"}, None),
        ({"/a/b": (LINK | 0o777, 1000)}, {"/a/b": "/c"}, "/a/b"),
        ({"/a/b": (LINK | 0o777, 0), "/c": (DIRECTORY | 0o755, 1000)}, {"/a/b": "/c/d"}, "/c"),
        ({"/a/b": (LINK | 0o777, 0), "/c": (DIRECTORY | 0o755, 1000)}, {"/a/b": "../c/d"}, "/c"),
        ({"/a/b": (LINK | 0o777, 0)}, {"/a/b": "b"}, None),
    ],
)
def test_every_directory_and_link_on_the_way_must_be_roots(
    monkeypatch: pytest.MonkeyPatch, made: dict[str, tuple[int, int]], links: dict[str, str], part: Optional[str]
) -> None:
    given(monkeypatch, made, links)
    assert writable_by_others("/a/b") == part


@pytest.mark.parametrize(
    ("mode", "uid", "lasts"),
    [
        (0o755, 0, True),
        (0o711, 0, True),
        (0o1777, 0, False),
        (0o700, 0, False),
        (0o775, 0, False),
        (0o755, 1000, False),
    ],
)
def test_what_lasts_lies_where_root_alone_writes_and_everybody_may_enter(
    monkeypatch: pytest.MonkeyPatch, mode: int, uid: int, lasts: bool
) -> None:
    given(monkeypatch, {"/a": (DIRECTORY | mode, uid)})
    assert (why_not_shareable("/a/b") is None) is lasts


def test_what_root_runs_is_told_of_no_file_that_others_could_change(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, {"/theirs": (DIRECTORY | 0o755, 1000)})
    for name, value in (("HOME", "/theirs"), ("DOCKER_CONFIG", "/mine"), ("DOCKER_HOST", "tcp://x")):
        monkeypatch.setenv(name, value)
    names = ("HOME", "DOCKER_CONFIG", "DOCKER_HOST", "NONE")
    monkeypatch.setattr(trust, "acts_as_root", lambda: True)
    assert trusted_environ(names) == {"DOCKER_CONFIG": "/mine", "DOCKER_HOST": "tcp://x"}
    monkeypatch.setattr(trust, "acts_as_root", lambda: False)
    assert trusted_environ(names)["HOME"] == "/theirs"


def test_an_ordinary_user_obeys_whatever_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, {"/a": (DIRECTORY | 0o777, 1000)})
    monkeypatch.setattr(trust, "acts_as_root", lambda: False)
    assert is_trusted_path("/a/b")
    monkeypatch.setattr(trust, "acts_as_root", lambda: True)
    assert not is_trusted_path("/a/b")


def test_nobody_but_user_0_acts_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not acts_as_root()


@pytest.mark.parametrize(
    ("map_", "is_root"), [("0 0 4294967295", True), ("0 1000 1", False), ("0 100000 65536", False)]
)
def test_root_of_a_user_namespace_is_an_ordinary_user_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, map_: str, is_root: bool
) -> None:
    (tmp_path / "map").write_text(f"         {map_}\n")
    monkeypatch.setattr(trust, "UID_MAP", str(tmp_path / "map"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert acts_as_root() is is_root


def test_a_way_that_ends_or_turns_in_a_circle_is_nobodys(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/d": Dir()})
    (tmp_path / "loop").symlink_to("loop")
    for path in ("d/none/x", "loop/x"):
        found = writable_by_others(f"{tmp_path}/{path}")
        assert found is None or not found.startswith(f"{tmp_path}/") or os.geteuid() != 0


@pytest.mark.parametrize(
    ("modes", "offender"),
    [
        pytest.param((0o755, 0o755), None, id="nobody-else"),
        pytest.param((0o755, 0o777), "d/program", id="world-writable"),
        pytest.param((0o755, 0o775), "d/program", id="group-writable"),
        pytest.param((0o777, 0o755), "d", id="world-writable-directory"),
        pytest.param((0o775, 0o755), "d", id="group-writable-directory"),
        pytest.param((0o1777, 0o755), None, id="sticky-directory"),
        pytest.param((0o1777, 0o1777), "d/program", id="a-sticky-program-is-no-directory"),
    ],
)
def test_root_runs_only_what_root_alone_can_change(
    tmp_path: Path, modes: tuple[int, int], offender: Optional[str]
) -> None:
    make_tree(tmp_path, {"/d": Dir(modes[0]), "/d/program": File(b"", modes[1])})
    program = f"{tmp_path}/d/program"
    found = writable_by_others(program)
    if os.geteuid() != 0:
        assert found == program  # it belongs to whoever runs the tests
    elif offender:
        assert found == f"{tmp_path}/{offender}"
    else:
        assert found is None or not found.startswith(f"{tmp_path}/")


def test_root_runs_nothing_that_belongs_to_another_user(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/program": File(b"", 0o755)})
    if os.geteuid() == 0:
        os.chown(tmp_path / "program", 65534, 0)
    assert writable_by_others(f"{tmp_path}/program") == f"{tmp_path}/program"


def test_the_machines_own_programs_can_be_changed_by_root_alone() -> None:
    assert writable_by_others(os.path.realpath("/usr/bin/env")) is None


MOUNTS = """\
1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
2 1 0:30 / /sys/fs/fuse/connections rw - fusectl fusectl rw
{} 1 0:83 / /tmp/fz rw,nosuid,nodev shared:115 - {},group_id=1000,allow_other
"""


def mounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mount: str) -> None:
    """The file system of /proc, another one than that of /, is mounted as *mount* says; empty if none is."""
    file = os.open("/proc", os.O_PATH)
    number = Path(f"/proc/self/fdinfo/{file}").read_text().partition("mnt_id:")[2].split()[0]
    os.close(file)
    (tmp_path / "mountinfo").write_text(MOUNTS.format(number if mount else 99999, mount or "proc proc rw"))
    monkeypatch.setattr(mounts, "MOUNTS", str(tmp_path / "mountinfo"))


@pytest.mark.parametrize(
    ("mount", "is_trusted"),
    [
        pytest.param("fuse sshfs rw,user_id=1000", False, id="fuse"),
        pytest.param("fuse.squashfuse squashfuse rw,user_id=1000", False, id="a-subtype"),
        pytest.param("fuse.x user_id=0 rw,user_id=1000", False, id="a-source-chosen-by-the-user"),
        pytest.param("fuse  rw,user_id=1000", False, id="an-empty-source"),
        pytest.param("fuseblk /dev/sdb1 rw,user_id=1000", False, id="a-block-device"),
        pytest.param("fuse x rw", False, id="no-user-is-named"),
        pytest.param("fuse x rw,user_id=01", False, id="not-exactly-0"),
        pytest.param("", False, id="not-mounted-any-more"),
        pytest.param("fuse x rw,user_id=0", True, id="root-has-mounted-it"),
        pytest.param("fuse.cvmfs2 cvmfs2 ro,user_id=0", True, id="a-subtype-that-root-has-mounted"),
        pytest.param("squashfs /dev/loop0 ro", True, id="the-kernels-squashfs"),
        pytest.param("overlay overlay ro,lowerdir=/a", True, id="overlay"),
        pytest.param("nfs4 server:/ ro", True, id="nfs"),
    ],
)
def test_the_owner_of_a_file_is_unknown_where_a_users_fuse_file_system_reports_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mount: str, is_trusted: bool
) -> None:
    mounted(monkeypatch, tmp_path, mount)
    assert os.lstat("/proc").st_dev != os.lstat("/").st_dev
    for path in ("/proc", "/proc/sys/kernel", "/usr/../proc/sys"):
        assert writable_by_others(path) == (None if is_trusted else "/proc")
    assert (why_not_shareable("/proc/sys") is None) is is_trusted
    assert writable_by_others("/sys/kernel", "/proc") == (None if is_trusted else "/proc")
    assert writable_by_others(os.path.realpath("/usr/bin/env")) is None


def test_without_proc_only_the_file_system_of_the_root_directory_is_trusted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mounts, "MOUNTS", str(tmp_path / "none"))
    assert writable_by_others("/usr/bin") is None
    assert writable_by_others("/proc") == "/proc"


def test_a_list_of_mounts_that_could_not_be_read_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "MOUNTS", "/proc/self/mem")  # its first byte cannot be read
    with pytest.raises(UnseenError) as caught:
        writable_by_others("/proc/sys")
    assert (caught.value.code, caught.value.where) == ("unreadable-file", "/proc")


def test_a_directory_that_is_mounted_meanwhile_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = os.lstat

    def lstat(path: str) -> os.stat_result:
        return looks("/sys" if path == "/proc" else path)

    monkeypatch.setattr(os, "lstat", lstat)
    with pytest.raises(UnseenError) as caught:
        writable_by_others("/proc/sys")
    assert caught.value.where == "/proc"
