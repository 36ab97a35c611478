"""ELF: identification by hand, everything deeper through pyelftools (loaded only when asked).

Source: gABI chapter 4 (ELF header), LSB "Symbol Versioning" (version needs and definitions).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, Optional, Union

from gpubind.arch import architecture, of_elf
from gpubind.errors import FormatError, GpubindError
from gpubind.model import CudaNote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HEAD_SIZE = 256
"""Bytes that `parse_ident` wants to see; a linker script says so within them."""

HEADER_LIMIT = 256
"""Bytes of a program or section header; those of 64-bit files have 56 and 64."""
NEEDED_LIMIT = 4096
TAGS_LIMIT = NEEDED_LIMIT + 1024  # beside these, about 40
VER_FLG_WEAK = 2
PT_DYNAMIC, PT_INTERP, PT_GNU_STACK = 2, 3, 0x6474E551
PF_X = 1
DF_1_NODEFLIB = 0x800
SHT_DYNAMIC, SHT_NOTE, SHT_GNU_VERDEF, SHT_GNU_VERNEED = 6, 7, 0x6FFFFFFD, 0x6FFFFFFE
VERSIONS_LIMIT = 4096
STRING_LIMIT = 4096
CUDA_NOTE = ".note.cuda.fwd_compatibility"
NOTE_LIMIT = 1 << 16


class ElfIdent(NamedTuple):
    """What the first 20 bytes of an ELF file say."""

    bits: int
    """32 or 64."""
    order: Literal["little", "big"]
    machine: int
    """e_machine, 62 for x86-64."""
    type: int
    """e_type: 2 executable, 3 shared object."""

    @property
    def arch(self) -> str:
        """The name of its architecture (`gpubind.arch`): `x86_64`, `i386`, `aarch64`; `x32` for 32-bit x86-64."""
        return of_elf(self.machine, self.bits, self.order)


class NotElf(NamedTuple):
    """Why a file is no ELF object."""

    rule: Literal["zero-byte", "linker-script", "truncated-elf", "not-elf"]
    detail: str


class VersionNeed(NamedTuple):
    """Symbol versions that a file wants from one library (.gnu.version_r)."""

    library: str
    versions: tuple[str, ...]


class ElfFacts(NamedTuple):
    """The dynamic facts of one ELF file. Orders are those of the file."""

    ident: ElfIdent
    soname: Optional[str]
    needed: tuple[str, ...]
    rpath: Optional[str]
    runpath: Optional[str]
    interpreter: Optional[str]
    version_needs: tuple[VersionNeed, ...]
    version_definitions: tuple[str, ...]
    cuda_note: Optional[CudaNote] = None
    """libcuda's own word about the CUDA versions and kernel modules that it serves, where it has one."""
    executable_stack: bool = False
    """Whether it asks for a stack that may be executed (PT_GNU_STACK)."""
    no_default_directories: bool = False
    """Whether what it needs must not come from the default directories (DF_1_NODEFLIB)."""


def parse_ident(head: bytes) -> Union[ElfIdent, NotElf]:
    """The identification in the first bytes of a file (`HEAD_SIZE` are enough), or why it has none. Never raises."""
    if not head:
        return NotElf("zero-byte", "the file is empty")
    if not head.startswith(b"\x7fELF"):
        if b"GNU ld script" in head or head.lstrip().startswith((b"INPUT", b"GROUP", b"OUTPUT_FORMAT")):
            return NotElf("linker-script", "a text for the link editor; the loader cannot use it")
        return NotElf("not-elf", f"starts with {head[:4]!r}")
    if len(head) < 20:
        return NotElf("truncated-elf", f"{len(head)} bytes")
    bits = {1: 32, 2: 64}.get(head[4])
    order: Optional[Literal["little", "big"]] = {1: "little", 2: "big"}.get(head[5])  # type: ignore[assignment]
    if bits is None or order is None:
        return NotElf("not-elf", f"EI_CLASS {head[4]}, EI_DATA {head[5]}")
    return ElfIdent(bits, order, int.from_bytes(head[18:20], order), int.from_bytes(head[16:18], order))


