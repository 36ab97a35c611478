"""ELF: identification, dynamic facts, and what damage does."""

from __future__ import annotations

import io
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.elf.dynamic import parse_cuda_note, parse_elf
from gpubind.formats.elf.elf import HEAD_SIZE, ElfFacts, ElfIdent, NotElf, VersionNeed, parse_ident
from gpubind.model import CudaNote
from tests.support import answers, damaged
from tests.support.amd import opt
from tests.support.driver import debian
from tests.support.elf import AARCH64, ARM, EXECUTABLE, I386, PPC64, SHARED_OBJECT, X86_64, build_elf, elf
from tests.support.elf_sections import by_sections
from tests.support.measure import is_less_work
from tests.support.trees import make_tree

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
    pie=True,
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
@settings(max_examples=66, deadline=None)
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


def test_a_search_path_may_be_as_long_as_that_of_tensorflow_and_no_other_string() -> None:
    """The one of TensorFlow 2.21 has 20,341 characters; no more than 64 KiB are read."""
    path = ":".join(f"$ORIGIN/../nvidia/library{number:04}/lib" for number in range(600))
    assert len(path) > 20_341
    assert parse(elf(rpath=path)).rpath == parse(elf(runpath=path)).runpath == path
    for facts in ({"soname": path}, {"needed": (path,)}, {"runpath": path * 4}):
        with pytest.raises(FormatError):
            parse(elf(**facts))


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
    assert stripped == FULL


def test_a_file_without_dynamic_segment_is_read() -> None:
    head = bytearray(elf(needed=["libc.so.6"]))
    struct.pack_into("<H", head, 56, 1)  # e_phnum: PT_LOAD alone is left
    assert parse(bytes(head)).needed == ()


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
_TEXTS = st.lists(_TEXT, max_size=4).map(tuple)


def _plausible(facts: ElfFacts) -> ElfFacts:
    """Only libcuda has something to say about CUDA."""
    return facts if (facts.soname or "").startswith("libcuda.so") else facts._replace(cuda_note=None)


_FACTS = st.builds(
    ElfFacts,
    st.builds(
        ElfIdent,
        st.sampled_from([32, 64]),
        st.sampled_from(["little", "big"]),
        st.sampled_from([X86_64, I386, ARM, AARCH64, PPC64]),
        st.sampled_from([EXECUTABLE, SHARED_OBJECT]),
    ),
    st.none() | _TEXT | st.just("libcuda.so.1"),
    _TEXTS,
    st.none() | _TEXT,
    st.none() | _TEXT,
    st.none() | _TEXT,
    st.lists(st.builds(VersionNeed, _TEXT, st.lists(_TEXT, min_size=1, max_size=3).map(tuple)), max_size=3).map(tuple),
    _TEXTS,
    st.none()
    | st.builds(CudaNote, st.just("12.4"), st.lists(st.integers(470, 999), unique=True).map(sorted).map(tuple)),
).map(_plausible)


@given(_FACTS)
@settings(max_examples=50, deadline=None)
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


def facts_of(path: str) -> ElfFacts:
    with open(path, "rb") as stream:
        return parse_elf(stream)


def test_real_files_say_what_pyelftools_says_of_them() -> None:
    paths = real_files()
    assert len(paths) > 1
    for path in paths:
        with open(path, "rb") as stream:
            assert facts_of(path) == by_sections(stream), path


@given(_FACTS)
@settings(max_examples=50, deadline=None)
def test_built_files_say_what_pyelftools_says_of_them(facts: ElfFacts) -> None:
    assert by_sections(io.BytesIO(build_elf(facts))) == facts


def test_every_elf_file_of_a_built_host_says_what_pyelftools_says_of_it(tmp_path: Path) -> None:
    make_tree(tmp_path / "amd", opt())
    make_tree(tmp_path / "nvidia", debian())
    seen = 0
    for directory, _, names in os.walk(tmp_path):
        for path in (os.path.join(directory, name) for name in names):
            if os.path.isfile(path) and not isinstance(parse_ident(Path(path).read_bytes()[:HEAD_SIZE]), NotElf):
                with open(path, "rb") as stream:
                    assert facts_of(path) == by_sections(stream), path
                seen += 1
    assert seen > 20


def test_a_file_without_section_headers_says_what_it_says_with_them() -> None:
    """ld.so loads it, so what it needs counts. Who goes by sections sees no versions."""
    real = next(path for path in real_files() if facts_of(path).version_needs)
    data = bytearray(Path(real).read_bytes())
    wide = data[4] == 2
    struct.pack_into("Q" if wide else "I", data, 40 if wide else 32, 0)  # e_shoff
    struct.pack_into("HHH", data, 58 if wide else 46, 0, 0, 0)  # the size of a header, their number, that of the names
    assert parse(bytes(data)) == facts_of(real)
    assert by_sections(io.BytesIO(data)) == facts_of(real)._replace(version_needs=(), version_definitions=())


# Damage.


