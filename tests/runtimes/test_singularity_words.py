"""Apptainer's and SingularityCE's words."""

from __future__ import annotations

import csv
import io
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubind import open_host, plan
from gpubind.errors import RuntimeLimitError
from gpubind.files import Tree
from gpubind.image.facts import Image
from gpubind.model import CAPABILITIES, ContainerPath, EnvVar, HostPath, Plan, Request
from gpubind.planner.placement import SINGULARITY_LAYOUT as LAYOUT
from gpubind.runtimes.apptainer.binds import BindSpec, _parse_binds, bind_value, mount_value, needs_mount
from gpubind.runtimes.apptainer.environment import BASE_SCRIPT, ENVIRONMENT_SCRIPT, generated_files
from gpubind.runtimes.apptainer.exports import render_shell_lines, variable_changes, without_variables
from gpubind.runtimes.apptainer.options import has_fixed_mount_points, parse_site, read_env_file
from gpubind.runtimes.apptainer.singularity import APPTAINER, NO_GPU_FLAGS, SINGULARITY
from gpubind.runtimes.edits import Bind, RuntimeArguments
from gpubind.runtimes.runtime import Stage, Start, StartCall, format_arguments
from tests.support.driver import host, kernel, rhel
from tests.support.images import glibc, image, sandbox
from tests.support.starts import start as begin
from tests.support.starts import words as staged_words
from tests.support.trees import Link

LIBS = "/.singularity.d/libs"
PREFIXES = ("APPTAINER", "SINGULARITY")
CONTAINED = ("CONTAIN", "CONTAINALL", "COMPAT")
STAGED = {ContainerPath("/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"): HostPath("/cache/icd.json")}


def make(opened: Optional[Image] = None, root: str = "/", **request: Any) -> Plan:
    return plan(host(rhel(), kernel(), root=root), Request(**request), image=opened, layout=LAYOUT)


def start(*arguments: str, **facts: Any) -> Start:
    return begin(*arguments, **facts)


def words(plan: Plan, start: Start, tree: Optional[Tree] = None, *scripts: ContainerPath) -> RuntimeArguments:
    """Return *plan* in words, with the file that it generates, and with *scripts*."""
    staged = {**STAGED, **dict.fromkeys(scripts, HostPath("/cache/script"))}
    return staged_words(plan, start, tree, Stage(staged))


def env(made: RuntimeArguments) -> dict[str, str]:
    return dict(made.env)


def targets(made: RuntimeArguments) -> set[str]:
    return {bind.target for bind in made.binds}


def test_the_programs_own_flags_are_always_cancelled_in_both_ways() -> None:
    assert words(make(), start()).options[:4] == NO_GPU_FLAGS


def test_every_file_is_bound_read_only() -> None:
    made = words(make(), start())
    assert all(bind.read_only for bind in made.binds)
    assert f"{LIBS}/libcuda.so.1" in targets(made)


BINARIES = {"/usr/bin/nvidia-smi"}


@pytest.mark.parametrize(
    "begun",
    [
        start("--bind", "/a:/usr/bin"),
        start("-B", "/mine:/usr"),
        start("--mount", "type=bind,src=/a,dst=/usr/bin/"),
        start("--bind", "/a:/bin:ro"),
        start(environ={"SINGULARITY_BINDPATH": "/b,/a:/usr/bin"}),
        start(site_config={"bind path": ("/a:/usr/bin",)}),
    ],
)
def test_nothing_is_put_into_what_the_user_binds_and_that_is_told(begun: Start) -> None:
    opened = image(glibc(), sandbox(), {"/bin": Link("usr/bin"), "/usr/bin/x": ""})
    made = words(make(opened), begun, opened.tree)
    assert not targets(made) & BINARIES
    assert f"{LIBS}/libcuda.so.1" in targets(made)
    assert "no-mount-point" in [finding.code for finding in made.findings]


@pytest.mark.parametrize(
    "begun",
    [
        start("--bind", "/a:/usr/bi,/usr/bin/other"),
        start("--bind", "/a:/usr/bin", site_config={"user bind control": ("no",)}),
        start("--contain", site_config={"bind path": ("/usr/bin",)}),
    ],
)
def test_what_the_user_binds_elsewhere_takes_nothing_away(begun: Start) -> None:
    assert targets(words(make(), begun)) >= BINARIES


@pytest.mark.parametrize("bind", ["/usr", "/usr/bin", "/usr/bin/nvidia-smi"])
def test_a_file_that_a_bind_of_the_users_brings_is_not_missed(bind: str) -> None:
    made = words(make(), start("--bind", bind))
    assert not targets(made) & BINARIES
    assert not [decision for decision in made.decisions if decision.subject in BINARIES]


def test_a_file_that_the_user_binds_itself_is_the_users() -> None:
    made = words(make(), start("--bind", "/mine:/usr/bin/nvidia-smi"))
    assert not targets(made) & BINARIES


@pytest.mark.parametrize(
    ("begun", "codes"),
    [
        (start(), {"devices-not-isolated"}),
        (start("--no-mount", "dev", site_config={"user bind control": ("no",)}), {"no-dev", "binds-forbidden"}),
    ],
)
def test_what_keeps_a_driver_out_is_told_of_the_vendor_whose_driver_it_is(begun: Start, codes: set[str]) -> None:
    for name in ("debian13-nvidia550", "mi300x-rocm62"):
        made = plan(open_host(name), Request(vendors=()), layout=LAYOUT)
        vendors = {finding.code: finding.vendor for finding in words(made, begun).findings if finding.code in codes}
        assert vendors == dict.fromkeys(codes, made.drivers[0].driver.vendor)


