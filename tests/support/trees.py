"""Trees from a dict: path -> what is there. The same dict makes a real directory tree, a recorded one, or a host.

    HOST = {
        "/usr/lib64/libcuda.so.550.54.14": elf("libcuda.so.1"),
        "/usr/lib64/libcuda.so.1": Link("libcuda.so.550.54.14"),
        "/dev/nvidia0": Node("char", 195, 0),
    }

Directories on the way are made. Device nodes, and what is forbidden, exist only in records: tests run as any user.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, Optional, Union

from gpubind.errors import FormatError
from gpubind.files.live import LiveTree
from gpubind.formats.elf.dynamic import parse_elf
from gpubind.formats.elf.elf import HEAD_SIZE, ElfFacts, ElfIdent, is_stub, parse_ident
from gpubind.host.record import (
    Record,
    RecordedDirectory,
    RecordedEntry,
    RecordedList,
    RecordedRoot,
    RecordedRun,
)
from gpubind.host.recorded import RecordedHost, RecordedTree
from gpubind.model import HostPath, Missing, Stat

ABSENT, FORBIDDEN = Missing("absent"), Missing("forbidden", "permission denied")


class File(NamedTuple):
    """A regular file; plain bytes or text will do where the mode does not matter."""

    data: bytes = b""
    mode: int = 0o644


class Link(NamedTuple):
    """A symbolic link."""

    target: str


class Dir(NamedTuple):
    """A directory that has to be there even if empty, or whose mode matters."""

    mode: int = 0o755


class Fifo(NamedTuple):
    """A FIFO."""

    mode: int = 0o644


class Socket(NamedTuple):
    """A socket that nobody listens on."""

    mode: int = 0o666


class Node(NamedTuple):
    """A device node; in records only."""

    kind: Literal["char", "block"]
    major: int
    minor: int
    mode: int = 0o666
    uid: int = 0
    gid: int = 0
    acl: str = ""


class Hidden(NamedTuple):
    """Something that cannot be looked at; in records only. As a directory: it cannot be listed or searched."""

    directory: bool = False


class Unread(NamedTuple):
    """A file that is there, and of which the kernel tells nothing; in records only."""

    why: str = "Input/output error"


SMALL = 1 << 16
"""Files that are smaller are parsed once in a process."""
Item = Union[bytes, str, File, Link, Dir, Fifo, Socket, Node, Hidden, Unread]
Spec = Mapping[str, Item]


def make_tree(root: Union[str, os.PathLike[str]], spec: Spec) -> LiveTree:
    """*spec* as a real directory tree below *root*, which is made if it is not there."""
    base = os.fspath(root)
    os.makedirs(base, exist_ok=True)
    modes: list[tuple[str, int]] = []
    for path, item in spec.items():
        assert path.startswith("/"), path
        real = base + path
        os.makedirs(os.path.dirname(real), exist_ok=True)
        if isinstance(item, (bytes, str, File)):
            file = file_of(item)
            with open(real, "wb") as stream:
                stream.write(file.data)
            modes.append((real, file.mode))
        elif isinstance(item, Link):
            os.symlink(item.target, real)
        elif isinstance(item, Dir):
            os.makedirs(real, exist_ok=True)
            modes.append((real, item.mode))
        elif isinstance(item, (Fifo, Socket)):
            kind = stat.S_IFIFO if isinstance(item, Fifo) else stat.S_IFSOCK
            os.mknod(real, kind | 0o600)
            modes.append((real, item.mode))
        else:
            raise TypeError(f"{path}: {item!r} can only be recorded")
    for real, mode in modes:
        os.chmod(real, mode)
    return LiveTree(base)


def recorded_root(spec: Spec, root: str = "/") -> RecordedRoot:
    """*spec* as a survey that looked at everything below the root would have written it down."""
    entries: dict[str, dict[str, RecordedEntry]] = {"/": {}}
    hidden: set[str] = set()
    for path, item in spec.items():
        assert path.startswith("/"), path
        for directory in _parents(path):
            if directory != "/":
                parent, _, name = directory.rpartition("/")
                entries[parent or "/"].setdefault(name, RecordedEntry(Stat("dir", 0o755, 0, 0, 0)))
            entries.setdefault(directory, {})
        parent, _, name = path.rpartition("/")
        entries[parent or "/"][name] = _recorded(item)
        if isinstance(item, Dir):
            entries.setdefault(path, {})
        elif isinstance(item, Hidden) and item.directory:
            entries.setdefault(path, {})
            hidden.add(path)
    directories = {
        path: RecordedDirectory(names, (), FORBIDDEN if path in hidden else True) for path, names in entries.items()
    }
    return RecordedRoot(HostPath(root), directories)


def recorded_tree(spec: Spec, root: str = "/") -> RecordedTree:
    """*spec* as a tree that needs no files."""
    return RecordedTree(recorded_root(spec, root), "test")


def record(
    spec: Spec,
    dev: Optional[Spec] = None,
    *,
    environ: Optional[Mapping[str, str]] = None,
    release: str = "6.12.0",
    machine: str = "x86_64",
    euid: int = 1000,
    groups: tuple[int, ...] = (1000,),
    lists: tuple[RecordedList, ...] = (),
    runs: tuple[RecordedRun, ...] = (),
    root: str = "/",
) -> Record:
    """A record of a host with these files; *dev* where the device tree is another one."""
    return Record(
        description="built by a test",
        hostname=None,
        driver=recorded_root(spec, root),
        dev=None if dev is None else recorded_root(dev),
        environ=dict(environ or {}),
        release=release,
        machine=machine,
        euid=euid,
        groups=groups,
        lists=lists,
        runs=runs,
    )


def recorded_host(spec: Spec, dev: Optional[Spec] = None) -> RecordedHost:
    """A host with these files, and nothing in its environment."""
    return RecordedHost(record(spec, dev), "test")


def _parents(path: str) -> Iterator[str]:
    """`/`, `/a`, `/a/b` for `/a/b/c`."""
    parts = path.split("/")[1:-1]
    yield "/"
    for number in range(len(parts)):
        yield "/" + "/".join(parts[: number + 1])


def file_of(item: Union[bytes, str, File]) -> File:
    """Return a regular file as a value with a mode."""
    if isinstance(item, File):
        return item
    return File(item.encode("utf-8", "surrogateescape") if isinstance(item, str) else item)


def _recorded_file(file: File) -> RecordedEntry:
    ident = parse_ident(file.data[:HEAD_SIZE])
    facts: Union[ElfFacts, Missing] = Missing("unreadable", "not an ELF file")
    if isinstance(ident, ElfIdent):
        try:
            facts = parse_elf(io.BytesIO(file.data))
        except FormatError as error:
            facts = Missing("unreadable", f"{error.what}: {error.why}")
    found = Stat("file", file.mode, 0, 0, len(file.data))
    if file.mode & 0o444 == 0:  # nobody may read it
        return RecordedEntry(found, None, FORBIDDEN, FORBIDDEN, FORBIDDEN)
    return RecordedEntry(found, None, file.data, ident, facts, is_stub(file.data))


_recorded_again = lru_cache(maxsize=4096)(_recorded_file)
"""The same libraries are in most hosts and images."""


def _recorded(item: Item) -> RecordedEntry:
    if isinstance(item, (bytes, str, File)):
        file = file_of(item)
        return (_recorded_again if len(file.data) < SMALL else _recorded_file)(file)
    if isinstance(item, Link):
        return RecordedEntry(Stat("link", 0o777, 0, 0, 0), item.target)
    if isinstance(item, Dir):
        return RecordedEntry(Stat("dir", item.mode, 0, 0, 0))
    if isinstance(item, Fifo):
        return RecordedEntry(Stat("fifo", item.mode, 0, 0, 0))
    if isinstance(item, Socket):
        return RecordedEntry(Stat("socket", item.mode, 0, 0, 0))
    if isinstance(item, Node):
        return RecordedEntry(Stat(item.kind, item.mode, item.uid, item.gid, 0, item.major, item.minor, item.acl))
    if isinstance(item, Unread):
        why = Missing("unreadable", item.why)
        return RecordedEntry(Stat("file", 0o444, 0, 0, 4096), None, why, why, why)
    return RecordedEntry(Stat("dir", 0o700, 0, 0, 0) if item.directory else FORBIDDEN)
