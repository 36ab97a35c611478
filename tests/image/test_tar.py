"""Members of tar archives: what the records before them say, and where damage is."""

from __future__ import annotations

import tarfile
from typing import Literal

import pytest

from gpubind.errors import FormatError
from gpubind.files.blob import Blob
from gpubind.formats.archive.tar import BLOCK
from gpubind.image.tar import RECORDS_LIMIT, members
from tests.support.layers import tar
from tests.support.trees import Link


class InMemory(Blob):
    """Bytes as a blob."""

    def __init__(self, data: bytes) -> None:
        self.label = "x.tar"
        self._data = data

    def read_at(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]


LONG = "/" + "/".join(["a-directory-with-a-long-name"] * 8)


def damage(data: bytes) -> tuple[str, str]:
    with pytest.raises(FormatError) as caught:
        list(members(InMemory(data)))
    return caught.value.place, caught.value.why


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_records_say_the_names_of_the_next_member_alone(form: Literal[1, 2]) -> None:
    data = tar({f"{LONG}/file": b"body", "/l": Link(f"{LONG}/file"), "/short": b"s"}, form=form, directories=False)
    found = list(members(InMemory(data)))
    assert [(m.header.name, m.header.link) for m in found] == [
        (f"{LONG}/file"[1:], ""),
        ("l", f"{LONG}/file"),
        ("short", ""),
    ]
    assert data[found[0].data :][:4] == b"body"


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("body", [b"2008 - 2" * 64, bytes(BLOCK), b""])
def test_a_file_whose_hundredth_byte_of_the_name_is_a_slash_is_a_file(form: Literal[1, 2], body: bytes) -> None:
    name = "/" + "d" * 49 + "/" + "e" * 49 + "/"  # GNU tar and tarfile keep 100 bytes, and mean the longer name
    data = tar({f"{name}file": body, "/next": b"n"}, form=form, directories=False)
    found = list(members(InMemory(data)))
    assert [(m.header.kind, m.header.name, m.header.size) for m in found] == [
        ("file", f"{name}file"[1:], len(body)),
        ("file", "next", 1),
    ]
    assert data[found[0].data :].startswith(body)


def test_a_name_with_a_slash_at_its_end_is_a_directory_of_the_oldest_type_alone() -> None:
    assert kind_of("d/", b"\0") == "dir"
    assert kind_of("d" * 120 + "/", b"\0") == "dir"
    assert kind_of("d/", b"0") == "file"  # as podman and docker read it


def kind_of(name: str, type_flag: bytes) -> object:
    info = tarfile.TarInfo(name)
    info.type = type_flag
    return next(members(InMemory(info.tobuf(tarfile.GNU_FORMAT) + bytes(2 * BLOCK)))).header.kind


def test_a_block_of_zeros_between_members_is_damage() -> None:
    one = tar({"/a": b"x"}).rstrip(b"\0").ljust(2 * BLOCK, b"\0")
    assert damage(one + bytes(BLOCK) + one) == (
        f"byte {2 * BLOCK}",
        "a block of zeros between members; two end an archive",
    )
    assert len(list(members(InMemory(one + bytes(2 * BLOCK) + one)))) == 1  # as every reader of tar


def test_the_zeros_at_the_end_may_be_left_out_but_no_data() -> None:
    data = tar({"/a": b"x" * 600}).rstrip(b"\0")
    whole = data.ljust(3 * BLOCK, b"\0")
    assert len(list(members(InMemory(whole)))) == 1
    assert damage(whole[: 2 * BLOCK]) == (f"byte {3 * BLOCK}", "the last member ends after the end of the archive")


def test_damage_in_a_record_is_placed_in_the_archive() -> None:
    data = tar({f"{LONG}/file": b"body"}, form=tarfile.PAX_FORMAT, directories=False)
    at = data.index(b" path=")
    broken = data[: at + 1] + b"path " + data[at + 6 :]
    assert damage(broken) == (f"byte {BLOCK}", "a pax attribute without a value")
    assert damage(data[: BLOCK + 10]) == (f"byte {BLOCK}", "truncated record")


def test_records_before_a_member_are_bounded() -> None:
    data = tar({f"{LONG}/file": b"body"}, form=tarfile.PAX_FORMAT, directories=False)
    record = data[: 2 * BLOCK]
    place, why = damage(record * (RECORDS_LIMIT + 1) + data)
    assert (place, why.split(" has ")[0]) == (f"byte {RECORDS_LIMIT * 2 * BLOCK}", "record 17 before a member")
