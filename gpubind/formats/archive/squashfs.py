"""squashfs 4.0, the file system in SIF files, read from bytes at offsets.

All numbers are little endian. Some parts are not read, because they contain no needed fact: the options of the
compressor, the table for NFS, extended attributes, and the indexes of large directories, which only speed up lookups.
Source: the kernel's `Documentation/filesystems/squashfs.rst` and `fs/squashfs/squashfs_fs.h`; compared with what
mksquashfs 4.5 writes.

Only requested parts are read: an inode, the listing of a directory, some bytes of a file. Limits bound the size of each
unpacked block, of all blocks, of all listings and of the caches, whatever an image claims. No function walks a tree, so
none is recursive.
"""

from __future__ import annotations

import stat
import struct
from array import array
from collections.abc import Callable
from functools import lru_cache
from typing import Optional

from gpubind.errors import IMAGE_BOMB, Format, GpubindError
from gpubind.formats.archive.squashfs_blocks import Unpack
from gpubind.frozen import NamedTuple
from gpubind.model import FileKind

MAGIC = b"hsqs"
SUPERBLOCK_SIZE = 96
_INODE_HEADER_SIZE = 16
_BLOCK_SIZES = range(4096, (1 << 20) + 1)
_LINK_LIMIT = 4096
"""Bytes of a symbolic link's target; Linux's PATH_MAX."""
_RUN_LIMIT = 256
"""Maximum entries of a directory that share one header."""
NAME_LIMIT = 256
_COMPRESSIONS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}

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
"""The kind of each type of inode, from type 1 on. The seven extended types follow in the same order."""
_BASIC = tuple(map(struct.Struct, ("<IIHHI", "<IIII", "<II", "<II", "<II", "<I", "<I")))
_EXTENDED = tuple(map(struct.Struct, ("<IIIIHHI", "<QQQIIII", "<II", "<III", "<III", "<II", "<II")))
"""The parts of fixed size after the header of an inode."""

damaged = Format("bad-squashfs", "damaged squashfs image").damaged
bomb = IMAGE_BOMB.damaged

_METADATA_SIZE = 8192
"""Bytes of an unpacked metadata block; the last block of a table may have fewer."""
_METADATA_KEPT = 512  # 4 MiB
_DATA_KEPT = 16  # blocks of up to 1 MiB
_LISTING_LIMIT = 24 << 20  # a directory of 500,000 files
ALL_LISTINGS_LIMIT = 64 << 20
"""Maximum bytes of all listings that are read in one image."""
NAMES_LIMIT = 1 << 19
"""Maximum names in these listings. Each takes about 200 bytes of memory."""
_BLOCK_SIZES_STEP = _METADATA_SIZE // 4
_BLOCKS_LIMIT = 1 << 20  # of one file: 128 GiB in blocks of the usual size
FILE_UNPACKED_LIMIT = 64 << 20
"""Maximum bytes that are unpacked for one open file. The facts of an ELF file are in about ten blocks."""
_UNPACKED_ALLOWANCE = 512 << 20
_UNPACKED_RATIO = 20
"""Unpacked bytes of all blocks that are allowed for each byte that was read, up to the image's size, in addition to
`_UNPACKED_ALLOWANCE`.
"""

ReadAt = Callable[[int, int], bytes]
"""Returns *size* bytes at an offset; fewer only at the end of the image."""

_POINTER = struct.Struct("<Q")
_FRAGMENT = struct.Struct("<QI4x")


class Superblock(NamedTuple):
    """The needed fields of the first 96 bytes. Offsets count from the start of the image, in bytes."""

    block_size: int
    """Bytes of an unpacked block of a file."""
    compression: str
    """A name in `_COMPRESSIONS`, or `number N`."""
    bytes_used: int
    """The size of the image; padding may follow."""
    root: int
    """The reference of the root directory's inode."""
    fragments: int
    ids: int
    inode_table: int
    directory_table: int
    fragment_table: int
    id_table: int


class MetadataReference(NamedTuple):
    """A location in the metadata."""

    block: int
    """The offset of the metadata block in the image, in bytes."""
    offset: int
    """The offset in the unpacked block."""

    def __str__(self) -> str:
        return f"byte {self.block}, offset {self.offset}"


class Inode(NamedTuple):
    """A file of any kind."""

    kind: FileKind
    mode: int
    """Permission bits with set-id and sticky, e.g. 0o644."""
    uid: int
    """Index into the table of ids, like `gid`."""
    gid: int
    size: int
    """The size in bytes of a file's data, of a directory's listing, or of a link's target; 0 for any other kind."""
    start: int
    """For a file, the offset of its first block in the image. For a directory, the offset, in the table of
    directories, of the metadata block that has its listing.
    """
    offset: int
    """For a file, the offset of its tail in the fragment. For a directory, the offset of its listing in the
    unpacked block.
    """
    fragment: Optional[int]
    """The fragment that has a file's tail."""
    device: tuple[int, int]
    """Major and minor number."""
    after_body: MetadataReference
    """The location of the part of variable size: the sizes of a file's blocks, or a link's target."""


