"""Nothing heavy on the hot path."""

from __future__ import annotations

import subprocess
import sys

import gpubind
from gpubind.data import HOSTS

HEAVY = {
    "rich",
    "pydantic",
    "pygments",
    "markdown_it",
    "jsonschema",
    "importlib.metadata",
    "subprocess",
    "tempfile",
}
MODULES_OF_OURS = 95  # beside those that typer brings


def modules_after(*arguments: str) -> set[str]:
    """The modules that are loaded when `gpubind ARGUMENTS` is done."""
    code = (
        "import sys; from gpubind.cli.main import main\n"
        "status = main(sys.argv[1:])\n"
        "sys.stderr.write('\\n'.join(sys.modules)); raise SystemExit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_plan_json_loads_nothing_heavy() -> None:
    loaded = modules_after("plan", "--nv", "--json", "--host", HOSTS[0])
    typers_own = modules_after_typer()
    assert (loaded & HEAVY) - typers_own == set()
    assert not {"rich", "pydantic"} & loaded
    assert len(loaded - typers_own) < MODULES_OF_OURS


def test_what_chooses_gpus_is_loaded_where_somebody_chooses_them() -> None:
    def is_loaded(*arguments: str) -> bool:
        return "gpubind.gpus" in modules_after("plan", "--nv", "--json", "--host", HOSTS[0], *arguments)

    assert not is_loaded()
    assert is_loaded("--gpus", "0")


def modules_after_typer() -> set[str]:
    code = "import sys, typer; sys.stdout.write('\\n'.join(sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_none_of_its_modules() -> None:
    code = "import sys, gpubind; print(sorted(m for m in sys.modules if m.startswith('gpubind')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['gpubind']"


def test_every_name_of_the_facade_loads() -> None:
    for name in gpubind.__all__:
        assert getattr(gpubind, name) is not None


def test_a_command_line_builds_the_options_of_its_own_command_alone() -> None:
    from gpubind.cli.app import application

    assert len(application(["plan", "--nv"]).registered_commands) == 1
    own = ("check", "gpus", "exec", "run", "shell", "wrap", "explain")
    assert [len(application([name]).registered_commands) for name in own] == [1] * len(own)
    assert len(application(["pln"]).registered_commands) == 10


def test_the_version_needs_no_parser() -> None:
    assert "typer" not in modules_after("--version")
