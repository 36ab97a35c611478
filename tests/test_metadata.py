"""What the package says of itself to an index is what the tests have seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpubind.formats.text.toml import parse_toml
from tests.live.conftest import SUITES
from tests.support.golden import assert_listed

PROJECT: dict[str, Any] = parse_toml(Path("pyproject.toml").read_bytes(), "bad-config", "pyproject.toml")["project"]


def test_the_pythons_of_the_classifiers_are_those_that_run_the_tests() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = [name.partition(prefix)[2] for name in PROJECT["classifiers"] if name.startswith(prefix)]
    listed = [f"3.{minor}" for minor in named]
    add, remove = "pyproject.toml, classifiers: add Python {}", "tests/live/conftest.py, SUITES: add Python {}"
    assert_listed(listed, SUITES, add=add, remove=remove, order="pyproject.toml, classifiers")
    assert PROJECT["requires-python"] == f">={next(iter(SUITES))}"


def test_the_package_is_not_called_stable_before_it_has_run_on_a_gpu() -> None:
    status = next(name for name in PROJECT["classifiers"] if name.startswith("Development Status"))
    assert status.endswith("Alpha") == ("never on a machine with a real GPU" in Path("README.md").read_text())
