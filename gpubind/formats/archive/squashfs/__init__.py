"""squashfs 4.0, the file system in SIF files: what its structures say, read from bytes at offsets.

Source: the kernel's `Documentation/filesystems/squashfs.rst` and `fs/squashfs/squashfs_fs.h`; checked against what
mksquashfs 4.5 writes. All numbers are little endian. Not read, because no fact of an image is in them: the options of
the compressor, the table for NFS, extended attributes, and the indexes of large directories, which only make one name
quicker to find.
"""

from gpubind.formats.archive.squashfs.compression import PACKAGES, Unpack, unpacker
from gpubind.formats.archive.squashfs.reader import File, Squashfs
from gpubind.formats.archive.squashfs.structures import (
    SUPERBLOCK_SIZE,
    Inode,
    Superblock,
    damaged,
    parse_superblock,
    parse_version,
)

__all__ = [
    "PACKAGES",
    "SUPERBLOCK_SIZE",
    "File",
    "Inode",
    "Squashfs",
    "Superblock",
    "Unpack",
    "damaged",
    "parse_superblock",
    "parse_version",
    "unpacker",
]
