"""ELF: identification, dynamic facts, and what damage does."""

from __future__ import annotations

import io
import os
import struct
import sys
import time
from typing import Any, Literal, Optional

import pytest
from build import answers, damaged
from build.elf import AARCH64, ARM, EXECUTABLE, I386, PPC64, SHARED_OBJECT, X86_64, build_elf, elf
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.elf import (
    HEAD_SIZE,
    ElfFacts,
    ElfIdent,
    NotElf,
    VersionNeed,
    parse_cuda_note,
    parse_elf,
    parse_ident,
)
from gpubind.model import CudaNote

Order = Literal["little", "big"]
INTERPRETER = "/lib64/ld-linux-x86-64.so.2"
FULL = ElfFacts(
    ElfIdent(64, "little", X86_64, SHARED_OBJECT),
    soname="libcuda.so.1",
    needed=("libc.so.6", "libm.so.6"),
    rpath="/opt/rpath",
    runpath="$ORIGIN/../lib",
    interpreter=INTERPRETER,
    version_needs=(VersionNeed("libc.so.6", ("GLIBC_2.2.5", "GLIBC_2.17")), VersionNeed("libm.so.6", ("GLIBC_2.29",))),
    version_definitions=("libcuda.so.1", "CUDA_1", "CUDA_2", "CUDA_3"),
    executable_stack=True,
    no_default_directories=True,
)


def parse(data: bytes) -> ElfFacts:
    return parse_elf(io.BytesIO(data))


