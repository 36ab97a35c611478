"""JSON documents, within bounds."""

from __future__ import annotations

import pytest

from gpubind.errors import Format, FormatError
from gpubind.formats.text.json import parse_json

FORMAT = Format("bad-test", "malformed")


@pytest.mark.parametrize(
    ("data", "place", "why"),
    [
        (b"[1", "byte 2", "Expecting"),
        (b'"\xff"', "byte 1", "not UTF-8"),
        (b"[" * 100_000, "the whole document", "nested too deeply"),
        (b" " * 100_001, "the whole document", "100001 bytes; 100000 at most"),
    ],
)
def test_what_is_no_document_is_refused_with_its_place(data: bytes, place: str, why: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_json(data, 100_000, FORMAT)
    assert caught.value.place == place
    assert why in caught.value.why


def test_a_number_of_a_million_digits_takes_no_time_and_is_no_size() -> None:
    document = parse_json(b'{"size": ' + b"9" * 1_000_000 + b"}", 1 << 20, FORMAT)
    assert isinstance(document["size"], float)
