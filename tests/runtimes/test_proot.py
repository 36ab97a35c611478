"""PRoot's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpubind import open_runtime, plan, words
from gpubind.errors import RuntimeLimitError
from gpubind.model import EnvVar, Plan, Request
from gpubind.runtimes.cmdline.reader import ParseFailure
from gpubind.runtimes.edits import RuntimeArguments
from gpubind.runtimes.proot import PROOT
from gpubind.runtimes.runtime import PreparedStart, StartCall
from tests.support.driver import host, kernel, rhel
from tests.support.images import glibc, image, sandbox
from tests.support.starts import stage_of, start_by
from tests.support.trees import make_tree

ICD = "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"


def planned(script: str = "") -> Plan:
    opened = image(glibc(), sandbox(script) if script else {})
    return plan(host(rhel(), kernel()), Request(), image=opened, layout=PROOT.layout(start_by("proot")))


def make(*, script: str = "", env: tuple[EnvVar, ...] = (), **facts: Any) -> RuntimeArguments:
    made = planned(script)
    stage = stage_of(facts)
    return PROOT.arguments(made._replace(env=(*made.env, *env)), start_by("proot", **facts), stage)


def test_files_are_bound_and_nodes_need_nothing() -> None:
    made = make()
    assert "/usr/lib64/libcuda.so.550.54.14:/.gpubind/libs/libcuda.so.1" in made.options
    assert not [word for word in made.options if "/dev/nvidia" in word]
    assert {"devices-not-isolated", "no-read-only-bind"} <= {finding.code for finding in made.findings}


def test_search_paths_are_the_callers_then_ours_then_the_images() -> None:
    environ = {"LD_LIBRARY_PATH": "/host::/more", "PATH": "/bin"}
    env = dict(make(environ=environ, script="export LD_LIBRARY_PATH=/own").env)
    assert env["LD_LIBRARY_PATH"] == "/host:/more:/.gpubind/libs:/own"
    assert env["PATH"] == "/bin:/.gpubind/bin"


@pytest.mark.parametrize("path", ["/home/a:b/icd.json", "/home/icd.json!"])
def test_a_path_that_proot_would_split_is_refused_and_named(path: str) -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        make(staged={ICD: path})
    assert (caught.value.code, caught.value.where) == ("unsupported-path", path)


def test_files_that_the_caller_can_write_are_bound_only_when_that_is_accepted() -> None:
    writable = frozenset(["/usr/lib64/libcuda.so.550.54.14"])
    with pytest.raises(RuntimeLimitError) as caught:
        make(writable=writable)
    assert caught.value.code == "writable-bind"
    assert make(writable=writable, allow_writable=True).binds


def test_the_arguments_for_another_machine_do_not_depend_on_the_files_of_this_one(tmp_path: Path) -> None:
    make_tree(tmp_path, rhel())
    other = host(rhel(), dev=kernel(), root=str(tmp_path))
    start = open_runtime(other, "proot")
    assert words(plan(other, Request(), start=start), start) is not None


def test_variables_stand_in_proots_own_environment() -> None:
    env = (EnvVar("A", "set", "1", None, "gpus"), EnvVar("B", "unset", None, None, "gpus"))
    start = start_by("proot", environ={"B": "2", "C": "3"}, working_directory="/nowhere")
    made = make(environ=start.caller.environ, env=env)
    ran = PROOT.start_command(StartCall("/usr/bin/proot", "exec", "/images/x", ("true",)), start, made)
    assert ran.argv[:5] == ("/usr/bin/proot", "-R", "/images/x", "-w", "/")
    assert ran.argv[-1] == "true"
    assert {name: ran.environ.get(name) for name in "ABC"} == {"A": "1", "B": None, "C": "3"}


def test_the_printed_words_hold_the_variables() -> None:
    start = start_by("proot", environ={"B": "2"})
    made = make(environ=start.caller.environ, env=(EnvVar("B", "unset", None, None, "gpus"),))
    text = PROOT.render("proot", PreparedStart(made, start, host(rhel(), kernel()), planned()))
    assert text.startswith("env --unset=B ")
    assert " LD_LIBRARY_PATH=/.gpubind/libs " in text
    assert " proot -b " in text


def test_a_container_starts_where_the_caller_is_if_it_has_that_directory() -> None:
    opened = image(glibc(), {"/data/x": ""})
    for here, there in (("/home/me/x", "/home/me/x"), ("/data", "/data"), ("/scratch", "/"), ("/tmp/a", "/tmp/a")):
        start = start_by("proot", environ={"HOME": "/home/me"}, working_directory=here, tree=opened.tree)
        made = PROOT.start_command(StartCall("proot", "shell", "/i", ()), start, RuntimeArguments(()))
        assert made.argv[:5] == ("proot", "-R", "/i", "-w", there)


def test_options_are_read_as_proot_reads_them() -> None:
    options = PROOT.user_option_values(["-b", "/a:/b", "--bind=/c", "-0", "-w", "/d"], {})
    assert options.all("bind") == ("/a:/b", "/c")
    assert options.last("cwd") == "/d"
    assert PROOT.parse_user_options(["-b"]).error == ParseFailure("no-value", 0)
    assert PROOT.parse_user_options(["/image"]).operand_indexes == (0,)


@pytest.mark.parametrize("is_there", [True, False])
def test_the_callers_home_is_in_the_container_where_it_is_a_directory(is_there: bool) -> None:
    directories = frozenset(["/data/u"] if is_there else [])
    begun = start_by("proot", environ={"HOME": "/data/u"}, directories=directories)
    binds = PROOT.base_mounts(planned(), begun).binds
    assert (("/data/u", "/data/u") in [(bind.source, bind.target) for bind in binds]) == is_there
