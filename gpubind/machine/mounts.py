"""The kernel's facts about mounted file systems, and the bytes of a file, before most of gpubind is loaded.

This module imports no other of gpubind, and reports nothing to the memo.
"""

from __future__ import annotations

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

MOUNTS = "/proc/self/mountinfo"
_OWN_FACTS = "/proc/self/fdinfo"
"""The facts of each open file of this process, with the number of its mount."""
_CHUNK = 1 << 20


def with_owner(path: str) -> tuple[os.stat_result, bool]:
    """Return the facts of *path*, and whether its owner and mode can be believed.

    On a FUSE file system, a program decides both. They are not believed if a user other than root mounted it, or if it
    is no longer mounted, because its user is then unknown. Both results are those of one opened file: a moment later,
    the path may lead elsewhere. Errors: `OSError`. Sources: proc_pid_mountinfo(5), proc_pid_fdinfo(5), mount.fuse3(8).
    """
    file = posix.open(path, posix.O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    try:
        number = read_unrecorded(f"{_OWN_FACTS}/{file}").partition(b"mnt_id:")[2].split()[0] + b" "
        mount = next((line for line in read_unrecorded(MOUNTS).split(b"\n") if line.startswith(number)), b"")
        return posix.fstat(file), _is_by_root(mount)
    finally:
        posix.close(file)


def _is_by_root(mount: bytes) -> bool:
    """Return whether root mounted the file system of this line of mountinfo. FUSE names its user; all others are
    root's.
    """
    right = mount.partition(b" - ")[2].split(b" ")
    is_fuse = right[0].split(b".")[0] in (b"fuse", b"fuseblk")
    return len(right) == 3 and (not is_fuse or b"user_id=0" in right[2].split(b","))


def read_unrecorded(path: str, limit: int = 1 << 30) -> bytes:
    """Return at least the first *limit* bytes of *path*, without a report to the recorder. Errors: `OSError`."""
    file, data = posix.open(path, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOCTTY | posix.O_CLOEXEC), b""
    try:
        while len(data) < limit and (more := posix.read(file, _CHUNK)):
            data += more
        return data
    finally:
        posix.close(file)
