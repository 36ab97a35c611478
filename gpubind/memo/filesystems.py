"""Which file systems tell truly when a file was changed."""

from __future__ import annotations

import os
from typing import Literal

Trust = Literal["times", "opened", "none"]

_HONEST = (
    *("bcachefs", "btrfs", "devtmpfs", "ext2", "ext3", "ext4", "f2fs"),
    *("jfs", "overlay", "ramfs", "reiserfs", "tmpfs", "xfs", "zfs"),
)
YOUNG_NS = 20_000_000
"""A file that was written less than this before it was signed could be written again without showing: file systems
count time in steps of up to 10 ms. git calls such an entry racily clean."""
COARSE_NS = 2_000_000_000
"""The same where the file system counts whole seconds."""
SKEW_NS = 60_000_000_000
"""The same where a server has the clock, which may be behind."""
_NETWORK = ("afs", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "panfs", "smb3", "wekafs")
"""True of a file that is opened: until then a node may answer with what it knew."""


class FileSystems:
    """What is mounted here, read once. Source: proc_pid_mountinfo(5)."""

    def __init__(self) -> None:
        self._by_device: dict[int, str] = {}
        self._by_place: list[tuple[str, str]] = []
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                left, _, right = line.partition(" - ")
                fields = left.split(" ")
                major, _, minor = fields[2].partition(":")
                kind = right.split(" ", 1)[0]
                self._by_device[os.makedev(int(major), int(minor))] = kind
                self._by_place.append((fields[4].rstrip("/"), kind))
        self._by_place.sort(key=lambda row: len(row[0]), reverse=True)

    def trust(self, path: str, device: int) -> Trust:
        """What is to be believed of the times of *path* on *device*: where nothing is, content is compared.

        A squashfs, a FUSE file system, /proc: another file may have the very times of the one that was there.
        """
        kind = self._by_device.get(device)
        if kind is None:  # a subvolume of btrfs has a device number of its own
            kind = next((kind for place, kind in self._by_place if f"{path}/".startswith(f"{place}/")), "")
        return "times" if kind in _HONEST else "opened" if kind in _NETWORK else "none"


def is_young(found: os.stat_result, now: int, trust: Trust) -> bool:
    """Whether a file could be written again without showing: it was written just before *now*, when it was signed."""
    last = max(found.st_ctime_ns, found.st_mtime_ns if found.st_mtime_ns <= now else 0)
    step = SKEW_NS if trust == "opened" else YOUNG_NS if found.st_ctime_ns % 1_000_000_000 else COARSE_NS
    return last > now - step