def parse_elf(stream: BinaryIO) -> ElfFacts:
    """The dynamic facts of the ELF file in *stream* (binary, seekable; sections are read as needed).

    Errors: `FormatError` (code `bad-elf`), for a file that is no ELF object and for any damage that matters here.
    """
    ident = parse_ident(stream.read(HEAD_SIZE))
    if isinstance(ident, NotElf):
        raise FormatError("bad-elf", "not an ELF file", place="byte 0", why=ident.detail)
    try:
        return _read_facts(ident, stream)
    except GpubindError:
        raise
    except Exception as error:  # pyelftools fails in many ways on damage
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise _damaged("dynamic section", why) from error


def _read_facts(ident: ElfIdent, stream: BinaryIO) -> ElfFacts:
    from elftools.elf.elffile import ELFFile

    elf: Any = ELFFile(stream)
    segments = _types(stream, ident, elf["e_phoff"], elf["e_phentsize"], elf.num_segments(), 4096, "program headers")
    sections = _types(stream, ident, elf["e_shoff"], elf["e_shentsize"], elf.num_sections(), 65536, "section headers")
    if segments.count(PT_DYNAMIC) > 1:
        raise _damaged("program headers", "two dynamic segments")
    interpreter: Optional[str] = None
    if PT_INTERP in segments:
        interpreter = _text(elf.get_segment(segments.index(PT_INTERP)).get_interp_name())
    dynamic = _read_dynamic(elf, ident, stream, segments, sections)
    needs, definitions = _read_versions(elf, sections)
    return ElfFacts(
        ident=ident,
        soname=dynamic.single.get("DT_SONAME"),
        needed=dynamic.needed,
        rpath=dynamic.single.get("DT_RPATH"),
        runpath=dynamic.single.get("DT_RUNPATH"),
        interpreter=interpreter,
        version_needs=needs,
        version_definitions=definitions,
        cuda_note=_read_cuda_note(elf, ident, sections),
        executable_stack=_wants_executable_stack(stream, ident, elf["e_phoff"], elf["e_phentsize"], segments),
        no_default_directories=bool(dynamic.flags_1 & DF_1_NODEFLIB),
    )


class _Dynamic(NamedTuple):
    """What of the dynamic section counts here."""

    needed: tuple[str, ...] = ()
    single: Mapping[str, str] = MappingProxyType({})
    """DT_SONAME, DT_RPATH, DT_RUNPATH: of each the first."""
    flags_1: int = 0


