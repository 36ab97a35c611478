"""JSON documents, read member by member: each answer has its type checked, and errors name the place.

A format has a function that makes its error of a reason and a place, and a subclass of `JsonObject` that uses it. As in
most readers of JSON, null is as good as absent where a member may be absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Optional, TypeVar, Union

from gpubind.errors import FormatError

DIGITS_LIMIT = 20  # 64 bits; making a number of digits costs quadratic time

VALUES_LIMIT = 1_000_000
"""Commas and brackets of a document: 16 MB of `{},` would be 400 MB of values. A record of a host has about 6,000."""

HALVES = re.compile("[\ud800-\udfff]")
STRAY_HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""The same where names may have bytes that are not UTF-8, as surrogate escapes."""

_KINDS = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a fraction", bool: "a boolean"}
_Object = TypeVar("_Object", bound="JsonObject")

Malformed = Callable[[str, str], FormatError]
"""A format's error, of why a document is malformed, and where: a key or a byte offset; empty for all of it."""


def parse_json(data: bytes, limit: int, malformed: Malformed, *, keeps_halves: bool = False) -> Any:
    """Return the value of *data*, which may have *limit* bytes; with whole characters alone, unless it *keeps_halves*.

    Errors: *malformed*: too large, more than `VALUES_LIMIT` values, no UTF-8, no JSON.
    """
    if len(data) > limit:
        raise malformed(f"{len(data)} bytes; {limit} at most", "")
    if sum(map(data.count, (b",", b"[", b"{"))) > VALUES_LIMIT:
        raise malformed(f"more than {VALUES_LIMIT} values", "")
    try:
        value = json.loads(data.decode("utf-8"), parse_int=_integer)
        return with_whole_characters(value) if b"\\u" in data and not keeps_halves else value
    except RecursionError as error:
        raise malformed("nested too deeply", "") from error
    except UnicodeDecodeError as error:
        raise malformed("not UTF-8", f"byte {error.start}") from error
    except ValueError as error:
        raise malformed(str(error)[:200], f"byte {getattr(error, 'pos', 0)}") from error


def with_whole_characters(value: Any, halves: re.Pattern[str] = HALVES) -> Any:
    """Return *value* with half characters (`\\ud800`), which no file's name can have, replaced as Go does."""
    if isinstance(value, str):
        return halves.sub("\ufffd", value)
    if isinstance(value, list):
        return [with_whole_characters(member, halves) for member in value]
    if isinstance(value, dict):
        return {halves.sub("\ufffd", key): with_whole_characters(member, halves) for key, member in value.items()}
    return value


def _integer(digits: str) -> Union[int, float]:
    return int(digits) if len(digits) <= DIGITS_LIMIT else float(digits)


class JsonObject:
    """A JSON object at *place*. Subclasses say what is special about their format."""

    __slots__ = ("place", "value")
    malformed: Malformed
    prefix = ""
    """What keys follow in a place."""
    allows_nul = True
    """Whether a string may hold one: none that becomes a path or a variable may."""

    def __init__(self, value: Any, place: str = "") -> None:
        if not isinstance(value, dict):
            raise self.malformed(_wrong(value, dict), place)
        self.value: dict[str, Any] = value
        self.place = place

    @classmethod
    def several(cls: type[_Object], value: Any, place: str, limit: Optional[int] = None) -> tuple[_Object, ...]:
        """Return the objects in the list *value*."""
        if not isinstance(value, list):
            raise cls.malformed(_wrong(value, list), place)
        if limit is not None and len(value) > limit:
            raise cls.malformed(f"{len(value)} members; {limit} at most", place)
        return tuple(cls(item, f"{place or cls.prefix}[{number}]") for number, item in enumerate(value))

    def at(self, key: str) -> str:
        """Return the place of a member."""
        return f"{self.place}.{key}" if self.place else self.prefix + key

    def text(self, key: str, default: Optional[str] = None) -> str:
        """Return a string. Without a default it must be there, as in all that follow."""
        return str(self._member(key, str, default))

    def optional_text(self, key: str) -> Optional[str]:
        """Return a string, or None."""
        return None if self.value.get(key) is None else self.text(key)

    def number(self, key: str, default: Optional[int] = None, *, least: int = 0) -> int:
        """Return a whole number of up to 64 bits."""
        number = int(self._member(key, int, default))
        if not least <= number < 1 << 64:
            raise self.malformed(f"{number} is out of range", self.at(key))
        return number

    def numbers(self, key: str, default: Optional[tuple[int, ...]] = None) -> tuple[int, ...]:
        """Whole numbers of up to 32 bits."""
        items = self._items(key, default, int)
        if not all(0 <= item < 1 << 32 for item in items):
            raise self.malformed("a number is out of range", self.at(key))
        return items

    def strings(
        self,
        key: str,
        default: Optional[tuple[str, ...]] = None,
        *,
        length: Optional[int] = None,
        limit: Optional[int] = None,
    ) -> tuple[str, ...]:
        """Return a list of strings, of *length* or of *limit* at most."""
        items = self._items(key, default, str)
        if length not in (None, len(items)) or (limit is not None and len(items) > limit):
            why = f"{len(items)} strings; " + (f"{limit} at most" if length is None else f"{length} are wanted")
            raise self.malformed(why, self.at(key))
        return items

    def child(self: _Object, key: str, default: Optional[dict[str, Any]] = None) -> _Object:
        """Return an object."""
        value = self.value.get(key)
        return type(self)(default if value is None else value, self.at(key))

    def children(self: _Object, key: str, default: Any = None, limit: Optional[int] = None) -> tuple[_Object, ...]:
        """Return a list of objects, of *limit* at most."""
        value = self.value.get(key)
        return self.several(default if value is None else value, self.at(key), limit)

    def _member(self, key: str, kind: type, default: Any) -> Any:
        value: Any = self.value.get(key)
        if value is None:
            value = default
        if type(value) is not kind:  # True is an int to Python
            raise self.malformed(_wrong(value, kind), self.at(key))
        if kind is str and not self.allows_nul and "\0" in str(value):
            raise self.malformed("a NUL in a string", self.at(key))
        return value

    def _items(self, key: str, default: Optional[tuple[Any, ...]], kind: type) -> tuple[Any, ...]:
        if default is not None and self.value.get(key) is None:
            return default
        items = self._member(key, list, None)
        if not {kind}.issuperset(map(type, items)):
            number = next(number for number, item in enumerate(items) if type(item) is not kind)
            raise self.malformed(f"member {number}: {_wrong(items[number], kind)}", self.at(key))
        if kind is str and not self.allows_nul and any("\0" in item for item in items):
            raise self.malformed("a NUL in a string", self.at(key))
        return tuple(items)


def _wrong(value: Any, wanted: type) -> str:
    return f"{_KINDS[wanted]} is wanted, " + (f"not {_KINDS[type(value)]}" if value is not None else "none is there")
