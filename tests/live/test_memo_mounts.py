"""Another file system in the place of one, whose files have the very numbers and times: what a mount tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.driver import V, kernel, rhel
from tests.support.trees import Item, Node, make_tree

pytestmark = pytest.mark.live

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
for try in $(seq 20); do  # another test may get the device number in between
    up one; stat -c '%d %i %s %Y %Z' mnt/list > looks
    plan with; same > first
    umount mnt lower; up other
    stat -c '%d %i %s %Y %Z' mnt/list | cmp -s - looks && break
    umount mnt lower
done
cat first; stat -c '%d %i %s %Y %Z' mnt/list | cmp - looks
same
umount mnt lower
"""


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
