"""The table of runtimes, and what each record promises."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gpubind
from gpubind.image.reference import FILE_FORMS
from gpubind.launch.caller import read_start_facts
from gpubind.runtimes import ARGUMENT_FORMATS, PLAN_FORMATS, RUNTIMES, WRAPPED, runtime_of_format
from gpubind.runtimes.cmdline.programs import ALL_ACTIONS, PROGRAMS, UNSUPPORTED_PROGRAMS
from gpubind.runtimes.cmdline.reader import UserOptionValues
from gpubind.runtimes.edits import RuntimeArguments
from gpubind.runtimes.runtime import NO_STAGE, PreparedStart
from tests.documents.printed import HOST, PLAN
from tests.support.golden import assert_listed, assert_none
from tests.support.sources import nodes
from tests.support.starts import start_by

PACKAGE = Path(gpubind.__file__).parent


def test_auto_looks_in_the_order_of_the_table() -> None:
    order = "apptainer singularity bwrap podman docker ch-run proot udocker systemd-nspawn enroot crun runc"
    assert_listed(
        RUNTIMES,
        order.split(),
        add="gpubind/runtimes/__init__.py: add `{}` to _ROWS",
        remove="tests/runtimes/test_records.py: add `{}` to the order in which `--backend auto` takes the runtimes",
        order="gpubind/runtimes/__init__.py, _ROWS",
    )


@pytest.mark.parametrize("name", RUNTIMES)
def test_each_record_has_the_name_of_its_row(name: str) -> None:
    runtime = RUNTIMES[name]
    assert runtime.name == name
    assert runtime.image_forms


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_that_does_not_start_every_file_and_directory_says_what_to_do_with_the_others(name: str) -> None:
    starts_all = {"directory", *FILE_FORMS} <= {*RUNTIMES[name].image_forms}
    assert (RUNTIMES[name].image_hint == "") == starts_all


@pytest.mark.parametrize("chosen", PLAN_FORMATS)
def test_each_format_that_is_quoted_says_so_in_the_table(chosen: str) -> None:
    printed = PreparedStart(
        RuntimeArguments(("--a", "b c"), document="{}"), start_by(runtime_of_format(chosen).name), HOST, PLAN
    )
    text = runtime_of_format(chosen).render(chosen, printed, quoted=True)
    assert ("--a 'b c'" in text) == (chosen in ARGUMENT_FORMATS)


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_of_which_no_option_is_known_has_a_layout(name: str) -> None:
    assert RUNTIMES[name].layout(start_by(name)).libdir.startswith("/")


@pytest.mark.parametrize("name", RUNTIMES)
def test_only_a_program_whose_version_makes_a_difference_is_run_for_it(name: str, tmp_path: Path) -> None:
    program = tmp_path / name
    program.write_text(f"#!/bin/sh\n: >{tmp_path}/run\n")
    program.chmod(0o755)
    with gpubind.open_host() as host:
        read_start_facts(RUNTIMES[name], str(program), (), {}, host)
    asked = ("apptainer", "singularity", "docker", "ch-run", "systemd-nspawn")
    assert (tmp_path / "run").exists() == (name in asked)


def test_the_command_line_of_each_runtime_is_read() -> None:
    file = "gpubind/runtimes/cmdline/programs.py"
    assert_listed(PROGRAMS, RUNTIMES, add=f"{file}: add `{{}}` to PROGRAMS, and remove it from PASTED")
    assert_none(
        sorted(PROGRAMS.keys() & UNSUPPORTED_PROGRAMS.keys()), f"{file}: remove `{{}}` from PASTED: PROGRAMS has it"
    )
    for name in WRAPPED:
        carried_out = {action for start in PROGRAMS[name].subcommands.values() for action in start.actions}
        missing = sorted(set(ALL_ACTIONS) - carried_out)
        assert_none(missing, f"{file}: no subcommand of {name} has `{{}}` among its `actions`")
        assert all(PROGRAMS[name].start(action).operands != "joined" for action in ALL_ACTIONS)


def test_what_nobody_sets_cannot_be_set_for_everybody() -> None:
    start = start_by("apptainer")
    for mapping in (
        start.caller.environ,
        start.facts.site_config,
        start.user.env_files,
        NO_STAGE.files,
        UserOptionValues().values,
        UserOptionValues().env,
    ):
        with pytest.raises(TypeError):
            mapping["x"] = "y"  # type: ignore[index]


def names_in_code(module: Path) -> set[str]:
    """The names of runtimes that *module* compares with, looks up by, or lists."""
    found = set()
    for node in nodes(module):
        if isinstance(node, (ast.Compare, ast.Subscript, ast.Tuple, ast.List, ast.Set)):
            found |= {str(n.value) for n in ast.walk(node) if isinstance(n, ast.Constant) and n.value in RUNTIMES}
    return found


@pytest.mark.parametrize(
    "module",
    [path for room in ("api", "cli", "rules", "documents") for path in sorted((PACKAGE / room).rglob("*.py"))]
    + sorted((PACKAGE / "launch").glob("*.py")),
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_only_its_own_module_branches_on_a_runtimes_name(module: Path) -> None:
    ask = f"gpubind/{module.relative_to(PACKAGE)} knows `{{}}`: ask a method of `Runtime` that gpubind/runtimes has"
    assert_none(sorted(names_in_code(module)), ask)
