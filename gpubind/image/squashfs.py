"""SquashfsTree: the files of a squashfs image, read one directory and one block at a time.

PySquashfsImage knows the structures; it would read the whole tree at once, unpack without bounds and keep everything,
so what reads and keeps is replaced here. Imported only for an image that is one.

Source: kernel `fs/squashfs/squashfs_fs.h`, squashfs-tools `unsquash-4.c` as PySquashfsImage has it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple, Optional, Union

from PySquashfsImage import SquashFsImage
from PySquashfsImage.structure import FragmentEntry

from gpubind.errors import FormatError, GpubindError, HostReadError
from gpubind.formats.elf import HEAD_SIZE, ElfFacts, ElfIdent, NotElf, parse_ident
from gpubind.image.layered import elf_facts
from gpubind.image.sources import Source, SourceStream, missing_package
from gpubind.model import HostPath, Missing, Stat
from gpubind.tree import Tree
from gpubind.tree.base import ABSENT

MAGIC = b"hsqs"
METADATA_SIZE = 8192
BLOCK_SIZE_LIMIT = 1 << 20
LISTING_LIMIT = 32 << 20  # a directory of 600,000 files
LINK_LIMIT = 4096
BLOCKS_LIMIT = 1 << 20  # of one file: 128 GiB in blocks of the usual size
METADATA_KEPT = 512  # blocks of 8 KiB
DATA_KEPT = 16  # blocks of up to 1 MiB
FILE_UNPACKED_LIMIT = 64 << 20  # for one look at one file; an ELF file's facts lie in about ten blocks
UNPACKED_ALLOWANCE = 512 << 20
UNPACKED_RATIO = 20

_COMPRESSORS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}


class _Place(NamedTuple):
    """Where an inode is: its metadata block counts from the start of the inode table."""

    block: int
    offset: int


class SquashfsTree(Tree):
    """The files of the squashfs image in *source*; *root* only names the image.

    Errors: `FormatError` (codes `bad-squashfs`, `image-bomb`), also later, when damage is met; `HostReadError`
    (`unsupported-image`, `missing-package`) for a compression that cannot be read.
    """

    def __init__(self, source: Source, root: HostPath) -> None:
        super().__init__(root)
        self._label = source.label
        with self._damage("superblock"):
            self._image = _Squashfs(source)
        self._inodes: dict[str, Any] = {}
        self._directories: dict[str, Union[dict[str, _Place], Missing]] = {}
        if self._stat_of(self._inode("/")).kind != "dir":
            raise _damaged("the root is no directory", "root inode").in_file(self._label)

    def _inode(self, path: str) -> Any:
        """The inode of *path*, or Missing."""
        if path not in self._inodes:
            if path == "/":
                root = self._image.sblk.root_inode
                place: Optional[_Place] = _Place(root >> 16 & 0xFFFFFFFF, root & 0xFFFF)
            else:
                parent, _, name = path.rpartition("/")
                names = self._names(parent or "/")
                place = None if isinstance(names, Missing) else names.get(name)
            with self._damage(path):
                self._inodes[path] = ABSENT if place is None else self._image.inode(place)
        return self._inodes[path]

    def _names(self, path: str) -> Union[dict[str, _Place], Missing]:
        found = self._directories.get(path)
        if found is None:
            inode = self._inode(path)
            if isinstance(inode, Missing) or not inode.is_dir:
                found = ABSENT
            else:
                with self._damage(path):
                    found = self._image.listing(inode)
            self._directories[path] = found
        return found

    def _stat_of(self, inode: Any) -> Stat:
        rdev = (0, 0)
        if inode.is_block_device or inode.is_char_device:
            rdev = (inode.rdev >> 8 & 0xFFF, (inode.rdev & 0xFF) | (inode.rdev >> 12 & 0xFFF00))
        return Stat.of(inode.mode, inode.uid, inode.gid, inode.data if inode.is_file else 0, rdev)

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        inode = self._inode(path)
        return inode if isinstance(inode, Missing) else self._stat_of(inode)

    def _readlink(self, path: str) -> Union[str, Missing]:
        inode = self._inode(path)
        if isinstance(inode, Missing):
            return inode
        target: bytes = inode._symlink
        return target.decode("utf-8", "surrogateescape")

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        names = self._names(path)
        return names if isinstance(names, Missing) else tuple(names)

    def _read(self, path: str, limit: int) -> Union[bytes, Missing]:
        inode = self._inode(path)
        if isinstance(inode, Missing):
            return inode
        if inode.data > limit:
            return Missing("unreadable", f"larger than {limit} bytes")
        with self._damage(path):
            return _File(self._image, inode, path).read_at(0, limit)

    def _ident(self, path: str) -> Union[ElfIdent, NotElf, Missing]:
        inode = self._inode(path)
        if isinstance(inode, Missing):
            return inode
        with self._damage(path):
            return parse_ident(_File(self._image, inode, path).read_at(0, HEAD_SIZE))

    def _elf(self, path: str) -> Union[ElfFacts, Missing]:
        inode = self._inode(path)
        if isinstance(inode, Missing):
            return inode
        try:
            with self._damage(path):
                return elf_facts(_File(self._image, inode, path))
        except FormatError as error:
            if error.code != "bad-elf":
                raise
            return Missing("unreadable", f"{error.what}: {error.why}")

    @contextmanager
    def _damage(self, place: str) -> Iterator[None]:
        """Whatever the structures of a damaged image make the library raise, as one error."""
        try:
            yield
        except FormatError as error:
            raise error if error.code == "bad-elf" else error.in_file(self._label) from error
        except GpubindError:
            raise
        except (MemoryError, RecursionError, Exception) as error:
            why = f"{type(error).__name__}: {str(error)[:200]}"
            raise _damaged(why, place).in_file(self._label) from error


class _Squashfs(SquashFsImage):  # type: ignore[misc]  # the library has no types
    """The library's image, reading lazily and in bounds."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._metadata: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._data: OrderedDict[int, bytes] = OrderedDict()
        self._packed_total = self._unpacked_total = 0
        self.unpacked_left = FILE_UNPACKED_LIMIT
        super().__init__(SourceStream(source))

    def _initialize(self) -> None:
        self._fd.seek(0)
        self._read_super()
        block = self._sblk
        if block.block_size != 1 << block.block_log or not 4096 <= block.block_size <= BLOCK_SIZE_LIMIT:
            raise _damaged(f"blocks of {block.block_size} bytes", "byte 12")
        if not 96 <= block.bytes_used <= (self._source.size or 0):
            raise _damaged(f"it has {block.bytes_used} bytes, {self._source.size} are there", "byte 40")
        self._id_table = _Ids(self._id)

    def _read_super(self) -> None:
        head = self._source.read_at(0, 96)
        if len(head) < 96 or head[:4] != MAGIC:
            raise _damaged("no superblock", "byte 0")
        major, minor = struct.unpack_from("<HH", head, 28)
        if (major, minor) != (4, 0):
            raise HostReadError(
                "unsupported-image",
                "squashfs of an old version cannot be read",
                where=self._source.label,
                why=f"version {major}.{minor}; 4.0 has been the only one written since 2009",
            )
        super()._read_super()

    def _get_compressor(self, compression_id: int) -> _Unpacker:
        return _Unpacker(compression_id, self._source.label)

    def inode(self, place: _Place) -> Any:
        """The inode at *place*."""
        inode = self._read_inode(place.block, place.offset)
        if inode.is_symlink and inode.symlink_size > LINK_LIMIT:
            raise _damaged(f"a link of {inode.symlink_size} bytes", f"inode {inode.inode_number}")
        return inode

    def listing(self, inode: Any) -> dict[str, _Place]:
        """The names in the directory of *inode*."""
        size = inode.data - 3  # `.` and `..`, which are not stored
        if size <= 0:
            return {}
        if size > LISTING_LIMIT:
            raise _damaged(f"a directory of {size} bytes", f"inode {inode.inode_number}")
        start = self._sblk.directory_table_start + inode.start
        data, _, _ = self._read_directory_data(start, inode.offset, size)
        names: dict[str, _Place] = {}
        at = 0
        while at < size:
            count, block, _ = struct.unpack_from("<III", data, at)
            at += 12
            if count >= 256:
                raise _damaged(f"a run of {count + 1} names", f"inode {inode.inode_number}")
            for _ in range(count + 1):
                offset, _, _, length = struct.unpack_from("<HhHH", data, at)
                name = data[at + 8 : at + 9 + length]
                at += 9 + length
                if at > size or length > 255 or b"/" in name or b"\0" in name or name in (b".", b".."):
                    raise _damaged(f"a name {name[:40]!r}", f"inode {inode.inode_number}")
                names.setdefault(name.decode("utf-8", "surrogateescape"), _Place(block, offset))
        return names

    def block_list(self, inode: Any) -> array[int]:
        """The size words of the blocks of a file."""
        if inode.blocks > BLOCKS_LIMIT:
            raise _damaged(f"a file of {inode.data} bytes", f"inode {inode.inode_number}")
        if not inode.blocks:
            return array("I")
        data, _, _ = self._read_inode_data(inode.block_start, inode.block_offset, 4 * inode.blocks)
        words = array("I", data)
        if sys.byteorder == "big":
            words.byteswap()
        return words

    def fragment(self, number: int) -> tuple[int, int]:
        """Start and size word of the block that holds fragment *number*, with other fragments."""
        if number >= self._sblk.fragments:
            raise _damaged(f"fragment {number} of {self._sblk.fragments}", "fragment table")
        entry = FragmentEntry.from_bytes(self._entry(self._sblk.fragment_table_start, number, 16))
        return entry.start_block, entry.size

    def _id(self, number: int) -> int:
        if number >= self._sblk.no_ids:
            raise _damaged(f"id {number} of {self._sblk.no_ids}", "id table")
        return int.from_bytes(self._entry(self._sblk.id_table_start, number, 4), "little")

    def _entry(self, table: int, number: int, size: int) -> bytes:
        """Entry *number* of a table of entries of *size* bytes; the table is a list of metadata blocks."""
        block, at = divmod(number * size, METADATA_SIZE)
        (start,) = struct.unpack("<Q", self._source.read_at(table + 8 * block, 8))
        data: bytes = self._get_metadata(None, start)["buffer"]
        return data[at : at + size]

    def data_block(self, start: int, word: int) -> bytes:
        """The unpacked block at *start*; *word* has its packed size and whether it is packed."""
        kept = self._data.get(start)
        if kept is not None:
            self._data.move_to_end(start)
            return kept
        size = word & 0xFFFFFF
        if word >> 25 or size > self._sblk.block_size or start + size > self._sblk.bytes_used:
            raise _damaged(f"a block of {size} bytes", f"byte {start}")
        data = self._source.read_at(start, size)
        if not word & 1 << 24:
            data = self._comp.uncompress(data, size, self._sblk.block_size)
        self._packed_total += size
        self._unpacked_total += len(data)
        self.unpacked_left -= len(data)
        allowed = UNPACKED_ALLOWANCE + UNPACKED_RATIO * self._packed_total
        if self._unpacked_total > allowed or self.unpacked_left < 0:
            why = f"{self._packed_total} bytes have unpacked to {self._unpacked_total}"
            raise FormatError(
                "image-bomb", "the image unpacks to far more than images do", place=f"byte {start}", why=why
            )
        self._data[start] = data
        if len(self._data) > DATA_KEPT:
            self._data.popitem(last=False)
        return data

    def _get_metadata(self, hash_table: object, start: int) -> dict[str, Any]:
        kept = self._metadata.get(start)
        if kept is not None:
            self._metadata.move_to_end(start)
            return kept
        if not 96 <= start <= self._sblk.bytes_used - 2:
            raise _damaged("metadata outside the image", f"byte {start}")
        block, following = self._read_block(start)
        if not block or len(block) > METADATA_SIZE:
            raise _damaged(f"metadata of {len(block)} bytes", f"byte {start}")
        kept = self._metadata[start] = {"buffer": block, "next_index": following}
        if len(self._metadata) > METADATA_KEPT:
            self._metadata.popitem(last=False)
        return kept

    def _read_metadata(self, hash_table: object, block: int, offset: int, length: int) -> tuple[bytes, int, int]:
        """*length* bytes of metadata, and the block and offset behind them."""
        if length > LISTING_LIMIT:
            raise _damaged(f"metadata of {length} bytes", f"byte {block}")
        parts = []
        while True:
            entry = self._get_metadata(hash_table, block)
            buffer: bytes = entry["buffer"]
            if offset > len(buffer):
                raise _damaged(f"offset {offset} in metadata of {len(buffer)} bytes", f"byte {block}")
            part = buffer[offset : offset + length]
            parts.append(part)
            length -= len(part)
            offset += len(part)
            if length == 0 and offset < len(buffer):
                return b"".join(parts), block, offset
            if length == 0:
                return b"".join(parts), entry["next_index"], 0
            if len(buffer) != METADATA_SIZE:  # only the last block of a table is smaller
                raise _damaged("metadata ends early", f"byte {block}")
            block, offset = entry["next_index"], 0


