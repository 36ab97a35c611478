"""udocker's words."""

from __future__ import annotations

from typing import Any

import pytest

from gpubind import plan
from gpubind.errors import RuntimeLimitError
from gpubind.image.environment import DEFAULT_PATH
from gpubind.model import EnvVar, HostPath, Request
from gpubind.runtimes.cmdline.reader import ParseFailure
from gpubind.runtimes.edits import RuntimeArguments
from gpubind.runtimes.runtime import StartCall
from gpubind.runtimes.udocker import UDOCKER
from tests.support.c_library import c_library
from tests.support.driver import host, kernel, rhel
from tests.support.images import glibc, image
from tests.support.starts import start_by


def make(*arguments: str, env: tuple[EnvVar, ...] = (), **facts: Any) -> RuntimeArguments:
    made = plan(host(rhel(), kernel()), Request(), layout=UDOCKER.layout(start_by("udocker")))
    environ = facts.setdefault("environ", {})
    options = UDOCKER.user_option_values(arguments, environ)
    return UDOCKER.arguments(made._replace(env=(*made.env, *env)), start_by("udocker", options=options, **facts))


def test_files_are_volumes_and_nodes_need_nothing() -> None:
    made = make()
    for directory in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        assert f"--volume=/usr/lib64/libcuda.so.550.54.14:{directory}/libcuda.so.1" in made.options
    assert not [word for word in made.options if "/dev/" in word]
    codes = {finding.code for finding in made.findings}
    assert {"devices-not-isolated", "no-read-only-bind", "udocker-container"} <= codes


@pytest.mark.parametrize(
    ("mode", "libc", "refused"), [("F3", "host", True), ("F3", "image", False), ("P1", "host", False)]
)
def test_a_mode_with_a_loader_of_its_own_takes_no_other_c_library(mode: str, libc: str, refused: bool) -> None:
    machine = host(rhel(), kernel(), c_library("2.41"))
    opened = image(glibc("2.36"), c_library("2.36"), {"/etc/ld.so.cache": b""})
    made = plan(machine, Request(libc=libc), image=opened, layout=UDOCKER.layout(start_by("udocker")))  # type: ignore[arg-type]
    start = start_by("udocker", environ={"UDOCKER_DEFAULT_EXECUTION_MODE": mode})
    if refused:
        with pytest.raises(RuntimeLimitError, match="fixed-loader"):
            UDOCKER.arguments(made, start)
    else:
        assert UDOCKER.arguments(made, start).binds


def test_a_mode_that_binds_directories_alone_is_refused() -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        make(environ={"UDOCKER_DEFAULT_EXECUTION_MODE": "R1"})
    assert (caught.value.code, caught.value.where) == ("file-binds", "UDOCKER_DEFAULT_EXECUTION_MODE=R1")


def test_no_search_path_of_the_images_is_replaced() -> None:
    assert not {name for name, _ in make().env} & {"LD_LIBRARY_PATH", "PATH"}


@pytest.mark.parametrize("path", ["/home/a:b/libcuda.so.1", "/home/x!"])
def test_a_path_that_udocker_would_split_is_refused_and_named(path: str) -> None:
    made = plan(host(rhel(), kernel()), Request(), layout=UDOCKER.layout(start_by("udocker")))
    mounts = (made.mounts[0]._replace(source=HostPath(path)),)
    with pytest.raises(RuntimeLimitError) as caught:
        UDOCKER.arguments(made._replace(mounts=mounts), start_by("udocker"))
    assert (caught.value.code, caught.value.where) == ("unsupported-path", path)


def test_a_value_that_udocker_would_change_is_refused() -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        make(env=(EnvVar("A", "set", " x", None, "cdi"),))
    assert (caught.value.code, caught.value.where) == ("unsupported-value", "A")


def test_the_callers_variables_stay_outside_unless_the_user_says_otherwise() -> None:
    environ = {"A": "1"}

    def overrides(*arguments: str) -> bool:
        options = UDOCKER.user_option_values(arguments, environ)
        return UDOCKER.hides_caller_variable(start_by("udocker", environ=environ, options=options), "A")

    assert overrides()
    assert overrides("--hostenv", "--env=A=2")
    assert not overrides("--hostenv")
    assert not overrides("-e", "A")


