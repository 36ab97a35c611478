"""Another file system in the place of one, whose files have the very numbers and times: what a mount tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpubind.memo import filesystems
from gpubind.memo.filesystems import FileSystems

MOUNTINFO = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
25 22 0:7 / /home rw - nfs4 server:/home rw,vers=4.2
26 22 0:8 / /tmp rw - tmpfs tmpfs rw
27 22 7:0 / /a rw - squashfs /dev/loop0 ro
29 22 0:11 / /over\\040there rw - zfs pool/a\\040b rw
"""


@pytest.fixture
def file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSystems:
    (tmp_path / "mountinfo").write_text(MOUNTINFO)
    monkeypatch.setattr(filesystems, "MOUNTS", str(tmp_path / "mountinfo"))
    monkeypatch.setattr(filesystems, "_device_name", lambda device: {0x801: "sda1"}.get(device, ""))
    monkeypatch.setattr(filesystems, "_exists", lambda path: path == "/sys/fs/ext4/sda1" or os.path.lexists(path))
    return FileSystems()


def test_an_overlay_is_trusted_only_as_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "22 1 0:5 / PLACE rw - overlay overlay rw,lowerdir=/a:/b\n"
    (tmp_path / "mountinfo").write_text("".join(line.replace("PLACE", place) for place in ("/", "/over")))
    monkeypatch.setattr(filesystems, "MOUNTS", str(tmp_path / "mountinfo"))
    assert FileSystems().trust("/x", os.makedev(9, 9)) == "times"
    assert FileSystems().trust("/over/x", os.makedev(9, 9)) == "none"


def test_a_file_system_stands_by_its_number_in_sysfs_or_by_what_mountinfo_says(file_systems: FileSystems) -> None:
    def asked(path: str, major: int, minor: int) -> object:
        return file_systems.standing(path, os.makedev(major, minor))

    assert asked("/x", 8, 1) == (("inode", "/sys/fs/ext4/sda1"),)
    assert asked("/tmp/x", 0, 8) == ()
    assert asked("/home/x", 0, 7) == (("mounted", (" 0:7 / /home ", " - nfs4 server:/home rw,vers=4.2")),)
    assert asked("/over there/x", 0, 99) == (("mounted", (r" 0:11 / /over\040there ", r" - zfs pool/a\040b rw")),)
    assert asked("/x", 7, 0) is None
    assert asked("/new", 9, 9) == asked("/x", 8, 1)  # a subvolume, by its place
