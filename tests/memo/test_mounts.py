"""Another file system in the place of one, whose files have the very numbers and times: what a mount tells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from build.driver import V, kernel, rhel
from build.trees import Item, Node, make_tree

from gpubind.memo import filesystems
from gpubind.memo.filesystems import FileSystems

TOOLS = ("unshare", "losetup", "mkfs.ext4", "debugfs", "mksquashfs")


def _why_not() -> str:
    if os.geteuid() != 0:
        return "only root can mount"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"no {', '.join(missing)}" if missing else ""


mounts = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "-")

SETUP = r"""
set -eu
cd "$1"
mount -t tmpfs -o mode=755 memos /run
mkdir one other mnt empty
printf 'libcuda.so\nlibnvidia-ml.so\n' > one/list
printf 'libcuda.so\nlibnvidia-no.so\n' > other/list
touch -d @1600000000 one other one/list other/list
plan() { (
    here=$PWD; cd /
    "$PYTHON" -m gpubind plan -vv --json --root $here/host --dev-root $here/host --list $here/mnt/list
) 2> said > "$1"; }
same() {
    plan with; GPUBIND_MEMO=off plan without; cmp with without && echo same
    plan with; grep -o '^memo: served' said || cat said; grep -q '/libnvidia-ml.so.1"' with && echo with || echo without
}
"""
EXT4 = r"""
for image in one other; do
    truncate -s 4M $image.img
    mkfs.ext4 -q -F -U 11111111-1111-1111-1111-111111111111 -E hash_seed=11111111-1111-1111-1111-111111111111 \
        -d $image $image.img
    for inode in '<2>' list; do
        for field in atime ctime mtime crtime; do
            debugfs -w -R "set_inode_field $inode $field 20200101" $image.img > debug 2>&1
        done
    done
done
cp one.img now.img
loop=$(losetup -f --show -r now.img)
trap 'losetup -d $loop' EXIT
mount -o ro $loop mnt; stat -c '%d %i %s %Y %Z' mnt/list > looks
plan with; same
umount mnt; cat other.img > now.img; blockdev --flushbufs $loop; mount -o ro $loop mnt
stat -c '%d %i %s %Y %Z' mnt/list | cmp - looks
same
umount mnt
"""
OVERLAY = r"""
for image in one other; do
    mksquashfs $image $image.sqfs -all-time 1600000000 -mkfs-time 1600000000 -noappend -quiet > debug
done
mkdir lower
up() { mount -o loop $1.sqfs lower; mount -t overlay overlay -o lowerdir=$PWD/lower:$PWD/empty mnt; }
up one; stat -c '%d %i %s %Y %Z' mnt/list > looks
plan with; same
umount mnt lower; up other
stat -c '%d %i %s %Y %Z' mnt/list | cmp - looks
same
umount mnt lower
"""


@mounts
@pytest.mark.parametrize("script", [EXT4, OVERLAY], ids=["ext4 on the same loop device", "overlay over squashfs"])
def test_another_file_system_at_the_same_place_with_the_same_numbers_and_times_is_seen(
    script: str, tmp_path: Path
) -> None:
    spec: dict[str, Item] = {**rhel(V), **kernel(V)}
    make_tree(tmp_path / "host", {path: item for path, item in spec.items() if not isinstance(item, Node)})
    environ = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(sys.path), "GPUBIND_MEMO": "on"}
    command = ["unshare", "--mount", "sh", "-c", SETUP + script, "sh", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["same", "memo: served", "with", "same", "memo: served", "without"]


MOUNTINFO = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:5 / /over rw - overlay overlay ro,lowerdir=BASE/a:BASE/b\\\\072c
24 22 0:6 / /loose rw - overlay overlay ro,lowerdir=a:b
25 22 0:7 / /home rw - nfs4 server:/home rw,vers=4.2
26 22 0:8 / /tmp rw - tmpfs tmpfs rw
27 22 7:0 / BASE/a rw - squashfs /dev/loop0 ro
28 22 0:9 / /self rw - overlay overlay rw,lowerdir=/self,upperdir=BASE/b:c
29 22 0:11 / /over\\040there rw - zfs pool/a\\040b rw
"""


@pytest.fixture
def file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSystems:
    for name in ("a", "b:c"):
        (tmp_path / name).mkdir()
    (tmp_path / "mountinfo").write_text(MOUNTINFO.replace("BASE", str(tmp_path)))
    monkeypatch.setattr(filesystems, "MOUNTS", str(tmp_path / "mountinfo"))
    monkeypatch.setattr(filesystems, "_device_name", lambda device: {0x801: "sda1"}.get(device, ""))
    monkeypatch.setattr(filesystems, "_exists", lambda path: path == "/sys/fs/ext4/sda1" or os.path.lexists(path))
    return FileSystems()


def test_an_overlay_is_as_honest_as_its_layers(file_systems: FileSystems, tmp_path: Path) -> None:
    device = {path: os.makedev(0, minor) for path, minor in (("/over", 5), ("/loose", 6), ("/self", 9))}
    assert file_systems.trust("/over/x", device["/over"]) == "none"  # a squashfs is among them
    assert file_systems.trust("/loose/x", device["/loose"]) == "none"  # nobody knows which directories these are
    assert file_systems.trust(f"{tmp_path}/b:c", os.makedev(8, 1)) == "times"


def test_a_file_system_stands_by_its_number_in_sysfs_or_by_what_mountinfo_says(file_systems: FileSystems) -> None:
    def asked(path: str, major: int, minor: int) -> object:
        return file_systems.standing(path, os.makedev(major, minor))

    assert asked("/x", 8, 1) == (("inode", "/sys/fs/ext4/sda1"),)
    assert asked("/tmp/x", 0, 8) == ()
    assert asked("/home/x", 0, 7) == (("mounted", (" 0:7 / /home ", " - nfs4 server:/home rw,vers=4.2")),)
    assert asked("/over there/x", 0, 99) == (("mounted", (r" 0:11 / /over\040there ", r" - zfs pool/a\040b rw")),)
    assert asked("/x", 7, 0) is None
    assert asked("/new", 9, 9) == asked("/x", 8, 1)  # a subvolume, by its place