def refusal(data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        parse(data)
    assert caught.value.code == "bad-elf"
    assert caught.value.place
    return caught.value


# Identification.


@pytest.mark.parametrize(
    ("bits", "order", "machine", "arch"),
    [
        (64, "little", X86_64, "x86_64"),
        (32, "little", X86_64, "x32"),
        (32, "little", I386, "i386"),
        (64, "little", AARCH64, "aarch64"),
        (32, "little", ARM, "arm"),
        (64, "big", PPC64, "ppc64"),
        (64, "little", PPC64, "ppc64le"),
        (64, "big", 22, "s390x"),
        (64, "little", 243, "riscv64"),
        (64, "little", 258, "loongarch64"),
        (64, "little", 9999, "machine-9999"),
    ],
)
def test_class_byte_order_and_machine_make_the_name_that_uname_uses(
    bits: int, order: Order, machine: int, arch: str
) -> None:
    ident = parse_ident(elf(bits=bits, order=order, machine=machine)[:HEAD_SIZE])
    assert ident == ElfIdent(bits, order, machine, SHARED_OBJECT)
    assert ident.arch == arch


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("kind", [EXECUTABLE, SHARED_OBJECT])
def test_the_type_is_read_in_the_byte_order_of_the_file(kind: int, order: Order) -> None:
    ident = parse_ident(elf(kind=kind, order=order))
    assert isinstance(ident, ElfIdent)
    assert ident.type == kind


@pytest.mark.parametrize(
    ("head", "rule"),
    [
        (b"", "zero-byte"),
        (b"/* GNU ld script */\nGROUP ( libc.so.6 )", "linker-script"),
        (b"  INPUT(-lncurses)", "linker-script"),
        (b"GROUP ( /lib/libc.so.6 )", "linker-script"),
        (b"OUTPUT_FORMAT(elf64-x86-64)", "linker-script"),
        (b"\x7fEL", "not-elf"),
        (b"!<arch>\n", "not-elf"),
        (b"\x7fELF", "truncated-elf"),
        (elf()[:19], "truncated-elf"),
        (b"\x7fELF\3\1" + bytes(58), "not-elf"),
        (b"\x7fELF\2\0" + bytes(58), "not-elf"),
    ],
    ids=["empty", "comment", "input", "group", "format", "magic-cut", "archive", "4", "19", "class", "order"],
)
def test_a_file_that_is_no_elf_object_says_why(head: bytes, rule: str) -> None:
    found = parse_ident(head)
    assert isinstance(found, NotElf)
    assert found.rule == rule
    assert found.detail


@given(st.one_of(st.binary(max_size=64), damaged(elf()[:HEAD_SIZE])))
@settings(max_examples=200, deadline=None)
def test_identification_never_raises(head: bytes) -> None:
    assert isinstance(parse_ident(head), (ElfIdent, NotElf))


# Facts.


def test_every_fact_is_read_in_the_order_of_the_file() -> None:
    assert parse(build_elf(FULL)) == FULL


def test_a_file_with_no_dynamic_facts_has_none() -> None:
    ident = ElfIdent(64, "little", X86_64, EXECUTABLE)
    assert parse(elf(kind=EXECUTABLE)) == ElfFacts(ident, None, (), None, None, None, (), ())


@pytest.mark.parametrize(
    ("bits", "machine", "asks"),
    [(64, X86_64, True), (32, I386, True), (32, ARM, True), (64, AARCH64, False), (64, PPC64, False)],
)
def test_a_file_that_does_not_say_asks_for_the_stack_that_is_usual_for_its_machine(
    bits: int, machine: int, asks: bool
) -> None:
    facts = ElfFacts(ElfIdent(bits, "little", machine, SHARED_OBJECT), "libx.so", (), None, None, None, (), ())
    assert parse(build_elf(facts, says_stack=False)).executable_stack is asks


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("asks", [True, False])
def test_a_file_says_whether_it_asks_for_an_executable_stack(bits: int, order: Order, asks: bool) -> None:
    assert parse(elf(bits=bits, order=order, executable_stack=asks)).executable_stack is asks


def test_rpath_and_runpath_are_two_things() -> None:
    assert parse(elf(rpath="/a"))[3:5] == ("/a", None)
    assert parse(elf(runpath="/b"))[3:5] == (None, "/b")
    assert parse(elf(runpath=""))[3:5] == (None, "")


def test_a_definition_is_named_without_its_parents() -> None:
    """CUDA_2 and CUDA_3 have a parent each, which comes second in their chains."""
    facts = parse(build_elf(FULL))
    assert facts.version_definitions == ("libcuda.so.1", "CUDA_1", "CUDA_2", "CUDA_3")


def test_dynamic_facts_do_not_need_section_headers() -> None:
    stripped = parse(build_elf(FULL, sections=False))
    assert stripped[:6] == FULL[:6]


def test_a_file_without_dynamic_segment_is_read() -> None:
    head = bytearray(elf(needed=["libc.so.6"]))
    struct.pack_into("<H", head, 56, 1)  # e_phnum: PT_LOAD alone is left
    assert parse(bytes(head)).needed == ()


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
_TEXTS = st.lists(_TEXT, max_size=4).map(tuple)
_FACTS = st.builds(
    ElfFacts,
    st.builds(
        ElfIdent,
        st.sampled_from([32, 64]),
        st.sampled_from(["little", "big"]),
        st.sampled_from([X86_64, I386, ARM, AARCH64, PPC64]),
        st.sampled_from([EXECUTABLE, SHARED_OBJECT]),
    ),
    st.none() | _TEXT,
    _TEXTS,
    st.none() | _TEXT,
    st.none() | _TEXT,
    st.none() | _TEXT,
    st.lists(st.builds(VersionNeed, _TEXT, st.lists(_TEXT, min_size=1, max_size=3).map(tuple)), max_size=3).map(tuple),
    _TEXTS,
    st.none()
    | st.builds(CudaNote, st.just("12.4"), st.lists(st.integers(470, 999), unique=True).map(sorted).map(tuple)),
)


@given(_FACTS)
@settings(max_examples=100, deadline=None)
def test_what_is_built_is_parsed_back(facts: ElfFacts) -> None:
    data = build_elf(facts)
    assert parse(data) == facts
    assert parse_ident(data[:20]) == facts.ident


# Real files.


def real_files() -> list[str]:
    """The interpreter and a few of its shared objects, which are there wherever tests run."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        mapped = {line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line and "/" in line}
    return [os.path.realpath(sys.executable), *sorted(path for path in mapped if os.path.isfile(path))[:15]]


def of_pyelftools(path: str) -> tuple[Optional[str], list[str], list[tuple[str, list[str]]], list[str]]:
    """soname, needed, version needs and definitions, by pyelftools' own ways: sections and tags by name."""
    with open(path, "rb") as stream:
        file: Any = ELFFile(stream)
        tags = [tag for s in file.iter_segments() if s["p_type"] == "PT_DYNAMIC" for tag in s.iter_tags()]
        soname = next((tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"), None)
        needed = [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
        wants, defines = (file.get_section_by_name(f".gnu.version_{letter}") for letter in "rd")
        needs = [(need.name, [aux.name for aux in all_]) for need, all_ in wants.iter_versions()] if wants else []
        definitions = [next(iter(all_)).name for _, all_ in defines.iter_versions()] if defines else []
        return soname, needed, needs, definitions


def test_real_files_say_what_pyelftools_says_of_them() -> None:
    paths = real_files()
    assert len(paths) > 1
    for path in paths:
        with open(path, "rb") as stream:
            facts = parse_elf(stream)
        needs = [(need.library, list(need.versions)) for need in facts.version_needs]
        assert (facts.soname, list(facts.needed), needs, list(facts.version_definitions)) == of_pyelftools(path), path
        assert facts.ident.bits == (64 if sys.maxsize > 1 << 32 else 32)
        assert facts.ident.order == sys.byteorder


# Damage.


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\2\1\1", b"/* GNU ld script */"])
def test_what_is_no_elf_file_is_refused_at_its_first_byte(data: bytes) -> None:
    assert refusal(data).place == "byte 0"


def test_every_cut_is_refused_or_read() -> None:
    data = elf("liba.so.1", needed=["libc.so.6"], needs={"libc.so.6": ["GLIBC_2.17"]}, defines=["liba.so.1", "A_1"])
    read = [answers(parse, data[:end]) for end in range(len(data) + 1)]
    assert read[-1]
    assert not any(read[:64])


@given(st.one_of(*(damaged(build_elf(FULL._replace(ident=ElfIdent(b, "little", X86_64, 3)))) for b in (32, 64))))
@settings(max_examples=500, deadline=None)
def test_damage_gives_a_value_or_a_place(data: bytes) -> None:
    answers(parse, data)


def section_header(data: bytes, kind: int) -> int:
    """Where the 64-bit section header of this type is."""
    start, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    return next(at for at in range(start, start + 64 * count, 64) if struct.unpack_from("<I", data, at + 4)[0] == kind)


@pytest.mark.parametrize(("kind", "name"), [(0x6FFFFFFE, "needs"), (0x6FFFFFFD, "definitions")])
def test_versions_that_point_at_themselves_end_soon(kind: int, name: str) -> None:
    """4000 versions of 4000 names each, all of them the same few bytes: 16 million reads if nobody counts."""
    data = bytearray(build_elf(FULL))
    header = section_header(bytes(data), kind)
    at = struct.unpack_from("<Q", data, header + 24)[0]
    struct.pack_into("<I", data, header + 44, 4000)
    aux = 16 if kind == 0x6FFFFFFE else 20
    struct.pack_into("<H", data, at + (2 if aux == 16 else 6), 4000)
    struct.pack_into("<II", data, at + aux - 8, aux, 0)
    struct.pack_into("<I", data, at + aux + (12 if aux == 16 else 4), 0)
    started = time.monotonic()
    if answers(parse, bytes(data)):
        assert name == "definitions"  # of which only the first name counts
    assert time.monotonic() - started < 5


class CountingStream(io.BytesIO):
    """Bytes that know how many of them were asked for at once."""

    most = 0

    def read(self, size: Optional[int] = -1, /) -> bytes:
        self.most = max(self.most, -1 if size is None else size)
        return super().read(size)


@pytest.mark.parametrize("at", [54, 58])
def test_headers_of_great_size_are_not_read(at: int) -> None:
    """65535 headers of 65535 bytes: four gigabytes in memory, in a file with a hole."""
    data = bytearray(elf(needed=["libc.so.6"]))
    struct.pack_into("<HH", data, at, 0xFFFF, 4000)
    stream = CountingStream(bytes(data))
    with pytest.raises(FormatError, match="bad-elf"):
        parse_elf(stream)
    assert stream.most < 1 << 20


def test_a_second_dynamic_segment_is_refused() -> None:
    """For each one pyelftools looks through all section headers: thousands of them would take hours."""
    data = bytearray(elf(needed=["libc.so.6"]))
    data[64:120] = data[120:176]  # PT_LOAD becomes another PT_DYNAMIC
    assert refusal(bytes(data)).place == "program headers"


@pytest.mark.parametrize(
    ("tags", "place"),
    [
        pytest.param(5000 * [(1, 1)], "dynamic section", id="needed"),
        pytest.param(70_000 * [(30, 0)], "dynamic tags", id="tags"),
    ],
)
def test_a_dynamic_section_without_end_is_refused(tags: list[tuple[int, int]], place: str) -> None:
    data = bytearray(elf(needed=["libc.so.6"]))
    struct.pack_into("<Q", data, 64 + 56 + 8, len(data))  # PT_DYNAMIC's offset
    strings = (5, 64 + 2 * 56)  # DT_STRTAB
    data += b"".join(struct.pack("<QQ", *tag) for tag in [strings, *tags, (0, 0)])
    assert refusal(bytes(data)).place == place


def test_a_string_without_end_is_refused() -> None:
    assert refusal(elf("x" * 5000)).place == "string table"


@pytest.mark.parametrize(
    ("text", "claimed", "note"),
    [
        (b'{"CUDA version": "12.9", "driver": [575, 535]}\0', 0, CudaNote("12.9", (535, 575))),
        (b'{"CUDA version": "13.2"}', 7, CudaNote("13.2", ())),  # as that of libcuda for Orin
        (b'{"CUDA version": "13.2"', 1, None),
        (b'{"CUDA version": "13"}', 0, None),
        (b'{"CUDA version": "13.2", "driver": ["x"]}', 0, None),
        (b'["13.2"]', 0, None),
        (b"", 100, None),
    ],
)
def test_a_note_about_cuda_is_read_as_far_as_its_section_goes(
    text: bytes, claimed: int, note: Optional[CudaNote]
) -> None:
    """Source: nvidia-container-toolkit, cuda-elf-header_test.go."""
    name = b"NVIDIA Corporation\0"
    head = struct.pack("<III", len(name), len(text) + claimed, 1) + name.ljust(20, b"\0")
    assert parse_cuda_note(head + text, "little") == note


@given(st.binary(max_size=64))
def test_any_bytes_are_a_note_about_cuda_or_none(data: bytes) -> None:
    parse_cuda_note(data, "little")