def test_a_generated_file_is_bound_from_where_it_was_written() -> None:
    made = words(make(), start())
    assert ("/cache/icd.json", "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json") in [
        (b.source, b.target) for b in made.binds
    ]


@pytest.mark.parametrize(
    "begun",
    [
        *(
            start(word)
            for word in ("-c", "--contain", "-C", "--containall", "--compat", "--contain=1", "--contain=true")
        ),
        *(start(word) for word in ("-ec", "-ecw", "-c=true", "--contain=T")),
        *(
            start(environ={f"{prefix}_{name}": "1"})
            for prefix in PREFIXES
            for name in ("CONTAIN", "CONTAINALL", "COMPAT")
        ),
        start("--bind", "/a", "-c"),
        start("-B/a", "--env=A=b", "-c"),
        start(site_config={"mount dev": ("minimal", "yes")}),
        start("-c", site_config={"mount dev": ("no",)}),
    ],
)
def test_devices_are_bound_where_dev_is_minimal(begun: Start) -> None:
    assert "/dev/nvidia0" in targets(words(make(), begun))
    assert APPTAINER.layout(begun).isolated


@pytest.mark.parametrize(
    "begun",
    [
        start(),
        start("--contain=false", environ={"APPTAINER_CONTAIN": "1"}),
        start(environ={"APPTAINER_CONTAIN": "0", "SINGULARITY_CONTAIN": "1"}),
        start(environ={"APPTAINER_CONTAIN": " "}),
        start("--bind", "-c"),
        start("--", "--contain"),
        start("img.sif", "--contain"),
        start(program="singularity", environ={"APPTAINER_CONTAIN": "1"}),
        start("--no-mount", "dev", "--contain"),
        start(site_config={"mount dev": ("no",)}),
        start(site_config={"mount dev": ("yes", "minimal")}),
    ],
)
def test_devices_are_not_bound_where_dev_is_whole_or_none(begun: Start) -> None:
    assert "/dev/nvidia0" not in targets(words(make(), begun))
    assert not APPTAINER.layout(begun).isolated


def test_devices_are_not_bound_over_the_whole_dev_and_that_is_told() -> None:
    made = words(make(), start())
    assert not [target for target in targets(made) if target.startswith("/dev/")]
    assert "devices-not-isolated" in [f.code for f in made.findings]


SANDBOX = image(glibc(), sandbox())
VALUED = image(glibc(), sandbox("export LD_LIBRARY_PATH=/own:/other"))
PLAIN = image(glibc())
OWN = f"{LIBS}:${{LD_LIBRARY_PATH:-{LIBS}}}"
"""Our directory, then whatever the image's shell makes of its own value."""
TIDY = f"{LIBS}${{LD_LIBRARY_PATH:+:${{LD_LIBRARY_PATH//::/:}}}}"
"""The same without the empty elements of the image's."""
UNDECIDED = image(glibc(), sandbox("export LD_LIBRARY_PATH=$(cat /a)"))
UNEXPANDED = image(glibc(), sandbox("export LD_LIBRARY_PATH=$HOME/lib"))
EMPTIED = image(glibc(), sandbox("export LD_LIBRARY_PATH=/own::/other:"))
"""An image whose value has empty elements, which mean the current directory."""


def library_path(opened: Optional[Image], begun: Start) -> dict[str, str]:
    return {name: value for name, value in env(words(make(opened), begun)).items() if "LD_LIBRARY_PATH" in name}


@pytest.mark.parametrize("opened", [None, VALUED, UNDECIDED, UNEXPANDED])
@pytest.mark.parametrize("facts", [{}, {"program": "singularity"}, {"version": None}], ids=str)
def test_the_containers_own_shell_puts_the_images_value_behind_ours(
    opened: Optional[Image], facts: dict[str, Any]
) -> None:
    expected = OWN if opened is None else f"{LIBS}:${{LD_LIBRARY_PATH%:{LIBS}}}"
    assert library_path(opened, start(**facts)) == {"LD_LIBRARY_PATH": expected}


def test_apptainer_1_5_puts_nothing_in_front_where_no_file_of_the_image_sets_the_variable() -> None:
    assert library_path(PLAIN, start(version=(1, 5, 3))) == {"LD_LIBRARY_PATH": LIBS}


def test_apptainer_1_5_alone_names_its_directory_after_the_users_value_where_the_image_sets_none() -> None:
    begun = start("--env", "LD_LIBRARY_PATH=/mine", version=(1, 5, 3))
    assert library_path(SANDBOX, begun) == {}


@pytest.mark.parametrize("program", ["apptainer", "singularity"])
def test_where_the_image_sets_none_the_program_alone_names_its_directory(program: str) -> None:
    assert library_path(SANDBOX, start(program=program)) == {}
    assert library_path(SANDBOX, start("--env", "LD_LIBRARY_PATH=/mine", program=program)) == {}
    assert library_path(SANDBOX, start("--no-eval", program=program)) == {}
    assert library_path(SANDBOX, start("--env", "LD_LIBRARY_PATH=", program=program)) == {"LD_LIBRARY_PATH": LIBS}


@pytest.mark.parametrize(("opened", "facts"), [(PLAIN, {}), (SANDBOX, {"version": None})], ids=["plain", "unknown"])
def test_where_the_program_may_not_name_its_directory_first_the_plan_does(opened: Image, facts: dict[str, Any]) -> None:
    assert library_path(opened, start(**facts)) == {"LD_LIBRARY_PATH": LIBS}
    said = start(environ={"APPTAINERENV_LD_LIBRARY_PATH": LIBS}, **facts)
    assert library_path(opened, said) == {}


