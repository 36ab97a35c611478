"""The structures of squashfs 4.0: superblock, inodes, listings of directories. Bytes in, values out."""

from __future__ import annotations

import stat
import struct
from typing import NamedTuple, Optional

from gpubind.errors import Format
from gpubind.model import FileKind

MAGIC = b"hsqs"
SUPERBLOCK_SIZE = 96
INODE_HEADER_SIZE = 16
BLOCK_SIZES = range(4096, (1 << 20) + 1)
LINK_LIMIT = 4096
"""Bytes of a symbolic link's target; Linux's PATH_MAX."""
RUN_LIMIT = 256
"""Entries of a directory that share one header."""
NAME_LIMIT = 256
COMPRESSIONS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}

_NONE = 0xFFFFFFFF  # for a fragment: the file has none
_VERSION = struct.Struct("<HH")
_VERSION_AT = 28
_SUPERBLOCK = struct.Struct("<4sIIIIHHHHHHQQQQQQQQ")
_INODE = struct.Struct("<HHHHII")
_RUN = struct.Struct("<III")
_ENTRY = struct.Struct("<HhHH")

_KINDS: tuple[tuple[FileKind, int], ...] = (
    ("dir", stat.S_IFDIR),
    ("file", stat.S_IFREG),
    ("link", stat.S_IFLNK),
    ("block", stat.S_IFBLK),
    ("char", stat.S_IFCHR),
    ("fifo", stat.S_IFIFO),
    ("socket", stat.S_IFSOCK),
)
"""By an inode's type less one; the seven extended types follow in the same order."""
_BASIC = tuple(map(struct.Struct, ("<IIHHI", "<IIII", "<II", "<II", "<II", "<I", "<I")))
_EXTENDED = tuple(map(struct.Struct, ("<IIIIHHI", "<QQQIIII", "<II", "<III", "<III", "<II", "<II")))
"""What follows the header of an inode, but for what has no fixed size."""

damaged = Format("bad-squashfs", "damaged squashfs image").damaged
bomb = Format("image-bomb", "the image unpacks to far more than images do").damaged


class Superblock(NamedTuple):
    """The first 96 bytes, as far as they are needed. Offsets count from the start of the image, in bytes."""

    block_size: int
    """Bytes that a block of a file unpacks to."""
    compression: str
    """Of `COMPRESSIONS`, or `number N`."""
    bytes_used: int
    """Of the image; padding may follow."""
    root: int
    """The reference of the root directory's inode."""
    fragments: int
    ids: int
    inode_table: int
    directory_table: int
    fragment_table: int
    id_table: int


class MetadataReference(NamedTuple):
    """A place in metadata."""

    block: int
    """Where the metadata block starts in the image, in bytes."""
    offset: int
    """In what the block unpacks to."""

    def __str__(self) -> str:
        return f"byte {self.block}, offset {self.offset}"


class Inode(NamedTuple):
    """A file of any kind."""

    kind: FileKind
    mode: int
    """Permission bits with set-id and sticky, e.g. 0o644."""
    uid: int
    """Index into the table of ids, as *gid* is."""
    gid: int
    size: int
    """Bytes: of a file's data, of a directory's listing, of a link's target; else 0."""
    start: int
    """Of a file: where its first block starts in the image. Of a directory: where the metadata block with its listing
    starts in the table of directories."""
    offset: int
    """In what that metadata block unpacks to; of a file: where its tail starts in the fragment."""
    fragment: Optional[int]
    """The fragment that has a file's tail."""
    device: tuple[int, int]
    """Major and minor number."""
    rest: MetadataReference
    """What has no fixed size: a file's words of blocks, a link's target."""


def parse_version(head: bytes) -> tuple[int, int]:
    """Return the version of the format, by the first 96 bytes. Structures of versions before 4.0 are others.

    Errors: `FormatError` (code `bad-squashfs`) for what is no superblock.
    """
    if len(head) < SUPERBLOCK_SIZE or not head.startswith(MAGIC):
        raise damaged("no superblock", "byte 0")
    major, minor = _VERSION.unpack_from(head, _VERSION_AT)
    return major, minor