@pytest.mark.parametrize("bits", [32, 64])
def test_a_file_that_ends_before_its_segments_is_damaged_though_its_header_and_names_are_whole(bits: int) -> None:
    whole = elf("libcuda.so.1", bits=bits, machine=I386 if bits == 32 else X86_64)
    longer = bytearray(whole)
    at, form = (52, "<IIIIII") if bits == 32 else (64, "<IIQQQQ")
    words = list(struct.unpack_from(form, longer, at))
    assert words[0] == 1  # PT_LOAD
    words[4 if bits == 32 else 5] = 1 << 20  # p_filesz
    struct.pack_into(form, longer, at, *words)
    error = refusal(bytes(longer))
    assert "truncated" in error.why
    assert str(1 << 20) in error.why
    assert parse(bytes(longer).ljust(1 << 20, b"\0")).soname == "libcuda.so.1"


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\2\1\1", b"/* GNU ld script */"])
def test_what_is_no_elf_file_is_refused_at_its_first_byte(data: bytes) -> None:
    assert refusal(data).place == "byte 0"


def test_every_cut_is_refused_or_read() -> None:
    data = elf("liba.so.1", needed=["libc.so.6"], needs={"libc.so.6": ["GLIBC_2.17"]}, defines=["liba.so.1", "A_1"])
    read = [answers(parse, data[:end]) for end in range(len(data) + 1)]
    assert read[-1]
    assert not any(read[:64])


@given(st.one_of(*(damaged(build_elf(FULL._replace(ident=ElfIdent(b, "little", X86_64, 3)))) for b in (32, 64))))
@settings(max_examples=166, deadline=None)
def test_damage_gives_a_value_or_a_place(data: bytes) -> None:
    answers(parse, data)


@pytest.mark.parametrize(
    ("named", "place"),
    [
        (lambda names: FULL._replace(version_definitions=names), "version definitions"),
        (lambda names: FULL._replace(version_needs=(VersionNeed("liba.so", names),)), "version needs"),
        (lambda names: FULL._replace(needed=names), "dynamic section"),
    ],
    ids=["definitions", "needs", "needed"],
)
def test_4096_names_are_read_and_more_are_refused(named: Callable[[tuple[str, ...]], ElfFacts], place: str) -> None:
    names = tuple(f"A_{n}" for n in range(4097))
    assert parse(build_elf(named(names[1:]))) == named(names[1:])
    assert refusal(build_elf(named(names))).place == place


def test_libraries_that_share_their_versions_end_soon() -> None:
    """2000 libraries, of all of which the same 2000 versions are wanted: four million if nobody counts."""
    shared = VersionNeed("last.so", tuple(f"V_{number}" for number in range(2000)))
    others = tuple(VersionNeed(f"lib{number}.so", ("V",)) for number in range(2000))
    data = bytearray(build_elf(FULL._replace(version_needs=(*others, shared))))
    at = struct.unpack_from("<Q", data, data.index(struct.pack("<Q", 0x6FFFFFFE)) + 8)[0]  # what DT_VERNEED says
    records = [at + 32 * number for number in range(2001)]  # each with its one version behind it
    for record in records[:-1]:
        struct.pack_into("<I", data, record + 8, records[-1] + 16 - record)
    assert refusal(bytes(data)).place == "version needs"
    assert is_less_work(lambda: refusal(bytes(data)), 200)


class CountingStream(io.BytesIO):
    """Bytes that know how many of them were asked for at once."""

    most = 0

    def read(self, size: Optional[int] = -1, /) -> bytes:
        self.most = max(self.most, -1 if size is None else size)
        return super().read(size)


@pytest.mark.parametrize(("at", "is_read"), [(54, False), (58, True)], ids=["program", "section"])
def test_headers_of_great_size_are_not_read(at: int, is_read: bool) -> None:
    """65535 headers of 65535 bytes: four gigabytes in memory, in a file with a hole. ld.so reads no section headers."""
    data = bytearray(elf("libcuda.so.1", needed=["libc.so.6"]))
    struct.pack_into("<HH", data, at, 0xFFFF, 4000)
    stream = CountingStream(bytes(data))
    assert answers(lambda _: parse_elf(stream), b"") is is_read
    assert stream.most < 1 << 20


def test_a_second_dynamic_segment_is_refused() -> None:
    data = bytearray(elf(needed=["libc.so.6"]))
    data[64:120] = data[120:176]  # PT_LOAD becomes another PT_DYNAMIC
    assert refusal(bytes(data)).place == "program headers"


@pytest.mark.parametrize(
    ("tags", "place"),
    [
        pytest.param(5000 * [(1, 1)], "dynamic section", id="needed"),
        pytest.param(70_000 * [(30, 0)], "dynamic tags", id="tags"),
        pytest.param([(30, 0)], "dynamic section", id="end"),
    ],
)
def test_a_dynamic_section_without_end_is_refused(tags: list[tuple[int, int]], place: str) -> None:
    data = bytearray(elf(needed=["libc.so.6"]))
    struct.pack_into("<QQ", data, 64 + 56 + 8, len(data), len(data))  # where PT_DYNAMIC is, and is loaded
    data += b"".join(struct.pack("<QQ", *tag) for tag in tags)
    struct.pack_into("<Q", data, 64 + 32, len(data))  # PT_LOAD has it
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
