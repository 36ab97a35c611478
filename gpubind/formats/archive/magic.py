"""Kinds of files, by their first bytes.

The superblock of ext2 to ext4 is at byte 1024. In an image of Singularity 2, one line of a script precedes squashfs.
"""

from __future__ import annotations

HEAD_SIZE = 2048
"""The number of first bytes that determine the kind."""
UNSUPPORTED_COMPRESSIONS = {"xz": b"\xfd7zXZ\0", "bzip2": b"BZh"}
"""The first bytes of unsupported compressions."""
_BUILD = "`apptainer build IMAGE.sif IMAGE` makes a SIF of it"
_MEANINGS = (
    *(
        (0, head, f"it is compressed with {by}", f"unpack it first: `{by} -dk`")
        for by, head in UNSUPPORTED_COMPRESSIONS.items()
    ),
    (0, b"\x7fELF", "it is a program or a library", ""),
    (0, b"PK\3\4", "it is a zip archive", ""),
    (0, b"QFI\xfb", "it is a disk of a virtual machine", ""),
    (0, b"<", "it is a web page or XML: a failed download?", ""),
    (0, b"{", "it is JSON: give the directory that it is in", ""),
    (1080, b"\x53\xef", "it is an ext2, ext3 or ext4 file system", _BUILD),
    (31, b"hsqs", "it is an image of Singularity 2", _BUILD),
    (0, b"#!", "it is a script", ""),
)


def is_sif(head: bytes) -> bool:
    """Return whether the file with the first bytes *head* (42 are enough) is a SIF."""
    return head.startswith(b"SIF_MAGIC\0", 32)


def is_squashfs(head: bytes) -> bool:
    """Return whether the file with the first bytes *head* (4 are enough) is a squashfs file system."""
    return head.startswith(b"hsqs")


def describe_header(head: bytes) -> tuple[str, str]:
    """Return the kind of the file with the first bytes *head* (2048 are enough), and how to make an image from it."""
    matches = ((meaning, remedy) for at, magic, meaning, remedy in _MEANINGS if head.startswith(magic, at))
    start = head[:8]
    shown = start.decode("ascii", "replace")
    is_text = start.isascii() and shown.isprintable()
    return next(matches, (f"it starts with `{shown}`" if is_text else f"it starts with the bytes {start.hex(' ')}", ""))