def parse_superblock(head: bytes, size: int) -> Superblock:
    """Return the superblock of an image of version 4.0 that has *size* bytes, with padding.

    Errors: `FormatError` (code `bad-squashfs`) with the byte offset.
    """
    parse_version(head)
    (
        _, _, _, block_size, fragments, compression, block_log, _, ids, _, _,
        root, bytes_used, id_table, _, inode_table, directory_table, fragment_table, _,
    ) = _SUPERBLOCK.unpack_from(head)  # fmt: skip
    if block_size not in BLOCK_SIZES or block_log != block_size.bit_length() - 1 or block_size != 1 << block_log:
        raise damaged(f"blocks of {block_size} bytes", "byte 12")
    if not SUPERBLOCK_SIZE <= bytes_used <= size:
        raise damaged(f"it has {bytes_used} bytes, {size} are there", "byte 40")
    if not SUPERBLOCK_SIZE <= inode_table < directory_table <= bytes_used:
        raise damaged(f"inodes from byte {inode_table} to byte {directory_table}", "byte 64")
    name = COMPRESSIONS.get(compression, f"number {compression}")
    return Superblock(
        block_size, name, bytes_used, root, fragments, ids, inode_table, directory_table, fragment_table, id_table
    )


def inode_body_size(header: bytes, place: MetadataReference) -> int:
    """Return how many bytes of fixed size follow the *header* (`INODE_HEADER_SIZE` bytes) of the inode at *place*.

    Errors: `FormatError` (code `bad-squashfs`).
    """
    number = int.from_bytes(header[:2], "little")
    if not 1 <= number <= 2 * len(_KINDS):
        raise damaged(f"an inode of type {number}", place)
    return (_BASIC + _EXTENDED)[number - 1].size


def parse_inode(header: bytes, body: bytes, place: MetadataReference, rest: MetadataReference) -> Inode:
    """The inode at *place*, of its header and the `inode_body_size` bytes behind it; *rest* is what follows these.

    Errors: `FormatError` (code `bad-squashfs`) for a type that the mode contradicts, and for a link that is too long.
    """
    number, mode, uid, gid, _, _ = _INODE.unpack_from(header)
    extended, index = divmod(number - 1, len(_KINDS))
    kind, bits = _KINDS[index]
    fields = (_EXTENDED if extended else _BASIC)[index].unpack_from(body)
    if stat.S_IFMT(mode) not in (0, bits):  # mksquashfs leaves them out
        raise damaged(f"the inode of a {kind} with the mode 0o{mode:o}", place)
    size, start, offset, fragment, device = 0, 0, 0, _NONE, 0
    if kind == "dir":
        if extended:
            _, size, start, _, _, offset, _ = fields
        else:
            start, _, size, offset, _ = fields
        size = max(size - 3, 0)  # for `.` and `..`, which are not stored
    elif kind == "file":
        if extended:
            start, size, _, _, fragment, offset, _ = fields
        else:
            start, fragment, offset, size = fields
    elif kind == "link":
        size = fields[1]
        if size > LINK_LIMIT:
            raise damaged(f"a link of {size} bytes", place)
    elif kind in ("block", "char"):
        device = fields[1]
    return Inode(
        kind,
        stat.S_IMODE(mode),
        uid,
        gid,
        size,
        start,
        offset,
        None if fragment == _NONE else fragment,
        (device >> 8 & 0xFFF, device & 0xFF | device >> 12 & 0xFFF00),  # as the kernel's new_decode_dev
        rest,
    )


def parse_listing(data: bytes, place: MetadataReference, limit: int) -> dict[str, int]:
    """Return the names in the listing of a directory at *place*, each with the reference of its inode.

    Errors: `FormatError`: `bad-squashfs` for a run of entries or a name that cannot be, and for a listing that ends
    early; `image-bomb` for more than *limit* names.
    """
    names: dict[str, int] = {}
    at, size = 0, len(data)
    entry = _ENTRY.unpack_from
    try:
        while at < size:
            more, block, _ = _RUN.unpack_from(data, at)
            at += _RUN.size
            if more >= RUN_LIMIT:
                raise damaged(f"a run of {more + 1} names", place)
            if len(names) + more >= limit:
                raise bomb(f"a directory has more than {limit} names", place)
            block <<= 16
            for _ in range(more + 1):
                offset, _, _, length = entry(data, at)
                end = at + 9 + length  # names have one byte more than is said
                name = data[at + 8 : end]
                if end > size or length >= NAME_LIMIT or b"/" in name or b"\0" in name or name in (b".", b".."):
                    raise damaged(f"a name {name[:40]!r}", place)
                names.setdefault(name.decode("utf-8", "surrogateescape"), block | offset)
                at = end
    except struct.error as error:
        raise damaged(f"the listing of a directory ends after {size} bytes", place) from error
    return names
