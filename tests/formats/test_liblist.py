"""List files: Apptainer's syntax, and our two additions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.driver.liblist import (
    ENTRIES_LIMIT,
    LINE_LIMIT,
    SECTIONS,
    LibList,
    ListEntry,
    entry_kind,
    library_stem,
    parse_liblist,
)
from gpubind.host.base import LIST_FILES
from gpubind.model.data import read_data
from tests.support import answers, damaged

SHIPPED = read_data("etc/nvliblist.conf")


def parse(text: str) -> LibList:
    return parse_liblist(text.encode("utf-8", "surrogateescape"), "site.conf")


def texts(text: str) -> list[str]:
    return [entry.text for entry in parse(text).entries]


def refusal(data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        parse_liblist(data, "site.conf")
    assert caught.value.code == "bad-liblist"
    return caught.value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("libcuda.so", "library"),
        ("libcuda.so.1", "library"),
        ("tls_test_.so", "library"),
        ("odd.sound", "library"),
        ("/usr/lib64/libcuda.so.1", "library-path"),
        ("/usr/share/nvidia/nvoptix.bin", "file"),
        ("/usr/lib/nvidia/wine/*.dll", "file"),
        ("nvidia-smi", "binary"),
        ("bin/nvidia-smi", "binary"),
    ],
)
def test_so_anywhere_makes_a_library_and_a_leading_slash_a_path(text: str, kind: str) -> None:
    assert entry_kind(text) == kind
    assert parse(text).entries[0].kind == kind


def test_lines_are_trimmed_and_empty_ones_and_comments_skipped() -> None:
    assert texts("# a comment\n\n  libcuda.so \t\r\n   # another\nnvidia-smi") == ["libcuda.so", "nvidia-smi"]


def test_there_are_no_comments_behind_a_name() -> None:
    assert texts("libcuda.so # the driver\n") == ["libcuda.so # the driver"]


def test_an_entry_knows_its_line_and_the_list_says_where_that_is() -> None:
    found = parse("\n# x\nlibcuda.so\n")
    assert found.entries == (ListEntry("libcuda.so", "library", None, 3),)
    assert found.location(found.entries[0]) == "site.conf:3"


def test_a_section_holds_for_the_lines_below_it() -> None:
    found = parse("a.so\n[compute]\nb.so\n[ vendor-neutral ]\nc.so\n")
    assert [entry.section for entry in found.entries] == [None, "compute", "vendor-neutral"]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_capability_is_a_section(section: str) -> None:
    assert parse(f"[{section}]\nx").entries[0].section == section


@pytest.mark.parametrize(
    ("name", "stem"), [("libcuda.so.1", "libcuda.so"), ("libcuda.so", "libcuda.so"), ("a.so.b.so", "a.so")]
)
def test_the_stem_of_a_library_ends_with_its_first_so(name: str, stem: str) -> None:
    assert library_stem(name) == stem


def test_names_that_are_not_utf8_are_kept() -> None:
    assert parse_liblist(b"lib\xff.so\n", "x").entries[0].text == "lib\udcff.so"


@pytest.mark.parametrize(
    ("data", "line"),
    [
        pytest.param(b"a.so\nb\0.so\n", 2, id="nul"),
        pytest.param(b"\n\n" + b"x" * (LINE_LIMIT + 1), 3, id="overlong"),
        pytest.param(b"[gpu]\n", 1, id="unknown-section"),
        pytest.param(b"[compute\n", 1, id="open-section"),
        pytest.param(b"[", 1, id="bracket"),
        pytest.param(b"[]", 1, id="empty-section"),
        pytest.param(b"x\n" * (ENTRIES_LIMIT + 1), ENTRIES_LIMIT + 1, id="too-many"),
    ],
)
def test_a_malformed_line_is_refused_by_number(data: bytes, line: int) -> None:
    error = refusal(data)
    assert error.place == f"line {line}"
    assert error.where == f"site.conf:{line}"


@pytest.mark.parametrize("name", LIST_FILES)
def test_every_entry_of_a_shipped_list_stands_in_a_section_and_once(name: str) -> None:
    found = parse_liblist(read_data(f"etc/{name}"), name)
    assert len(found.entries) > 10
    assert all(entry.section in SECTIONS for entry in found.entries)
    assert len({entry.text for entry in found.entries}) == len(found.entries)


_NAMES = (
    st.text("libcudanv-_.so/*[]# ", min_size=1, max_size=20)
    .map(str.strip)
    .filter(lambda name: name and not name.startswith(("#", "[")))
)
_LINES = st.lists(st.tuples(st.sampled_from([None, *SECTIONS]), _NAMES), max_size=20)


@given(_LINES)
@settings(max_examples=50, deadline=None)
def test_what_is_written_is_parsed_back(lines: list[tuple[str, str]]) -> None:
    lines = [(section, name) for section, name in lines if section]
    text = "".join(f"[{section}]\n# why\n  {name}\n\n" for section, name in lines)
    assert [(entry.section, entry.text) for entry in parse(text).entries] == lines


@given(st.one_of(damaged(SHIPPED), st.text().map(str.encode)))
@settings(max_examples=66, deadline=None)
def test_damage_gives_a_value_or_a_place(data: bytes) -> None:
    answers(lambda text: parse_liblist(text, "site.conf"), data)
