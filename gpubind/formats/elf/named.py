"""The names of libraries in the constants of a program or library: the arguments of its calls of dlopen(3).

No header lists the libraries that `dlopen` opens. Link editors put strings into `.rodata`, and for the large model of
x86-64 into `.lrodata`; strings of Go do not end with a zero byte.
"""

from __future__ import annotations

import re
from typing import BinaryIO, Optional, Union

from gpubind.formats.elf.dynamic import OFFSET_LIMIT, SHT_NOBITS, find_sections
from gpubind.frozen import NamedTuple
from gpubind.model import Missing

SECTIONS = (".rodata", ".lrodata")
READ_LIMIT = 64 << 20
"""Maximum bytes of constants that are read in one file. PyTorch's largest file has 30 MB."""
CODE, CODE_LIMIT = ".text", 4 << 20
STEP = 1 << 20
NAME_LIMIT = 80
NAMES_LIMIT = 1024
"""Maximum names that are kept for one file."""
_NAME = re.compile(rb"lib(?:(?!lib)[A-Za-z0-9_+-]){1,64}\.so(?:\.[0-9]{1,4}){0,3}")
"""A name that begins at the last `lib` before `.so`, so that no byte is matched twice. No name of a driver's
library contains `lib` twice.
"""
_NCCL = re.compile(rb"NCCL version ([0-9]{1,2}(?:\.[0-9]{1,3}){1,2})\+cuda")


class DlopenNames(NamedTuple):
    """The names of libraries in the constants of one file."""

    names: tuple[str, ...] = ()
    """`libcuda.so.1`, sorted."""
    nccl: Optional[str] = None
    """The release of NCCL in the file; NCCL is often linked into another library."""
    unread: Optional[str] = None
    """Why names may be missing; None if all constants were read."""
    size: int = 0
    """Bytes that were read."""


def parse_named_libraries(stream: BinaryIO) -> DlopenNames:
    """Return the names of libraries in the constants of the ELF file in *stream* (binary, seekable).

    Errors: as `parse_elf`.
    """
    names: dict[str, None] = {}
    nccl = unread = None
    size = 0
    sections = find_sections(stream, SECTIONS)
    for section in (sections[name] for name in SECTIONS if name in sections):
        if section.kind == SHT_NOBITS or section.offset >= OFFSET_LIMIT:
            continue
        if section.size > READ_LIMIT:
            unread = f"of {section.size} bytes of constants the first {READ_LIMIT} were read"
        before, end = b"", min(section.size, READ_LIMIT)
        size += end
        for at in range(0, end, STEP):
            stream.seek(section.offset + at)
            data = before + (stream.read(min(STEP, end - at)) or b"")  # None: no bytes yet
            if len(data) == len(before):
                unread = "it ends within its constants"
                break
            if len(names) <= NAMES_LIMIT:  # one more than the limit, to report the excess
                names.update((match.group().decode(), None) for match in _NAME.finditer(data))
            version = _NCCL.search(data)
            nccl = version.group(1).decode() if version and nccl is None else nccl
            before = data[-NAME_LIMIT:]
    if len(names) > NAMES_LIMIT:
        unread = f"it has more than {NAMES_LIMIT} names of libraries"
    return DlopenNames(tuple(sorted(names)[:NAMES_LIMIT]), nccl, unread, size)


def read_constants(stream: BinaryIO) -> Union[bytes, Missing]:
    """Return the section `.rodata` of the ELF file in *stream*, empty if it has none.

    Missing if the section is larger than `READ_LIMIT` or truncated. Errors: as `parse_elf`.
    """
    why = "its constants are too large, or cut off"
    return _read_section(stream, SECTIONS[0], READ_LIMIT, why, is_whole=True)


def read_first_code(stream: BinaryIO) -> Union[bytes, Missing]:
    """Return the first `CODE_LIMIT` bytes of the section `.text` of the ELF file in *stream*; else as `read_constants`.

    Link editors put the code that runs at load time there.
    """
    return _read_section(stream, CODE, CODE_LIMIT, "its code is cut off", is_whole=False)


def _read_section(stream: BinaryIO, name: str, limit: int, why: str, *, is_whole: bool) -> Union[bytes, Missing]:
    section = find_sections(stream, (name,)).get(name)
    if section is None or section.kind == SHT_NOBITS:
        return b""
    if (is_whole and section.size > limit) or section.offset >= OFFSET_LIMIT:
        return Missing("unreadable", why)
    stream.seek(section.offset)
    size = min(section.size, limit)
    data = stream.read(size) or b""
    return data if len(data) == size else Missing("unreadable", why)
