"""Read SIF files, and the squashfs images in them, one directory and one block at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from gpubind.errors import HostReadError, in_file, missing_package
from gpubind.files import Tree
from gpubind.files.blob import Blob, BlobPart, FileBlob
from gpubind.files.opened import OpenedTree
from gpubind.formats.archive import sif, squashfs
from gpubind.formats.archive.squashfs_blocks import PACKAGES, Unpack, unpacker
from gpubind.machine.budget import spend
from gpubind.model import ABSENT, HostPath, Missing, RootedPath, Stat

_ENCRYPTED = ("encrypted-squashfs", "gocryptfs-squashfs")


def sif_tree(blob: FileBlob, root: HostPath) -> Tree:
    """Return the files of the SIF file *blob*. An overlay in the file is ignored.

    Errors: `FormatError` (`bad-sif`, `bad-squashfs`), `HostReadError` (`encrypted-image`, `unsupported-image`).
    """
    with in_file(blob.label):
        table, size = sif.parse_sif_header(blob.read_at(0, sif.HEADER_SIZE))
        descriptors = sif.parse_sif_descriptors(blob.read_at(table, size), table, size, blob.size)
        partition = sif.primary_partition(descriptors)
    if partition is None:
        raise _unsupported(blob.label, descriptors)
    if partition.file_system in _ENCRYPTED:
        why = f"its primary partition is {partition.file_system}"
        hint = "an unencrypted sandbox of it can be looked at: `apptainer build --sandbox DIRECTORY IMAGE`"
        raise HostReadError("encrypted-image", "the image is encrypted", where=blob.label, why=why, hint=hint)
    if partition.file_system != "squashfs":
        raise _unsupported(blob.label, (partition,))
    return SquashfsTree(BlobPart(blob, partition.offset, partition.size), root)


def _unsupported(label: str, descriptors: tuple[sif.SifDescriptor, ...]) -> HostReadError:
    hint = "`apptainer build --sandbox DIRECTORY IMAGE` makes a directory of it"
    why = "it has no primary system partition"
    if any(descriptor.data_type == sif.DATA_OCI_ROOT_INDEX for descriptor in descriptors):
        why, hint = "it is an OCI-SIF, with layers in OCI blobs", "`singularity pull --no-oci` makes a plain SIF"
    elif len(descriptors) == 1 and descriptors[0].primary:
        why = f"its primary partition is {descriptors[0].file_system}"
    message = "this kind of SIF file cannot be looked at"
    return HostReadError("unsupported-image", message, where=label, why=why, hint=hint)


class SquashfsTree(OpenedTree):
    """The files of the squashfs image *blob*. *root* is the path of the image.

    Errors: `FormatError` (codes `bad-squashfs`, `image-bomb`), even in later reads of damaged parts; `HostReadError`
    (`unsupported-image`, `missing-package`) for a version or a compression that cannot be read.
    """

    def __init__(self, blob: Blob, root: HostPath) -> None:
        super().__init__(root)
        self._label = blob.label
        self._blob = blob
        with in_file(self._label):
            superblock = _superblock(blob)
            unpack = _unpacker(superblock.compression, blob.label)
            self._image = squashfs.Squashfs(superblock, blob.read_at, unpack)
            root_inode = self._image.inode(superblock.root)
            if root_inode.kind != "dir":
                raise squashfs.damaged("the root is not a directory", "byte 32")
        self._inodes = {"/": root_inode}
        """The inodes of known paths. A tree queries a directory before the paths in it."""
        self._names: dict[str, dict[str, int]] = {}  # by directory: names, and the references of their inodes

    def close(self) -> None:
        self._blob.close()
        super().close()

    def open(self, path: RootedPath, label: str = "") -> Union[Blob, Missing]:
        with in_file(self._label):
            return _SquashfsFile(squashfs.SquashfsFile(self._image, self._inodes[path]), label or self._label)

    def _lstat(self, path: str) -> Union[Stat, Missing]:
        parent, _, name = path.rpartition("/")
        names = self._listing(parent or "/")
        if name not in names:
            return ABSENT
        with in_file(self._label):
            inode = self._inodes[path] = self._image.inode(names[name])
            uid, gid = self._image.id(inode.uid), self._image.id(inode.gid)
        return Stat(inode.kind, inode.mode, uid, gid, inode.size if inode.kind == "file" else 0, *inode.device)

    def _readlink(self, path: str) -> Union[str, Missing]:
        with in_file(self._label):
            return self._image.target(self._inodes[path]).decode("utf-8", "surrogateescape")

    def _list(self, path: str) -> Union[Sequence[str], Missing]:
        return tuple(self._listing(path))

    def _listing(self, path: str) -> dict[str, int]:
        if path not in self._names:
            with in_file(self._label):
                self._names[path] = self._image.listing(self._inodes[path])
        return self._names[path]


class _SquashfsFile(Blob):
    def __init__(self, file: squashfs.SquashfsFile, label: str) -> None:
        self.label, self.size = label, file.size
        self._file = file

    def read_at(self, offset: int, size: int) -> bytes:
        with in_file(self.label):
            return self._file.read_at(offset, size)

    def let_read_all(self) -> None:
        self._file.unpack_allowance += self._file.size


def _superblock(blob: Blob) -> squashfs.Superblock:
    head = blob.read_at(0, squashfs.SUPERBLOCK_SIZE)
    major, minor = squashfs.parse_version(head)
    if (major, minor) != (4, 0):
        message = "squashfs of an old version cannot be read"
        why = f"version {major}.{minor}; 4.0 has been the only one written since 2009"
        raise HostReadError("unsupported-image", message, where=blob.label, why=why)
    return squashfs.parse_superblock(head, blob.size or 0)


def _unpacker(compression: str, label: str) -> Unpack:
    try:
        unpack = unpacker(compression)
    except ImportError as error:
        raise missing_package(PACKAGES[compression], "this image", label) from error
    if unpack is None:
        message = "the compression of a squashfs image cannot be read"
        hint = "gzip, lz4, lzma, lzo, xz and zstd can be read"
        raise HostReadError("unsupported-image", message, where=label, why=f"it is {compression}", hint=hint)

    def counted(data: bytes, limit: int) -> bytes:
        unpacked = unpack(data, limit)
        spend("unpacked", len(unpacked))
        return unpacked

    return counted
