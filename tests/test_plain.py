"""JSON values as frozen values: types are checked by the hints, and errors name the place."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Optional

import pytest

from gpubind.errors import Format, FormatError
from gpubind.frozen import NamedTuple
from gpubind.model.plain import Decoder, go_text

FORMAT = Format("bad-test", "malformed")
PLAIN = Decoder(FORMAT)
STRICT = Decoder(FORMAT, prefix="key ", keys={"deep": "a.b.c"}, members_limit=2, allows_nul=False)
GO = Decoder(FORMAT, keys={"deep": "closID"}, allows_nul=False, follows_go=True)


class Point(NamedTuple):
    x: int
    y: int = 0


class Example(NamedTuple):
    text: str = "x"
    maybe: Optional[str] = None
    number: Annotated[int, range(1 << 32)] = 0
    one_of: Literal["a", "b"] = "a"
    pattern: Annotated[str, re.compile("[a-z]+")] = "a"
    texts: tuple[str, ...] = ()
    pair: tuple[int, str] = (0, "")
    named: dict[str, int] = {}  # noqa: RUF012
    point: Optional[Point] = None
    points: tuple[Point, ...] = ()
    deep: str = ""
    anything: Any = None


def why_not(decoder: Decoder, value: Any) -> tuple[str, str]:
    with pytest.raises(FormatError) as caught:
        decoder.decode(Example, value)
    assert caught.value.code == "bad-test"
    return caught.value.place, caught.value.why


def test_a_value_comes_back() -> None:
    value = {"text": "y", "texts": ["a", "b"], "pair": [1, "z"], "named": {"n": 1}, "points": [{"x": 1}], "later": 1}
    made = PLAIN.decode(Example, value)
    assert made == Example("y", texts=("a", "b"), pair=(1, "z"), named={"n": 1}, points=(Point(1),))
    assert STRICT.decode(Example, {"a": {"b": {"c": "deep"}}}).deep == "deep"


@pytest.mark.parametrize("value", [{}, {"text": None, "texts": None, "point": None}])
def test_null_is_as_good_as_absent(value: Any) -> None:
    assert PLAIN.decode(Example, value) == Example()
    assert STRICT.decode(Example, {**value, "a": {"b": None}}) == Example()


@pytest.mark.parametrize(
    ("key", "value", "place", "why"),
    [
        ("text", 1, "key text", "a string is wanted, not a number"),
        ("text", "\0", "key text", "a NUL in a string"),
        ("maybe", [], "key maybe", "a string is wanted, not a list"),
        ("number", True, "key number", "a number is wanted, not a boolean"),
        ("number", 1.0, "key number", "a number is wanted, not a fraction"),
        ("number", -1, "key number", "`-1` is out of range"),
        ("number", 1 << 32, "key number", "`4294967296` is out of range"),
        ("one_of", "c", "key one_of", "`c` is not one of a, b"),
        ("pattern", "A", "key pattern", "`A` is not allowed there"),
        ("texts", {}, "key texts", "a list is wanted, not an object"),
        ("texts", ["a", None], "key texts[1]", "a string is wanted, none is there"),
        ("texts", ["a"] * 3, "key texts", "3 members; 2 at most"),
        ("pair", [1], "key pair", "1 members, not 2"),
        ("pair", [1, 2], "key pair[1]", "a string is wanted, not a number"),
        ("named", {"n": "1"}, "key named.n", "a number is wanted, not a string"),
        ("point", {}, "key point.x", "it is not there"),
        ("point", [1, 2], "key point", "an object is wanted, not a list"),
        ("points", [{"x": "1"}], "key points[0].x", "a number is wanted, not a string"),
        ("a", {"b": {"c": 1}}, "key a.b.c", "a string is wanted, not a number"),
        ("a", {"b": []}, "key a.b", "an object is wanted, not a list"),
    ],
)
def test_a_wrong_type_is_named_with_the_one_that_is_wanted(key: str, value: Any, place: str, why: str) -> None:
    assert why_not(STRICT, {key: value}) == (place, why)


def test_places_begin_with_the_prefix() -> None:
    assert why_not(STRICT, []) == ("the whole document", "an object is wanted, not a list")
    with pytest.raises(FormatError) as caught:
        STRICT.decode(tuple[Point, ...], [{"x": 1}, {}])
    assert caught.value.place == "key [1].x"


def test_gos_decoder_knows_no_case_and_refuses_what_it_does_not_know() -> None:
    made = GO.decode(Example, {"oneOf": "b", "CLOSid": True, "NUMBER": 1.0, "text": 1.5})
    assert made == Example("1.5", one_of="b", deep="true", number=1)
    assert why_not(GO, {"one_of": "b"}) == ("one_of", "unknown field")
    assert why_not(GO, {"text": "a", "Text": "b"}) == ("text", "written twice")


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (7, "7"), (8.0, "8"), (123456.0, "123456"), (1e6, "1e+06"), (0.0001, "0.0001"), (1e-5, "1e-05"),
     (1.5, "1.5"), (0.1, "0.1"), (-0.0, "-0"), (123456789.123, "1.2345679e+08"), (3.4028235e38, "3.4028235e+38"),
     (1e300, "+Inf"), (-1e300, "-Inf"), (5e-324, "0")],
)  # fmt: skip
def test_a_number_in_the_place_of_a_string_is_spelled_as_by_go(value: float, text: str) -> None:
    assert go_text(value) == text