def parse_version(head: bytes) -> tuple[int, int]:
    """Return the version of the format, by the first 96 bytes. Versions before 4.0 have other structures.

    Errors: `FormatError` (code `bad-squashfs`) for anything but a superblock.
    """
    if len(head) < SUPERBLOCK_SIZE or not head.startswith(MAGIC):
        raise damaged("no superblock", "byte 0")
    major, minor = _VERSION.unpack_from(head, _VERSION_AT)
    return major, minor


def parse_superblock(head: bytes, size: int) -> Superblock:
    """Return the superblock of an image of version 4.0; *size* includes padding.

    Errors: `FormatError` (code `bad-squashfs`) with the byte offset.
    """
    parse_version(head)
    (
        _, _, _, block_size, fragments, compression, block_log, _, ids, _, _,
        root, bytes_used, id_table, _, inode_table, directory_table, fragment_table, _,
    ) = _SUPERBLOCK.unpack_from(head)  # fmt: skip
    if block_size not in _BLOCK_SIZES or block_log != block_size.bit_length() - 1 or block_size != 1 << block_log:
        raise damaged(f"blocks of {block_size} bytes", "byte 12")
    if not SUPERBLOCK_SIZE <= bytes_used <= size:
        raise damaged(f"it has {bytes_used} bytes, {size} are there", "byte 40")
    if not SUPERBLOCK_SIZE <= inode_table < directory_table <= bytes_used:
        raise damaged(f"inodes from byte {inode_table} to byte {directory_table}", "byte 64")
    name = _COMPRESSIONS.get(compression, f"number {compression}")
    return Superblock(
        block_size, name, bytes_used, root, fragments, ids, inode_table, directory_table, fragment_table, id_table
    )


def inode_body_size(header: bytes, place: MetadataReference) -> int:
    """Return the bytes of fixed size after the *header* (`_INODE_HEADER_SIZE` bytes) of the inode at *place*.

    Errors: `FormatError` (code `bad-squashfs`).
    """
    number = int.from_bytes(header[:2], "little")
    if not 1 <= number <= 2 * len(_KINDS):
        raise damaged(f"an inode of type {number}", place)
    return (_BASIC + _EXTENDED)[number - 1].size


def parse_inode(header: bytes, body: bytes, place: MetadataReference, after_body: MetadataReference) -> Inode:
    """Return the inode at *place*, from its *header* and the `inode_body_size` bytes up to *after_body*.

    Errors: `FormatError` (code `bad-squashfs`) for a type that the mode contradicts, and for a link that is too long.
    """
    number, mode, uid, gid, _, _ = _INODE.unpack_from(header)
    extended, index = divmod(number - 1, len(_KINDS))
    kind, bits = _KINDS[index]
    fields = (_EXTENDED if extended else _BASIC)[index].unpack_from(body)
    if stat.S_IFMT(mode) not in (0, bits):  # mksquashfs writes 0
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
        if size > _LINK_LIMIT:
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
        after_body,
    )


def parse_listing(data: bytes, place: MetadataReference, limit: int) -> dict[str, int]:
    """Return the names in the listing of a directory at *place*, each with the reference of its inode.

    Errors: `FormatError`: `bad-squashfs` for an impossible run of entries or name, and for a truncated listing;
    `image-bomb` for more than *limit* names.
    """
    names: dict[str, int] = {}
    at, size = 0, len(data)
    entry = _ENTRY.unpack_from
    try:
        while at < size:
            more, block, _ = _RUN.unpack_from(data, at)
            at += _RUN.size
            if more >= _RUN_LIMIT:
                raise damaged(f"a run of {more + 1} names", place)
            if len(names) + more >= limit:
                raise bomb(f"a directory has more than {limit} names", place)
            block <<= 16
            for _ in range(more + 1):
                offset, _, _, length = entry(data, at)
                end = at + 9 + length  # names have one byte more than their length
                name = data[at + 8 : end]
                if end > size or length >= NAME_LIMIT or b"/" in name or b"\0" in name or name in (b".", b".."):
                    raise damaged(f"a name {name[:40]!r}", place)
                names.setdefault(name.decode("utf-8", "surrogateescape"), block | offset)
                at = end
    except struct.error as error:
        raise damaged(f"the listing of a directory ends after {size} bytes", place) from error
    return names