@pytest.mark.parametrize("opened", [None, VALUED], ids=["unknown", "valued"])
def test_apptainer_1_5_is_told_to_put_ours_in_front(opened: Optional[Image]) -> None:
    assert library_path(opened, start(version=(1, 5, 3))) == {"PREPEND_LD_LIBRARY_PATH": LIBS}
    said = start(version=(1, 5, 3), environ={"APPTAINERENV_PREPEND_LD_LIBRARY_PATH": "/mine"})
    assert library_path(opened, said) == {"PREPEND_LD_LIBRARY_PATH": f"/mine:{LIBS}"}


@pytest.mark.parametrize(
    "begun",
    [
        start(environ={"APPTAINERENV_LD_LIBRARY_PATH": "/x,y"}),
        start(environ={"SINGULARITYENV_LD_LIBRARY_PATH": "/x,y"}),
        start(environ={"APPTAINERENV_LD_LIBRARY_PATH": "/x,y", "SINGULARITYENV_LD_LIBRARY_PATH": "/z"}),
        start("--env", "LD_LIBRARY_PATH=/x,y", environ={"APPTAINERENV_LD_LIBRARY_PATH": "/z"}),
        start("--env=LD_LIBRARY_PATH=/x,y"),
        start("--env", "A=1", "--env", "LD_LIBRARY_PATH=/x,y"),
        start("--env", 'A=1,"LD_LIBRARY_PATH=/x,y",B=2'),
        start("-e", "--env", "LD_LIBRARY_PATH=/z", "--env", "LD_LIBRARY_PATH=/x,y"),
        start(env_files={"LD_LIBRARY_PATH": "/x,y"}, environ={"APPTAINERENV_LD_LIBRARY_PATH": "/z"}),
        start("--env", "LD_LIBRARY_PATH=/x,y", env_files={"LD_LIBRARY_PATH": "/z"}),
    ],
)
def test_the_users_value_stays_in_front_of_ours(begun: Start) -> None:
    assert library_path(VALUED, begun)["LD_LIBRARY_PATH"].startswith(f"/x,y:{LIBS}$")


@pytest.mark.parametrize("facts", [{"env_files": {"LD_LIBRARY_PATH": None}}, {"has_unread_env_files": True}], ids=str)
def test_a_value_that_only_the_programs_shell_knows_is_left_to_it(facts: dict[str, Any]) -> None:
    begun = start(**facts)
    assert library_path(VALUED, begun) == {}
    assert "library-path-last" not in [finding.code for finding in words(make(), begun).findings]


@pytest.mark.parametrize("version", [(1, 4, 5), (1, 5, 3)], ids=str)
@pytest.mark.parametrize(
    ("users", "expected"),
    [
        ("/mine", f"/mine:{TIDY}"),
        ("/mine:$LD_LIBRARY_PATH", f"/mine:{OWN}"),
        ("${LD_LIBRARY_PATH}:/mine", f"{OWN}:/mine"),
        ("$LD_LIBRARY_PATHS", f"$LD_LIBRARY_PATHS:{TIDY}"),
    ],
)
def test_ours_goes_between_the_users_value_and_the_images(users: str, expected: str, version: tuple[int, ...]) -> None:
    begun = start(environ={"APPTAINERENV_LD_LIBRARY_PATH": users}, version=version)
    assert library_path(VALUED, begun) == {"LD_LIBRARY_PATH": expected}
    begun = start(environ={"APPTAINERENV_LD_LIBRARY_PATH": expected}, version=version)
    assert library_path(VALUED, begun) == {}


def test_without_evaluation_a_script_of_the_image_puts_ours_in_front_where_only_a_shell_knows() -> None:
    begun = start("--no-eval")
    (script,) = generated_files(make(UNDECIDED), begun._replace(tree=UNDECIDED.tree)).values()
    for before, after in (("/own", f"{LIBS}:/own"), ("", LIBS)):
        shell = ["sh", "-euc", f'{script}printf %s "$LD_LIBRARY_PATH"']
        done = subprocess.run(shell, capture_output=True, text=True, check=True, env={"LD_LIBRARY_PATH": before})
        assert done.stdout == after
    made = words(make(UNDECIDED), begun, None, ENVIRONMENT_SCRIPT)
    assert ("/cache/script", ENVIRONMENT_SCRIPT) in [(b.source, b.target) for b in made.binds]
    assert "LD_LIBRARY_PATH" not in env(made)
    assert "library-path-last" not in [finding.code for finding in made.findings]
    for opened, other in ((VALUED, begun), (UNDECIDED, start()), (UNDECIDED, start("--no-eval", version=(1, 5, 0)))):
        assert generated_files(make(opened), other._replace(tree=opened.tree)) == {}
    assert generated_files(make(), begun) == {}


def test_in_an_instance_the_script_puts_ours_in_front_for_the_commands_that_enter_it() -> None:
    """They get no value of --env."""
    begun = start()._replace(is_entered=True)
    for opened, is_needed in ((VALUED, True), (UNDECIDED, True), (image(glibc(), sandbox()), False)):
        made = generated_files(make(opened), begun._replace(tree=opened.tree))
        assert [*made] == ([ENVIRONMENT_SCRIPT] if is_needed else [])
    users = start("--env", "LD_LIBRARY_PATH=/mine")._replace(is_entered=True, tree=VALUED.tree)
    assert generated_files(make(VALUED), users) == {}
    told = [one.what for one in words(make(VALUED), users).findings if one.code == "library-path-last"]
    assert len(told) == 1
    assert told[0].startswith("--env LD_LIBRARY_PATH takes precedence only in the instance's own program")
    for value, is_needed in (("/mine", False), ("/mine:$LD_LIBRARY_PATH", True)):
        callers = start(environ={"APPTAINERENV_LD_LIBRARY_PATH": value})._replace(is_entered=True, tree=VALUED.tree)
        assert [*generated_files(make(VALUED), callers)] == ([ENVIRONMENT_SCRIPT] if is_needed else [])
        assert generated_files(make(VALUED), callers._replace(is_entered=False)) == {}
    others = start("--env", "LD_LIBRARY_PATH=/mine")
    assert "library-path-last" not in [one.code for one in words(make(VALUED), others).findings]


