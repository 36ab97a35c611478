"""Members of tar archives: what the records before them say, and where damage is."""

from __future__ import annotations

import tarfile
from typing import Literal

import pytest
from build.layers import tar
from build.trees import Link

from gpubind.blob.base import Blob
from gpubind.errors import FormatError
from gpubind.formats.tar import BLOCK
from gpubind.image.tar import RECORDS_LIMIT, members


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
    assert data[found[0].offset :][:4] == b"body"


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
