"""YAML as the readers of CDI specs parse it: go-yaml version 2, strict, as sigs.k8s.io/yaml uses it.

`yaml.safe_load` differs: it reads an unquoted `1:0` as the number 60, accepts duplicate keys, and expands aliases
without a bound. Therefore PyYAML (libyaml) only parses the text into events, and this module makes values from them: it
resolves scalars by go-yaml's rules (`resolve.go`), rejects duplicate keys, bounds aliases and depth, and reads only the
first document of a stream.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from gpubind.errors import Format, FormatError
from gpubind.formats.text.json import reject_duplicate_keys, replace_surrogates
from gpubind.model.plain import go_text

DEPTH_LIMIT = 64
VALUES_LIMIT = 100_000
"""Maximum values of a document after its aliases are expanded. Ten lines of nested aliases can expand to a billion
values.
"""

_FORMAT = Format("bad-yaml", "malformed YAML")
_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE"), False),
}
_OCTAL = re.compile(r"[-+]?0[0-7]{1,400}")
_INTEGER = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F]{1,400}|0[oO][0-7]{1,400}|0[bB][01]{1,400}|0|[1-9][0-9]{0,400})", re.ASCII
)
_INTEGERS = range(-(1 << 63), 1 << 64)
"""The range of Go's int64 and uint64; larger numbers become floats."""
_FLOAT = re.compile(r"[-+]?[0-9]{0,400}\.?[0-9]{1,400}(?:[eE][-+]?[0-9]{1,400})?|[-+]?[0-9]{1,400}\.", re.ASCII)


def parse_yaml(data: bytes) -> Any:
    """Return the value of *data*, JSON or YAML: dicts with string keys, lists, strings, numbers, booleans, None.

    Errors: `FormatError` (code `bad-yaml`) with line and column, for text that is malformed or nested too deeply, has a
    key twice, or has too many values.
    """
    # JSON is YAML, but needs no library: PyYAML takes 18 ms to import and 1.8 ms for a spec, json 0.1 ms.
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            value = json.loads(
                data.decode("utf-8"),
                object_pairs_hook=reject_duplicate_keys(_FORMAT),
                parse_constant=_no_constant,
                parse_float=_float,
            )
            return replace_surrogates(value) if b"\\u" in data else value
        except RecursionError as error:
            raise _FORMAT.damaged("nested too deeply") from error
        except ValueError:
            pass  # it may be YAML in braces
    import yaml

    try:
        return _Builder(yaml.parse(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), yaml).document()
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise _FORMAT.damaged(problem[:200], _place(mark)) from error


def _no_constant(name: str) -> Any:
    raise ValueError(name)


class _Builder:
    def __init__(self, events: Iterator[Any], yaml: Any) -> None:
        self.events = events
        self.yaml = yaml
        self.anchors: dict[str, tuple[Any, int]] = {}
        """The value of each anchor, and its number of nested values."""
        self.values = 0

    def document(self) -> Any:
        started = any(isinstance(event, self.yaml.DocumentStartEvent) for event in self.events)
        return self.value(next(self.events), 0) if started else None

    def value(self, event: Any, depth: int) -> Any:
        yaml, begun = self.yaml, self.values
        is_alias = isinstance(event, yaml.AliasEvent)
        if is_alias and event.anchor not in self.anchors:
            raise _damaged(event, f"the alias `{event.anchor}` stands for nothing")
        value, size = self.anchors[event.anchor] if is_alias else (None, 0)
        self.values += 1 + size
        if self.values > VALUES_LIMIT:
            raise _damaged(event, f"more than {VALUES_LIMIT} values")
        if depth > DEPTH_LIMIT:
            raise _damaged(event, "nested too deeply")
        if is_alias:
            return value
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            raise _damaged(event, f"the tag `{event.tag[:60]}` is not known")
        if isinstance(event, yaml.ScalarEvent):
            value = _resolve_scalar(event.value) if event.implicit[0] and not event.tag else event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            value = [self.value(member, depth + 1) for member in self._until(yaml.SequenceEndEvent)]
        else:
            value = self._mapping(depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.values - begun)
        return value

    def _until(self, end: type) -> Iterator[Any]:
        return takewhile(lambda event: not isinstance(event, end), self.events)

    def _mapping(self, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for event in self._until(self.yaml.MappingEndEvent):
            key = self.value(event, depth + 1)
            if key is None or isinstance(key, (dict, list)):
                raise _damaged(event, "a key that is not a string")
            value = self.value(next(self.events), depth + 1)
            merges = key == "<<" and isinstance(event, self.yaml.ScalarEvent) and event.implicit[0]
            members = value if merges and isinstance(value, list) else [value] if merges else []
            if not all(isinstance(member, dict) for member in members):
                raise _damaged(event, "`<<` wants an object to merge")
            text = key if isinstance(key, str) else go_text(key)
            for name, member in [pair for m in members for pair in m.items()] if merges else [(text, value)]:
                if name in mapping:
                    raise _damaged(event, f"the key `{name[:60]}` is there twice")
                mapping[name] = member
        return mapping


def _resolve_scalar(text: str) -> Any:
    """Return the value of an unquoted scalar. Source: go-yaml v2 `resolve.go`."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    digits = text.replace("_", "") if text[0] in "+-0123456789" else text
    base = 8 if _OCTAL.fullmatch(digits) else 0 if _INTEGER.fullmatch(digits) else None
    if base is not None and int(digits, base) in _INTEGERS:
        return int(digits, base)
    value = _float(digits) if _FLOAT.fullmatch(digits) else text
    return value if isinstance(value, float) else text


def _float(text: str) -> Any:
    number = float(text)
    return text if math.isinf(number) else number  # `1e400`


def _damaged(event: Any, why: str) -> FormatError:
    return _FORMAT.damaged(why, _place(event.start_mark))


def _place(mark: Any) -> str:
    return "byte 0" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
