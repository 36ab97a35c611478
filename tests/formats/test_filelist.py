"""The driver's own list of its files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.driver.filelist import ENTRIES_LIMIT, SIZE_LIMIT, ListedFile, parse_filelist
from tests.support import answers, damaged

LIST = [
    {"name": "libcuda.so.595.99.02", "type": "LIB", "category": ["cuda"]},
    {"name": "libcuda.so.1", "type": "SYMLINK", "category": "cuda", "is_32bit_compat": "true"},
    {"name": "nvidia-smi", "type": "BINARY", "category": ["nvml"], "is_32bit_compat": False},
    {"name": "gsp_ga10x.bin", "type": "FIRMWARE", "unknown": {"key": 1}},
]


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def refusal(data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        parse_filelist(data)
    assert caught.value.code == "bad-filelist"
    return caught.value


def test_files_come_in_file_order() -> None:
    assert parse_filelist(encoded(LIST)) == (
        ListedFile("libcuda.so.595.99.02", "LIB"),
        ListedFile("libcuda.so.1", "SYMLINK", "true"),
        ListedFile("nvidia-smi", "BINARY"),
        ListedFile("gsp_ga10x.bin", "FIRMWARE"),
    )


@pytest.mark.parametrize(
    ("value", "compat32"), [("true", True), ("True", True), (True, True), ("false", False), (0, False)]
)
def test_32_bit_files_are_told_by_a_word_or_a_boolean(value: object, compat32: bool) -> None:
    assert parse_filelist(encoded([{"name": "a", "is_32bit_compat": value}]))[0].compat32 is compat32


@pytest.mark.parametrize(
    ("kind", "is_library"),
    [("LIB", True), ("SYMLINK", True), ("BINARY", False), ("XMODULE_SHARED_LIB", False), ("", False)],
)
def test_libraries_are_what_programs_in_a_container_load(kind: str, is_library: bool) -> None:
    assert ListedFile("x", kind).is_library is is_library


@pytest.mark.parametrize(
    ("data", "place"),
    [
        pytest.param(b"", "byte 0", id="empty"),
        pytest.param(b"[{]", "byte 2", id="syntax"),
        pytest.param(b'["\xff"]', "byte 2", id="not-utf8"),
        pytest.param(b"{}", "the whole document", id="object"),
        pytest.param(b"[" * 100_000, "the whole document", id="nested"),
        pytest.param(b"[1]", "entry [0]", id="number"),
        pytest.param(encoded([{"name": "a"}, {"name": 1}]), "entry [1].name", id="name"),
        pytest.param(encoded([{"name": "a", "type": 1}]), "entry [0].type", id="type"),
        pytest.param(encoded([0] * (ENTRIES_LIMIT + 1)), "the whole document", id="too-many"),
        pytest.param(b" " * (SIZE_LIMIT + 1), "the whole document", id="too-large"),
    ],
)
def test_a_malformed_list_is_refused_with_its_place(data: bytes, place: str) -> None:
    assert refusal(data).place == place


_FILES = st.builds(ListedFile, st.text(), st.text(), st.booleans())


@given(st.lists(_FILES, max_size=5))
@settings(max_examples=50, deadline=None)
def test_what_is_written_is_parsed_back(files: list[ListedFile]) -> None:
    assert parse_filelist(encoded([file._asdict() for file in files])) == tuple(files)


@given(damaged(encoded(LIST)))
@settings(max_examples=66, deadline=None)
def test_damage_gives_a_value_or_a_place(data: bytes) -> None:
    answers(parse_filelist, data)
