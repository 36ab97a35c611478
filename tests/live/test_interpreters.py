"""The unit tests, by the oldest and the newest interpreter that the rig has; `make test` runs them by the machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.machine import CHECKOUT, INSIDE_CHECKOUT, INSIDE_PYTHON, PYTHON_ENV, Bind, Machine

pytestmark = pytest.mark.live

TYPES = "tests/test_python_docs.py::test_a_type_checker_takes_the_example_and_finds_mistakes"
OTHERS = (
    *("test_hostile_inputs.py", "test_injected_errors.py", "test_answers.py", "test_contrib.py", "test_stamp.py"),
    "mutants",
    "tars",
)
"""These ask about no interpreter: `make test` runs them. No type checker, compiler, shellcheck or git is there, costs
take minutes, and the tarfile of Python 3.9 reads fewer archives."""


@pytest.mark.parametrize("python", ["3.9", "3.13"])
def test_the_unit_tests_pass(interpreters: dict[str, Machine], python: str, tmp_path: Path) -> None:
    machine = interpreters[python]
    tmp_path.chmod(0o1777)
    assert machine.run(["python3", "--version"]).stdout.startswith(f"Python {python}.")
    # The checkout is read-only there: no caches.
    env = {**PYTHON_ENV, "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis"}
    pytest_ = ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--deselect={TYPES}"]
    done = machine.run(
        ["env", f"--chdir={INSIDE_CHECKOUT}", *pytest_, *(f"--ignore=tests/{name}" for name in OTHERS)],
        # Nor any in /usr: other tests hold the containers against what they were.
        binds=[
            Bind(CHECKOUT, INSIDE_CHECKOUT),
            Bind(machine.python, INSIDE_PYTHON),
            Bind(f"{machine.root}/usr", "/usr"),
            Bind(str(tmp_path), "/tmp", readonly=False),  # a gigabyte: other tests copy the whole container
        ],
        env=env,
    )
    assert " passed" in done.stdout
