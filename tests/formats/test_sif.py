"""SIF headers and descriptors."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.archive.sif import (
    DESCRIPTOR_SIZE,
    SifDescriptor,
    parse_sif_descriptors,
    parse_sif_header,
    primary_partition,
)
from tests.support import answers, damaged
from tests.support.squashfs import SifObject, sif

FILE = sif(SifObject(b"Bootstrap: docker", data_type=0x4001), SifObject(b"x" * 5000))


def parse(data: bytes) -> tuple[SifDescriptor, ...]:
    table, size = parse_sif_header(data)
    found = parse_sif_descriptors(data[table:][:size], table, size, len(data))
    primary_partition(found)
    return found


def test_header_and_descriptors_are_read() -> None:
    assert parse_sif_header(FILE) == (4096, 4 * DESCRIPTOR_SIZE)
    definition, partition = parse(FILE)
    assert (definition.file_system, definition.primary) == (None, False)
    assert FILE[definition.offset :][: definition.size] == b"Bootstrap: docker"
    assert (partition.file_system, partition.primary) == ("squashfs", True)
    assert FILE[partition.offset :][: partition.size] == b"x" * 5000
    assert primary_partition((definition, partition)) == partition


def test_unused_descriptors_are_passed_over() -> None:
    data = sif(SifObject(b"old", used=False, offset=-5, size=1 << 60), SifObject(b"new"))
    assert [found.size for found in parse(data)] == [3]


@pytest.mark.parametrize(("number", "name"), [(2, "ext3"), (5, "encrypted-squashfs"), (77, "type-77")])
def test_file_systems_are_named(number: int, name: str) -> None:
    assert parse(sif(SifObject(b"x", file_system=number)))[0].file_system == name


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "byte 0"),
        (FILE[:127], "byte 127"),
        (FILE[:5000], "byte 5000"),
        (sif(magic=b"SIF_MAGIK\0"), "byte 32"),
        (sif(total=-1, table_size=-585), "byte 88"),
        (sif(total=1 << 40), "byte 88"),
        (sif(table_size=17), "byte 104"),
        (sif(table=-4096), "byte 96"),
        (sif(SifObject(b"x", offset=-1)), "byte 4113"),
        (sif(SifObject(b"x", size=-1)), "byte 4113"),
        (sif(SifObject(b"x", offset=1 << 62, size=1 << 62)), "byte 4113"),
        (sif(SifObject(b"x"), SifObject(b"x", offset=0)), "byte 4698"),
        (sif(SifObject(b"x"), SifObject(b"y")), "descriptors"),
    ],
)
def test_damage_is_said_with_its_place(data: bytes, place: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse(data)
    assert (caught.value.code, caught.value.place) == ("bad-sif", place)


@settings(max_examples=66, deadline=None)
@given(st.data())
def test_no_damage_makes_another_exception(data: st.DataObject) -> None:
    answers(parse, data.draw(damaged(FILE[:8192])))
