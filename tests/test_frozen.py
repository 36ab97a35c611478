"""Values are made as `typing` makes them, but for the types of their fields."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from typing import NamedTuple as TypingNamedTuple
from typing import Optional, get_type_hints

import pytest

from gpubind.frozen import FrozenDict, NamedTuple, types_of
from gpubind.model import ImageFacts
from tests.support.images import glibc, image, sandbox


class Ours(NamedTuple):
    """A point."""

    x: int
    y: Optional[int] = 7

    @property
    def total(self) -> int:
        return self.x + (self.y or 0)


class Theirs(TypingNamedTuple):
    """A point."""

    x: int
    y: Optional[int] = 7

    @property
    def total(self) -> int:
        return self.x + (self.y or 0)


def test_a_class_is_as_typing_makes_it() -> None:
    for name in ("__doc__", "__module__", "_fields", "_field_defaults", "__slots__"):
        assert getattr(Ours, name) == getattr(Theirs, name)
    assert issubclass(Ours, tuple)
    assert not hasattr(Ours(1), "__dict__")
    assert Ours.__qualname__ == "Ours"
    assert types_of(Ours) == get_type_hints(Ours) == get_type_hints(Theirs) == {"x": int, "y": Optional[int]}


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 2}), ((1,), {"z": 2}), ((), {"y": 2})], ids=str
)
def test_what_is_no_value_of_a_class_is_an_error(values: tuple[int, ...], named: dict[str, int]) -> None:
    for kind in (Ours, Theirs):
        with pytest.raises(TypeError):
            kind(*values, **named)


def test_a_value_is_a_frozen_tuple_with_names_and_defaults() -> None:
    value = Ours(x=1)
    assert tuple(value) == (1, 7)
    assert (value.x, value.total, repr(value)) == (1, 8, "Ours(x=1, y=7)")
    assert value._replace(y=None).y is None
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value


def test_no_field_of_a_value_can_be_changed_and_its_dict_is_copied_as_any() -> None:
    made = FrozenDict({"PATH": "/bin"})
    changes: tuple[Callable[[dict[str, str]], object], ...] = (
        lambda value: value.update(PATH="/x"),
        lambda value: value.pop("PATH"),
        lambda value: value.setdefault("HOME", "/"),
        lambda value: value.clear(),
        lambda value: operator.setitem(value, "PATH", "/x"),
        lambda value: operator.delitem(value, "PATH"),
        lambda value: value.__ior__({"PATH": "/x"}),
        lambda value: value.popitem(),
    )
    for change in changes:
        with pytest.raises(TypeError, match="cannot be changed"):
            change(made)
    assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == json.loads(json.dumps(made)) == {"PATH": "/bin"}


def test_what_is_known_of_an_image_cannot_be_changed_by_who_reads_it() -> None:
    facts = image(glibc(), sandbox("export PATH=/opt/bin:/bin")).facts
    for read in (facts, ImageFacts.from_dict(facts.to_dict())):
        assert read.env["PATH"].startswith("/opt/bin:/bin:")
        assert isinstance(read.env, FrozenDict)
    assert pickle.loads(pickle.dumps(facts)) == facts  # as a plan has it


def test_the_base_of_values_has_its_name_and_their_errors_name_the_class_and_the_fields() -> None:
    assert NamedTuple.__name__ == "NamedTuple"
    for values, named, message in (
        ((), {}, "Ours() has no value for 'x'"),
        ((1, 2, 3), {}, "Ours() takes each of these once: x, y"),
        ((1,), {"z": 2}, "Ours() takes each of these once: x, y"),
    ):
        with pytest.raises(TypeError) as caught:
            Ours(*values, **named)
        assert str(caught.value) == message
    with pytest.raises(TypeError, match=r"^a frozen value cannot be changed$"):
        FrozenDict(a="b").clear()
