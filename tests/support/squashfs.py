"""squashfs 4.0 images from a spec: directories, files, symlinks and device nodes; one user. And SIF files around them.

Source: kernel `fs/squashfs/squashfs_fs.h`. Like mksquashfs -no-fragments -no-exports -no-xattrs.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple, Optional

from gpubind.errors import FormatError
from gpubind.formats.archive import squashfs as reading
from gpubind.formats.archive.squashfs_blocks import unpacker
from tests.support.trees import Dir, Fifo, File, Link, Node, Spec, file_of

GZIP, LZMA, LZO, XZ, LZ4, ZSTD = 1, 2, 3, 4, 5, 6
_DIR, _FILE, _LINK, _BLOCK, _CHAR, _FIFO = 1, 2, 3, 4, 5, 6


class Squashfs(NamedTuple):
    """What the superblock says; replace fields to make it lie."""

    inodes: int
    block_size: int
    fragments: int
    compression: int
    block_log: int
    flags: int
    ids: int
    major: int
    minor: int
    root: int
    bytes_used: int
    id_table: int
    xattrs: int
    inode_table: int
    directory_table: int
    fragment_table: int
    exports: int

    def pack(self) -> bytes:
        first = struct.pack("<4sIIII", b"hsqs", self.inodes, 0, self.block_size, self.fragments)
        return first + struct.pack("<HHHHHHQQQQQQQQ", *self[3:])


class _Table:
    """Metadata: blocks of 8 KiB, packed each."""

    def __init__(self, pack: Callable[[bytes], bytes]) -> None:
        self._pack = pack
        self._pending = b""
        self.data = b""

    def place(self) -> tuple[int, int]:
        return len(self.data), len(self._pending)

    def add(self, data: bytes) -> None:
        self._pending += data
        while len(self._pending) >= 8192:
            self._block(self._pending[:8192])
            self._pending = self._pending[8192:]

    def finish(self) -> bytes:
        if self._pending:
            self._block(self._pending)
        return self.data

    def _block(self, data: bytes) -> None:
        self.data += metadata(data, self._pack)


def metadata(data: bytes, pack: Callable[[bytes], bytes] = zlib.compress) -> bytes:
    """One metadata block."""
    packed = pack(data)
    if len(packed) >= len(data):
        return struct.pack("<H", len(data) | 0x8000) + data
    return struct.pack("<H", len(packed)) + packed


def squashfs(
    spec: Spec,
    *,
    block_size: int = 131072,
    compression: int = GZIP,
    pack: Callable[[bytes], bytes] = zlib.compress,
    change: Callable[[Squashfs], Squashfs] = lambda superblock: superblock,
) -> bytes:
    """The image with the files of *spec*; *change* may falsify its superblock."""
    tree: dict[str, object] = {}
    for path, item in spec.items():
        *parents, name = path.strip("/").split("/")
        here = tree
        for parent in parents:
            here = here.setdefault(parent, {})  # type: ignore[assignment]
        here[name] = here.get(name, {}) if isinstance(item, Dir) else item
    data, inodes, directories = bytearray(96), _Table(pack), _Table(pack)
    count = 0

    def header(kind: int, mode: int) -> bytes:
        nonlocal count
        count += 1
        return struct.pack("<HHHHII", kind, mode, 0, 0, 0, count)

    def blocks(content: bytes) -> tuple[int, bytes]:
        start, words = len(data), b""
        for at in range(0, len(content), block_size):
            block = content[at : at + block_size]
            packed = pack(block)
            if not block.strip(b"\0") and len(block) == block_size:
                words += struct.pack("<I", 0)
                continue
            words += struct.pack("<I", len(packed) if len(packed) < len(block) else len(block) | 1 << 24)
            data.extend(packed if len(packed) < len(block) else block)
        return start, words

    def inode(item: object) -> tuple[tuple[int, int], int]:
        if isinstance(item, dict):
            entries = [(name.encode("utf-8", "surrogateescape"), *inode(child)) for name, child in sorted(item.items())]
            listing = b""
            for name, (block, offset), kind in entries:  # one run each: simple, and legal
                listing += struct.pack("<III", 0, block, 1)
                listing += struct.pack("<HhHH", offset, 0, kind, len(name) - 1) + name
            block, offset = directories.place()
            directories.add(listing)
            body = struct.pack("<IIIIHHI", 2, len(listing) + 3, block, 1, 0, offset, 0xFFFFFFFF)
            kind, made = _DIR, header(8, 0o755) + body
        elif isinstance(item, (bytes, str, File)):
            file = file_of(item)
            start, words = blocks(file.data)
            kind = _FILE
            made = header(2, file.mode) + struct.pack("<IIII", start, 0xFFFFFFFF, 0, len(file.data)) + words
        elif isinstance(item, Link):
            target = item.target.encode("utf-8", "surrogateescape")
            kind, made = _LINK, header(3, 0o777) + struct.pack("<II", 1, len(target)) + target
        elif isinstance(item, Node):
            kind = _CHAR if item.kind == "char" else _BLOCK
            made = header(kind, item.mode) + struct.pack("<II", 1, item.major << 8 | item.minor)
        elif isinstance(item, Fifo):
            kind, made = _FIFO, header(_FIFO, item.mode) + struct.pack("<I", 1)
        else:
            raise TypeError(f"{item!r} cannot be put into squashfs")
        place = inodes.place()
        inodes.add(made)
        return place, kind

    (block, offset), _ = inode(tree)
    inode_table = len(data)
    data += inodes.finish()
    directory_table = len(data)
    data += directories.finish()
    fragment_table = len(data)
    ids = len(data)
    data += metadata(bytes(4), pack)
    id_table = len(data)
    data += struct.pack("<Q", ids)
    none = 0xFFFFFFFFFFFFFFFF
    superblock = Squashfs(
        inodes=count,
        block_size=block_size,
        fragments=0,
        compression=compression,
        block_log=block_size.bit_length() - 1,
        flags=0x0210,
        ids=1,
        major=4,
        minor=0,
        root=block << 16 | offset,
        bytes_used=len(data),
        id_table=id_table,
        xattrs=none,
        inode_table=inode_table,
        directory_table=directory_table,
        fragment_table=fragment_table,
        exports=none,
    )
    data[:96] = change(superblock).pack()
    return bytes(data)


class SifObject(NamedTuple):
    """A descriptor and its object; *offset* and *size* of None are the right ones."""

    data: bytes
    data_type: int = 0x4004
    file_system: int = 1
    part: int = 2
    arch: bytes = b"02"
    offset: Optional[int] = None
    size: Optional[int] = None
    used: bool = True


def sif(
    *objects: SifObject,
    slots: int = 4,
    total: Optional[int] = None,
    table: int = 4096,
    table_size: Optional[int] = None,
    magic: bytes = b"SIF_MAGIC\0",
) -> bytes:
    """A SIF file with *objects*, laid out as Apptainer does."""
    total = slots if total is None else total
    table_size = total * 585 if table_size is None else table_size
    head = struct.pack("<32s10s3s3s16s", b"#!/usr/bin/env run-singularity\n", magic, b"01", b"02", bytes(16))
    data = 8192
    head += struct.pack("<qqqqqqqq", 0, 0, slots - len(objects), total, table, table_size, data, 0)
    descriptors, body = b"", b""
    for number, item in enumerate(objects):
        extra = struct.pack("<ii3s", item.file_system, item.part, item.arch) if item.data_type == 0x4004 else b""
        offset = data + len(body) if item.offset is None else item.offset
        size = len(item.data) if item.size is None else item.size
        descriptors += struct.pack(
            "<i?IIIqqqqqqq128s384s",
            item.data_type, item.used, number + 1, 0xF0000001, 0, offset, size, size, 0, 0, 0, 0, b"", extra,
        )  # fmt: skip
        body += item.data + bytes(-len(item.data) % 4096)
    out = bytearray(data) + body
    out[:128] = head
    out[4096 : 4096 + len(descriptors)] = descriptors
    return bytes(out)


def opened(data: bytes) -> reading.Squashfs:
    """The image *data*, opened by gpubind's reader."""
    reading.parse_version(data[:96])
    superblock = reading.parse_superblock(data[:96], len(data))
    unpack = unpacker(superblock.compression)
    if unpack is None:
        raise FormatError("missing-package", "no reader", place="byte 20", why=str(superblock.compression))
    return reading.Squashfs(superblock, lambda offset, size: data[offset : offset + size], unpack)
