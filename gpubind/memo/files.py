"""The directories of memos, the trust in them, and the form of their files.

A memo is believed only if its checksum is right, which is keyed by a secret of its owner. So nothing that another user
has put there is believed: not an archive that the user unpacks, and not a directory that another user created first.
"""

from __future__ import annotations

import marshal
import os
import posix  # `os` may be a recorder's
import stat

from gpubind.memo.questions import DIGEST_SIZE, OWN_FILES, digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Optional

FORM = b"gpubind memo 3\n"
"""The first bytes of a memo, with the number of the form's version."""
SIZE_LIMIT = 8 << 20
ROOTS_DIRECTORY = "/run/gpubind"
"""The directory of root's memos and secret. It lasts as long as the machine runs, and so do the inputs of the memos."""
SECRET = "memo.key"
SECRET_SIZE = 32


def directories() -> Iterator[str]:
    """Yield the directories of memos, the best one first. Root's do not depend on the environment."""
    if os.geteuid() == 0:
        yield f"{ROOTS_DIRECTORY}/memo"
        return
    names = ("XDG_RUNTIME_DIR", "gpubind/memo"), ("XDG_CACHE_HOME", "gpubind/memo"), ("HOME", ".cache/gpubind/memo")
    yield from _below(names)


def secret_directory() -> Optional[str]:
    """Return the directory of the secret that keys the checksums.

    Source: XDG Base Directory Specification, XDG_STATE_HOME.
    """
    if os.geteuid() == 0:
        return ROOTS_DIRECTORY
    return next(_below((("XDG_STATE_HOME", "gpubind"), ("HOME", ".local/state/gpubind"))), None)


def _below(places: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for variable, below in places:
        base = os.environ.get(variable, "")
        if base.startswith("/"):
            yield f"{base}/{below}"


def open_directory(path: str, others: int = 0o077) -> Optional[int]:
    """Return the directory *path*, opened; None if another user could have put it there.

    *others*: the rights that other users must not have on it; by default, any.
    """
    try:
        place = posix.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        stat_result = posix.fstat(place)
        above = {*_above(path), *_above(posix.readlink(f"{OWN_FILES}/{place}"))}  # as it is named, and as it is
        if stat_result.st_uid == os.geteuid() and not stat_result.st_mode & others and all(map(is_closed, above)):
            return place
    except OSError:
        pass
    posix.close(place)
    return None


def _above(path: str) -> list[str]:
    above = [os.path.dirname(path)]
    while above[-1] not in ("/", ""):
        above.append(os.path.dirname(above[-1]))
    return above


def is_closed(directory: str) -> bool:
    """Return whether only root and the caller may write to *directory*. A sticky bit, as in /tmp, does not suffice.

    A group that has the ID of the caller is taken for the caller, its only user by convention.
    """
    try:
        stat_result = posix.stat(directory)
    except OSError:
        return False
    me = os.geteuid()
    others = 0o002 if stat_result.st_gid == stat_result.st_uid == me != 0 else 0o022
    return stat.S_ISDIR(stat_result.st_mode) and stat_result.st_uid in (0, me) and not stat_result.st_mode & others


def open_place() -> Optional[tuple[int, bytes]]:
    """Return the directory of memos, opened, and the secret of their checksums; None if either is missing."""
    secret = read_secret()
    place = None if secret is None else next(filter(None, map(open_directory, directories())), None)
    return None if place is None or secret is None else (place, secret)


def read_secret() -> Optional[bytes]:
    """Return the caller's secret; None if there is none yet, or none that is private to the caller."""
    path = secret_directory()
    place = None if path is None else open_directory(path, 0o022)
    if place is None:
        return None
    try:
        data = _read(place, SECRET, SECRET_SIZE)
    finally:
        posix.close(place)
    return data if data is not None and len(data) == SECRET_SIZE else None


def read_memo(place: int, name: str, secret: bytes) -> Optional[dict[str, Any]]:
    """Return the memo *name*; None if it is missing, not the caller's, or incomplete."""
    data = _read(place, name, SIZE_LIMIT)
    return None if data is None else unpacked(data, name, secret)


def _read(place: int, name: str, limit: int) -> Optional[bytes]:
    try:
        file = posix.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except OSError:
        return None
    try:
        stat_result = posix.fstat(file)
        mine = stat_result.st_uid == os.geteuid() and not stat_result.st_mode & 0o077
        if not stat.S_ISREG(stat_result.st_mode) or not mine or stat_result.st_size > limit:
            return None
        data = b""
        while len(data) < stat_result.st_size:
            more = posix.read(file, stat_result.st_size - len(data))
            if not more:
                break
            data += more
        return data
    except OSError:
        return None
    finally:
        posix.close(file)


def packed(memo: dict[str, Any], name: str, secret: bytes) -> bytes:
    """Return *memo* as the bytes of the file *name*."""
    body = marshal.dumps(memo, 2)
    return FORM + _checksum(body, name, secret) + body


def unpacked(data: bytes, name: str, secret: bytes) -> Optional[dict[str, Any]]:
    """Return the memo in *data*; None unless its checksum is right: marshal trusts its input."""
    head = len(FORM) + DIGEST_SIZE
    body = data[head:]
    memo: Optional[dict[str, Any]] = None
    if data[:head] == FORM + _checksum(body, name, secret):
        memo = marshal.loads(body)
    return memo


def _checksum(body: bytes, name: str, secret: bytes) -> bytes:
    head = FORM + name.encode("utf-8", "surrogateescape") + b"\0"
    return digest(head + body, secret)
