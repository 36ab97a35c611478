"""The names of libraries in the constants of an ELF file."""

from __future__ import annotations

import io
import struct

import pytest

from gpubind.errors import FormatError
from gpubind.formats.elf import named
from gpubind.formats.elf.dynamic import find_sections
from gpubind.formats.elf.named import DlopenNames, parse_named_libraries
from gpubind.model import Missing
from tests.support.elf import elf


def names(constants: bytes, section: str = ".rodata") -> tuple[str, ...]:
    return parse_named_libraries(io.BytesIO(elf("libx.so", more={section: constants}))).names


def test_names_are_found_with_and_without_a_zero_byte_at_their_end() -> None:
    text = b"\0libcuda.so.1\0opening libnvidia-ml.so.1libEGL.so failed: %s\0lib.so\0liba b.so"
    assert names(text) == ("libEGL.so", "libcuda.so.1", "libnvidia-ml.so.1")
    assert names(text, ".lrodata") == names(text)


def test_of_names_without_an_end_between_them_the_last_counts() -> None:
    assert names(b"liblibcuda.so.1\0libglibnvcuvid.so\0" + b"lib" * 1000) == ("libcuda.so.1", "libnvcuvid.so")


def test_texts_that_are_no_constants_do_not_count() -> None:
    assert names(b"libcuda.so.1\0", ".data") == ()
    assert parse_named_libraries(io.BytesIO(elf("libcuda.so.1", needed=("libnvidia-ml.so.1",)))) == DlopenNames()


@pytest.mark.parametrize("place", [-20, -12, -6, -1, 0])
def test_a_name_is_found_wherever_a_read_ends(place: int) -> None:
    assert names(bytes(named.STEP + place) + b"libcuda.so.1\0" + bytes(40)) == ("libcuda.so.1",)


def test_nccl_is_known_by_its_own_words_only() -> None:
    def nccl(text: bytes) -> object:
        return parse_named_libraries(io.BytesIO(elf("libx.so", more={".rodata": text}))).nccl

    assert nccl(b"\0NCCL version 2.21.5+cuda12.4\0") == "2.21.5"
    assert nccl(b"\0needs NCCL version 2.27.0 or later\0") is None


def test_a_file_with_endless_names_is_read_in_part_and_says_so() -> None:
    found = parse_named_libraries(io.BytesIO(elf("libx.so", more={".rodata": b"".join(
        b"libx%d.so\0" % number for number in range(named.NAMES_LIMIT + 10)
    )})))  # fmt: skip
    assert len(found.names) == named.NAMES_LIMIT
    assert found.unread is not None


def test_constants_without_end_are_read_in_part_and_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "READ_LIMIT", 100)
    found = parse_named_libraries(io.BytesIO(elf("libx.so", more={".rodata": bytes(100) + b"libcuda.so.1\0"})))
    assert found == DlopenNames((), None, "of 113 bytes of constants the first 100 were read", 100)


def test_what_is_no_elf_file_is_an_error() -> None:
    with pytest.raises(FormatError, match="bad-elf"):
        parse_named_libraries(io.BytesIO(b"libcuda.so.1"))


def test_every_truncation_is_an_error_or_names_less() -> None:
    whole = elf("libx.so", more={".rodata": b"\0libcuda.so.1\0"})
    for end in range(len(whole)):
        try:
            found = parse_named_libraries(io.BytesIO(whole[:end]))
        except FormatError:
            continue
        assert set(found.names) <= {"libcuda.so.1"}


def test_a_name_after_as_many_as_are_kept_is_said_to_be_missing() -> None:
    kept = b"".join(b"libx%d.so\0" % number for number in range(named.NAMES_LIMIT))
    found = parse_named_libraries(io.BytesIO(elf("libx.so", more={".rodata": kept.ljust(named.STEP, b"\0")})))
    assert (len(found.names), found.unread) == (named.NAMES_LIMIT, None)
    more = kept.ljust(named.STEP, b"\0") + b"libcuda.so.1\0"
    found = parse_named_libraries(io.BytesIO(elf("libx.so", more={".rodata": more})))
    assert (len(found.names), found.unread is None) == (named.NAMES_LIMIT, False)


def test_the_constants_are_whole_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = elf("libx.so", more={".rodata": b"text\0"})
    assert named.read_constants(io.BytesIO(whole)) == b"text\0"
    assert named.read_constants(io.BytesIO(elf("libx.so"))) == b""
    monkeypatch.setattr(named, "READ_LIMIT", 4)
    assert isinstance(named.read_constants(io.BytesIO(whole)), Missing)


def test_a_file_that_ends_within_its_constants_says_so() -> None:
    data = elf("libx.so", more={".rodata": bytes(64)})
    start = find_sections(io.BytesIO(data), (".rodata",))[".rodata"].offset
    larger = data.replace(struct.pack("<QQ", start, 64), struct.pack("<QQ", start, 1 << 20))
    assert parse_named_libraries(io.BytesIO(larger)) == DlopenNames((), None, None, 1 << 20)
    larger = data.replace(struct.pack("<QQ", start, 64), struct.pack("<QQ", start, named.STEP + 1))
    assert parse_named_libraries(io.BytesIO(larger)).unread == "it ends within its constants"
    assert isinstance(named.read_constants(io.BytesIO(larger)), Missing)
    assert named.read_first_code(io.BytesIO(elf("libx.so", more={".text": b"1"}))) == b"1"