def test_where_no_place_can_be_made_the_script_follows_the_images_last_file() -> None:
    begun = start("--no-eval", "--writable")
    assert generated_files(make(UNDECIDED), begun._replace(tree=UNDECIDED.tree)) == {
        BASE_SCRIPT: 'LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}:/.singularity.d/libs"\n\n'
        f"LD_LIBRARY_PATH={LIBS}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\nexport LD_LIBRARY_PATH\n"
    }


def test_a_user_who_empties_the_library_path_has_the_drivers_directory_alone() -> None:
    assert library_path(VALUED, start("--env", "LD_LIBRARY_PATH=")) == {"LD_LIBRARY_PATH": LIBS}


@pytest.mark.parametrize("word", ["--no-eval", "--compat", "--no-eval=1"])
@pytest.mark.parametrize(
    ("opened", "expected"),
    [
        (VALUED, f"{LIBS}:/own:/other"),
        (EMPTIED, f"{LIBS}:/own:/other"),
        (PLAIN, LIBS),
        (None, None),
        (UNDECIDED, None),
        (UNEXPANDED, None),
    ],
    ids=["valued", "emptied", "plain", "unknown", "undecided", "unexpanded"],
)
def test_without_evaluation_the_images_value_is_said_or_left_where_it_is(
    opened: Optional[Image], expected: Optional[str], word: str
) -> None:
    made = words(make(opened), start(word))
    assert env(made).get("LD_LIBRARY_PATH") == expected
    assert ("library-path-last" in [f.code for f in made.findings]) == (expected is None)


def test_without_evaluation_nothing_empty_comes_behind_the_users_value() -> None:
    begun = start("--no-eval", "--env", "LD_LIBRARY_PATH=/mine")
    assert library_path(EMPTIED, begun) == {"LD_LIBRARY_PATH": f"/mine:{LIBS}:/own:/other"}


def test_a_library_path_that_a_plan_has_said_already_is_not_said_again() -> None:
    assert library_path(VALUED, start(environ={"APPTAINERENV_LD_LIBRARY_PATH": f"/mine:{OWN}"})) == {}


def test_a_gpu_variable_that_the_user_gives_to_the_container_is_not_said() -> None:
    said = plan(host(rhel(), kernel()), Request(gpus="1"), layout=LAYOUT)
    assert "CUDA_VISIBLE_DEVICES" in env(words(said, start()))
    for begun in (
        start("--env", "CUDA_VISIBLE_DEVICES=0"),
        start(environ={"APPTAINERENV_CUDA_VISIBLE_DEVICES": "0"}),
        start(environ={"SINGULARITYENV_CUDA_VISIBLE_DEVICES": ""}),
        start(env_files={"CUDA_VISIBLE_DEVICES": None}),
        start(has_unread_env_files=True),
    ):
        assert "CUDA_VISIBLE_DEVICES" not in env(words(said, begun))


def test_32_bit_libraries_have_a_directory_that_is_not_flattened() -> None:
    from tests.support.driver import libraries

    i386 = libraries("/usr/lib/i386-linux-gnu", machine=3, bits=32)
    made = plan(host(rhel(), i386, kernel()), Request(caps=CAPABILITIES), layout=LAYOUT)
    assert "/.gpubind/libs32/libcuda.so.1" in targets(words(made, start()))
    assert env(words(made, start()))["LD_LIBRARY_PATH"].startswith(f"{LIBS}:/.gpubind/libs32:")


@pytest.mark.parametrize(
    ("begun", "taken_back"),
    [
        (start("--compat32", version=(1, 6, 0)), True),
        (start(environ={"APPTAINER_COMPAT32": "1"}, version=(1, 6, 0)), True),
        (start("--compat32=false", version=(1, 6, 0)), False),
        (start(version=(1, 6, 0)), False),
        (start("--compat32", version=(1, 5, 3)), False),
        (start("--compat32"), False),
        (start("--compat32", program="singularity", version=(4, 5)), False),
    ],
)
def test_compat32_is_taken_back_where_the_program_knows_it_and_else_left_to_its_answer(
    begun: Start, taken_back: bool
) -> None:
    assert ("--compat32=false" in words(make(), begun).options) is taken_back


@pytest.mark.parametrize("begun", [start("--no-env", "A,FOO"), start("-e"), start(environ={"APPTAINER_NOENV": "FOO"})])
def test_a_variable_of_the_caller_that_stays_outside_has_no_effect(begun: Start) -> None:
    assert APPTAINER.hides_caller_variable(begun, "FOO")
    assert not APPTAINER.hides_caller_variable(start("--no-env", "FOOD"), "FOO")


@pytest.mark.parametrize(
    "begun",
    [
        start("--writable"),
        start("-ew"),
        start(environ={"APPTAINER_WRITABLE": "true"}),
        start(site_config={"enable overlay": ("no",), "enable underlay": ("no",)}),
    ],
)
def test_an_optional_file_without_a_place_is_left_out_where_none_can_be_made(begun: Start) -> None:
    made = words(make(), begun)
    assert "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json" not in targets(made)
    assert f"{LIBS}/libcuda.so.1" in targets(made)
    assert "no-mount-point" in [d.rule for d in made.decisions]