def test_directories_for_programs_do_not_replace_the_usual_ones() -> None:
    made = make(env=(EnvVar("PATH", "prepend", "/opt/vendor/bin", ":", "cdi"),))
    assert f"--env=PATH=/opt/vendor/bin:{DEFAULT_PATH}" in made.options


def test_a_container_is_run_by_its_name() -> None:
    start = start_by("udocker", arguments=("--hostauth",))
    made = UDOCKER.start_command(
        StartCall("/usr/bin/udocker", "exec", "mine", ("true",)), start, RuntimeArguments(("--volume=/a:/b",))
    )
    assert made.argv == ("/usr/bin/udocker", "run", "--nobanner", "--hostauth", "--volume=/a:/b", "mine", "true")
    made = UDOCKER.start_command(StartCall("udocker", "shell", "mine", ()), start, RuntimeArguments(()))
    assert made.argv[-2:] == ("mine", "/bin/sh")


def test_an_option_without_its_value_is_noticed() -> None:
    assert UDOCKER.parse_user_options(["--volume"]).error == ParseFailure("no-value", 0)
    assert UDOCKER.parse_user_options(["--index", "https://x", "--registry", "https://y"]).error is None


@pytest.mark.parametrize(
    ("environ", "first"),
    [
        ({"HOME": "/h"}, "/h/.udocker/lib/VERSION"),
        ({"HOME": "/h", "UDOCKER_DIR": "/d"}, "/d/lib/VERSION"),
        ({"HOME": "/h", "UDOCKER_LIB": "/l"}, "/l/VERSION"),
        ({"HOME": "/h", "UDOCKER_USE_PROOT_EXECUTABLE": "UDOCKER"}, "/h/.udocker/lib/VERSION"),
        ({"HOME": "/h", "UDOCKER_USE_PROOT_EXECUTABLE": "/usr/bin/proot"}, "/usr/bin/proot"),
        ({"PATH": "/a:/b", "UDOCKER_USE_PROOT_EXECUTABLE": ""}, "/a/proot"),
    ],
)
def test_the_tools_are_looked_for_where_udocker_does(environ: dict[str, str], first: str) -> None:
    assert UDOCKER.required_tools(environ)[0] == first


def test_missing_tools_are_said_before_the_start() -> None:
    environ = {"UDOCKER_USE_PROOT_EXECUTABLE": "/nowhere/proot"}
    said = {finding.code: finding for finding in make(environ=environ, tools=()).findings}
    assert (said["udocker-tools"].severity, said["udocker-tools"].where) == ("warning", "/nowhere/proot")
    assert "udocker-tools" not in {finding.code for finding in make().findings}


def test_a_mode_with_a_loader_of_its_own_says_what_to_do() -> None:
    machine = host(rhel(), kernel(), c_library("2.41"))
    opened = image(glibc("2.36"), c_library("2.36"), {"/etc/ld.so.cache": b""})
    made = plan(machine, Request(libc="host"), image=opened, layout=UDOCKER.layout(start_by("udocker")))
    with pytest.raises(RuntimeLimitError) as caught:
        UDOCKER.arguments(made, start_by("udocker", environ={"UDOCKER_DEFAULT_EXECUTION_MODE": "F1"}))
    error = caught.value
    assert (error.code, error.what, error.where, error.why, error.hint) == (
        "fixed-loader",
        "udocker starts programs by the image's own loader in this mode",
        "UDOCKER_DEFAULT_EXECUTION_MODE=F1",
        "no bind takes the place of a file that the kernel opens at its real path",
        "use mode P1: `udocker setup --execmode=P1 NAME`, or give --libc image",
    )


def test_any_of_the_tools_will_do() -> None:
    configured = ("/etc/udocker.conf", "/h/.udocker/udocker.conf")
    assert UDOCKER.required_tools({"HOME": "/h"}) == ("/h/.udocker/lib/VERSION", *configured)
    assert UDOCKER.required_tools({}) == ("/.udocker/lib/VERSION", "/etc/udocker.conf", "/.udocker/udocker.conf")
    found = UDOCKER.required_tools({"PATH": "/a:/b", "UDOCKER_USE_PROOT_EXECUTABLE": ""})
    assert found == ("/a/proot", "/b/proot")
