"""YAML, as the readers of CDI specs understand it: go-yaml's version 2, strict, below sigs.k8s.io/yaml.

Not `yaml.safe_load`: it takes an unquoted `1:0` for the number 60, lets a second key of one name win, and expands
aliases without a bound. So PyYAML (libyaml) tells the events of the text, and the values are made here: scalars by
go-yaml's rules (`resolve.go`), each key once, aliases and depth within bounds, the first document of a stream.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from gpubind.errors import FormatError
from gpubind.formats.text.json import with_whole_characters

DEPTH_LIMIT = 64
VALUES_LIMIT = 100_000
"""Values of a document once its aliases are replaced: ten lines of aliases of aliases stand for a billion."""

_NULL = ("", "~", "null", "Null", "NULL")
_TRUE = ("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE")
_FALSE = ("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE")
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+\.", re.ASCII)
_NAMED_FLOATS = {
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_GO_WORDS = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
_TAGS = ("str", "int", "float", "bool", "null", "map", "seq")


def parse_yaml(data: bytes) -> Any:
    """Return the value of *data*, JSON or YAML: dicts with string keys, lists, strings, numbers, booleans, None.

    Errors: `FormatError` (code `bad-yaml`) with line and column: malformed, a key twice, nested too deeply, too many
    values.
    """
    # JSON is YAML, but needs no library: PyYAML takes 18 ms to load, then 1.8 ms for a spec of which JSON takes 0.1 ms.
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            value = json.loads(
                data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_float
            )
            return with_whole_characters(value) if b"\\u" in data else value
        except RecursionError as error:
            raise _malformed("byte 0", "nested too deeply") from error
        except ValueError:
            pass  # perhaps YAML in braces
    import yaml

    try:
        return _Builder(yaml.parse(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), yaml).document()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise _malformed(_place(mark), problem[:200]) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _malformed(twice, f"the key `{twice[:60]}` is there twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)


class _Builder:
    """Values from events."""

    def __init__(self, events: Iterator[Any], yaml: Any) -> None:
        self.events = events
        self.yaml = yaml
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.values = 0

    def document(self) -> Any:
        """Return the first document's value; None if there is none."""
        for event in self.events:
            if isinstance(event, self.yaml.DocumentStartEvent):
                return self.value(next(self.events), 0)
            if isinstance(event, self.yaml.StreamEndEvent):
                break
        return None

    def value(self, event: Any, depth: int) -> Any:
        """Return the value that begins with *event*."""
        yaml, begun = self.yaml, self.values
        self._count(event, 1)
        if depth > DEPTH_LIMIT:
            raise _malformed(_place(event.start_mark), "nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise _malformed(_place(event.start_mark), f"the alias `{event.anchor}` stands for nothing")
            value, size = self.anchors[event.anchor]
            self._count(event, size)
            return value
        tag = (event.tag or "").rpartition(":")[2] if event.tag and event.tag != "!" else ""
        if tag and tag not in _TAGS:
            raise _malformed(_place(event.start_mark), f"the tag `{event.tag[:60]}` is not known")
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event, tag)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            for member in iter(self.events.__next__, None):
                if isinstance(member, yaml.SequenceEndEvent):
                    break
                value.append(self.value(member, depth + 1))
        else:
            value = self._mapping(depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.values - begun)
        return value

    def _mapping(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for event in iter(self.events.__next__, None):
            if isinstance(event, self.yaml.MappingEndEvent):
                break
            key = self.value(event, depth + 1)
            if key is None or isinstance(key, (dict, list)):
                raise _malformed(_place(event.start_mark), "a key that is not a string")
            value = self.value(next(self.events), depth + 1)
            merges = key == "<<" and isinstance(event, self.yaml.ScalarEvent) and event.implicit[0]
            members = value if merges and isinstance(value, list) else [value] if merges else []
            if not all(isinstance(member, dict) for member in members):
                raise _malformed(_place(event.start_mark), "`<<` wants an object to merge")
            for name, member in [pair for m in members for pair in m.items()] if merges else [(_key(key), value)]:
                if name in found:
                    raise _malformed(_place(event.start_mark), f"the key `{name[:60]}` is there twice")
                found[name] = member
        return found

    def _count(self, event: Any, number: int) -> None:
        self.values += number
        if self.values > VALUES_LIMIT:
            raise _malformed(_place(event.start_mark), f"more than {VALUES_LIMIT} values")


def _scalar(event: Any, tag: str) -> Any:
    text: str = event.value
    if tag == "str" or (not tag and not event.implicit[0]):
        return text
    value = _plain(text)
    kinds = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
    if tag and not isinstance(value, kinds.get(tag, ())):  # type: ignore[arg-type]
        raise _malformed(_place(event.start_mark), f"`{text[:60]}` is not of type {tag}")
    return value


def _plain(text: str) -> Any:
    """Return what a scalar without quotes stands for. Source: go-yaml v2 `resolve.go`."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    digits = text.replace("_", "")
    if len(digits) < 400 and text[0] in "+-.0123456789":
        if _INTEGER.fullmatch(digits):
            sign = -1 if digits[0] == "-" else 1
            bare = digits.lstrip("+-").lower()
            base = {"0x": 16, "0b": 2, "0o": 8}.get(bare[:2], 8 if bare[0] == "0" and len(bare) > 1 else 10)
            return sign * int(bare, base)
        if _FLOAT.fullmatch(digits):
            return _float(text)
    return _NAMED_FLOATS.get(text, text)


def _float(text: str) -> Any:
    """Return the number; *text* itself where it is out of range: `1e400`."""
    number = float(text.replace("_", ""))
    return text if math.isinf(number) else number


def float_text(value: float) -> str:
    """*value* where a string is wanted. Source: sigs.k8s.io/yaml `yaml.go`, which takes it for one of 32 bits."""
    text = f"{value:.9g}"
    return _GO_WORDS.get(text, text)


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return key if isinstance(key, str) else float_text(key) if isinstance(key, float) else str(key)


def _place(mark: Any) -> str:
    return "byte 0" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"


def _malformed(place: str, why: str) -> FormatError:
    return FormatError("bad-yaml", "malformed YAML", place=place, why=why)