class Squashfs:
    """An image: *read_at* returns its bytes, *unpack* unpacks its blocks.

    Errors of every method: `FormatError` (codes `bad-squashfs`, `image-bomb`) with the offset in the image.
    """

    def __init__(self, superblock: Superblock, read_at: ReadAt, unpack: Unpack) -> None:
        self.superblock = superblock
        self._read_at = read_at
        self._unpack = unpack
        # Each image has its own caches, which are freed with it.
        self.block = lru_cache(_DATA_KEPT)(self._block)
        self._metadata_at = lru_cache(_METADATA_KEPT)(self._metadata_block)
        self.id = lru_cache(None)(self._id)
        self._listings: dict[tuple[int, int, int], dict[str, int]] = {}
        self._listed = self._names = 0
        self._packed_total = 0
        self.unpacked_total = 0
        """Unpacked bytes of all blocks so far."""

    def inode(self, reference: int) -> Inode:
        """Return the inode that a directory entry or the superblock refers to."""
        place = MetadataReference(self.superblock.inode_table + (reference >> 16), reference & 0xFFFF)
        if place.block >= self.superblock.directory_table:
            raise damaged("an inode outside the table of inodes", place)
        header, after_header = self.metadata(place, _INODE_HEADER_SIZE)
        body, after_body = self.metadata(after_header, inode_body_size(header, place))
        return parse_inode(header, body, place, after_body)

    def listing(self, directory: Inode) -> dict[str, int]:
        """Return the names in *directory*, each with the reference of its inode. Call it once for each directory."""
        if not directory.size:
            return {}
        key = (directory.start, directory.offset, directory.size)
        place = MetadataReference(self.superblock.directory_table + directory.start, directory.offset)
        if directory.size > _LISTING_LIMIT:
            raise damaged(f"a directory of {directory.size} bytes", place)
        self._listed += directory.size  # added for each directory, even if several share a listing
        if self._listed > ALL_LISTINGS_LIMIT:
            raise bomb(f"the directories that were looked at have {self._listed} bytes", place)
        names = self._listings.get(key)
        if names is None:
            data, _ = self.metadata(place, directory.size)
            names = self._listings[key] = parse_listing(data, place, NAMES_LIMIT - self._names)
            self._names += len(names)
        return names

    def target(self, link: Inode) -> bytes:
        """Return the target of a symbolic link."""
        return self.metadata(link.after_body, link.size)[0]

    def _id(self, number: int) -> int:
        if number >= self.superblock.ids:
            raise damaged(f"id {number} of {self.superblock.ids}", f"byte {self.superblock.id_table}")
        return int.from_bytes(self._entry(self.superblock.id_table, number, 4), "little")

    def fragment(self, number: int) -> bytes:
        """Return the fragment block *number*, which holds the tails of several files."""
        if number >= self.superblock.fragments:
            why = f"fragment {number} of {self.superblock.fragments}"
            raise damaged(why, f"byte {self.superblock.fragment_table}")
        return self.block(*_FRAGMENT.unpack(self._entry(self.superblock.fragment_table, number, _FRAGMENT.size)))

    def _block(self, start: int, size_word: int) -> bytes:
        """Return the unpacked block at *start*. *size_word* has its packed size, and a bit that says that it is not
        packed.
        """
        size = size_word & 0xFFFFFF
        if size_word >> 25 or size > self.superblock.block_size:
            raise damaged(f"a block of {size} bytes", f"byte {start}")
        packed = self._bytes(start, size)
        if len(packed) < size:
            raise damaged(f"a block of {size} bytes", f"byte {start}")
        return self._unpacked(start, packed, not size_word & 1 << 24, self.superblock.block_size)

    def metadata(self, place: MetadataReference, size: int) -> tuple[bytes, MetadataReference]:
        """Return *size* bytes of metadata at *place*, and the place after them."""
        block, offset = place
        parts = []
        while True:
            data, following = self._metadata_at(block)
            if offset > len(data):
                raise damaged(f"offset {offset} in metadata of {len(data)} bytes", f"byte {block}")
            part = data[offset : offset + size]
            offset += len(part)
            size -= len(part)
            parts.append(part)
            if not size:
                return parts[0] if len(parts) == 1 else b"".join(parts), MetadataReference(block, offset)
            if len(data) != _METADATA_SIZE:
                raise damaged("metadata ends early", f"byte {block}")
            block, offset = following, 0

    def _metadata_block(self, start: int) -> tuple[bytes, int]:
        """Return the unpacked metadata block at *start*, and the offset of the next one."""
        read = self._bytes(start, 2 + _METADATA_SIZE)
        header = int.from_bytes(read[:2], "little")
        size = header & 0x7FFF
        packed = read[2 : 2 + size]
        if not size or len(packed) < size:
            raise damaged(f"metadata of {size} bytes", f"byte {start}")
        data = self._unpacked(start, packed, not header & 0x8000, _METADATA_SIZE)
        if not data:
            raise damaged("metadata of 0 bytes", f"byte {start}")
        return data, start + 2 + size

    def _entry(self, table: int, number: int, size: int) -> bytes:
        """Return entry *number* of a table with entries of *size* bytes; the table is a list of metadata blocks."""
        block, at = divmod(number * size, _METADATA_SIZE)
        pointer = self._bytes(table + _POINTER.size * block, _POINTER.size)
        if len(pointer) < _POINTER.size:
            raise damaged(f"entry {number} of a table is outside the image", f"byte {table}")
        (start,) = _POINTER.unpack(pointer)
        return self.metadata(MetadataReference(start, at), size)[0]

    def _bytes(self, start: int, size: int) -> bytes:
        end = self.superblock.bytes_used
        if not SUPERBLOCK_SIZE <= start < end:
            raise damaged("a place outside the image", f"byte {start}")
        return self._read_at(start, min(size, end - start))

    def _unpacked(self, start: int, packed: bytes, is_packed: bool, limit: int) -> bytes:
        data = packed
        if is_packed:
            try:
                data = self._unpack(packed, limit)
            except GpubindError:
                raise
            except Exception as error:  # each library has other errors
                raise damaged(f"{type(error).__name__}: {str(error)[:200]}", f"byte {start}") from error
        if len(data) > limit:
            raise damaged(f"a block unpacks to more than {limit} bytes", f"byte {start}")
        self._packed_total += len(packed)
        self.unpacked_total += len(data)
        read = min(self._packed_total, self.superblock.bytes_used)  # reading a block again adds nothing
        if self.unpacked_total > _UNPACKED_ALLOWANCE + _UNPACKED_RATIO * read:
            raise bomb(f"{self._packed_total} bytes have unpacked to {self.unpacked_total}", f"byte {start}")
        return data


