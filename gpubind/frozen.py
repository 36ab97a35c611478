"""`NamedTuple` as in `typing`, created in a quarter of the time, because annotations of fields are not evaluated.

`typing` compiles each annotation, and `collections` compiles a constructor for each class; a command creates up to 170
classes before it does anything else. A few classes are decoded from documents: `types_of` evaluates their annotations.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414, TID251 - type checkers know this one
else:
    from _collections import _tuplegetter

    class _Values(tuple):
        """The methods that `collections.namedtuple` compiles for each class."""

        __slots__ = ()

        def __new__(cls, *values, **named):
            fields = cls._fields
            if named or len(values) != len(fields):
                rest = fields[len(values) :]
                later = {**cls._field_defaults, **named}
                try:
                    values += tuple([later[field] for field in rest])
                except KeyError as error:
                    raise TypeError(f"{cls.__name__}() has no value for {error}") from None
                if len(values) > len(fields) or not named.keys() <= set(rest):
                    raise TypeError(f"{cls.__name__}() takes each of these once: {', '.join(fields)}")
            return tuple.__new__(cls, values)

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _replace(self, **named):
            return type(self)(**{**self._asdict(), **named})

        def _asdict(self):
            return dict(zip(self._fields, self))

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

        def __getnewargs__(self):
            return tuple(self)

    class _Maker(type):
        def __new__(cls, name, bases, body):
            fields = tuple(body.get("__annotations__", ()))
            own = {
                "_fields": fields,
                "_field_defaults": {field: body[field] for field in fields if field in body},
                "__match_args__": fields,
                "__slots__": (),
            }
            getters = {field: _tuplegetter(place, "") for place, field in enumerate(fields)}
            return type(name, (_Values,), {**body, **own, **getters})

    NamedTuple = type.__new__(_Maker, "NamedTuple", (), {})


class FrozenDict(dict[str, str]):
    """An immutable dict for fields of frozen values; `json` and `pickle` treat it as a dict."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("a frozen value cannot be changed")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


def types_of(kind: type) -> dict[str, Any]:
    """Return the types of the fields of *kind*, as `typing.get_type_hints` does.

    `get_type_hints` calls `compile`, which takes 1.3 ms the first time.
    """
    names = sys.modules[kind.__module__].__dict__
    return {field: eval(text, names) for field, text in kind.__annotations__.items()}
