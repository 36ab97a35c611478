"""The fields of CDI specs, decoded as Go's encoding/json does, unknown fields refused.

A reader takes a value, None if the field is absent, and its place, `devices[0].name`.
Errors: `FormatError` (code `bad-cdi`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional, TypeVar

from gpubind.errors import FormatError
from gpubind.formats.text.yaml import float_text

Value = TypeVar("Value")
Reader = Callable[[Any, str], Value]


def object_of(make: Callable[..., Value], *, null: bool = True, **readers: Reader[Any]) -> Reader[Value]:
    """Reads an object with these fields, each by its reader: what *make* makes of the values, in this order."""
    by_fold = {name.lower(): name for name in readers}

    def read(value: Any, at: str) -> Value:
        if value is None and not null:
            raise malformed(at, "null where an object is wanted")
        found: dict[str, Any] = {}
        for key, member in _mapping(value, at).items():
            name = key if key in readers else by_fold.get(key.lower())
            if name is None:
                raise malformed(below(at, key), "unknown field")
            if name in found:
                raise malformed(below(at, name), "written twice")
            found[name] = member
        return make(*(reader(found.get(name), below(at, name)) for name, reader in readers.items()))

    return read


def list_of(item: Reader[Value]) -> Reader[tuple[Value, ...]]:
    """Reads a list, none if the field is absent, of what *item* reads."""

    def read(value: Any, at: str) -> tuple[Value, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            raise _wrong_type(value, at, "a list")
        return tuple(item(member, f"{at}[{number}]") for number, member in enumerate(value))

    return read


def optional(reader: Reader[Value]) -> Reader[Optional[Value]]:
    """Reads what *reader* does, and None if the field is absent."""
    return lambda value, at: None if value is None else reader(value, at)


def _mapping(value: Any, at: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong_type(value, at, "an object")
    return value


def string(value: Any, at: str) -> str:
    """Reads a text, empty if the field is absent; sigs.k8s.io/yaml takes numbers and booleans, too."""
    if value is None:
        return ""
    if isinstance(value, str):
        if "\0" in value:
            raise malformed(at, "a NUL byte")
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return float_text(value)
    raise _wrong_type(value, at, "a string")


def string_map(value: Any, at: str) -> dict[str, str]:
    """Reads an object of texts."""
    return {key: string(member, below(at, key)) for key, member in _mapping(value, at).items()}


def boolean(value: Any, at: str) -> bool:
    """Reads true or false; false if the field is absent."""
    if not isinstance(value, (bool, type(None))):
        raise _wrong_type(value, at, "true or false")
    return bool(value)


def integer(value: Any, at: str) -> int:
    """Reads a number of 64 bits, 0 if the field is absent."""
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong_type(value, at, "an integer")
    if not -(1 << 63) <= value < 1 << 63:
        raise malformed(at, f"{value} has more than 64 bits")
    return value


def uint32(value: Any, at: str) -> int:
    """Reads an unsigned number of 32 bits, 0 if the field is absent."""
    number = integer(value, at)
    if not 0 <= number < 1 << 32:
        raise malformed(at, f"{number} is not an unsigned number of 32 bits")
    return number


def below(at: str, name: str) -> str:
    """Return the place of field *name* of the object at *at*."""
    return f"{at}.{name}" if at else name


def _wrong_type(value: Any, at: str, wanted: str) -> FormatError:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return malformed(at, f"{names.get(type(value), 'a value')} where {wanted} is wanted")


def malformed(place: str, why: str) -> FormatError:
    """The error of a spec that is no spec, or of a part of it."""
    return FormatError("bad-cdi", "malformed CDI spec", place=place or "byte 0", why=why)
