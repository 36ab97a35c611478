"""The values that a plan's operations on variables come to, next to those of the user, the caller and the image."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind.image.environment import DEFAULT_PATH
from gpubind.model import EnvVar
from gpubind.runtimes.environment import BaseEnvironment, compose


def operation(text: str) -> EnvVar:
    """`A op value` as an operation."""
    name, op, value = text.split(" ")
    return EnvVar(name, op, value or None, ":", "test")  # type: ignore[arg-type]  # checked by the cases


@pytest.mark.parametrize(("operations", "values", "expected"), [
    (["A set 1"], BaseEnvironment(), {"A": "1"}),
    (["A set 1"], BaseEnvironment(users={"A": "2"}), {}),
    (["A set 1"], BaseEnvironment(callers={"A": "2"}, images={"A": "3"}), {"A": "1"}),
    (["A unset "], BaseEnvironment(images={"A": "3"}), {"A": None}),
    (["A default 1"], BaseEnvironment(), {"A": "1"}),
    (["A default 1"], BaseEnvironment(callers={"A": "2"}), {}),
    (["A default 1"], BaseEnvironment(images={"A": "2"}), {}),
    (["A default 1"], BaseEnvironment(images={"A": ""}), {"A": "1"}),
    (["A set 2", "A default 1"], BaseEnvironment(), {"A": "2"}),
    (["A append /p"], BaseEnvironment(users={"A": "/u"}, images={"A": "/i"}), {"A": "/u:/i:/p"}),
    (["A append /p"], BaseEnvironment(users={"A": None}, images={"A": "/i"}), {}),
    (["A append /p"], BaseEnvironment(images={"A": "/i::/p:"}), {"A": "/i:/p"}),
    (["A set /s", "A append /p"], BaseEnvironment(images={"A": "/i"}), {"A": "/s:/p"}),
    (["LD_LIBRARY_PATH prepend /p", "LD_LIBRARY_PATH prepend /q"], BaseEnvironment(), {"LD_LIBRARY_PATH": "/p:/q"}),
    (
        ["LD_LIBRARY_PATH prepend /p", "LD_LIBRARY_PATH prepend /q"],
        BaseEnvironment({"LD_LIBRARY_PATH": "/u"}, {"LD_LIBRARY_PATH": "/c"}, {"LD_LIBRARY_PATH": "/q:/i"}),
        {"LD_LIBRARY_PATH": "/u:/p:/q:/i"},
    ),
    (["LD_LIBRARY_PATH prepend /p"], BaseEnvironment(callers={"LD_LIBRARY_PATH": "/c"}), {"LD_LIBRARY_PATH": "/c:/p"}),
    (["PATH append /p"], BaseEnvironment(), {"PATH": f"{DEFAULT_PATH}:/p"}),
    (
        ["PATH append /p", "PATH prepend /q"],
        BaseEnvironment({"PATH": "/u"}, images={"PATH": "/i"}),
        {"PATH": "/q:/u:/p"},
    ),
    (["PATH append /p"], BaseEnvironment(images={"PATH": "/i"}), {"PATH": "/i:/p"}),
])  # fmt: skip
def test_each_source_of_a_value_has_its_rank(
    operations: list[str], values: BaseEnvironment, expected: dict[str, Optional[str]]
) -> None:
    assert compose(map(operation, operations), values) == expected
