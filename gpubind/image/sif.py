"""The file system in a SIF file."""

from __future__ import annotations

from gpubind.errors import HostReadError, in_file
from gpubind.files import Tree
from gpubind.files.blob import BlobPart, FileBlob
from gpubind.formats.archive.sif import (
    DATA_OCI_ROOT_INDEX,
    DESCRIPTOR_SIZE,
    HEADER_SIZE,
    SifDescriptor,
    parse_sif_descriptors,
    parse_sif_header,
    primary_partition,
)
from gpubind.model import HostPath

ENCRYPTED = ("encrypted-squashfs", "gocryptfs-squashfs")


def sif_tree(blob: FileBlob, root: HostPath) -> Tree:
    """Return the files of the SIF file in *blob*. An overlay that is stored beside them is not looked at.

    Errors: `FormatError` (`bad-sif`, `bad-squashfs`), `HostReadError` (`encrypted-image`, `unsupported-image`).
    """
    with in_file(blob.label):
        header = parse_sif_header(blob.read_at(0, HEADER_SIZE))
        table = blob.read_at(header.descriptors_offset, header.descriptors * DESCRIPTOR_SIZE)
        descriptors = parse_sif_descriptors(table, header, blob.size)
        partition = primary_partition(descriptors)
    if partition is None:
        raise _unsupported(blob.label, descriptors)
    if partition.file_system in ENCRYPTED:
        raise HostReadError(
            "encrypted-image",
            "the image is encrypted",
            where=blob.label,
            why=f"its primary partition is {partition.file_system}",
            hint="an unencrypted sandbox of it can be looked at: `apptainer build --sandbox DIRECTORY IMAGE`",
        )
    if partition.file_system != "squashfs":
        raise _unsupported(blob.label, (partition,))
    from gpubind.image.squashfs import SquashfsTree

    return SquashfsTree(BlobPart(blob, partition.offset, partition.size), root)


def _unsupported(label: str, descriptors: tuple[SifDescriptor, ...]) -> HostReadError:
    hint = "`apptainer build --sandbox DIRECTORY IMAGE` makes a directory of it"
    why = "it has no primary system partition"
    if any(descriptor.data_type == DATA_OCI_ROOT_INDEX for descriptor in descriptors):
        why, hint = "it is an OCI-SIF, with layers in OCI blobs", "`singularity pull --no-oci` makes a plain SIF"
    elif len(descriptors) == 1 and descriptors[0].primary:
        why = f"its primary partition is {descriptors[0].file_system}"
    what = "this kind of SIF file cannot be looked at"
    return HostReadError("unsupported-image", what, where=label, why=why, hint=hint)