def test_an_optional_file_whose_place_is_in_the_image_is_bound_with_writable_too() -> None:
    opened = image(glibc(), {"/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json": ""})
    made = words(make(opened), start("--writable"), opened.tree)
    assert "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json" in targets(made)


def test_the_command_has_the_users_words_before_ours_and_the_image_after() -> None:
    begun = start("--contain")
    call = StartCall("/usr/bin/apptainer", "exec", "img.sif", ("cmd", "-x"))
    line = APPTAINER.start_command(call, begun, words(make(), begun)).argv
    assert line[:3] == ("/usr/bin/apptainer", "exec", "--contain")
    assert line[-3:] == ("img.sif", "cmd", "-x")


def test_raw_words_survive_an_unquoted_substitution() -> None:
    made = words(make(), start())
    line = format_arguments(made, "apptainer", quoted=False).strip()
    done = subprocess.run(["sh", "-c", 'printf "%s\\n" $(cat)'], input=line, capture_output=True, text=True, check=True)
    assert tuple(done.stdout.splitlines()) == made.options


def test_quoted_words_survive_eval() -> None:
    made = words(make(root="/a b'c"), start())
    script = 'eval "set -- $(cat)"; printf "%s\\n" "$@"'
    done = subprocess.run(
        ["sh", "-c", script],
        input=format_arguments(made, "apptainer", quoted=True),
        capture_output=True,
        text=True,
        check=True,
    )
    assert tuple(done.stdout.splitlines()) == made.options


@pytest.mark.parametrize("root", ["/a b", "/a'b", '/a"b', "/a\\b", "/a*b", "/a?b", "/a[b", "/a\nb"])
def test_a_word_that_a_shell_would_not_leave_whole_is_refused_and_named(root: str) -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        format_arguments(words(make(root=root), start()), "apptainer", quoted=False)
    assert caught.value.exit_code == 6
    assert root in caught.value.where.replace('""', '"')  # CSV doubles a quote


def exports(made: RuntimeArguments, prefix: str, own: Optional[Mapping[str, str]]) -> str:
    return render_shell_lines(variable_changes(made, prefix, own))


def run_exports(made: RuntimeArguments, before: str, show: str, prefix: str = "APPTAINER") -> str:
    script = f'{before}\n{exports(made, prefix, {})}\nprintf %s "{show}"'
    return subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True, env={}).stdout


def test_exports_append_to_the_users_binds_and_take_back_the_gpu_switches() -> None:
    made = words(make(), start())
    binds = run_exports(made, "APPTAINER_BIND=/mine:/there", "$APPTAINER_BIND")
    assert binds.startswith("/mine:/there,/")
    assert ":/usr/bin/nvidia-smi:ro" in binds
    for name in ("APPTAINER_NV", "SINGULARITY_NV", "APPTAINER_ROCM", "SINGULARITY_NVCCLI"):
        assert run_exports(made, f"export {name}=1", f"${{{name}-unset}}$APPTAINER_NO_NV") == "unset1"


def test_exports_keep_the_users_library_path_in_front_of_ours() -> None:
    made = words(make(), start())
    show = "$APPTAINERENV_LD_LIBRARY_PATH"
    assert run_exports(made, "APPTAINERENV_LD_LIBRARY_PATH=/mine", show) == f"/mine:{TIDY}"
    assert run_exports(made, "SINGULARITYENV_LD_LIBRARY_PATH=/mine", show) == f"/mine:{TIDY}"
    assert run_exports(made, "", show) == OWN
    for reference in ("$LD_LIBRARY_PATH", "${LD_LIBRARY_PATH}"):
        before = f"APPTAINERENV_LD_LIBRARY_PATH='/mine:{reference}:/b c'"
        assert run_exports(made, before, show) == f"/mine:{OWN}:/b c"
        assert run_exports(made, f"{before}\n{exports(made, 'APPTAINER', {})}", show) == f"/mine:{OWN}:/b c"


@pytest.mark.parametrize(
    "opened", [None, EMPTIED, VALUED, UNDECIDED], ids=["unknown", "emptied", "valued", "undecided"]
)
@pytest.mark.parametrize("images", ["/own::/other:", "", "/own:/other", "/own:"])
def test_what_exports_put_behind_the_users_library_path_has_no_empty_element(
    opened: Optional[Image], images: str
) -> None:
    before = "export APPTAINERENV_LD_LIBRARY_PATH=/mine"
    value = run_exports(words(make(opened), start()), before, "$APPTAINERENV_LD_LIBRARY_PATH")
    base = f"{images}:{LIBS}".lstrip(":")  # as an image's 99-base.sh leaves it
    shell = ["bash", "-c", f'echo "{value}:{LIBS}"']  # as the program evaluates it
    done = subprocess.run(shell, capture_output=True, text=True, check=True, env={"LD_LIBRARY_PATH": base})
    seen = done.stdout.rstrip("\n").split(":")
    assert seen[:2] == ["/mine", LIBS]
    assert "" not in seen
    assert [element for element in seen[2:] if element != LIBS] == [one for one in images.split(":") if one]


def test_exports_without_evaluation_leave_a_reference_of_the_users_as_it_is_written() -> None:
    made = words(make(VALUED), start("--no-eval"))
    before = "APPTAINERENV_LD_LIBRARY_PATH='/mine:$LD_LIBRARY_PATH'"
    expected = f"/mine:$LD_LIBRARY_PATH:{LIBS}:/own:/other"
    assert run_exports(made, before, "$APPTAINERENV_LD_LIBRARY_PATH") == expected


