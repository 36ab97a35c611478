"""The KFD topology's properties."""

from __future__ import annotations

import contextlib
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.driver.kernel import gfx_of, parse_properties, pci_of, uuid_of


def test_a_line_is_a_name_and_a_number() -> None:
    assert parse_properties("simd_count 1216\nunique_id 18446744073709551615\n\n") == {
        "simd_count": 1216,
        "unique_id": 2**64 - 1,
    }


def test_of_a_doubled_name_the_first_counts() -> None:
    assert parse_properties("domain 1\ndomain 2\n") == {"domain": 1}


@pytest.mark.parametrize("text", ["simd_count", "simd_count x", "simd_count -1", "a b c 1", "x 1\0"])
def test_anything_else_is_malformed_with_its_line(text: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_properties(text)
    assert caught.value.code == "bad-kfd"
    assert caught.value.place.startswith("line ")


@given(st.text())
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with contextlib.suppress(FormatError):
        parse_properties(text)


@pytest.mark.parametrize(
    ("location", "domain", "pci"),
    [
        (0x0500, 0, "0000:05:00.0"),
        (0xC1 << 8 | 3 << 3 | 2, 1, "0001:c1:03.2"),
        (5 << 28 | 0x2600, 0, "0000:26:00.0"),
        (0, 0x10000, "10000:00:00.0"),
        (0, 0, None),
    ],
)
def test_a_location_is_a_pci_address(location: int, domain: int, pci: Optional[str]) -> None:
    assert pci_of({"location_id": location, "domain": domain}) == pci


@pytest.mark.parametrize(
    ("unique", "uuid"), [(0x7E5F0A1B2C3D4E00, "GPU-7e5f0a1b2c3d4e00"), (0xABC, "GPU-0000000000000abc"), (0, None)]
)
def test_a_unique_id_is_a_uuid_of_16_digits(unique: int, uuid: Optional[str]) -> None:
    assert uuid_of({"unique_id": unique}) == uuid


@pytest.mark.parametrize(
    ("version", "name"), [(90402, "gfx942"), (90010, "gfx90a"), (90006, "gfx906"), (110000, "gfx1100"), (0, None)]
)
def test_a_target_version_is_the_compilers_name(version: int, name: Optional[str]) -> None:
    assert gfx_of({"gfx_target_version": version}) == name
