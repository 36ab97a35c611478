"""Frozen values as JSON values, and back: a NamedTuple is an object of its fields, a tuple is a list."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gpubind.errors import FormatError

_Value = TypeVar("_Value")
_NOTHING = type(None)


def plain(value: Any) -> Any:
    """Return *value* as `json.loads` would give it."""
    if isinstance(value, (tuple, list)):
        fields = getattr(value, "_asdict", None)
        return [plain(item) for item in value] if fields is None else plain(fields())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def text_of(document: dict[str, Any]) -> str:
    """*document* as text: ASCII, one member of each array a line, so that two of a kind can be compared with diff."""
    parts = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            members = ",\n  ".join(json.dumps(member) for member in value)
            parts.append(f'"{key}": [\n  {members}\n ]')
        else:
            parts.append(f'"{key}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def made(kind: type[_Value], value: Any, place: str) -> _Value:
    """Return the NamedTuple *kind* of the object *value*, which stands at *place* in its document.

    What *kind* has a default for may be absent; what it does not know is ignored: a later version may have more.
    Errors: `FormatError` (code `bad-plan`) that names the place of what has another type, or is absent.
    """
    made_value: _Value = _of_type(kind, value, place)
    return made_value


def malformed(why: str, place: str) -> FormatError:
    """The error about a document that is none of gpubind's."""
    return FormatError("bad-plan", "gpubind did not make this document", place=place, why=why)


def _of_type(kind: Any, value: Any, place: str) -> Any:
    kind = getattr(kind, "__supertype__", kind)  # of a NewType
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Union:
        return None if value is None and _NOTHING in arguments else _of_type(arguments[0], value, place)
    if origin is Literal and isinstance(value, str) and value in arguments:
        return value
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_of_type(arguments[0], item, f"{place}[{number}]") for number, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: _of_type(arguments[1], item, f"{place}.{key}") for key, item in value.items()}
    if origin is None and hasattr(kind, "_fields") and isinstance(value, dict):
        hints = _hints(kind)
        needed = set(kind._fields) - set(kind._field_defaults)
        absent = sorted(needed - set(value))
        if absent:
            raise malformed(f"`{absent[0]}` is not there", place)
        present = (name for name in kind._fields if name in value)
        return kind(**{name: _of_type(hints[name], value[name], f"{place}.{name}".lstrip(".")) for name in present})
    if origin is None and type(value) is kind:
        return value
    raise malformed(f"{str(value)[:80]!r} is not a value for it", place)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