class _Ids:
    """The table of user and group ids, as the library looks into it."""

    def __init__(self, look: Callable[[int], int]) -> None:
        self._look = look

    def __getitem__(self, number: int) -> int:
        return self._look(number)


class _File(Source):
    """A regular file in the image."""

    def __init__(self, image: _Squashfs, inode: Any, path: str) -> None:
        self.label = path
        if not inode.is_file:
            raise _damaged("not a regular file", path)
        self._image = image
        self._inode = inode
        self._words = image.block_list(inode)
        self._starts: Optional[list[int]] = None
        image.unpacked_left = FILE_UNPACKED_LIMIT

    @property
    def size(self) -> int:
        return int(self._inode.data)

    def read_at(self, offset: int, size: int) -> bytes:
        size = min(size, self.size - offset)
        step = self._image.sblk.block_size
        parts = []
        while size > 0:
            number, at = divmod(offset, step)
            part = self._block(number)[at : at + size]
            if not part:
                raise _damaged("a block is shorter than it should be", self.label)
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return b"".join(parts)

    def _block(self, number: int) -> bytes:
        step = self._image.sblk.block_size
        if number >= len(self._words):
            start, word = self._image.fragment(self._inode.fragment)
            at = self._inode.offset
            return self._image.data_block(start, word)[at : at + self._inode.frag_bytes]
        word = self._words[number]
        if word == 0:  # a hole
            return bytes(min(step, self.size - number * step))
        if self._starts is None:
            self._starts = [0, *accumulate(word & 0xFFFFFF for word in self._words)]
        return self._image.data_block(self._inode.start + self._starts[number], word)


