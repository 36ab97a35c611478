"""`NamedTuple` as in `typing`, made in half the time: the types of its fields stay the text that they are.

`typing` compiles each of them, and a command makes up to 150 classes before it does anything else. Whoever asks for
the types, as `model.plain` does, has them from `typing.get_type_hints`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414, TID251 - type checkers know this one
else:
    from collections import namedtuple

    class _Maker(type):
        def __new__(cls, name, bases, body):
            types = body.pop("__annotations__", {})
            defaults = [body.pop(field) for field in types if field in body]
            made = namedtuple(name, types, defaults=defaults, module=body.pop("__module__"))
            made.__annotations__ = types
            for key, value in body.items():
                setattr(made, key, value)
            return made

    NamedTuple = type.__new__(_Maker, "NamedTuple", (), {})
