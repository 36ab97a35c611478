"""YAML by go-yaml's rules. Whole CDI specs, damaged ones among them, are read in test_cdi.py."""

from __future__ import annotations

from typing import Any

import pytest

from gpubind.errors import FormatError
from gpubind.formats.text.yaml import DEPTH_LIMIT, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:0", "1:0"),
        ("0660", 0o660),
        ("0xC3", 195),
        ("0o17", 15),
        ("08", 8.0),
        ("1_000", 1000),
        ("1_", 1),
        ("_1", "_1"),
        ("0x_1f", 31),
        ("0b11", 3),
        ("-0b11", -3),
        ("0b12", "0b12"),
        ("18446744073709551615", (1 << 64) - 1),
        ("18446744073709551616", 18446744073709551616.0),
        ("0x10000000000000000", "0x10000000000000000"),
        ("-1", -1),
        ("1.5", 1.5),
        ("1e400", "1e400"),
        ('["1", 1e400]', ["1", "1e400"]),
        (".inf", ".inf"),
        (".Nan", ".Nan"),
        ("yes", True),
        ("~", None),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("2024-01-01", "2024-01-01"),
        ('{"a": [1, null, true]}', {"a": [1, None, True]}),
        ("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}", {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}),
        ("1: one\ntrue: two", {"1": "one", "true": "two"}),
        ("a: 1\n---\nb: [", {"a": 1}),
        ("", None),
    ],
)
def test_a_text_has_the_value_that_go_yaml_gives(text: str, value: Any) -> None:
    parsed = parse_yaml(text.encode())
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\na: 2", "there twice"),
        ('{"a": 1, "a": 2}', "there twice"),
        ("*nothing", "stands for nothing"),
        ("!odd x", "is not known"),
        ("!!int x", "is not known"),
        ("[a]: 1", "a key that is not a string"),
        ("<<: 1", "wants an object"),
        ("[" * (DEPTH_LIMIT + 2), "nested too deeply"),
        ("a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdef", "bcdefg")
        ), "more than"),
        ("a: [", "content"),
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_what_is_refused_says_why_and_where(text: str, why: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_yaml(text.encode())
    assert caught.value.code == "bad-yaml"
    assert why in caught.value.why
    assert caught.value.place


@pytest.mark.parametrize("length", [171, 172, 400])
def test_the_reason_of_a_refusal_has_at_most_200_characters(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("yaml.CSafeLoader", raising=False)  # libyaml does not name the handle
    with pytest.raises(FormatError) as caught:
        parse_yaml(f"!{'x' * (length - 2)}!y a".encode())
    assert caught.value.why == f"found undefined tag handle '!{'x' * (length - 2)}!'"[:200]
