"""Where memos lie, whose they must be to be believed, and the form of their files."""

from __future__ import annotations

import marshal
import os
import posix  # `os` may be a recorder's
import stat

from gpubind.memo.questions import DIGEST_SIZE, digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Optional

FORM = b"gpubind memo 2\n"
"""What a memo begins with: another form has another number."""
SIZE_LIMIT = 8 << 20


def directories() -> Iterator[str]:
    """Where memos may lie, the best place first. Root's lie where nobody else may write, whatever the environment."""
    if os.geteuid() == 0:
        yield "/run/gpubind/memo"
        return
    own = f"gpubind-{os.geteuid()}/memo"
    places = (
        ("XDG_RUNTIME_DIR", "gpubind/memo"),
        ("TMPDIR", own),
        (None, f"/tmp/{own}"),
        ("XDG_CACHE_HOME", "gpubind/memo"),
        ("HOME", ".cache/gpubind/memo"),
    )
    for variable, below in places:
        base = "" if variable is None else os.environ.get(variable, "")
        if variable is None:
            yield below
        elif base.startswith("/"):
            yield f"{base}/{below}"


def open_directory(path: str) -> Optional[int]:
    """The directory *path*, opened, if it is nobody else's and nobody else may look into it."""
    try:
        place = posix.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        found = posix.fstat(place)
    except (OSError, ValueError):
        return None
    is_mine = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    if is_mine and all(map(_is_mine_alone, _above(path))):
        return place
    posix.close(place)
    return None


def _above(path: str) -> list[str]:
    """The directory above *path*; for root, all above it, as `gpubind.host.trust` has it."""
    above = [os.path.dirname(path)]
    while os.geteuid() == 0 and above[-1] != "/":
        above.append(os.path.dirname(above[-1]))
    return above


def _is_mine_alone(path: str) -> bool:
    """Whether *path* is no link, and nobody else may write there."""
    try:
        found = posix.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def read_memo(place: int, name: str) -> Optional[dict[str, Any]]:
    """The memo *name*; None if it is not there, not ours, or not whole."""
    try:
        file = posix.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except OSError:
        return None
    try:
        found = posix.fstat(file)
        mine = found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if not stat.S_ISREG(found.st_mode) or not mine or not len(FORM) < found.st_size <= SIZE_LIMIT:
            return None
        data = b""
        while len(data) < found.st_size:
            more = posix.read(file, found.st_size - len(data))
            if not more:
                break
            data += more
        return unpacked(data)
    except OSError:
        return None
    finally:
        posix.close(file)


def packed(memo: dict[str, Any]) -> bytes:
    """*memo* as the bytes of its file."""
    body = marshal.dumps(memo, 2)
    return FORM + len(body).to_bytes(8, "little") + digest(body) + body


def unpacked(data: bytes) -> Optional[dict[str, Any]]:
    """The memo in *data*; None unless it is whole. marshal believes its input: the checksum comes first."""
    head = len(FORM) + 8 + DIGEST_SIZE
    if len(data) < head or data[: len(FORM)] != FORM:
        return None
    length = int.from_bytes(data[len(FORM) : len(FORM) + 8], "little")
    body = data[head:]
    if len(body) != length or digest(body) != data[len(FORM) + 8 : head]:
        return None
    try:
        memo = marshal.loads(body)
    except (ValueError, EOFError, TypeError):
        return None
    return memo if isinstance(memo, dict) else None
