"""The table of runtimes, and what each record promises."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import gpubind
from gpubind.errors import RuntimeLimitError, UsageError
from gpubind.image.reference import FILE_FORMS, native_reference
from gpubind.launch.caller import read_start_facts
from gpubind.runtimes import (
    ARGUMENT_FORMATS,
    DOCUMENT_FORMATS,
    ENV_RUNTIMES,
    PLAN_FORMATS,
    PROGRAMS,
    RUNTIMES,
    WRAPPED,
    format_fits_runtime,
    get_runtime,
    runtime_of_format,
)
from gpubind.runtimes.apptainer.binds import BindSpec
from gpubind.runtimes.apptainer.exports import VariableChange
from gpubind.runtimes.bubblewrap.options import UserBwrapOptions
from gpubind.runtimes.cmdline.programs import (
    ALL_ACTIONS,
    UNSUPPORTED_PROGRAMS,
    RuntimeProgram,
    StartSubcommand,
)
from gpubind.runtimes.cmdline.reader import PFLAG, ParsedCommandLine, UserOptionValues
from gpubind.runtimes.edits import RuntimeArguments
from gpubind.runtimes.environment import BaseEnvironment
from gpubind.runtimes.runtime import (
    NO_STAGE,
    CallerFacts,
    Command,
    PreparedStart,
    PullCommand,
    Runtime,
    RuntimeFacts,
    RuntimeLimits,
    Start,
    StartCall,
    UserOptions,
    format_arguments,
    format_multiline,
    parse_version,
)
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
        add="gpubind/runtimes/__init__.py: add `{}` to _RUNTIMES_BY_NAME",
        remove="tests/runtimes/test_records.py: add `{}` to the order in which `--backend auto` takes the runtimes",
        order="gpubind/runtimes/__init__.py, _RUNTIMES_BY_NAME",
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
    both = sorted(PROGRAMS.keys() & UNSUPPORTED_PROGRAMS.keys())
    assert_none(both, f"{file}: remove `{{}}` from PASTE_ONLY: it is a runtime")
    for name in WRAPPED:
        carried_out = {action for start in PROGRAMS[name].subcommands.values() for action in start.actions}
        missing = sorted(set(ALL_ACTIONS) - carried_out)
        assert_none(missing, f"no subcommand of {name} has `{{}}` among its `actions`")
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


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_format_fits_the_runtimes_that_read_its_arguments(name: str) -> None:
    kinds = {"singularity": "apptainer", "docker": "podman", "runc": "crun"}
    kind = kinds.get(name, name)
    formats = {
        "apptainer": {"apptainer", "apptainer-env", "singularity", "singularity-env"},
        "podman": {"docker", "podman"},
        "crun": {"oci"},
        "bwrap": set(),
    }
    fitting = {each for each in PLAN_FORMATS if format_fits_runtime(name, each)}
    assert fitting == formats.get(kind, {name})


def test_each_format_is_of_the_first_runtime_that_has_it() -> None:
    assert {each: runtime_of_format(each).name for each in PLAN_FORMATS} == {
        **{name: name for name in ARGUMENT_FORMATS},
        "apptainer-env": "apptainer",
        "singularity-env": "singularity",
        "oci": "crun",
    }
    assert (ENV_RUNTIMES, DOCUMENT_FORMATS) == (("apptainer", "singularity"), ("oci",))
    assert tuple(name for name in RUNTIMES if name not in ("bwrap", "crun", "runc")) == ARGUMENT_FORMATS
    assert tuple(PLAN_FORMATS) == (*ARGUMENT_FORMATS, "apptainer-env", "singularity-env", "oci")
    assert (len(RUNTIMES), [*WRAPPED]) == (12, [*RUNTIMES, "nerdctl"])


@pytest.mark.parametrize(
    ("name", "others", "hint"),
    [
        ("pyxis", (), "docs/paste.md says what to paste for pyxis"),
        ("podmn", (), "did you mean `podman`?"),
        ("aut", ("auto",), "did you mean `auto`?"),
    ],
)
def test_an_unknown_runtime_is_named_with_the_nearest_one(name: str, others: tuple[str, ...], hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        get_runtime(name, *others)
    assert (caught.value.code, caught.value.what) == ("unknown-backend", f"unknown runtime `{name}`")
    assert hint in caught.value.hint


def test_what_is_not_known_of_a_start_has_these_values() -> None:
    apptainer = RUNTIMES["apptainer"]
    assert CallerFacts() == ({}, None, None, frozenset(), None, True, False, False)
    assert RuntimeFacts() == (None, {}, {}, None, (), (), (), None, None, None, False)
    assert UserOptions() == ((), UserOptionValues(), {}, False, False)
    assert ({}, None, frozenset()) == NO_STAGE
    assert Start(apptainer) == (apptainer, CallerFacts(), RuntimeFacts(), UserOptions(), None, None, False, None)
    assert StartCall("p", "exec", "i", ()) == ("p", "exec", "i", (), "ID", False)
    assert PullCommand("never", (), False, ()) == ("never", (), False, (), (), ())
    assert Command((), {}) == ((), {}, None, (), True)
    assert PreparedStart(RuntimeArguments(()), Start(apptainer), HOST, PLAN)[4:] == (None, False)
    assert RuntimeArguments(()) == ((), (), (), (), (), (), "")
    assert RuntimeLimits() == ("", (), False, False, None, False, False, False)
    assert Runtime.limits == RuntimeLimits()
    assert UserBwrapOptions() == ((), (), False, None, ())
    assert BaseEnvironment() == ({}, {}, {})
    assert VariableChange("A", "unset") == ("A", "unset", "", "", (), "")
    assert BindSpec("/a", "/b") == ("/a", "/b", False)
    assert StartSubcommand("a") == ("a", "image", False, ())
    program = RuntimeProgram(PFLAG, {})
    assert (program.options, program.family, program.option_files) == ("", "", ())
    assert program.root_of(ParsedCommandLine((), (), (), 0)) is None
    assert ParsedCommandLine((), (), (), 0)[4:] == (None, ())
    assert UserOptionValues() == ({}, {})
    assert RuntimeFacts().directive("x") == ""


def test_a_runtime_without_rules_of_its_own_answers_like_this() -> None:
    runtime, start = RUNTIMES["systemd-nspawn"], start_by("systemd-nspawn")
    image = native_reference("mine", runtime)
    assert Runtime.identify(runtime, "1.2.3") == (runtime, None)
    assert runtime.parse_site("a = b") == {}
    assert runtime.read_env_file("A=1", {}) == {}
    assert runtime.required_tools({}) == ()
    assert runtime.remote_daemon({"DOCKER_HOST": "ssh://x"}, lambda _path: None, {}) is None
    assert runtime.texts({}) == ()
    assert runtime.stored_image(image, UserOptionValues(), {}, {}) is None
    assert runtime.site_library_path(start) == ()
    assert runtime.wants_compat32(start) is False
    assert runtime.generated_files(PLAN, start) == {}
    assert runtime.mount_point_files(PLAN, start) == ()
    assert runtime.render_environ("x", {"A": "1"}) == {"A": "1"}
    with pytest.raises(NotImplementedError, match=r"^systemd-nspawn$"):
        runtime.pull(UserOptionValues(), {}, "x")
    with pytest.raises(NotImplementedError, match=r"^systemd-nspawn$"):
        runtime.by_device((), PLAN, start)


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.4", (1, 4, 0)), ("x 1.4.5-2.6", (1, 4, 5)), ("26.1.5, build", (26, 1, 5)), ("1", None), ("", None)],
)
def test_a_version_has_three_numbers(text: str, version: object) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("special", " \t\n\"'\\\\*?[]")
def test_an_option_that_a_shell_would_split_is_refused(special: str) -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        format_arguments(RuntimeArguments(("--a", f"b{special}c")), "docker", quoted=False, exports="x-env")
    error = caught.value
    assert (error.code, error.what, error.where, error.why, error.hint) == (
        "not-raw",
        "the shell would split an argument of this plan in an unquoted $(...)",
        f"b{special}c",
        "it holds white space, a quote, a backslash or a wildcard",
        "use `gpubind exec` or `eval` with `--format docker --format sh` or `--format x-env`",
    )
    assert format_arguments(RuntimeArguments(("--a", "$b;&c")), "docker", quoted=False) == "--a $b;&c\n"


@pytest.mark.parametrize(("exports", "more"), [("", ""), ("apptainer-env", " or `--format apptainer-env`")])
def test_a_variable_that_only_an_environment_can_lack_is_refused(exports: str, more: str) -> None:
    for quoted in (True, False):
        with pytest.raises(RuntimeLimitError) as caught:
            format_arguments(RuntimeArguments((), unset=("A", "B")), "apptainer", quoted=quoted, exports=exports)
        error = caught.value
        assert (error.code, error.what, error.where, error.why, error.hint) == (
            "unsupported-unset",
            "no option of apptainer keeps A out of the container",
            "",
            "the plan takes it away, and an empty value would hide every GPU",
            f"unset it yourself, or use `gpubind exec`{more}",
        )


def test_each_option_and_its_value_has_a_line() -> None:
    args = ("docker", "run", "--a", "b c", "-d", "image", "-x")
    assert format_multiline(args, 2, 5) == "docker run \\\n  --a 'b c' \\\n  -d \\\n  image -x\n"
    assert format_multiline(args, 2, 2) == "docker run \\\n  --a 'b c' -d image -x\n"
    assert format_multiline(("a", "b"), 0, 2) == "a b\n"
