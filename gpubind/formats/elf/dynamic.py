"""The dynamic facts of an ELF file, read as ld.so reads them: from the program headers and their segments.

Section headers are for link editors and debuggers: ld.so loads a file without them.
Source: gABI chapter 5, LSB "Symbol Versioning", glibc `elf/rtld.c`, `elf/dl-load.c`, `elf/dl-version.c`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import BinaryIO, Literal, Optional

from gpubind.errors import Format, FormatError
from gpubind.formats.elf.elf import HEAD_SIZE, ElfFacts, NotElf, VersionNeed, parse_ident
from gpubind.frozen import NamedTuple
from gpubind.model import CudaNote, architecture

_SEGMENTS_LIMIT = 4096
NEEDED_LIMIT = 4096
_TAGS_LIMIT = NEEDED_LIMIT + 1024  # in addition to these, about 40
_TAGS_AT_ONCE = 64
VERSIONS_LIMIT = 4096
STRING_LIMIT = 4096
_SEARCH_PATH_LIMIT = 1 << 16  # that of TensorFlow 2.21 has 20,000 characters
_STRING_STEP = 128
_NOTE_LIMIT = NAMES_LIMIT = 1 << 16
OFFSET_LIMIT = 1 << 62
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_GNU_STACK = 1, 2, 3, 0x6474E551
PF_X = 1
DT_NULL, DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 0, 1, 5, 14, 15, 29
DT_FLAGS_1, DT_VERDEF, DT_VERNEED = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFE
DF_1_NODEFLIB, DF_1_PIE = 0x800, 0x08000000
VER_FLG_WEAK = 2
SHT_NOTE, SHT_NOBITS = 7, 8
_CUDA_NOTE = ".note.cuda.fwd_compatibility"

_damaged = Format("bad-elf", "damaged ELF file").damaged


class _StructFormats(NamedTuple):
    """The structures of a class of ELF files. `segment` has the fields of a program header that make a `_Segment`."""

    header: str
    program: str
    section: str
    dynamic: str
    segment: tuple[int, ...]


_FORMS = {
    32: _StructFormats("HHIIIIIHHHHHH", "IIIIIIII", "IIIIIIIIII", "II", (0, 1, 2, 4, 6)),
    64: _StructFormats("HHIQQQIHHHHHH", "IIQQQQQQ", "IIQQQQIIQQ", "QQ", (0, 2, 3, 5, 1)),
}


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int
    """The size in the file. If the segment is larger in memory, the rest is zeros."""
    flags: int


class Section(NamedTuple):
    """A section of an ELF file, as link editors and debuggers see it."""

    kind: int
    """sh_type: `SHT_NOTE`. A section of type `SHT_NOBITS` has no bytes in the file."""
    offset: int
    size: int


def parse_elf(stream: BinaryIO) -> ElfFacts:
    """Return the dynamic facts of the ELF file in *stream* (binary, seekable; other parts are not read).

    Errors: `FormatError` (code `bad-elf`), for a file that is not an ELF object and for any damage of these facts.
    """
    file = _ElfFile(stream)
    dynamic = _Dynamic(file)
    needs, definitions = _version_needs(file, dynamic), _version_definitions(file, dynamic)
    soname = dynamic.tag_string(DT_SONAME)
    cuda_note = None
    if soname is not None and soname.startswith("libcuda.so"):
        with suppress(FormatError):  # the sections may be damaged
            cuda_note = _read_cuda_note(file)
    stacks = [segment for segment in file.segments if segment.kind == PT_GNU_STACK]
    return ElfFacts(
        ident=file.ident,
        soname=soname,
        needed=tuple(map(dynamic.string, dynamic.needed)),
        rpath=dynamic.tag_string(DT_RPATH),
        runpath=dynamic.tag_string(DT_RUNPATH),
        interpreter=_read_interpreter(file),
        version_needs=tuple(
            VersionNeed(dynamic.string(library), tuple(map(dynamic.string, names))) for library, names in needs
        ),
        version_definitions=tuple(map(dynamic.string, definitions)),
        cuda_note=cuda_note,
        # Without the header, the architecture's default. Of several, the last takes precedence.
        executable_stack=bool(stacks[-1].flags & PF_X) if stacks else architecture(file.ident.arch).executable_stack,
        no_default_directories=bool(dynamic.last.get(DT_FLAGS_1, 0) & DF_1_NODEFLIB),
        pie=bool(dynamic.last.get(DT_FLAGS_1, 0) & DF_1_PIE),
    )


def find_sections(stream: BinaryIO, names: Collection[str]) -> dict[str, Section]:
    """Return the sections of the ELF file in *stream* that have one of *names*; empty for a file without sections.

    Errors: as `parse_elf`.
    """
    return _ElfFile(stream).sections(names)


class _ElfFile:
    """An ELF file, read by offset, or by address as ld.so loads it."""

    def __init__(self, stream: BinaryIO) -> None:
        ident = parse_ident(stream.read(HEAD_SIZE) or b"")  # None: no bytes for now
        if isinstance(ident, NotElf):
            raise FormatError("bad-elf", "not an ELF file", place="byte 0", why=ident.detail)
        self._stream = stream
        self.order = "<" if ident.order == "little" else ">"
        self.ident = ident
        self.forms = _FORMS[ident.bits]
        form = struct.Struct(self.order + self.forms.header)
        fields = form.unpack(self.read(16, form.size, "ELF header"))
        programs, self.section_at = fields[4:6]
        program_size, program_count, self.section_size, self.section_count, self.section_names = fields[8:]
        self.segments = self._read_segments(programs, program_size, program_count)
        # If two overlap, the last one is visible.
        self._loaded = [segment for segment in reversed(self.segments) if segment.kind == PT_LOAD]
        size = stream.seek(0, 2)  # 0 for a stream of unknown size
        end = max((segment.offset + segment.size for segment in self._loaded), default=0)
        if 0 < size < end:  # ld.so maps such a file, and its first use raises SIGBUS
            raise _damaged(f"the file is truncated: it has {size} bytes, and its segments {end}", "segments")

    def _read_segments(self, at: int, size: int, count: int) -> tuple[_Segment, ...]:
        form = struct.Struct(self.order + self.forms.program)
        if count > _SEGMENTS_LIMIT:
            raise _damaged(f"over {_SEGMENTS_LIMIT} program headers", "program headers")
        if count and size != form.size:
            raise _damaged(f"program headers of {size} bytes", "program headers")
        table = form.iter_unpack(self.read(at, count * size, "program headers"))
        segments = tuple(_Segment._make([fields[n] for n in self.forms.segment]) for fields in table)
        if sum(segment.kind == PT_DYNAMIC for segment in segments) > 1:
            raise _damaged("two dynamic segments", "program headers")
        return segments

    def first(self, kind: int) -> Optional[_Segment]:
        return next((segment for segment in self.segments if segment.kind == kind), None)

    def read(self, offset: int, size: int, subject: str) -> bytes:
        if not size:
            return b""
        if offset < OFFSET_LIMIT:
            self._stream.seek(offset)
            data = self._stream.read(size) or b""  # None: no bytes yet, not the end
            if len(data) == size:
                return data
        raise _damaged(f"the file ends before its {subject}", subject)

    def sections(self, names: Collection[str]) -> dict[str, Section]:
        """Return the sections that have one of *names*. If several have the same name, the last one is returned."""
        form = struct.Struct(self.order + self.forms.section)
        if self.section_size != form.size or self.section_names >= self.section_count:
            return {}
        table = self.read(self.section_at, self.section_count * form.size, "section headers")
        rows = list(form.iter_unpack(table))
        at, size = rows[self.section_names][4:6]
        texts = self.read(at, min(size, NAMES_LIMIT), "names of sections")
        encoded_names = {name.encode() + b"\0": name for name in names}
        return {
            name: Section(kind, offset, size)
            for place, kind, _, _, offset, size, *_ in rows
            for text, name in encoded_names.items()
            if texts.startswith(text, place)
        }

    def load(self, address: int, size: int, subject: str) -> bytes:
        """Return the *size* bytes at *address*; fewer if their segment ends before."""
        for segment in self._loaded:
            if segment.address <= address < segment.address + segment.size:
                beyond = address - segment.address
                return self.read(segment.offset + beyond, min(size, segment.size - beyond), subject)
        raise _damaged(f"no segment has {address:#x}, where its {subject} should be", subject)

    def unpack(self, form: str, address: int, subject: str) -> tuple[int, ...]:
        form = self.order + form
        data = self.load(address, struct.calcsize(form), subject)
        if len(data) < struct.calcsize(form):
            raise _damaged(f"its segment ends within its {subject}", subject)
        return struct.unpack(form, data)


class _Dynamic:
    """The dynamic section of *file*. A string is an offset in the string table."""

    def __init__(self, file: _ElfFile) -> None:
        self._file = file
        self.needed: list[int] = []
        self.last: dict[int, int] = {}
        """The last value of each other tag: ld.so uses the last."""
        for tag, value in self._tags():
            if tag != DT_NEEDED:
                self.last[tag] = value
            elif len(self.needed) == NEEDED_LIMIT:
                raise _damaged(f"over {NEEDED_LIMIT} DT_NEEDED entries", "dynamic section")
            else:
                self.needed.append(value)

    def _tags(self) -> Iterator[tuple[int, ...]]:
        segment = self._file.first(PT_DYNAMIC)
        if segment is None or not segment.size:  # empty in a file of debug symbols
            return
        form = struct.Struct(self._file.order + self._file.forms.dynamic)
        step = _TAGS_AT_ONCE * form.size
        for at in range(0, _TAGS_LIMIT * form.size, step):
            data = self._file.load(segment.address + at, step, "dynamic section")
            for entry in form.iter_unpack(data[: len(data) // form.size * form.size]):
                if entry[0] == DT_NULL:
                    return
                yield entry
        raise _damaged(f"over {_TAGS_LIMIT} dynamic tags", "dynamic tags")

    def string(self, at: int, limit: int = STRING_LIMIT) -> str:
        table = self.last.get(DT_STRTAB)
        if table is None:
            raise _damaged("the file has no string table", "string table")
        data = self._file.load(table + at, _STRING_STEP, "string table")
        if b"\0" not in data:
            data = self._file.load(table + at, limit + 1, "string table")
        text, end, _ = data.partition(b"\0")
        if not end:
            raise _damaged(f"a string of {len(data)} characters or more", "string table")
        return text.decode("utf-8", "surrogateescape")

    def tag_string(self, tag: int) -> Optional[str]:
        limit = _SEARCH_PATH_LIMIT if tag in (DT_RPATH, DT_RUNPATH) else STRING_LIMIT
        return None if tag not in self.last else self.string(self.last[tag], limit)


def _version_needs(file: _ElfFile, dynamic: _Dynamic) -> list[tuple[int, list[int]]]:
    """Return each library of which the file needs versions, with these versions."""
    needs: list[tuple[int, list[int]]] = []
    at, budget = dynamic.last.get(DT_VERNEED), VERSIONS_LIMIT
    while at is not None:
        _, _, library, first, following = file.unpack("HHIII", at, "version needs")
        names: list[int] = []
        aux: Optional[int] = at + first
        while aux is not None:
            budget -= 1
            if budget < 0:
                raise _damaged(f"over {VERSIONS_LIMIT} version needs", "version needs")
            _, flags, _, name, step = file.unpack("IHHII", aux, "version needs")
            if not flags & VER_FLG_WEAK:  # ld.so only warns about a weak one
                names.append(name)
            aux = aux + step if step else None
        needs.append((library, names))
        at = at + following if following else None
    return needs


def _version_definitions(file: _ElfFile, dynamic: _Dynamic) -> list[int]:
    """Return the versions that the file defines, without the versions that they inherit from."""
    definitions: list[int] = []
    at = dynamic.last.get(DT_VERDEF)
    while at is not None:
        if len(definitions) == VERSIONS_LIMIT:
            raise _damaged(f"over {VERSIONS_LIMIT} version definitions", "version definitions")
        *_, first, following = file.unpack("HHHHIII", at, "version definitions")
        definitions.append(file.unpack("II", at + first, "version definitions")[0])
        at = at + following if following else None
    return definitions


def _read_interpreter(file: _ElfFile) -> Optional[str]:
    segment = file.first(PT_INTERP)
    if segment is None:
        return None
    text, end, _ = file.read(segment.offset, min(segment.size, STRING_LIMIT), "interpreter").partition(b"\0")
    if not end:
        raise _damaged("its name has no end", "interpreter")
    return text.decode("utf-8", "surrogateescape")


def _read_cuda_note(file: _ElfFile) -> Optional[CudaNote]:
    """Return libcuda's note. Its section is outside all segments, so ld.so does not map it."""
    section = file.sections((_CUDA_NOTE,)).get(_CUDA_NOTE)
    if section is None or section.kind != SHT_NOTE or section.size > _NOTE_LIMIT:
        return None
    return parse_cuda_note(file.read(section.offset, section.size, "note"), file.ident.order)


def parse_cuda_note(data: bytes, order: Literal["little", "big"]) -> Optional[CudaNote]:
    """Return the CUDA forward compatibility note in the bytes of its section; None if it is malformed.

    A description ends with its section: that of CUDA's libcuda for Orin claims a larger size.
    Sources: CUDA Compatibility guide; owner `NVIDIA Corporation`, description JSON with `CUDA version` and `driver`;
    nvidia-container-toolkit `cuda-elf-header.go`.
    """
    import json

    name_size, size = (int.from_bytes(data[at : at + 4], order) for at in (0, 4))
    start = 12 + (name_size + 3) // 4 * 4
    if data[12 : 12 + name_size].rstrip(b"\0") != b"NVIDIA Corporation":
        return None
    try:
        note = json.loads(data[start : start + size].rstrip(b"\0"))
        cuda = str(note["CUDA version"])
        drivers = tuple(sorted({int(driver) for driver in note.get("driver", ())}))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return CudaNote(cuda, drivers) if re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", cuda) else None
