"""Another file system in the place of one, whose files have the very numbers and times: what a mount tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpubind.memo import filesystems
from gpubind.memo.filesystems import FileSystems, Trust, is_young

MOUNTINFO = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:5 / /over rw - overlay overlay ro,lowerdir=BASE/a:BASE/b\\\\072c
24 22 0:6 / /loose rw - overlay overlay ro,lowerdir=a:b
25 22 0:7 / /home rw - nfs4 server:/home rw,vers=4.2
26 22 0:8 / /tmp rw - tmpfs tmpfs rw
27 22 7:0 / BASE/a rw - squashfs /dev/loop0 ro
28 22 0:9 / /self rw - overlay overlay rw,lowerdir=/self,upperdir=BASE/b:c
29 22 0:11 / /over\\040there~ rw - zfs pool/a\\040b rw
30 22 0:12 / /honest rw - overlay overlay ro,lowerdir=BASE/d
"""


@pytest.fixture
def file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSystems:
    for name in ("a", "b:c", "d"):
        (tmp_path / name).mkdir()
    (tmp_path / "mountinfo").write_text(MOUNTINFO.replace("BASE", str(tmp_path)))
    monkeypatch.setattr(filesystems, "MOUNTS", str(tmp_path / "mountinfo"))
    (tmp_path / "8:1").symlink_to("../../devices/virtual/block/sda/sda1")
    monkeypatch.setattr(filesystems, "_DEVICES", str(tmp_path))
    monkeypatch.setattr(filesystems, "exists", lambda path: path == "/sys/fs/ext4/sda1" or os.path.lexists(path))
    return FileSystems()


def test_an_overlay_is_as_honest_as_its_layers(file_systems: FileSystems, tmp_path: Path) -> None:
    device = {path: os.makedev(0, minor) for path, minor in (("/over", 5), ("/loose", 6), ("/self", 9))}
    assert file_systems.trust("/over/x", device["/over"]) == "none"  # a squashfs is among them
    assert file_systems.trust("/loose/x", device["/loose"]) == "none"  # nobody knows which directories these are
    assert file_systems.trust("/honest/x", os.makedev(0, 12)) == "times"
    assert file_systems.trust(f"{tmp_path}/b:c", os.makedev(8, 1)) == "times"


def test_a_file_system_stands_by_its_number_in_sysfs_or_by_what_mountinfo_says(file_systems: FileSystems) -> None:
    def asked(path: str, major: int, minor: int) -> object:
        return file_systems.standing(path, os.makedev(major, minor))

    assert asked("/x", 8, 1) == (("inode", "/sys/fs/ext4/sda1"),)
    assert asked("/tmp/x", 0, 8) == ()
    assert asked("/home/x", 0, 7) == (("mounted", (" 0:7 / /home ", " - nfs4 server:/home rw,vers=4.2")),)
    assert asked("/over there~/x", 0, 99) == (("mounted", (r" 0:11 / /over\040there~ ", r" - zfs pool/a\040b rw")),)
    assert asked("/x", 7, 0) is None
    assert asked("/new", 9, 9) == asked("/x", 8, 1)  # a subvolume, by its place


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ("ro,lowerdir=/a:/b::/c,upperdir=/u,workdir=/w", ["/a", "/b", "/c", "/u"]),
        ("lowerdir+=/a,lowerdir+=/b,datadir+=/d", ["/a", "/b", "/d"]),
        (r"lowerdir=/a\:b:/c\,d,ro", ["/a:b", "/c,d"]),
        (r"lowerdir=/a\040b", ["/a b"]),
        ("ro,workdir=/w", []),
    ],
)
def test_the_layers_of_an_overlay_are_in_its_options(options: str, layers: list[str]) -> None:
    assert filesystems._layers(options) == layers


SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("changed", "modified", "trust", "age", "young"),
    [
        *((1, 1, "times", 19_999_999, True), (1, 1, "times", 20_000_000, False), (1, 1, "none", 19_999_999, True)),
        *((0, 0, "times", 2 * SECOND - 1, True), (0, 0, "times", 2 * SECOND, False)),
        *((1, 1, "opened", 60 * SECOND - 1, True), (1, 1, "opened", 60 * SECOND, False)),
        *(
            (1, 1 + SECOND, "times", 20_000_000, False),
            (1, 5, "times", 20_000_003, True),
            (5, 1, "times", 19_999_999, True),
        ),
    ],
)
def test_a_file_is_young_as_long_as_another_write_could_have_its_times(
    changed: int, modified: int, trust: Trust, age: int, young: bool
) -> None:
    facts = os.stat_result((0, 0, 0, 1, 0, 0, 0, 0, 0, 0), {"st_ctime_ns": changed, "st_mtime_ns": modified})
    assert is_young(facts, changed + age, trust) is young


def test_a_node_may_answer_for_a_network_file_system_before_a_file_is_opened(file_systems: FileSystems) -> None:
    assert file_systems.trust("/home/x", os.makedev(0, 7)) == "opened"
    assert file_systems.trust("/tmp/x", os.makedev(0, 8)) == "times"
    assert file_systems.trust("/over there~/x", os.makedev(0, 11)) == "times"