def test_exports_keep_binds_that_the_older_variable_says() -> None:
    binds = run_exports(words(make(), start()), "export SINGULARITY_BIND=/mine", "$APPTAINER_BIND")
    assert binds.startswith("/mine,/")


@pytest.mark.parametrize("before", ["", "APPTAINER_BIND=/mine:/there", "SINGULARITY_MOUNT='type=bind,src=/a b,dst=/c'"])
def test_exports_that_are_evaluated_twice_say_the_same_as_once(before: str) -> None:
    made = words(make(root="/a b"), start())
    show = "$(env)"
    once = run_exports(made, before, show)
    assert run_exports(made, f"{before}\n{exports(made, 'APPTAINER', {})}", show) == once


def test_exports_bring_libraries_by_the_paths_that_the_programs_own_flag_would_use() -> None:
    made = words(make(), start())
    own = {f"{LIBS}/libcuda.so.1": "/lib64/libcuda.so.1"}
    script = f'{exports(made, "APPTAINER", own)}\nprintf %s "$APPTAINER_CONTAINLIBS $APPTAINER_BIND"'
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True, env={})
    libraries, binds = done.stdout.split()
    assert "/lib64/libcuda.so.1" in libraries.split(",")
    assert f"/usr/lib64/libnvidia-ml.so.550.54.14:{LIBS}/libnvidia-ml.so.1" in libraries.split(",")
    assert LIBS not in binds


def test_exports_for_singularity_bind_libraries_for_it_knows_no_names_of_ours() -> None:
    assert "CONTAINLIBS" not in exports(words(make(), start()), "SINGULARITY", {})


def test_exports_for_singularity_use_its_own_prefix() -> None:
    made = words(make(), start())
    assert "/libcuda.so.1:ro" in run_exports(made, "", "$SINGULARITY_BIND", "SINGULARITY")


def parse_bind(text: str) -> list[tuple[str, str, bool]]:
    """--bind by its documented grammar, without escapes: src[:dest[:opts]], options after a comma belong to it."""
    result: list[list[str]] = []
    for token in text.split(","):
        if result and token in ("ro", "rw"):
            result[-1].append(token)
        else:
            result.append(token.split(":"))
    return [(p[0], p[1] if len(p) > 1 else p[0], "ro" in p[2:]) for p in result]


def parse_mount(text: str) -> tuple[str, str, bool]:
    """--mount by its documented grammar: one CSV record of key=value fields."""
    (record,) = csv.reader(io.StringIO(text, newline=""), strict=True)
    fields = dict(field.partition("=")[::2] for field in record)
    assert set(fields) <= {"type", "source", "destination", "ro"}
    return fields["source"], fields["destination"], "ro" in fields


ANY_CHARACTER = st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])
PATHS = (
    st.text(ANY_CHARACTER, min_size=1, max_size=20)
    .map(lambda name: "/" + name.strip("/\r"))
    .filter(lambda path: len(path) > 1 and "\r" not in path)
)


@settings(max_examples=133, deadline=None)
@given(source=PATHS, target=PATHS, read_only=st.booleans())
def test_any_path_is_said_by_bind_or_by_mount(source: str, target: str, read_only: bool) -> None:
    bind = Bind(source, target, read_only)
    if needs_mount(bind):
        assert parse_mount(mount_value(bind)) == (source, target, read_only)
    else:
        assert parse_bind(bind_value(bind)) == [(source, target, read_only)]


def test_a_hostile_root_goes_through_mount_one_word_each() -> None:
    root = '/a,b^d"e'
    made = words(make(root=root), start())
    mounts = [made.options[i + 1] for i, word in enumerate(made.options) if word == "--mount"]
    assert (f"{root}/usr/lib64/libcuda.so.550.54.14", f"{LIBS}/libcuda.so.1", True) in map(parse_mount, mounts)


@pytest.mark.parametrize("root", ["/a:b", "/a\udcff", "/a\r\nb"], ids=["colon", "not-utf-8", "CR LF"])
def test_a_path_that_apptainer_cannot_take_is_refused_and_named(root: str) -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        words(make(root=root), start())
    assert (caught.value.code, caught.value.exit_code) == ("unsupported-path", 6)
    assert caught.value.where.startswith(root)


@pytest.mark.parametrize("program", ["apptainer", "singularity"])
def test_a_node_that_mount_would_change_is_refused_and_named(program: str) -> None:
    plan = make()
    odd = plan.devices[0]._replace(source=HostPath("/r\r\n/dev/nvidia0"))
    with pytest.raises(RuntimeLimitError) as caught:
        words(plan._replace(devices=(odd,)), start("--contain", program=program))
    assert (caught.value.code, caught.value.where) == ("unsupported-path", odd.source)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=/a # c", "/a"),
        ("A=x;B=y", "x"),
        ("A=x # y;A=z", "x"),
        ("A=x#y", "x#y"),
        ("A='x # y'", "x # y"),
        ("A=x B=y", "x"),
        ("A=x y", None),
        ("A=~/lib", None),
        ("A=a|b", None),
        ("A=(b)", None),
        ("A=x &", None),
        ("A=$B", ""),
        ("A=$HOME", "/h"),
    ],
)
def test_an_environment_file_is_read_as_the_programs_own_shell_reads_it(line: str, value: Optional[str]) -> None:
    """Source: Apptainer 1.4.5 `internal/pkg/util/shell/interpreter/env.go`, which runs mvdan/sh."""
    assert read_env_file(line + "\n", {"HOME": "/h"}).get("A", "") == value


