"""`sandboxutils-filelist.json`: the driver's own list of its files (x86-64, driver 570 and later).

Source: the file as shipped in `/usr/share/nvidia/files.d/` by drivers 570 to 595.
"""

from __future__ import annotations

from typing import Any

from gpubind.errors import Format
from gpubind.formats.text.json import parse_json
from gpubind.frozen import NamedTuple
from gpubind.model.plain import Decoder

SIZE_LIMIT = 4 << 20
ENTRIES_LIMIT = 10_000

_DECODER = Decoder(Format("bad-filelist", "malformed driver file list"), prefix="entry ", members_limit=ENTRIES_LIMIT)
_LIBRARY_TYPES = ("LIB", "SYMLINK")


class ListedFile(NamedTuple):
    """One file of the driver, by name."""

    name: str
    """`libcuda.so.595.99.02`; may contain a relative directory."""
    type: str = ""
    """`LIB`, `BINARY`, `JSON`, `SYMLINK`, `FIRMWARE`, `ICD`, `PROFILE`, `XMODULE_SHARED_LIB`, ..."""
    is_32bit_compat: Any = False
    """A boolean, or its name as a string."""

    @property
    def compat32(self) -> bool:
        """Whether it is for 32-bit programs."""
        return str(self.is_32bit_compat).lower() == "true"

    @property
    def is_library(self) -> bool:
        """Whether programs in a container may load it (X server modules have other types)."""
        return self.type in _LIBRARY_TYPES


def parse_filelist(data: bytes) -> tuple[ListedFile, ...]:
    """Return the files that the driver lists, in file order.

    Errors: `FormatError` (code `bad-filelist`) with the entry.
    """
    return _DECODER.decode(tuple[ListedFile, ...], parse_json(data, SIZE_LIMIT, _DECODER.format))
