"""Decide which file systems keep true modification times."""

from __future__ import annotations

import os
import posix  # `os` may be a recorder's
import re
from typing import Any, Literal, Optional

from gpubind.frozen import NamedTuple
from gpubind.machine import system
from gpubind.machine.mounts import MOUNTS, read_unrecorded

Trust = Literal["times", "opened", "none"]

_BLOCK = {**dict.fromkeys(("ext2", "ext3", "ext4"), "ext4"), "f2fs": "f2fs", "xfs": "xfs"}
"""File systems of block devices, with their directory in /sys/fs, which contains one for each mounted device."""
_IN_MEMORY = ("devtmpfs", "ramfs", "tmpfs")
"""File systems whose times are the kernel's own, so that no file of another file system has the same times."""
_HONEST = (*_BLOCK, *_IN_MEMORY, "bcachefs", "btrfs", "overlay", "zfs")
_DEVICES = "/sys/dev/block"
YOUNG_NS = 20_000_000
"""A file that was written less than this time before it was signed can be written again with the same times: file
systems count time in steps of up to 10 ms. git calls such an entry racily clean.
"""
_COARSE_NS = 2_000_000_000
"""The same for file systems whose times are whole seconds."""
SKEW_NS = 60_000_000_000
"""The same for file systems whose times are those of a server: its clock may be late."""
_NETWORK = ("afs", "beegfs", "ceph", "cifs", "gpfs", "lustre", "nfs", "nfs4", "panfs", "smb3", "wekafs")
"""The network file systems. Times are true only for an opened file, because a node may answer other queries from
its cache.
"""


Question = tuple[str, Any]
"""A kind of question, and the question."""


class MountedFileSystem(NamedTuple):
    """A mounted file system."""

    device: int
    place: str
    kind: str
    source: str
    options: str
    line: tuple[str, str]
    """The parts of its line in mountinfo that identify it, without numbers that differ between namespaces."""


class FileSystems:
    """The mounted file systems, read once. Source: proc_pid_mountinfo(5)."""

    def __init__(self) -> None:
        lines = read_unrecorded(MOUNTS).decode("utf-8", "surrogateescape").split("\n")
        mounts = [_mount(line) for line in lines if line]
        self._by_device = {mount.device: mount for mount in mounts}
        self._by_place = sorted(mounts, key=lambda mount: len(mount.place))[::-1]
        self._known: dict[MountedFileSystem, Optional[tuple[Question, ...]]] = {}

    def trust(self, path: str, device: int) -> Trust:
        """Return which times of *path* on *device* can be believed. With `none`, contents must be compared.

        On a squashfs, a FUSE file system or /proc, a replaced file may have the same times. So may a file on a file
        system that no question identifies.
        """
        mount = self._mount(path, device)
        if mount is None or self.standing(path, device) is None:
            return "none"
        return "opened" if mount.kind in _NETWORK else "times"

    def standing(self, path: str, device: int) -> Optional[tuple[Question, ...]]:
        """Return the questions whose answers change when another file system replaces that of *path*.

        Return None if there are none, or if its times cannot be believed.
        """
        mount = self._mount(path, device)
        if mount is not None and mount not in self._known:
            self._known[mount] = self._standing(mount, frozenset())
        return None if mount is None else self._known[mount]

    def _standing(
        self, mount: MountedFileSystem, above: frozenset[MountedFileSystem]
    ) -> Optional[tuple[Question, ...]]:
        """As `standing`, for *mount*; *above*: the overlays of which it is a layer."""
        if mount.kind in _IN_MEMORY:
            return ()
        if mount.kind in _BLOCK:
            return _inode_of(f"/sys/fs/{_BLOCK[mount.kind]}", _device_name(mount.device))
        if mount.kind == "btrfs":
            return _inode_of("/sys/fs/btrfs", _btrfs(mount.source))
        if mount.kind not in (*_HONEST, *_NETWORK):
            return None
        questions: tuple[Question, ...] = (("mounted", mount.line),)
        for layer in _layers(mount.options) if mount.kind == "overlay" else ():
            below = self._below(layer, above | {mount})
            if below is None and mount.place:
                return None
            questions += below or ()  # a container does not see its own layers, which last as long as it runs
        return questions

    def _below(self, directory: str, above: frozenset[MountedFileSystem]) -> Optional[tuple[Question, ...]]:
        """As `standing`, for the *directory* of a layer: an overlay is as honest as its layers."""
        if not directory.startswith("/") or not exists(directory):
            return None
        mount = self._at(system.real_path(directory), above)
        return None if mount is None or mount.kind in _NETWORK else self._standing(mount, above)

    def _mount(self, path: str, device: int) -> Optional[MountedFileSystem]:
        # A subvolume of btrfs, and a layer of an overlay, have other device numbers.
        return self._by_device.get(device) or self._at(path)

    def _at(self, path: str, without: frozenset[MountedFileSystem] = frozenset()) -> Optional[MountedFileSystem]:
        at = (mount for mount in self._by_place if f"{path}/".startswith(f"{mount.place}/"))
        return next((mount for mount in at if mount not in without), None)