def test_of_an_environment_file_what_only_a_shell_can_tell_is_not_known() -> None:
    text = "# c\nexport A=/a\nB='/b c'\nC=$HOME/x\nD=`id`\nE=\nA=/a2\n"
    values = read_env_file(text, {"HOME": "/h", "OTHER": "1"})
    assert {name: values[name] for name in "ABCDE"} == {"A": "/a2", "B": "/b c", "C": "/h/x", "D": None, "E": ""}
    assert "OTHER" not in values
    assert read_env_file("A=/a\nif true; then A=/b; fi\n", {}) == {"A": None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("apptainer version 1.4.5-2\n", (APPTAINER, (1, 4, 5))),
        ("apptainer version 1.5.0\n", (APPTAINER, (1, 5, 0))),
        ("singularity-ce version 4.1.0\n", (SINGULARITY, (4, 1, 0))),
        ("singularity version 3.8.7-1.el8\n", (SINGULARITY, (3, 8, 7))),
        ("", (SINGULARITY, None)),
    ],
)
def test_the_version_tells_the_program_behind_a_name(text: str, expected: Any) -> None:
    assert APPTAINER.identify(text) == expected


def test_the_sites_configuration_is_directives_and_values() -> None:
    text = "# mount dev = minimal\nmount dev =\nmount dev = yes\n  enable overlay=try\nnonsense\n"
    text += "bind path = /a\nbind path = /b\nmount home =\n"
    assert parse_site(text) == {"mount dev": ("yes",), "enable overlay": ("try",), "bind path": ("/a", "/b")}


def test_quoting_uses_the_shells_own_rules() -> None:
    assert shlex.split(format_arguments(RuntimeArguments(("a b", "c'd")), "apptainer", quoted=True)) == ["a b", "c'd"]


# Choosing GPUs.

UNTOLD = {
    f"/proc/driver/nvidia/gpus/0000:0{n + 1}:00.0/information": f"Model: X\nGPU UUID: GPU-????????\nDevice Minor: {n}\n"
    for n in range(2)
}