class _Unpacker:
    """Unpacks blocks of one compression, never to more than was asked for."""

    def __init__(self, compression: int, label: str) -> None:
        self.name = _COMPRESSORS.get(compression, f"number {compression}")
        unpack = getattr(self, f"_{self.name}", None)
        if unpack is None:
            raise HostReadError(
                "unsupported-image",
                "the compression of a squashfs image cannot be read",
                where=label,
                why=f"it is {self.name}",
                hint="gzip, lz4, lzo, xz and zstd can be read",
            )
        self._unpack: Callable[[bytes, int], bytes] = unpack
        package = {"lzo": ("lzo", "python-lzo"), "lz4": ("lz4.block", "lz4"), "zstd": ("zstandard", "zstandard")}
        if self.name in package:
            from importlib import import_module

            module, distribution = package[self.name]
            try:
                self._module: Any = import_module(module)
            except ImportError as error:
                raise missing_package(distribution, label) from error

    def uncompress(self, data: bytes, size: int, limit: int) -> bytes:
        """What *data* unpacks to, at most *limit* bytes; the library's signature."""
        if len(data) < size:
            raise ValueError("truncated block")
        unpacked = self._unpack(data, limit)
        if len(unpacked) > limit:
            raise ValueError(f"a block unpacks to more than {limit} bytes")
        return unpacked

    def _gzip(self, data: bytes, limit: int) -> bytes:
        import zlib

        return zlib.decompressobj().decompress(data, limit + 1)

    def _xz(self, data: bytes, limit: int) -> bytes:
        import lzma

        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=32 << 20).decompress(data, limit + 1)

    def _lz4(self, data: bytes, limit: int) -> bytes:
        return bytes(self._module.decompress(data, uncompressed_size=limit))

    def _zstd(self, data: bytes, limit: int) -> bytes:
        # Not decompress(): it believes the size that the frame claims.
        with self._module.ZstdDecompressor(max_window_size=8 << 20).stream_reader(data) as reader:
            return bytes(reader.read(limit + 1))

    def _lzo(self, data: bytes, limit: int) -> bytes:
        return bytes(self._module.decompress(data, False, limit))


def _damaged(why: str, place: str) -> FormatError:
    return FormatError("bad-squashfs", "damaged squashfs image", place=place, why=why)
