"""Nothing heavy on the hot path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gpubind
from gpubind.model.data import BUNDLED_HOSTS
from tests.support.golden import assert_none

HEAVY = {
    "typer",
    "inspect",
    "rich",
    "pydantic",
    "pygments",
    "markdown_it",
    "jsonschema",
    "importlib.metadata",
    "subprocess",
    "tempfile",
}
MODULES = {"plan": 165, "exec": 199, "check": 230}
"""The most modules of a command: each costs 0.1 ms and more."""


def modules_after(*arguments: str) -> set[str]:
    """The modules that are loaded when `gpubind ARGUMENTS` is done."""
    code = (
        "import sys; from gpubind.cli.main import main\n"
        "status = main(sys.argv[1:])\n"
        "sys.stderr.write('\\n'.join(sys.modules)); raise SystemExit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    return set(done.stderr.split())


def assert_light(heavy: set[str]) -> None:
    tell = (
        "`{}` is loaded: import it in the function that needs it; `python -X importtime -m gpubind ...` shows who does"
    )
    assert_none(sorted(heavy), tell)


def test_plan_json_loads_nothing_heavy() -> None:
    loaded = modules_after("plan", "--nv", "--json", "--host", BUNDLED_HOSTS[0])
    assert_light(loaded & HEAVY)
    assert len(loaded) < MODULES["plan"]


def test_a_start_of_an_image_that_is_pulled_loads_nothing_that_reads_images() -> None:
    loaded = modules_after(
        "exec",
        "-q",
        "--dry-run",
        "--host",
        BUNDLED_HOSTS[0],
        "--backend",
        "apptainer",
        "docker://registry.example.org/x",
        "ls",
    )
    assert_light(loaded & {*HEAVY, "gpubind.image.open", "gpubind.rules", "gpubind.formats.text.shell"})
    assert len(loaded) < MODULES["exec"]


def test_a_check_loads_no_runtime_and_no_rules_of_other_vendors_and_programs(tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    loaded = modules_after("check", "-q", "--nv", "--host", BUNDLED_HOSTS[0], "--image", str(tmp_path / "image"))
    others = {"gpubind.inventory.amd.devices", "gpubind.rules.image.level_zero", "gpubind.rules.program"}
    assert_light(loaded & {*HEAVY, *others, "gpubind.runtimes.runtime", "gpubind.launch.prepare"})
    assert len(loaded) < MODULES["check"]


def test_rich_is_loaded_for_a_table_alone(tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    host, backend = ("--host", BUNDLED_HOSTS[0]), ("--backend", "apptainer")
    assert "rich" in modules_after("plan", "--nv", "-q", *host)
    assert "rich" not in modules_after("check", "-q", *host)
    assert "rich" not in modules_after("exec", "-q", "--dry-run", *host, *backend, str(tmp_path / "image"), "ls")
    assert "rich" not in modules_after("gpus", "--json", *host)


def test_what_chooses_gpus_is_loaded_where_somebody_chooses_them() -> None:
    def is_loaded(*arguments: str) -> bool:
        return "gpubind.planner.gpus" in modules_after("plan", "--nv", "--json", "--host", BUNDLED_HOSTS[0], *arguments)

    assert not is_loaded()
    assert is_loaded("--gpus", "0")


def test_importing_the_package_loads_none_of_its_modules() -> None:
    code = "import sys, gpubind; print(sorted(m for m in sys.modules if m.startswith('gpubind')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['gpubind']"


def test_every_name_of_the_facade_loads() -> None:
    for name in gpubind.__all__:
        assert getattr(gpubind, name) is not None


@pytest.mark.parametrize(
    "words",
    [["--version"], ["--help"], ["exec", "--help"], ["plan", "-qv", "--host", BUNDLED_HOSTS[0]], ["plan", "--bogus"]],
)
def test_only_a_shell_that_completes_needs_typer(words: list[str]) -> None:
    assert "typer" not in modules_after(*words)
