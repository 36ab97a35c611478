"""Parse the values of options as the programs do: Go's booleans, lists of CSV, maps, `NAME=VALUE`.

Source: spf13/pflag 1.0 `bool.go`, `string_slice.go`, `string_to_string.go`; Go's `strconv.ParseBool`, `encoding/csv`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")


def parse_assignment(text: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that `NAME=VALUE` sets. `NAME` only passes on the caller's value, if *environ* has one."""
    name, equals, value = text.partition("=")
    if equals:
        return {name: value}
    return {name: environ[name]} if name in environ else {}


def parse_bool(text: str) -> Optional[bool]:
    """Return the value of a switch; None if the program refuses the text."""
    return True if text in _TRUE else False if text in _FALSE else None


def parse_list(text: str) -> tuple[str, ...]:
    """Return the elements of a list: the fields of one line of CSV. Empty if the program refuses the text."""
    if not text:
        return ()
    import csv  # only where a list is given

    try:
        return tuple(next(csv.reader([text], strict=True), ()))
    except csv.Error:
        return ()


def parse_mount(text: str) -> dict[str, str]:
    """Return the fields of a --mount value (CSV). Synonyms become `type`, `source` and `target`."""
    fields = {key.lower(): value for key, _, value in (field.partition("=") for field in parse_list(text))}
    source = fields.get("source") or fields.get("src") or ""
    target = fields.get("destination") or fields.get("dst") or fields.get("target") or ""
    return {**fields, "source": source, "target": target}


def parse_map(text: str) -> dict[str, str]:
    """Return the pairs of a map. A text with one `=` is one pair, without the quotes at its ends; any other is CSV."""
    count = text.count("=")
    pairs = [text.strip('"')] if count == 1 else parse_list(text) if count else ()
    return {name: value for name, equals, value in (pair.partition("=") for pair in pairs) if equals}


def format_map(name: str, value: str) -> Optional[str]:
    """Return the text of a map that gives *name* exactly *value*; None if no text does.

    A text with one `=` is one pair as written, without the quotes at its ends. A text with several is CSV, in which
    quotes protect everything but a carriage return before a newline. So a pair with one `=` is given twice if it needs
    such quotes.
    """
    pair = f"{name}={value}"
    if pair.count("=") == 1 and pair.strip('"') == pair:
        return pair
    if "\r\n" in pair:
        return None
    field = '"' + pair.replace('"', '""') + '"'
    return field if pair.count("=") > 1 else f"{field},{field}"
