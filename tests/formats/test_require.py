"""NVIDIA_REQUIRE_*: space is or, comma is and; what is not known decides nothing by itself."""

from __future__ import annotations

from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubind.errors import FormatError
from gpubind.formats.require import Term, holds, parse_require, version_key

FACTS = {"cuda": "12.4", "driver": "550.163.01"}


def test_alternatives_are_separated_by_spaces_and_terms_by_commas() -> None:
    assert parse_require("cuda>=12.4 brand=tesla,driver>=535,driver<536") == (
        (Term("cuda", ">=", "12.4"),),
        (Term("brand", "=", "tesla"), Term("driver", ">=", "535"), Term("driver", "<", "536")),
    )


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", True),
        ("cuda>=12.4", True),
        ("cuda>=12.4.0", True),
        ("cuda>12.4", False),
        ("cuda=12.4,driver!=550.163.01", False),
        ("cuda<9 driver>=550", True),
        ("cuda>=12.8", False),
        ("cuda>=12.10", False),
        ("driver<550.163.2", True),
        ("cuda>=12.8 brand=tesla,driver>=535,driver<536", False),
        ("cuda>=12.8 brand=tesla,driver>=535", None),
        ("cuda>=12.4 brand=tesla", True),
        ("arch>=8.0", None),
        ("brand!=tesla", None),
        ("sdk>=1", None),
    ],
)
def test_a_requirement_holds_does_not_or_is_undecided(text: str, answer: Optional[bool]) -> None:
    assert holds(parse_require(text), FACTS) is answer


@pytest.mark.parametrize("known", ["Tesla", "tesla"])
def test_brands_are_compared_in_any_case(known: str) -> None:
    assert holds(parse_require("brand=TESLA"), {"brand": known}) is True
    assert holds(parse_require("brand!=TESLA"), {"brand": known}) is False


@pytest.mark.parametrize(
    "text",
    [
        "cuda",
        "cuda>>12",
        "cuda=>12",
        ">=12",
        "cuda>=twelve",
        "cuda>=12,",
        "brand>tesla",
        "cuda>=1.2.3.4.5",
        "x" * 70000,
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_require(text)
    assert caught.value.code == "bad-require"
    assert caught.value.place


def test_trailing_zeros_do_not_count() -> None:
    assert version_key("12.0") == version_key("12") < version_key("12.0.1")


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        holds(parse_require(text), FACTS)
    except FormatError as error:
        assert error.place
