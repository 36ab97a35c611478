"""Convert frozen values to JSON values and back: a NamedTuple is an object of its fields, a tuple is a list."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from struct import pack, unpack
from typing import Annotated, Any, Literal, Optional, TypeVar, Union, get_args, get_origin

from gpubind.errors import Format, FormatError, did_you_mean, suggest_known
from gpubind.frozen import FrozenDict, types_of

_Value = TypeVar("_Value")
_Reader = Callable[[Any, str], Any]
_SINGLE_END = 2.0**128 - 2.0**103
"""The least number that is infinite as a 32-bit float."""
_KINDS = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a fraction", bool: "a boolean"}


def to_json_value(value: Any) -> Any:
    """Return *value* as `json.loads` would return it."""
    if isinstance(value, (tuple, list)):
        fields = getattr(value, "_asdict", None)
        return [to_json_value(item) for item in value] if fields is None else to_json_value(fields())
    if isinstance(value, dict):
        return {key: to_json_value(item) for key, item in value.items()}
    return str(value) if isinstance(value, str) else value  # a string may be a sentence that knows its template


def dump_document(document: dict[str, Any]) -> str:
    """Return *document* as text: ASCII, one member of each array a line, so that documents can be compared by diff."""
    parts = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            members = ",\n  ".join(json.dumps(member) for member in value)
            parts.append(f'"{key}": [\n  {members}\n ]')
        else:
            parts.append(f'"{key}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def go_text(value: Union[bool, int, float]) -> str:
    """Return *value* as sigs.k8s.io/yaml spells it: a float by `strconv.FormatFloat(value, 'g', -1, 32)`."""
    if not isinstance(value, float):
        return json.dumps(value)
    if abs(value) >= _SINGLE_END:
        return "-Inf" if value < 0 else "+Inf"
    value = unpack("f", pack("f", value))[0]
    # The fewest digits that are parsed as the same 32-bit number.
    texts = ((digits, f"{value:.{digits}e}") for digits in range(17))
    digits, text = next(
        (digits, text)
        for digits, text in texts
        if abs(float(text)) < _SINGLE_END and pack("f", float(text)) == pack("f", value)
    )
    exponent = int(text.partition("e")[2])
    return f"{float(text):.{max(digits - exponent, 0)}f}" if -4 <= exponent < 6 else text


class Decoder:
    """Converts JSON values to frozen values by their type hints.

    A NamedTuple is an object of its fields; other keys are ignored. A field with a default may be absent or null.
    Bounds are annotations of a number or a string: a range, a tuple of values, a compiled pattern.
    Errors: those of *kind*, with the location.
    """

    def __init__(
        self,
        kind: Format,
        *,
        prefix: str = "",
        keys: Optional[Mapping[str, str]] = None,
        members_limit: Optional[int] = None,
        allows_nul: bool = True,
        follows_go: bool = False,
        is_toml: bool = False,
        list_types: Collection[type] = (),
        readers: Optional[Mapping[Any, _Reader]] = None,
    ) -> None:
        self.format = kind
        self.prefix = prefix
        """The text before the first key of a location."""
        self.keys = keys or {}
        """Keys that differ from the field's name: `a.b` is the member `b` of the member `a`; the key "" is in no
        document.
        """
        self.members = members_limit
        """The limit of members of a list."""
        self.has_nul = allows_nul
        """Whether a string may contain NUL; a path or a variable cannot."""
        self.is_go = follows_go
        """Whether values are decoded as by Go's encoding/json below sigs.k8s.io/yaml, strictly: keys in any case, no
        unknown ones; a whole fraction is a number, a number or boolean is a string, null is empty or 0."""
        self.is_toml = is_toml
        """Whether the document is written by hand: an unknown key is an error, and a single value is a list of one."""
        self.rows = list_types
        """NamedTuples that documents contain as lists of their fields."""
        self._readers: dict[Any, _Reader] = dict(readers or {})
        """Readers of a value and its location, by type; *readers* are for types with another form in documents."""

    def decode(self, kind: type[_Value], value: Any, location: str = "") -> _Value:
        """Return *value*, at *location* in its document, as a *kind*."""
        decoded: _Value = self._reader(kind)(value, location)
        return decoded

    def _reader(self, kind: Any) -> _Reader:
        if kind not in self._readers:
            self._readers[kind] = self._new_reader(kind)
        return self._readers[kind]

    def _new_reader(self, kind: Any) -> _Reader:
        kind = getattr(kind, "__supertype__", kind)  # of a NewType
        origin, arguments = get_origin(kind), get_args(kind)
        if kind is Any:
            return lambda value, place: value
        if origin is Union:
            inner = self._reader(arguments[0])
            return lambda value, place: None if value is None else inner(value, place)
        if origin is Literal:
            return self._checked(str, arguments)
        if origin is Annotated:
            return self._checked(*arguments)
        if origin in (dict, Mapping):
            return self._dict(self._reader(arguments[1]), dict if origin is dict else FrozenDict)
        if origin is tuple and arguments[-1] is not Ellipsis:
            return self._row(tuple(map(self._reader, arguments)))
        if origin is tuple:
            return self._list(self._reader(arguments[0]))
        return self._object(kind) if hasattr(kind, "_fields") else self._scalar(kind)

    def _scalar(self, kind: type) -> _Reader:
        refuses_nul = kind is str and not self.has_nul

        def read(value: Any, place: str) -> Any:
            if type(value) is not kind:  # True is an int to Python
                value = self._as_go(kind, value) if self.is_go else value
                if type(value) is not kind:
                    raise self._type_error(value, kind, place)
            if refuses_nul and "\0" in str(value):
                raise self.format.damaged("a NUL in a string", place)
            return value

        return read

    @staticmethod
    def _as_go(kind: type, value: Any) -> Any:
        if value is None:
            return kind()  # null leaves Go's zero value
        if kind is str and type(value) in (int, float, bool):
            return go_text(value)
        return int(value) if kind is int and type(value) is float and value.is_integer() else value

    def _checked(self, kind: type, bounds: Any, expected: str = "") -> _Reader:
        read_any = self._scalar(kind)
        is_allowed = bounds.fullmatch if isinstance(bounds, re.Pattern) else bounds.__contains__

        def read(value: Any, place: str) -> Any:
            value = read_any(value, place)
            if not is_allowed(value):
                why = "is out of range" if isinstance(bounds, range) else "is not allowed there"
                choices = [str(bound) for bound in bounds if bound] if isinstance(bounds, tuple) else []
                why = f"is not {expected}" if expected else f"is not one of {', '.join(choices)}" if choices else why
                hint = did_you_mean(choices, value) if choices and self.is_toml else ""
                raise self.format.damaged(f"`{str(value)[:100]}` {why}", place, hint)
            return value

        return read

    def _dict(self, read_member: _Reader, kind: type[dict[str, Any]]) -> _Reader:
        def read(value: Any, place: str) -> Any:
            if type(value) is not dict:
                raise self._type_error(value, dict, place)
            start = self._location(place, "")
            return kind({key: read_member(member, start + key) for key, member in value.items()})

        return read

    def _list(self, read_member: _Reader) -> _Reader:
        def read(value: Any, place: str) -> Any:
            if self.is_toml and not isinstance(value, list):
                return (read_member(value, place),)
            if not isinstance(value, (list, tuple)):
                raise self._type_error(value, list, place)
            if self.members is not None and len(value) > self.members:
                raise self.format.damaged(f"{len(value)} members; {self.members} at most", place)
            place = place or self.prefix
            return tuple([read_member(member, f"{place}[{number}]") for number, member in enumerate(value)])

        return read

    def _row(self, readers: tuple[_Reader, ...]) -> _Reader:
        def read(value: Any, place: str) -> Any:
            if not isinstance(value, list):
                raise self._type_error(value, list, place)
            if len(value) != len(readers):
                raise self.format.damaged(f"{len(value)} members, not {len(readers)}", place)
            return tuple([reader(item, f"{place}[{at}]") for at, (reader, item) in enumerate(zip(readers, value))])

        return read

    def _object(self, kind: Any) -> _Reader:
        fields = {key: (name, self._reader(hint)) for name, hint in types_of(kind).items() if (key := self._key(name))}
        deep = [(key.split("."), *field) for key, field in fields.items() if "." in key]
        by_fold = {key.lower(): key for key in fields}
        required = [(key, name) for key, (name, _) in fields.items() if name not in kind._field_defaults]
        defaults = kind._field_defaults
        if kind in self.rows:
            read_row = self._row(tuple(reader for _, reader in fields.values()))
            return lambda value, place: kind(*read_row(value, place))

        def read(value: Any, place: str) -> Any:
            if type(value) is not dict:
                raise self._type_error(value, dict, place)
            kwargs: dict[str, Any] = {}
            start = self._location(place, "")
            for key, member in self._go_fields(value, fields, by_fold, place) if self.is_go else value.items():
                if self.is_toml and key not in fields:
                    at = start + key[:100]
                    raise self.format.damaged(f"unknown key `{at}`", at, suggest_known(fields, key))
                if key in fields and (member is not None or fields[key][0] not in defaults):
                    name, reader = fields[key]
                    kwargs[name] = reader(member, start + key)
            for path, name, reader in deep:
                member, at = self._member(value, path, place)
                if member is not None or name not in defaults:
                    kwargs[name] = reader(member, at)
            for key, name in required:
                if name not in kwargs:
                    raise self.format.damaged("it is not there", self._location(place, key))
            return kind(**kwargs)

        return read

    def _member(self, value: Any, path: list[str], location: str) -> tuple[Any, str]:
        for key in path:
            if value is None:
                break
            if type(value) is not dict:
                raise self._type_error(value, dict, location)
            value, location = value.get(key), self._location(location, key)
        return value, location

    def _go_fields(
        self, value: dict[str, Any], fields: Collection[str], by_fold: Mapping[str, str], location: str
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        for key, member in value.items():
            field_name = key if key in fields else by_fold.get(key.lower())
            if field_name is None or field_name in seen:
                why = "written twice" if field_name else "unknown field"
                raise self.format.damaged(why, self._location(location, field_name or key))
            seen.add(field_name)
            yield field_name, member

    def _key(self, name: str) -> str:
        if name in self.keys or not self.is_go:
            return self.keys.get(name, name)
        first, *others = name.split("_")
        return first + "".join(map(str.capitalize, others))

    def _location(self, location: str, key: str) -> str:
        return f"{location}.{key}" if location else self.prefix + key

    def _type_error(self, value: Any, expected: type, location: str) -> FormatError:
        actual = "none is there" if value is None else f"not {_KINDS.get(type(value), 'another value')}"
        hint = f'{location} = "{value}"' if self.is_toml and expected is str and type(value) is int else ""
        return self.format.damaged(f"{_KINDS[expected]} is wanted, {actual}", location, hint)


DOCUMENT_DECODER = Decoder(Format("bad-plan", "gpubind did not make this document"))
"""The decoder of gpubind's own documents."""
