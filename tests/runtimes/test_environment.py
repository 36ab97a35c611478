"""The values that a plan's operations on variables come to, next to those of the user, the caller and the image."""

from __future__ import annotations

from typing import Optional

import pytest

from gpubind.image.environment import DEFAULT_PATH
from gpubind.loader.namespace import UserBind, UserMounts
from gpubind.model import ContainerPath, EnvVar, HostPath
from gpubind.runtimes.edits import is_utf8, make_base_mounts, parse_user_binds
from gpubind.runtimes.environment import PROGRAM_VARIABLES, BaseEnvironment, base_variables, compose


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
    (
        ["LD_LIBRARY_PATH set /s"],
        BaseEnvironment({"LD_LIBRARY_PATH": "/u"}, images={"LD_LIBRARY_PATH": "/i"}),
        {"LD_LIBRARY_PATH": "/u:/s:/i"},
    ),
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


@pytest.mark.parametrize(
    ("users", "passed", "expected"),
    [
        (
            {"LD_LIBRARY_PATH": "/u", "PATH": "/up", "HOME": "/h", "PYTHONPATH": None},
            {"LD_PRELOAD": "/c", "PYTHONPATH": "y", "PYTHONHOME": "/ph", "HOME": "/hh"},
            [
                ("LD_PRELOAD", "set", "/c", None, "caller"),
                ("LD_LIBRARY_PATH", "prepend", "/u", ":", "user"),
                ("PATH", "set", "/up:/p", None, "user"),
                ("HOME", "set", "/h", None, "user"),
                ("PYTHONHOME", "default", "/ph", None, "caller"),
                ("PYTHONPATH", "set", "", None, "user"),
            ],
        ),
        (
            {"LD_LIBRARY_PATH": None, "PATH": None, "LD_PRELOAD": "/mine"},
            {"LD_PRELOAD": "/c", "LD_LIBRARY_PATH": "/x", "PATH": "/y", "HOME": "/hh"},
            [
                ("LD_LIBRARY_PATH", "unset", None, None, "user"),
                ("LD_PRELOAD", "set", "/mine", None, "user"),
                ("PATH", "unset", None, None, "user"),
                ("HOME", "default", "/hh", None, "caller"),
            ],
        ),
        ({"LD_PRELOAD": None}, {"LD_PRELOAD": "/c"}, [("LD_PRELOAD", "unset", None, None, "user")]),
        ({}, {"LD_PRELOAD": ""}, []),
        *(({}, {name: "x"}, [(name, "default", "x", None, "caller")]) for name in PROGRAM_VARIABLES),
    ],
)
def test_a_container_without_a_plan_has_the_users_and_the_callers_variables(
    users: dict[str, Optional[str]], passed: dict[str, str], expected: list[tuple[Optional[str], ...]]
) -> None:
    assert [*base_variables([operation("PATH append /p")], users, passed)] == expected


def test_the_variables_of_a_container_by_their_values() -> None:
    variables = {"PATH": "/b", "LD_LIBRARY_PATH": "/l", "LD_PRELOAD": "/p", "PYTHONPATH": "", "HOME": "/h"}
    binds = (UserBind(HostPath("/a"), ContainerPath("/b")),)
    assert make_base_mounts(iter(binds), variables, "/work", ("--x",)) == UserMounts(
        binds,
        (
            EnvVar("PATH", "set", "/b", None, "user"),
            EnvVar("LD_LIBRARY_PATH", "prepend", "/l", ":", "user"),
            EnvVar("LD_PRELOAD", "set", "/p", None, "caller"),
            EnvVar("PYTHONPATH", "set", "", None, "user"),
        ),
        ContainerPath("/work"),
        ("--x",),
    )
    empty = make_base_mounts((), {"LD_LIBRARY_PATH": "", "LD_PRELOAD": ""}, "work")
    assert empty == UserMounts((), (EnvVar("PATH", "set", "", None, "user"),), None, ())


@pytest.mark.parametrize(
    ("text", "bound"),
    [("/a", ("/a", "/a")), ("/a:/b", ("/a", "/b")), ("/a:/b:ro", ("/a", "/b")), ("/a:", ("/a", "/a")),
     ("/a:/b!", ("/a", "/b")), ("/a:!", ("/a", "/a")), ("/a!:/b", ("/a!", "/b"))],
)  # fmt: skip
def test_a_bind_is_read_as_source_target_and_options(text: str, bound: tuple[str, str]) -> None:
    assert parse_user_binds([text]) == (UserBind(HostPath(bound[0]), ContainerPath(bound[1])),)


@pytest.mark.parametrize(("text", "expected"), [
    ("a", True), ("\u00e9", True), ("\ud7ff\ue000", True), ("\ud800", False), ("a\udfff", False), ("\udcff", False),
])  # fmt: skip
def test_bytes_that_are_not_utf8_are_surrogates(text: str, expected: bool) -> None:
    assert is_utf8(text) is expected
