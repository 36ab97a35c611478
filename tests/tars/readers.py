"""What each reader makes of an archive: gpubind, Python's tarfile, GNU tar."""

from __future__ import annotations

import codecs
import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from typing import NamedTuple

from gpubind.files.blob import Blob, BlobPart, BytesBlob
from gpubind.image.tar import members, open_sparse


class Seen(NamedTuple):
    """A member, as every reader can tell it."""

    kind: str
    name: str
    link: str
    mode: int
    uid: int
    gid: int
    size: int
    device: tuple[int, int]


KINDS = {"-": "file", "C": "file", "h": "hardlink", "l": "link", "c": "char", "b": "block", "d": "dir", "p": "fifo"}
_LINE = re.compile(
    rb"(?P<kind>.)(?P<mode>[-rwxsStT]{9}) (?P<uid>\d+)/(?P<gid>\d+) +(?:(?P<size>\d+)|(?P<major>\d+),(?P<minor>\d+)) "
    rb'\S+ \S+ +"(?P<name>(?:[^"\\]|\\.)*)"(?: (?:->|link to) "(?P<link>(?:[^"\\]|\\.)*)")?'
)
_BITS = ((0, "r"), (1, "w"), (2, "x"), (3, "r"), (4, "w"), (5, "x"), (6, "r"), (7, "w"), (8, "x"))
_EXTRA = {2: 0o4000, 5: 0o2000, 8: 0o1000}


def seen_by_gpubind(archive: Blob) -> Iterator[tuple[Seen, int]]:
    """Return each member, and where its data is; of a sparse file, where its header or first record is."""
    for header, start, data, _ in members(archive):
        kind = header.kind or "?"
        name = header.name.rstrip("/") if kind == "dir" else header.name
        device = (header.major, header.minor)
        seen = Seen(kind, name, header.link, header.mode, header.uid, header.gid, header.size, device)
        yield seen, start if header.sparse else data


def by_gpubind(data: bytes) -> tuple[list[Seen], list[bytes]]:
    """Return the members, and the bytes of each file."""
    found, bodies = [], []
    blob = BytesBlob(data, "archive")
    for (seen, offset), (header, *_) in zip(seen_by_gpubind(blob), members(blob)):
        found.append(seen)
        if header.kind == "file":
            file = open_sparse(blob, offset, "file") if header.sparse else BlobPart(blob, offset, seen.size)
            bodies.append(file.read_at(0, seen.size))
    return found, bodies


def by_tarfile(data: bytes) -> tuple[list[Seen], list[bytes]]:
    seen, bodies = [], []
    with tarfile.open(fileobj=io.BytesIO(data), errorlevel=2) as archive:
        for info in archive:
            kind = _kind(info)
            device = (info.devmajor, info.devminor) if kind in ("char", "block") else (0, 0)
            link = info.linkname if kind in ("link", "hardlink") else ""
            size = info.size if kind == "file" else 0
            seen.append(Seen(kind, info.name, link, info.mode & 0o7777, info.uid, info.gid, size, device))
            if kind == "file":
                body = archive.extractfile(info)
                assert body is not None
                bodies.append(body.read())
    return seen, bodies


def by_gnu_tar(path: str) -> tuple[list[Seen], bytes]:
    """Return the members of the archive *path*, and the bytes of all its files, one after the other."""
    return listed_by_gnu_tar(path), _asked(["tar", "--extract", "--to-stdout", f"--file={path}"])


def listed_by_gnu_tar(path: str) -> list[Seen]:
    words = ["tar", "--list", "--verbose", "--numeric-owner", "--quoting-style=c", "--full-time", f"--file={path}"]
    return [_listed(line) for line in _asked(words).splitlines()]


def _asked(words: list[str]) -> bytes:
    done = subprocess.run(words, capture_output=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin", "TZ": "UTC"})
    if done.returncode or done.stderr:
        raise AssertionError(f"{words}: {done.stderr!r}")
    return done.stdout


def _listed(line: bytes) -> Seen:
    found = _LINE.fullmatch(line)
    assert found is not None, line
    kind = KINDS[found["kind"].decode()]
    name = _unquoted(found["name"])
    device = (int(found["major"]), int(found["minor"])) if found["major"] else (0, 0)
    return Seen(
        kind,
        name.rstrip("/") if kind == "dir" else name,
        _unquoted(found["link"] or b""),
        _mode(found["mode"].decode()),
        int(found["uid"]),
        int(found["gid"]),
        int(found["size"] or 0) if kind == "file" else 0,
        device,
    )


def _unquoted(text: bytes) -> str:
    return codecs.escape_decode(text)[0].decode("utf-8", "surrogateescape")


def _mode(text: str) -> int:
    mode = 0
    for at, letter in _BITS:
        if text[at] in (letter, "s", "t"):
            mode |= 0o400 >> at
        if text[at] in "sStT":
            mode |= _EXTRA[at]
    return mode


def _kind(info: tarfile.TarInfo) -> str:
    if info.islnk():
        return "hardlink"
    if info.issym():
        return "link"
    by_type = {tarfile.CHRTYPE: "char", tarfile.BLKTYPE: "block", tarfile.FIFOTYPE: "fifo", tarfile.DIRTYPE: "dir"}
    return by_type.get(info.type, "file")