def _mount(line: str) -> MountedFileSystem:
    left, _, right = line.partition(" - ")
    _, _, device, root, place = left.split(" ")[:5]
    kind, source, options = right.split(" ", 2)
    major, _, minor = device.partition(":")
    parts = (f" {device} {root} {place} ", f" - {right}")
    return MountedFileSystem(
        os.makedev(int(major), int(minor)), _unescaped(place).rstrip("/"), kind, _unescaped(source), options, parts
    )


def _unescaped(text: str) -> str:
    r"""Return *text* of mountinfo without its escapes: white space and backslashes are written as `\040` there."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _device_name(device: int) -> str:
    try:
        return os.path.basename(posix.readlink(f"{_DEVICES}/{os.major(device)}:{os.minor(device)}"))
    except OSError:
        return ""


def _btrfs(source: str) -> str:
    try:
        device = _device_name(posix.stat(source).st_rdev)
        names = sorted(posix.listdir("/sys/fs/btrfs"))
    except OSError:
        return ""
    return next((name for name in names if device and exists(f"/sys/fs/btrfs/{name}/devices/{device}")), "")


def exists(path: str) -> bool:
    """Return whether *path* exists, as a link or whatever it is; False if that cannot be inspected."""
    try:
        posix.lstat(path)
    except OSError:
        return False
    return True


def _inode_of(directory: str, name: str) -> Optional[tuple[Question, ...]]:
    """Return the question for the inode of *name* in *directory* of sysfs: inodes are unique there; None if missing."""
    path = f"{directory}/{name}"
    return (("inode", path),) if name and exists(path) else None


def _layers(options: str) -> list[str]:
    """Source: Documentation/filesystems/overlayfs.rst."""
    pairs = [option.partition("=") for option in re.split(r"(?<!\\),", _unescaped(options))]
    lower = [value for name, _, value in pairs if name == "lowerdir"]
    single = [value for name, _, value in pairs if name in ("lowerdir+", "datadir+", "upperdir")]
    several = [layer for value in lower for layer in re.split(r"(?<!\\)::?", value)]
    return [re.sub(r"\\(.)", r"\1", layer) for layer in (*several, *single)]


def is_young(stat_result: os.stat_result, now: int, trust: Trust) -> bool:
    """Return whether a file was written so shortly before *now* that a further write could leave its times
    unchanged.
    """
    last = max(stat_result.st_ctime_ns, stat_result.st_mtime_ns if stat_result.st_mtime_ns <= now else 0)
    step = SKEW_NS if trust == "opened" else YOUNG_NS if stat_result.st_ctime_ns % 1_000_000_000 else _COARSE_NS
    return last > now - step
