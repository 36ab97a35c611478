"""ELF files from facts: small and without code, but whole: pyelftools and readelf read them back.

Source: gABI chapters 4 and 5, LSB "Symbol Versioning".
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, Optional

from gpubind.formats.elf.elf import ElfFacts, ElfIdent, VersionNeed
from gpubind.model import CudaNote

EXECUTABLE, SHARED_OBJECT = 2, 3
X86_64, I386, ARM, AARCH64, PPC64 = 62, 3, 40, 183, 21

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_GNU_STACK = 1, 2, 3, 0x6474E551
_PROGBITS, _STRTAB, _DYNAMIC, _NOTE, _DYNSYM, _VERDEF, _VERNEED, _VERSYM = (
    1,
    3,
    6,
    7,
    11,
    0x6FFFFFFD,
    0x6FFFFFFE,
    0x6FFFFFFF,
)
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT = 0, 1, 5, 6, 10, 11
_DT_SONAME, _DT_RPATH, _DT_RUNPATH = 14, 15, 29
_DT_VERSYM, _DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_DT_FLAGS_1, _DF_1_NODEFLIB, _DF_1_PIE = 0x6FFFFFFB, 0x800, 0x08000000


class _Class(NamedTuple):
    """The structures of one ELF class, for `struct`, without byte order."""

    header: str
    program: str
    section: str
    dynamic: str
    symbol: str
    word: int


_CLASSES = {
    32: _Class("HHIIIIIHHHHHH", "IIIIIIII", "IIIIIIIIII", "II", "IIIBBH", 4),
    64: _Class("HHIQQQIHHHHHH", "IIQQQQQQ", "IIQQQQIIQQ", "QQ", "IBBHQQ", 8),
}


class _Section(NamedTuple):
    name: str
    kind: int
    offset: int
    size: int
    link: str = ""
    info: int = 0
    entry_size: int = 0


class _Strings:
    """A string table: each string once."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")
        self._known: dict[str, int] = {"": 0}

    def __call__(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.data)
            self.data += text.encode("utf-8", "surrogateescape") + b"\0"
        return self._known[text]


def elf(
    soname: Optional[str] = None,
    *,
    bits: int = 64,
    order: Literal["little", "big"] = "little",
    machine: int = X86_64,
    kind: int = SHARED_OBJECT,
    needed: Sequence[str] = (),
    rpath: Optional[str] = None,
    runpath: Optional[str] = None,
    interpreter: Optional[str] = None,
    needs: Optional[Mapping[str, Sequence[str]]] = None,
    defines: Sequence[str] = (),
    cuda_note: Optional[CudaNote] = None,
    executable_stack: bool = False,
    no_default_directories: bool = False,
    pie: bool = False,
    private: Sequence[str] = (),
    more: Optional[Mapping[str, bytes]] = None,
) -> bytes:
    """A file with these facts; *needs* maps a library to the versions that are wanted of it.

    *more* are other sections, by name. *private* are symbols of version GLIBC_PRIVATE: it has them if it defines that
    version, else it wants them.
    """
    wanted = tuple(VersionNeed(library, tuple(versions)) for library, versions in (needs or {}).items())
    ident = ElfIdent(bits, order, machine, kind)
    single = (soname, tuple(needed), rpath, runpath, interpreter)
    flags = (executable_stack, no_default_directories, pie)
    facts = ElfFacts(ident, *single, wanted, tuple(defines), cuda_note, *flags)
    return build_elf(facts, private=private, more=more) if private or more else _plain(facts)


@lru_cache(maxsize=4096)
def _plain(facts: ElfFacts) -> bytes:
    return build_elf(facts)


def stub(soname: str = "libcuda.so.1", imports: Sequence[str] = ()) -> bytes:
    """A library with the names, and NVML's confession, of the CUDA toolkit's stub of *soname*."""
    if soname == "libcuda.so.1":
        has: tuple[str, ...] = ("cuInit", "cuDeviceGetCount", "cuGetProcAddress")
    else:
        has = ("nvmlInit_v2", "libnvidia-ml.so in GDK package is a stub library that is attached only for", "printf")
    names = "\0".join(("", *has, *imports, ""))
    return elf(soname, needed=("libc.so.6",) if imports else ()) + names.encode()


