"""SIF, the image file of Apptainer and SingularityCE: the header and the descriptors, not the objects.

Source: github.com/sylabs/sif `pkg/sif` (the same in apptainer/sif): a global header of 128 bytes, then a table of
descriptors of 585 bytes each, all little endian and packed; checked against files that Apptainer 1.4 wrote.
"""

from __future__ import annotations

import struct
from typing import Optional

from gpubind.errors import Format
from gpubind.frozen import NamedTuple

MAGIC = b"SIF_MAGIC\0"
_MAGIC_AT = 32
"""The magic follows the launch script, `#!/usr/bin/env run-singularity`."""
HEADER_SIZE = 128
DESCRIPTOR_SIZE = 585
_DESCRIPTORS_LIMIT = 4096  # 48 by default

_DATA_PARTITION = 0x4004
DATA_OCI_ROOT_INDEX = 0x4009
_PARTITION_PRIMARY = 2
_FILE_SYSTEMS = {1: "squashfs", 2: "ext3", 3: "archive", 4: "raw", 5: "encrypted-squashfs", 6: "gocryptfs-squashfs"}

_HEADER = struct.Struct("<32s10s3s3s16sqqqqqqqq")
_DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128s384s")

_damaged = Format("bad-sif", "damaged SIF file").damaged


class SifDescriptor(NamedTuple):
    """One object in the file. `offset` and `size` have been checked against the file."""

    data_type: int
    offset: int
    size: int
    file_system: Optional[str]
    """The file system of a partition, from `_FILE_SYSTEMS`, `type-N` for an unknown one; None for other objects."""
    primary: bool
    """Whether it is the partition with the container's root file system."""


def parse_sif_header(data: bytes) -> tuple[int, int]:
    """Return the offset and the size in bytes of the table of descriptors, from the first `HEADER_SIZE` bytes.

    Errors: `FormatError` (code `bad-sif`) with the byte offset.
    """
    if len(data) < HEADER_SIZE:
        raise _damaged("truncated header", len(data))
    fields = _HEADER.unpack_from(data)
    magic, total, table, table_size = fields[1], *fields[8:11]
    if magic != MAGIC:
        raise _damaged("the magic string is not there", _MAGIC_AT)
    if not 0 <= total <= _DESCRIPTORS_LIMIT:
        raise _damaged(f"{total} descriptors", 88)
    if table < HEADER_SIZE:
        raise _damaged(f"a table of descriptors at byte {table}", 96)
    if table_size != total * DESCRIPTOR_SIZE:
        raise _damaged(f"{total} descriptors in {table_size} bytes", 104)
    return table, table_size


def parse_sif_descriptors(data: bytes, base: int, table_size: int, file_size: int) -> tuple[SifDescriptor, ...]:
    """Return the used descriptors in *data*, the table of *table_size* bytes at *base* of a file.

    Errors: `FormatError` (code `bad-sif`) with the byte offset: a short table, an object outside the file.
    """
    if len(data) < table_size:
        raise _damaged("truncated table of descriptors", base + len(data))
    descriptors = []
    for at in range(0, table_size, DESCRIPTOR_SIZE):
        if not data[at + 4]:  # unused
            continue
        fields = _DESCRIPTOR.unpack_from(data, at)
        data_type, _, identity, _, _, offset, size = fields[:7]
        if offset < HEADER_SIZE or size < 0 or offset + size > file_size:
            why = f"object {identity} has {size} bytes at byte {offset}, the file {file_size} bytes"
            raise _damaged(why, base + at + 17)
        file_system, primary = None, False
        if data_type == _DATA_PARTITION:
            kind, part = struct.unpack_from("<ii", fields[13])
            file_system, primary = _FILE_SYSTEMS.get(kind, f"type-{kind}"), part == _PARTITION_PRIMARY
        descriptors.append(SifDescriptor(data_type, offset, size, file_system, primary))
    return tuple(descriptors)


def primary_partition(descriptors: tuple[SifDescriptor, ...]) -> Optional[SifDescriptor]:
    """Return the partition with the root file system; None if there is none.

    Errors: `FormatError` (code `bad-sif`) if there are several.
    """
    primaries = [descriptor for descriptor in descriptors if descriptor.primary]
    if len(primaries) > 1:
        raise _damaged(f"{len(primaries)} primary system partitions", "descriptors")
    return primaries[0] if primaries else None
