"""The reader of JSON documents: types are checked, and errors name the place."""

from __future__ import annotations

from typing import Any

import pytest

from gpubind.errors import FormatError
from gpubind.formats.text.json import JsonObject, parse_json


def malformed(why: str, place: str) -> FormatError:
    return FormatError("bad-test", "malformed", place=place or "byte 0", why=why)


class Strict(JsonObject):
    malformed = staticmethod(malformed)
    prefix = "key "
    allows_nul = False


class Plain(JsonObject):
    malformed = staticmethod(malformed)


def why_not(kind: type[JsonObject], value: Any, method: str, *wanted: Any, **limits: Any) -> tuple[str, str]:
    with pytest.raises(FormatError) as caught:
        getattr(kind(value), method)(*wanted, **limits)
    return caught.value.place, caught.value.why


@pytest.mark.parametrize(
    ("data", "place", "why"),
    [
        (b"[1", "byte 2", "Expecting"),
        (b'"\xff"', "byte 1", "not UTF-8"),
        (b"[" * 100_000, "byte 0", "nested too deeply"),
        (b" " * 100_001, "byte 0", "100001 bytes; 100000 at most"),
    ],
)
def test_what_is_no_document_is_refused_with_its_place(data: bytes, place: str, why: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_json(data, 100_000, malformed)
    assert caught.value.place == place
    assert why in caught.value.why


def test_a_number_of_a_million_digits_takes_no_time_and_is_no_size() -> None:
    document = parse_json(b'{"size": ' + b"9" * 1_000_000 + b"}", 1 << 20, malformed)
    assert why_not(Plain, document, "number", "size") == ("size", "a number is wanted, not a fraction")


def test_null_is_as_good_as_absent() -> None:
    found = Plain({"a": None})
    assert (found.text("a", "x"), found.optional_text("a"), found.strings("a", ()), found.child("a", {}).value) == (
        "x",
        None,
        (),
        {},
    )
    assert why_not(Plain, {"a": None}, "text", "a") == ("a", "a string is wanted, none is there")


@pytest.mark.parametrize(
    ("method", "value", "why"),
    [
        ("text", 1, "a string is wanted, not a number"),
        ("number", True, "a number is wanted, not a boolean"),
        ("number", 1 << 64, "18446744073709551616 is out of range"),
        ("number", -1, "-1 is out of range"),
        ("numbers", [1, "2"], "member 1: a number is wanted, not a string"),
        ("numbers", [1 << 32], "a number is out of range"),
        ("strings", {}, "a list is wanted, not an object"),
        ("strings", ["a", None], "member 1: a string is wanted, none is there"),
        ("strings", ["\0"], "a NUL in a string"),
        ("text", "\0", "a NUL in a string"),
        ("child", [], "an object is wanted, not a list"),
        ("children", 1, "a list is wanted, not a number"),
    ],
)
def test_a_wrong_type_is_named_beside_the_one_that_is_wanted(method: str, value: Any, why: str) -> None:
    assert why_not(Strict, {"a": value}, method, "a") == ("key a", why)


def test_places_go_down_into_objects_and_lists() -> None:
    (inner,) = Strict({"a": {"b": [{"c": 1}]}}).child("a").children("b")
    assert inner.at("c") == "key a.b[0].c"
    assert Strict.several([{}], "")[0].at("c") == "key [0].c"
    assert Plain.several([{}], "")[0].at("c") == "[0].c"


def test_lists_are_bounded() -> None:
    assert why_not(Plain, {"a": ["x"] * 3}, "strings", "a", limit=2) == ("a", "3 strings; 2 at most")
    assert why_not(Plain, {"a": ["x"] * 3}, "strings", "a", length=2) == ("a", "3 strings; 2 are wanted")
    assert why_not(Plain, {"a": [{}] * 3}, "children", "a", limit=2) == ("a", "3 members; 2 at most")