def build_elf(
    facts: ElfFacts,
    sections: bool = True,
    says_stack: bool = True,
    private: Sequence[str] = (),
    more: Optional[Mapping[str, bytes]] = None,
) -> bytes:
    """The file that *facts* tell of. Of version definitions, each but the first two has the one before it as parent.

    Without *sections*: as `sstrip` leaves a file, with program headers only. Without *says_stack*: with no
    PT_GNU_STACK, as old compilers and assemblers make files.
    """
    ident = facts.ident
    order = "<" if ident.order == "little" else ">"
    forms = _CLASSES[ident.bits]
    strings = _Strings()
    word = struct.Struct(order + forms.dynamic)
    names = [(_DT_NEEDED, name) for name in facts.needed]
    singles = ((_DT_SONAME, facts.soname), (_DT_RPATH, facts.rpath), (_DT_RUNPATH, facts.runpath))
    names += [(tag, text) for tag, text in singles if text is not None]
    tags = [(tag, strings(text)) for tag, text in names]
    needs = _version_needs(order, strings, facts.version_needs, max(2, len(facts.version_definitions) + 1))
    definitions = _version_definitions(order, strings, facts.version_definitions)
    symbols, numbers = _symbols(order, forms, strings, facts, private)

    header_size = 16 + struct.calcsize(order + forms.header)
    program_size = struct.calcsize(order + forms.program)
    out = bytearray(header_size + program_size * (2 + says_stack + (facts.interpreter is not None)))
    table = [_Section("", 0, 0, 0)]

    def put(name: str, kind: int, data: bytes, link: str = "", info: int = 0, entry_size: int = 0) -> int:
        out.extend(bytes(-len(out) % 8))
        table.append(_Section(name, kind, len(out), len(data), link, info, entry_size))
        out.extend(data)
        return table[-1].offset

    if facts.interpreter is not None:
        put(".interp", _PROGBITS, facts.interpreter.encode("utf-8", "surrogateescape") + b"\0")
    tags += [(_DT_STRTAB, put(".dynstr", _STRTAB, bytes(strings.data))), (_DT_STRSZ, len(strings.data))]
    symbol_size = struct.calcsize(order + forms.symbol)
    tags += [(_DT_SYMTAB, put(".dynsym", _DYNSYM, symbols, ".dynstr", 1, symbol_size))]
    tags += [(_DT_SYMENT, symbol_size)]
    if needs or definitions:
        tags += [(_DT_VERSYM, put(".gnu.version", _VERSYM, numbers, ".dynsym", 0, 2))]
    if needs:
        count = len(facts.version_needs)
        tags += [(_DT_VERNEED, put(".gnu.version_r", _VERNEED, needs, ".dynstr", count)), (_DT_VERNEEDNUM, count)]
    if definitions:
        count = len(facts.version_definitions)
        tags += [(_DT_VERDEF, put(".gnu.version_d", _VERDEF, definitions, ".dynstr", count)), (_DT_VERDEFNUM, count)]
    flags_1 = _DF_1_NODEFLIB * facts.no_default_directories | _DF_1_PIE * facts.pie
    tags += [(_DT_FLAGS_1, flags_1)] if flags_1 else []
    dynamic = b"".join(word.pack(tag, value) for tag, value in [*tags, (_DT_NULL, 0)])
    put(".dynamic", _DYNAMIC, dynamic, ".dynstr", 0, word.size)
    dynamic_at = table[-1].offset
    if facts.cuda_note is not None:
        put(".note.cuda.fwd_compatibility", _NOTE, _cuda_note(order, facts.cuda_note))
    for name, data in (more or {}).items():
        put(name, _PROGBITS, data)

    segments = [(_PT_LOAD, 0, len(out)), (_PT_DYNAMIC, dynamic_at, len(dynamic))]
    if facts.interpreter is not None:
        segments.insert(0, (_PT_INTERP, table[1].offset, table[1].size))
    if says_stack:
        segments.append((_PT_GNU_STACK, 0, 0))
    section_at = 0
    if sections:
        section_names = _Strings()
        for section in (*table, _Section(".shstrtab", 0, 0, 0)):
            section_names(section.name)
        put(".shstrtab", _STRTAB, bytes(section_names.data))
        out.extend(bytes(-len(out) % 8))
        section_at = len(out)
        index = {section.name: number for number, section in enumerate(table)}
        form = struct.Struct(order + forms.section)
        for s in table:
            place = (s.offset, s.offset, s.size, index[s.link], s.info, 8 if s.kind else 0, s.entry_size)
            out += form.pack(section_names(s.name), s.kind, 2 if s.kind else 0, *place)
    head = b"\x7fELF" + bytes((ident.bits // 32, 1 if order == "<" else 2, 1)) + bytes(9)
    section_size = struct.calcsize(order + forms.section)
    sizes = (header_size, program_size, len(segments), section_size, len(table) if section_at else 0)
    last = len(table) - 1 if section_at else 0
    fixed = (ident.type, ident.machine, 1, 0, header_size, section_at, 0)
    out[:header_size] = head + struct.pack(order + forms.header, *fixed, *sizes, last)
    for number, (kind, offset, size) in enumerate(segments):
        fields = [kind, offset, offset, offset, size, size, 8]
        access = 7 if kind == _PT_GNU_STACK and facts.executable_stack else 6
        fields.insert(1 if ident.bits == 64 else 6, access)  # the flags stand elsewhere in each class
        struct.pack_into(order + forms.program, out, header_size + number * program_size, *fields)
    return bytes(out)


def _cuda_note(order: str, note: CudaNote) -> bytes:
    """As the driver's libcuda carries it since 520."""
    said = {"format": "1.0", "CUDA version": note.cuda, "driver": note.drivers, "device": [1, 2]}
    name, text = b"NVIDIA Corporation\0", json.dumps(said).encode() + b"\0"
    return struct.pack(order + "III", len(name), len(text), 1) + name.ljust(20, b"\0") + text


def _symbols(
    order: str, forms: _Class, strings: _Strings, facts: ElfFacts, private: Sequence[str]
) -> tuple[bytes, bytes]:
    """The table of symbols, of which the first is none, and the number of the version of each."""
    definitions = facts.version_definitions
    wanted = [version for need in facts.version_needs for version in need.versions]
    is_defined = "GLIBC_PRIVATE" in definitions
    number = 0
    if private:
        before = max(2, len(definitions) + 1)
        number = definitions.index("GLIBC_PRIVATE") + 1 if is_defined else wanted.index("GLIBC_PRIVATE") + before
    place = 1 if is_defined else 0
    rows = [(0, 0, 0, 0, 0, 0)]
    for name in private:
        at = strings(name)
        rows.append((at, 0x12, 0, place, 0, 0) if forms.word == 8 else (at, 0, 0, 0x12, 0, place))
    table = b"".join(struct.pack(order + forms.symbol, *row) for row in rows)
    return table, struct.pack(f"{order}{len(rows)}H", 0, *[number] * len(private))


def _version_needs(order: str, strings: _Strings, needs: Sequence[VersionNeed], index: int) -> bytes:
    out = b""
    for number, need in enumerate(needs):
        size = 16 + 16 * len(need.versions)
        following = size if number + 1 < len(needs) else 0
        out += struct.pack(order + "HHIII", 1, len(need.versions), strings(need.library), 16, following)
        for place, version in enumerate(need.versions, 1):
            step = 16 if place < len(need.versions) else 0
            out += struct.pack(order + "IHHII", _hash(version), 0, index, strings(version), step)
            index += 1
    return out


def _version_definitions(order: str, strings: _Strings, versions: Sequence[str]) -> bytes:
    out = b""
    for number, version in enumerate(versions):
        chain = [version] if number < 2 else [version, versions[number - 1]]
        following = 20 + 8 * len(chain) if number + 1 < len(versions) else 0
        base = 1 if number == 0 else 0
        out += struct.pack(order + "HHHHIII", 1, base, number + 1, len(chain), _hash(version), 20, following)
        for place, name in enumerate(chain, 1):
            out += struct.pack(order + "II", strings(name), 8 if place < len(chain) else 0)
    return out


def _hash(name: str) -> int:
    """The System V hash of a symbol's name."""
    value = 0
    for byte in name.encode("utf-8", "surrogateescape"):
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0xFFFFFFF
    return value
