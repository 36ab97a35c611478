"""The one file that `make dist` makes."""

from __future__ import annotations

import filecmp
import os
import sys
from pathlib import Path

import pytest

from tests.live.machine import CHECKOUT, INSIDE_PYTHON, Bind, Machine, here

pytestmark = pytest.mark.live


def build(directory: Path) -> Path:
    directory.mkdir()
    here(sys.executable, f"{CHECKOUT}/packaging/pyz.py", f"{directory}/gpubind.pyz")
    return directory / "gpubind.pyz"


def test_it_is_the_same_each_time_and_runs_where_only_python_is(
    interpreters: dict[str, Machine], tmp_path: Path
) -> None:
    file, again = build(tmp_path / "one"), build(tmp_path / "two")
    assert filecmp.cmp(file, again, shallow=False)
    words = ["plan", "--nv", "--host", "debian13-nvidia550", "--json"]
    expected = here(sys.executable, "-m", "gpubind", *words)
    for machine in interpreters.values():
        binds = [Bind(os.path.dirname(file), INSIDE_PYTHON), Bind(f"{machine.root}/usr", "/usr")]
        assert machine.run([f"{INSIDE_PYTHON}/gpubind.pyz", *words], binds=binds).stdout == expected