class SquashfsFile:
    """The bytes of a regular file, read at any offset, up to a limit of unpacked bytes.

    Errors of reading: those of `Squashfs`.
    """

    def __init__(self, image: Squashfs, inode: Inode) -> None:
        self.size = inode.size
        self._image = image
        self._inode = inode
        self._step = image.superblock.block_size
        blocks, tail = divmod(inode.size, self._step)
        self._blocks = blocks + (1 if tail and inode.fragment is None else 0)
        if self._blocks and inode.start > image.superblock.bytes_used:
            raise damaged("a file outside the image", f"byte {inode.start}")
        self._words = array("I")
        self._starts = array("Q", [inode.start if self._blocks else 0])
        self._rest = inode.after_body
        self.unpack_allowance = FILE_UNPACKED_LIMIT
        """Bytes that may still be unpacked."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Return the *size* bytes at *offset*; fewer only where the file ends."""
        size = min(size, self.size - offset)
        parts = []
        while size > 0:
            number, at = divmod(offset, self._step)
            before = self._image.unpacked_total
            part = self._block(number)[at : at + size]
            self.unpack_allowance -= self._image.unpacked_total - before
            if self.unpack_allowance < 0:
                why = f"one file has unpacked to more than {FILE_UNPACKED_LIMIT} bytes"
                raise bomb(why, f"byte {self._inode.start}")
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _block(self, number: int) -> bytes:
        size = min(self._step, self.size - number * self._step)
        if number >= self._blocks:
            place = f"fragment {self._inode.fragment}"
            data = self._image.fragment(self._inode.fragment or 0)[self._inode.offset :][:size]
        else:
            size_word, start = self._block_size_word(number)
            if size_word == 0:  # a hole
                return bytes(size)
            place = f"byte {start}"
            data = self._image.block(start, size_word)
        if len(data) < size:
            raise damaged(f"{len(data)} bytes of a file where {size} should be", place)
        return data if len(data) == size else data[:size]

    def _block_size_word(self, number: int) -> tuple[int, int]:
        """Return the size word of a block, and the offset of the block. Reads only the necessary words."""
        if number >= _BLOCKS_LIMIT:
            raise damaged(f"block {number} of a file of {self.size} bytes", self._inode.after_body)
        while number >= len(self._words):
            more = min(_BLOCK_SIZES_STEP, self._blocks - len(self._words))
            data, self._rest = self._image.metadata(self._rest, 4 * more)
            size_words = struct.unpack(f"<{more}I", data)
            self._words.extend(size_words)
            start = self._starts[-1]
            for size_word in size_words:
                start += size_word & 0xFFFFFF
                self._starts.append(start)
        return self._words[number], self._starts[number]