def test_the_chosen_gpu_is_said_by_the_hosts_number() -> None:
    made = words(make(gpus="1"), start())
    assert env(made)["CUDA_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES=1" in format_arguments(made, "apptainer", quoted=False).split()


def test_the_chosen_gpu_is_said_by_its_uuid_where_it_was_asked_for_so() -> None:
    uuid = "GPU-00000001-1111-2222-3333-444444444444"
    assert env(words(make(gpus=uuid), start()))["CUDA_VISIBLE_DEVICES"] == uuid


def test_what_the_callers_own_variable_chooses_is_not_said_again() -> None:
    made = plan(host(rhel(), kernel(), environ={"CUDA_VISIBLE_DEVICES": "1"}), Request(), layout=LAYOUT)
    assert not [name for name in env(words(made, start())) if name.startswith("CUDA")]


def test_none_hides_all_gpus_and_says_that_their_nodes_are_there() -> None:
    made = words(make(gpus="none"), start())
    assert env(made)["CUDA_VISIBLE_DEVICES"] == "-1"
    assert "devices-not-isolated" in [finding.code for finding in made.findings]
    assert not [name for name in targets(words(make(gpus="none"), start("--contain"))) if name.startswith("/dev/")]


@pytest.mark.parametrize(("arguments", "number"), [((), "1"), (("--contain",), "0")])
def test_numbers_are_counted_anew_where_dev_is_minimal(arguments: tuple[str, ...], number: str) -> None:
    begun = start(*arguments)
    made = plan(host(rhel(), kernel()), Request(gpus="1"), layout=APPTAINER.layout(begun))
    assert env(words(made, begun))["CUDA_VISIBLE_DEVICES"] == number


def test_a_variable_that_has_to_go_is_unset_where_that_can_be_said() -> None:
    part = {"/proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0/access": ""}
    on = host(rhel(), kernel(), UNTOLD, part, environ={"CUDA_VISIBLE_DEVICES": "0"})
    made = words(plan(on, Request(gpus="0:1/0"), layout=LAYOUT), start())
    assert made.unset == ("CUDA_VISIBLE_DEVICES",)
    assert "unset CUDA_VISIBLE_DEVICES APPTAINERENV_CUDA_VISIBLE_DEVICES" in exports(made, "APPTAINER", {}).split("\n")
    for quoted in (False, True):
        with pytest.raises(RuntimeLimitError, match="unsupported-unset") as caught:
            format_arguments(made, "apptainer", quoted=quoted, exports="apptainer-env")
        assert "`--format apptainer-env`" in caught.value.hint
    environ = {"A": "1", "CUDA_VISIBLE_DEVICES": "0", "SINGULARITYENV_CUDA_VISIBLE_DEVICES": "1"}
    assert without_variables(environ, made.unset) == {"A": "1"}


# Paths of modules: a list, and one directory.

BACKENDS = next(one.value for one in make().env if one.name == "GBM_BACKENDS_PATH")


@pytest.mark.parametrize(
    ("begun", "gbm", "vdpau"),
    [
        (start(), f"${{GBM_BACKENDS_PATH:+$GBM_BACKENDS_PATH:}}{BACKENDS}", f"${{VDPAU_DRIVER_PATH:-{LIBS}}}"),
        (
            start(environ={"GBM_BACKENDS_PATH": "/a b,=c", "VDPAU_DRIVER_PATH": "/c"}),
            f"${{GBM_BACKENDS_PATH:-/a b,=c}}:{BACKENDS}",
            None,
        ),
        (
            start("-e", environ={"GBM_BACKENDS_PATH": "/a", "VDPAU_DRIVER_PATH": "/c"}),
            f"${{GBM_BACKENDS_PATH:+$GBM_BACKENDS_PATH:}}{BACKENDS}",
            f"${{VDPAU_DRIVER_PATH:-{LIBS}}}",
        ),
        *((start(environ={"GBM_BACKENDS_PATH": f"/a{c}b", "VDPAU_DRIVER_PATH": "/c"}), None, None) for c in "$`\\}\"'"),
        (start(environ={"APPTAINERENV_GBM_BACKENDS_PATH": "/a", "SINGULARITYENV_VDPAU_DRIVER_PATH": "/c"}), None, None),
        (start("--no-eval"), None, None),
    ],
    ids=["nobody", "caller", "clean", *(f"callers-{c}" for c in "$`\\}\"'"), "user", "no-eval"],
)
def test_modules_of_the_driver_come_behind_those_of_image_caller_and_user(
    begun: Start, gbm: Optional[str], vdpau: Optional[str]
) -> None:
    said = env(words(make(), begun))
    assert (said.get("GBM_BACKENDS_PATH"), said.get("VDPAU_DRIVER_PATH")) == (gbm, vdpau)


@pytest.mark.parametrize("special", "$`\\}\"'")
def test_a_default_that_the_shell_would_end_or_change_is_not_set(special: str) -> None:
    plan_ = make()
    plan_ = plan_._replace(env=(*plan_.env, EnvVar("A", "default", f"/a{special}b", None, "cdi")))
    assert "A" not in env(words(plan_, start()))


@pytest.mark.parametrize(
    ("option", "is_shared"), [("--cleanenv", True), ("--contain", False), ("--no-mount=tmp", False)]
)
def test_the_hosts_temporary_directories_are_in_the_container_unless_an_option_says_no(
    option: str, is_shared: bool
) -> None:
    begun = start(option)
    own = begun.runtime.base_mounts(make(), begun)
    assert own is not None
    shared = {(bind.source, bind.target) for bind in own.binds} & {("/tmp", "/tmp"), ("/var/tmp", "/var/tmp")}
    assert len(shared) == (2 if is_shared else 0)


def test_a_variable_gives_an_option_its_value_as_the_program_reads_it() -> None:
    environ = {
        "APPTAINER_NO_MOUNT": " tmp , home ",
        "APPTAINER_HOME": " /a , /b ",
        "APPTAINER_BINDPATH": "/x, /y",
        "SINGULARITY_BIND": "/z",
        "SINGULARITY_HOME": "/c",
        "SINGULARITY_SCRATCHDIR": "/s",
        "APPTAINER_CONTAIN": " ",
        "SINGULARITY_CONTAIN": "1",
        "SINGULARITY_PWD": "/p",
    }
    found = start(environ=environ).user.options.values
    assert found == {
        "bind": ("/x, /y", "/z"),
        "home": ("/a , /b",),
        "no-mount": ("tmp", "home"),
        "scratch": ("/s",),
        "pwd": ("/p",),
    }
    assert start("--home=/mine", environ=environ).user.options.values["home"] == ("/mine",)
    singularity = begin(program="singularity", environ=environ).user.options.values
    assert singularity == {"bind": ("/z",), "contain": ("1",), "home": ("/c",), "scratch": ("/s",), "pwd": ("/p",)}


def test_a_bind_from_another_image_is_known_by_any_of_its_options() -> None:
    for text, is_from_image in (
        ("/a:/b:ro", False),
        ("/a:/b:image-src=/x", True),
        ("/a:/b:ro,image-src=/x", True),
        ("/a:/b:id=1,ro", True),
        ("/a:/b:id=1,rw", True),
        ("/a:/b,ro", False),
    ):
        specs = list(_parse_binds([text]))
        assert specs == [BindSpec("/a", "/b", is_from_image)], text
    assert list(_parse_binds([r"/a\:b\,c,/d:/e\:f,,ro", "", "ro,/x", ":/y"])) == [
        BindSpec("/a:b,c", "/a:b,c"),
        BindSpec("/d", "/e\\"),
        BindSpec("ro", "ro"),
        BindSpec("/x", "/x"),
    ]


@pytest.mark.parametrize(
    ("arguments", "caps", "version", "wants"),
    [
        ((), "compute,compat32", (1, 6, 0), True),
        ((), "compute,compat32", (1, 5, 9), False),
        ((), "compute", (1, 6, 0), False),
        ((), "compute,compat32", None, False),
        (("--compat32",), "", (1, 4, 5), True),
    ],
)
def test_32_bit_libraries_come_by_the_option_and_since_1_6_by_nvidias_variable(
    arguments: tuple[str, ...], caps: str, version: Optional[tuple[int, ...]], wants: bool
) -> None:
    begun = start(*arguments, environ={"NVIDIA_DRIVER_CAPABILITIES": caps}, version=version)
    assert begun.runtime.wants_compat32(begun) is wants


@pytest.mark.parametrize(
    ("arguments", "overlay", "underlay", "is_fixed"),
    [((), "no", "no", True), ((), "yes", "no", False), ((), "no", "yes", False), ((), "", "no", False),
     ((), "no", "", False), (("--writable",), "yes", "yes", True)],
)  # fmt: skip
def test_mount_points_are_made_with_an_overlay_or_an_underlay(
    arguments: tuple[str, ...], overlay: str, underlay: str, is_fixed: bool
) -> None:
    layers = {"enable overlay": overlay, "enable underlay": underlay}
    begun = start(*arguments, site_config={name: (value,) for name, value in layers.items() if value})
    assert has_fixed_mount_points(begun) is is_fixed
