"""docs/python.md: its example runs and has types, and it tells every field of what a caller fills in."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, get_args, get_type_hints

import pytest

import gpubind
from gpubind.model import Request
from tests.support.golden import DOCS, assert_golden

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "python.md"


def example() -> tuple[str, str]:
    """The code of the page, and what it says that it prints."""
    code, said = re.findall(r"```(?:python)?\n(.*?)```", PAGE.read_text(), re.DOTALL)[:2]
    return code, said


def test_the_example_prints_what_the_page_says() -> None:
    code, said = example()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == said


OTHERS = re.findall(
    r"```python\n([^`]*)```\n\nIt prints(?:: *\n\n```\n([^`]*)```| `([^`]*)`\.)",
    PAGE.read_text().partition("## Functions")[2],
)
"""The examples after the first one: the code, and what it says that it prints, in lines or in one line."""


@pytest.mark.parametrize("code, lines, line", OTHERS)
def test_another_example_prints_what_the_page_says(code: str, lines: str, line: str) -> None:
    code = f"import gpubind\nhost = gpubind.open_host('debian13-nvidia550')\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == (lines or f"{line}\n")


def test_every_example_of_the_page_is_run() -> None:
    assert len(OTHERS) + 1 == PAGE.read_text().count("```python\n") == 6


MISTAKES = {
    "caps": "gpubind.Request(caps=('compue',))",
    "error": "try:\n    pass\nexcept gpubind.NothingToBnidError:\n    pass",
    "function": "gpubind.open_hots()",
}


def test_a_type_checker_takes_the_example_and_finds_mistakes(tmp_path: Path) -> None:
    code, _ = example()
    (tmp_path / "right.py").write_text(code + "gpubind.Request(caps=('all',))\n")
    for name, mistake in MISTAKES.items():
        (tmp_path / f"{name}.py").write_text(f"import gpubind\n\n{mistake}\n")
    options = ("--strict", "--follow-imports=silent", "--no-incremental", "--config-file", "")
    command = [sys.executable, "-m", "mypy", *options, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    wrong = [line for line in done.stdout.splitlines() if "error:" in line]
    found = [line.rpartition("/")[2].partition(".py:")[0] for line in wrong]
    assert sorted(found) == sorted(MISTAKES), done.stdout


def table(value: Any, *, defaults: bool = True) -> str:
    """Return the fields of *value* with their defaults and what the class says of each."""
    source = inspect.getsource(value)
    rows = (
        ["| field | default | meaning |", "| --- | --- | --- |"]
        if defaults
        else ["| field | meaning |", "| --- | --- |"]
    )
    for name in value._fields:
        said = re.search(rf'^    {name}: [^\n]*\n    """(.*?)"""', source, re.MULTILINE | re.DOTALL)
        assert said is not None, f"{inspect.getsourcefile(value)}: describe `{name}` in a text below the field"
        default = f"`{value._field_defaults[name]!r}` | " if defaults else ""
        rows.append(f"| `{name}` | {default}{' '.join(said.group(1).split())} |")
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    "value",
    [
        Request,
        gpubind.Report,
        gpubind.Changed,
        gpubind.Checked,
        gpubind.RuntimeArguments,
        gpubind.Bind,
        gpubind.Command,
    ],
    ids=lambda value: value.__name__,
)
def test_every_field_that_a_caller_fills_in_or_reads_is_described(value: Any) -> None:
    made = table(value, defaults=value is Request)
    assert_golden(DOCS / "python.md", made, part=value.__name__.lower())


def is_path(thing: Any) -> bool:
    """Whether *thing* is a name for paths, made by NewType: before Python 3.10 that is a function."""
    return hasattr(thing, "__supertype__")


def named(hint: Any) -> Iterator[type]:
    """The classes and names of paths of the package in a type."""
    if is_path(hint) or (isinstance(hint, type) and hint.__module__.startswith("gpubind.")):
        yield hint
    for argument in get_args(hint):
        yield from named(argument)


FUNCTIONS = [getattr(gpubind, name) for name in gpubind.__all__]
FUNCTIONS = [thing for thing in FUNCTIONS if isinstance(thing, FunctionType) and not is_path(thing)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_class_in_a_signature_is_exported_and_every_function_is_on_the_page(function: Any) -> None:
    namespace = {name: getattr(gpubind, name) for name in gpubind.__all__}
    hints = get_type_hints(function, localns=namespace)
    for hint in hints.values():
        for kind in named(hint):
            assert kind.__name__ in gpubind.__all__, kind
    assert re.search(rf"`{function.__name__}\(", PAGE.read_text())


VALUES = [thing for thing in (getattr(gpubind, name) for name in gpubind._PLACES) if hasattr(thing, "_fields")]
VALUES = [kind for kind in VALUES if kind not in (gpubind.Image, gpubind.Start)]  # what is in these is no promise


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.__name__)
def test_every_class_in_a_value_is_exported(value: Any) -> None:
    for hint in get_type_hints(value).values():
        for kind in named(hint):
            assert kind.__name__ in gpubind.__all__, kind


def test_every_error_that_is_exported_is_on_the_page() -> None:
    errors = [name for name in gpubind.__all__ if name.endswith("Error")]
    assert [name for name in errors if f"`{name}`" not in PAGE.read_text() and name != "GpubindError"] == []
