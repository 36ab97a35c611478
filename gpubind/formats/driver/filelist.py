"""`sandboxutils-filelist.json`: the driver's own list of its files (x86-64, driver 570 and later).

Source: the file as shipped in `/usr/share/nvidia/files.d/` by drivers 570 to 595.
"""

from __future__ import annotations

from typing import NamedTuple

from gpubind.errors import FormatError
from gpubind.formats.text.json import parse_json

SIZE_LIMIT = 4 << 20
ENTRIES_LIMIT = 10_000

_LIBRARY_TYPES = ("LIB", "SYMLINK")


class ListedFile(NamedTuple):
    """One file of the driver, by name."""

    name: str
    """`libcuda.so.595.99.02`; may hold a relative directory."""
    type: str
    """`LIB`, `BINARY`, `JSON`, `SYMLINK`, `FIRMWARE`, `ICD`, `PROFILE`, `XMODULE_SHARED_LIB`, ..."""
    categories: tuple[str, ...]
    """`cuda`, `nvml`, `egl`, `video`, ..."""
    compat32: bool

    @property
    def is_library(self) -> bool:
        """Whether programs in a container may load it (X server modules have types of their own)."""
        return self.type in _LIBRARY_TYPES


def parse_filelist(data: bytes) -> tuple[ListedFile, ...]:
    """The files that the driver says it has, in file order.

    Errors: `FormatError` (code `bad-filelist`) with the entry.
    """
    document = parse_json(data, SIZE_LIMIT, _malformed)
    if not isinstance(document, list) or len(document) > ENTRIES_LIMIT:
        raise _malformed(f"not an array of at most {ENTRIES_LIMIT} objects", "byte 0")
    files: list[ListedFile] = []
    for number, entry in enumerate(document):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise _malformed("an object with a string `name` is wanted", f"entry {number}")
        categories = entry.get("category", [])
        if isinstance(categories, str):
            categories = [categories]
        if not isinstance(categories, list) or not all(isinstance(c, str) for c in categories):
            raise _malformed("`category` is not an array of strings", f"entry {number}")
        compat32 = str(entry.get("is_32bit_compat", "false")).lower() == "true"
        files.append(ListedFile(entry["name"], str(entry.get("type", "")), tuple(categories), compat32))
    return tuple(files)


def _malformed(why: str, place: str) -> FormatError:
    return FormatError("bad-filelist", "malformed driver file list", place=place or "byte 0", why=why)
