"""The functions of the library: each checks its arguments against its annotations, and uses one budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from itertools import chain
from typing import Any, TypeVar, cast

from gpubind.errors import UsageError, closed_error
from gpubind.machine.budget import one_command
from gpubind.model import Plan

_Verb = TypeVar("_Verb", bound=Callable[..., Any])

_MADE_BY = {
    "Host": "`open_host()` returns one",
    "Image": "`open_image(REFERENCE)` returns one",
    "Layout": "`open_layout(host, FORM)` returns one",
    "Plan": "`plan(host, request)` and `Plan.from_dict(document)` return one",
    "Request": "`Request()` is one",
    "Start": "`open_runtime(host, BACKEND)` returns one",
}


def verb(function: _Verb) -> _Verb:
    """Return *function* with its arguments checked.

    It raises `UsageError` for an argument of another type (`wrong-type`), and for a closed host or image (`closed`).
    """
    kinds = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
    names = tuple(kinds)

    @wraps(function)
    def call(*values: Any, **more: Any) -> Any:
        for name, value in chain(zip(names, values), more.items()):
            _need(name, value, kinds.get(name, "Any"))
        with one_command():
            return function(*values, **more)

    return cast("_Verb", call)


def _need(name: str, value: object, kind: str) -> None:
    """Raise `UsageError` if *value* is not of *kind*, the text of an annotation, or is closed."""
    if getattr(value, "is_closed", False):
        raise closed_error(str(getattr(value, "label", "") or value.facts.label))  # type: ignore[attr-defined]
    is_optional = kind.startswith("Optional[")
    kind = kind[len("Optional[") : -1] if is_optional else kind
    if (value is None and is_optional) or _is(value, kind):
        return
    expected = _KINDS[kind][0] if kind in _KINDS else f"{'an' if kind[0] in 'AEIO' else 'a'} {kind}"
    hint = _MADE_BY.get(kind, "")
    raise UsageError("wrong-type", f"{name} wants {expected}, not {value!r:.80}", hint=hint)


def _is(value: object, kind: str) -> bool:
    if kind in _KINDS:
        return _KINDS[kind][1](value)
    return any(base.__name__ == kind and base.__module__.startswith("gpubind.") for base in type(value).__mro__)


def _are(value: object, kind: str) -> bool:
    """Return whether *value* is a sequence of *kind*. A string does not pass as a sequence of strings."""
    is_sequence = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    return is_sequence and all(_is(item, kind) for item in cast("Iterable[object]", value))


def _maps_strings_to(value: object, kind: str) -> bool:
    is_mapping = hasattr(value, "keys") and hasattr(value, "__getitem__")
    pairs = cast("Mapping[object, object]", value).items() if is_mapping else ()
    return is_mapping and all(isinstance(name, str) and _is(of, kind) for name, of in pairs)


_KINDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "Any": ("anything", lambda value: True),
    "StrPath": ("a string or a path", lambda value: isinstance(value, str) or hasattr(value, "__fspath__")),
    "Sequence[Finding]": ("a list of findings", lambda value: _are(value, "Finding")),
    "Sequence[str]": ("a list of strings", lambda value: _are(value, "str")),
    "Mapping[str, Plan]": ("a mapping of strings to plans", lambda value: _maps_strings_to(value, "Plan")),
    "Mapping[str, str]": ("a mapping of strings to strings", lambda value: _maps_strings_to(value, "str")),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "str": ("a string", lambda value: isinstance(value, str)),
}
"""The kinds that are not classes of gpubind: their names in messages, and their checks."""


def _plan_html(plan: Plan) -> str:
    from gpubind.documents.notebook import plan_html

    return plan_html(plan)


Plan._repr_html_ = _plan_html  # type: ignore[attr-defined]  # the model itself knows no documents
