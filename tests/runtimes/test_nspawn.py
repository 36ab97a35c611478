"""systemd-nspawn's words."""

from __future__ import annotations

from typing import Any

import pytest

from gpubind import plan
from gpubind.errors import RuntimeLimitError
from gpubind.model import EnvVar, Request
from gpubind.runtimes.edits import RuntimeArguments
from gpubind.runtimes.nspawn import SYSTEMD_NSPAWN, escaped
from gpubind.runtimes.runtime import StartCall
from tests.support.driver import host, kernel, rhel
from tests.support.images import glibc, image, sandbox
from tests.support.starts import start_by


def make(*arguments: str, script: str = "", env: tuple[EnvVar, ...] = (), **facts: Any) -> RuntimeArguments:
    opened = image(glibc(), sandbox(script) if script else {})
    made = plan(host(rhel(), kernel()), Request(), image=opened)
    environ = facts.setdefault("environ", {})
    options = SYSTEMD_NSPAWN.user_option_values(arguments, environ)
    start = start_by("systemd-nspawn", **{"arguments": arguments, "options": options, "uid": 0, **facts})
    return SYSTEMD_NSPAWN.arguments(made._replace(env=(*made.env, *env)), start)


def test_files_are_read_only_and_nodes_are_not() -> None:
    options = make().options
    assert "--bind-ro=/usr/lib64/libcuda.so.550.54.14:/.gpubind/libs/libcuda.so.1" in options
    assert "--bind=/dev/nvidia0:/dev/nvidia0" in options


def test_the_image_is_not_written_and_nothing_is_registered() -> None:
    wanted = {"--volatile=overlay", "--read-only", "--register=no", "--keep-unit", "--as-pid2", "--console=autopipe"}
    assert wanted <= set(make().options)


def test_what_the_user_says_of_the_container_is_not_said_again() -> None:
    options = make("--volatile=state", "-b", "-P").options
    assert not [word for word in options if word.startswith(("--volatile", "--as-pid2", "--console", "--read-only"))]


def test_a_container_that_boots_has_its_own_console_and_first_process() -> None:
    assert not {"--as-pid2", "--console=autopipe", "--pipe"} & set(make("--boot").options)


def test_an_older_nspawn_does_not_know_a_pipe_from_a_terminal() -> None:
    assert "--pipe" in make(version=(252,)).options
    assert "--console=autopipe" in make(version=(257,)).options


def test_the_search_paths_are_whole() -> None:
    made = dict(make("-E", "LD_LIBRARY_PATH=/mine", script="export LD_LIBRARY_PATH=/own::/more").env)
    assert made["LD_LIBRARY_PATH"] == "/mine:/.gpubind/libs:/own:/more"
    assert made["PATH"] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/.gpubind/bin"


def test_a_variable_named_without_a_value_is_the_callers() -> None:
    assert SYSTEMD_NSPAWN.user_option_values(["-E", "A", "--setenv=B"], {"A": "1"}).env == {"A": "1"}
    assert SYSTEMD_NSPAWN.hides_caller_variable(start_by("systemd-nspawn", environ={"A": "1"}), "A")


def test_the_users_own_variable_wins() -> None:
    env = (EnvVar("A", "set", "1", None, "gpus"),)
    assert "--setenv=A=1" in make(env=env).options
    assert not [word for word in make("--setenv=A=2", env=env).options if word.startswith("--setenv=A")]


@pytest.mark.parametrize("value", ["\x1b", "a\rb", "\udcff"])
def test_a_value_that_nspawn_refuses_is_said(value: str) -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        make(env=(EnvVar("A", "set", value, None, "cdi"),))
    assert (caught.value.code, caught.value.where) == ("unsupported-value", "A")


def test_colons_and_backslashes_are_escaped() -> None:
    assert escaped("/a:b\\c d") == "/a\\:b\\\\c d"


def test_only_root_starts_it() -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        make(uid=1000)
    assert caught.value.code == "not-root"
    assert "bwrap" in caught.value.hint
    make(uid=None)


def test_options_end_before_the_command() -> None:
    call = StartCall("/usr/bin/systemd-nspawn", "exec", "/images/x", ("-x",))
    made = SYSTEMD_NSPAWN.start_command(call, start_by("systemd-nspawn", arguments=("--uuid=1",)), make())
    assert made.argv[:4] == ("/usr/bin/systemd-nspawn", "-q", "--machine=gpubind-ID", "--uuid=1")
    assert made.argv[-3:] == ("--directory=/images/x", "--", "-x")


def test_two_containers_of_one_image_have_names_of_their_own() -> None:
    call = StartCall("/usr/bin/systemd-nspawn", "exec", "/images/x", ("true",), "7-a1")
    assert "--machine=gpubind-7-a1" in SYSTEMD_NSPAWN.start_command(call, start_by("systemd-nspawn"), make()).argv
    options = SYSTEMD_NSPAWN.user_option_values(["-M", "mine"], {})
    started = SYSTEMD_NSPAWN.start_command(call, start_by("systemd-nspawn", options=options), make())
    assert "--machine=gpubind-7-a1" not in started.argv


def test_versions_are_read() -> None:
    assert SYSTEMD_NSPAWN.identify("systemd 257 (257.13-1~deb13u1)\n+PAM")[1] == (257,)
    assert SYSTEMD_NSPAWN.identify("")[1] is None


@pytest.mark.parametrize("option", ["--overlay=/a:/b:/c", "--overlay-ro=/a:/b:/c", "--tmpfs=/opt"])
def test_a_mount_of_the_users_whose_files_are_not_known_is_an_unknown_option(option: str) -> None:
    made = plan(host(rhel(), kernel()), Request(), image=image(glibc()))
    options = SYSTEMD_NSPAWN.user_option_values((option,), {})
    assert SYSTEMD_NSPAWN.base_mounts(made, start_by("systemd-nspawn", options=options)).unknown_options == (option,)