def _read_dynamic(
    elf: Any, ident: ElfIdent, stream: BinaryIO, segments: tuple[int, ...], sections: tuple[int, ...]
) -> _Dynamic:
    if PT_DYNAMIC not in segments:
        return _Dynamic()
    number = segments.index(PT_DYNAMIC)
    stream.seek(elf["e_phoff"] + number * elf["e_phentsize"] + ident.bits // 8)  # p_offset is the second word
    offset = int.from_bytes(stream.read(ident.bits // 8), ident.order)
    # The loader goes by the segment. As a section it can be read without a look at every other section.
    section = elf.get_section(sections.index(SHT_DYNAMIC)) if SHT_DYNAMIC in sections else None
    dynamic = section if section and section["sh_offset"] == offset else elf.get_segment(number)
    needed: list[str] = []
    single: dict[str, str] = {}
    flags_1 = 0
    for tag in _bounded(dynamic.iter_tags(), TAGS_LIMIT, "dynamic tags"):
        name = tag.entry.d_tag
        if name == "DT_NEEDED":
            needed.append(_text(tag.needed))
            if len(needed) > NEEDED_LIMIT:
                raise _damaged("dynamic section", f"over {NEEDED_LIMIT} DT_NEEDED entries")
        elif name in ("DT_SONAME", "DT_RPATH", "DT_RUNPATH"):
            single.setdefault(name, _text(getattr(tag, name[3:].lower())))
        elif name == "DT_FLAGS_1":
            flags_1 = tag.entry.d_val
    return _Dynamic(tuple(needed), single, flags_1)


def _read_versions(elf: Any, sections: tuple[int, ...]) -> tuple[tuple[VersionNeed, ...], tuple[str, ...]]:
    """The versions that a file wants of others, and those that it defines."""
    needs: list[VersionNeed] = []
    definitions: list[str] = []
    left = VERSIONS_LIMIT
    for number, kind in enumerate(sections):
        if kind == SHT_GNU_VERNEED:
            for need, versions in _bounded(elf.get_section(number).iter_versions(), VERSIONS_LIMIT, "version needs"):
                entries = list(_bounded(versions, left, "version needs"))
                left -= len(entries)
                # A weak need is only warned about (glibc elf/dl-version.c).
                names = tuple(_text(v.name) for v in entries if not v["vna_flags"] & VER_FLG_WEAK)
                needs.append(VersionNeed(_text(need.name), names))
        elif kind == SHT_GNU_VERDEF:
            room = VERSIONS_LIMIT - len(definitions)
            for _, names in _bounded(elf.get_section(number).iter_versions(), room, "version definitions"):
                # The first name of a definition is the version itself, the others are its parents.
                definitions.extend(_text(v.name) for v in islice(names, 1))
    return tuple(needs), tuple(definitions)


def _read_cuda_note(elf: Any, ident: ElfIdent, sections: tuple[int, ...]) -> Optional[CudaNote]:
    notes = [elf.get_section(number) for number, kind in enumerate(sections) if kind == SHT_NOTE]
    named = [note for note in notes if note["sh_size"] <= NOTE_LIMIT and note.name == CUDA_NOTE]
    return parse_cuda_note(named[-1].data(), ident.order) if named else None


def _wants_executable_stack(
    stream: BinaryIO, ident: ElfIdent, offset: int, size: int, segments: tuple[int, ...]
) -> bool:
    """Whether the last PT_GNU_STACK has PF_X; where there is none, what is usual for the machine."""
    if PT_GNU_STACK not in segments:
        return architecture(ident.arch).executable_stack
    last = len(segments) - 1 - segments[::-1].index(PT_GNU_STACK)
    stream.seek(offset + last * size + (4 if ident.bits == 64 else 24))  # p_flags stands elsewhere in each class
    return bool(int.from_bytes(stream.read(4), ident.order) & PF_X)


def parse_cuda_note(data: bytes, order: Literal["little", "big"]) -> Optional[CudaNote]:
    """The CUDA forward compatibility note in the bytes of its section; None if it is none, or not as it should be.

    A description is taken as far as the section goes: that of CUDA's libcuda for Orin claims more than there is.
    Sources: CUDA Compatibility guide; owner `NVIDIA Corporation`, description JSON with `CUDA version` and `driver`;
    nvidia-container-toolkit `cuda-elf-header.go`.
    """
    import json

    name_size, size = (int.from_bytes(data[at : at + 4], order) for at in (0, 4))
    start = 12 + (name_size + 3) // 4 * 4
    if data[12 : 12 + name_size].rstrip(b"\0") != b"NVIDIA Corporation":
        return None
    try:
        said = json.loads(data[start : start + size].rstrip(b"\0"))
        cuda = str(said["CUDA version"])
        drivers = tuple(sorted({int(driver) for driver in said.get("driver", ())}))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return CudaNote(cuda, drivers) if re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", cuda) else None


def _types(
    stream: BinaryIO, ident: ElfIdent, offset: int, size: int, count: int, limit: int, what: str
) -> tuple[int, ...]:
    """The types in a table of program or section headers: objects of each would be most of what reading costs."""
    if count > limit:
        raise _damaged(what, f"over {limit} {what}")
    if size > HEADER_LIMIT:
        raise _damaged(what, f"{what} of {size} bytes")
    at = 4 if what == "section headers" else 0
    if not count or size < at + 4:
        return ()
    stream.seek(offset)
    table = stream.read(count * size)
    if len(table) < count * size:
        raise _damaged(what, f"the file ends before its {what}")
    return tuple(int.from_bytes(table[n + at : n + at + 4], ident.order) for n in range(0, len(table), size))


def _bounded(items: Iterable[Any], limit: int, what: str) -> Iterator[Any]:
    """*items*, up to *limit* of them: a damaged count must not cost unbounded time."""
    for number, item in enumerate(items):
        if number >= limit:
            raise _damaged(what, f"over {limit} {what}")
        yield item


def _text(value: object) -> str:
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
    if len(text) > STRING_LIMIT:
        raise _damaged("string table", f"a string of {len(text)} characters")
    return text


def _damaged(place: str, why: str) -> FormatError:
    return FormatError("bad-elf", "damaged ELF file", place=place, why=why)
