"""ch-run's words."""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.errors import RuntimeLimitError
from gpubind.image.facts import Image
from gpubind.image.reference import native_reference
from gpubind.model import ContainerPath, EnvVar, HostPath, Plan, Request
from gpubind.runtimes import RUNTIMES
from gpubind.runtimes.charliecloud import CH_RUN
from gpubind.runtimes.edits import RuntimeArguments
from gpubind.runtimes.runtime import Stage, Start, StartCall
from tests.support.driver import host, kernel, rhel
from tests.support.images import glibc, image, sandbox
from tests.support.starts import stage_of, start_by
from tests.support.trees import Dir, Link

ICD = "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json"


def planned(opened: Optional[Image]) -> Plan:
    return plan(host(rhel(), kernel()), Request(), image=opened, layout=CH_RUN.layout(start_by("ch-run")))


def started(*arguments: str, **facts: Any) -> Start:
    environ = facts.setdefault("environ", {})
    options = CH_RUN.user_option_values(arguments, environ)
    return start_by("ch-run", **{"arguments": arguments, "options": options, **facts})


def make(
    *arguments: str, opened: Optional[Image] = None, env: tuple[EnvVar, ...] = (), **facts: Any
) -> RuntimeArguments:
    opened = opened or image(glibc())
    made = planned(opened)
    stage = stage_of(facts := {"skeleton": HostPath("/cache/skeleton"), **facts})
    return CH_RUN.arguments(made._replace(env=(*made.env, *env)), started(*arguments, tree=opened.tree, **facts), stage)


def binds(made: RuntimeArguments) -> list[str]:
    return [made.options[at + 1] for at, word in enumerate(made.options) if word == "-b"]


def said(made: RuntimeArguments, name: str) -> list[str]:
    return [word.partition("=")[2][len(name) + 1 :] for word in made.options if word.startswith(f"--set-env={name}=")]


def test_a_directory_of_empty_files_is_bound_before_each_file_onto_its_own() -> None:
    made = make()
    assert made.options[0] == "-W"
    assert "/cache/skeleton/.gpubind:/.gpubind" in binds(made)
    library = "/usr/lib64/libcuda.so.550.54.14:/.gpubind/libs/libcuda.so.1"
    assert binds(made).index("/cache/skeleton/.gpubind:/.gpubind") < binds(made).index(library)


def test_each_place_that_the_image_lacks_has_an_empty_file() -> None:
    opened = image(glibc())
    made = CH_RUN.mount_point_files(planned(opened), started(tree=opened.tree))
    assert "/.gpubind/libs/libcuda.so.1" in made
    assert {"/.gpubind/libs/libcuda.so.1"} <= {bind.target for bind in make().binds}


def test_an_image_with_a_place_of_ours_needs_no_overlay() -> None:
    made = make(opened=image(glibc(), {"/.gpubind": Dir(), "/usr/share/vulkan/icd.d/other.json": ""}))
    assert "-W" not in made.options
    assert "/cache/skeleton/.gpubind:/.gpubind" in binds(made)


def test_no_file_is_bound_into_a_directory_that_the_image_has() -> None:
    made = make(opened=image(glibc(), {"/usr/share/vulkan/icd.d/other.json": ""}), staged={ICD: "/cache/icd.json"})
    assert [decision.subject for decision in made.decisions if decision.rule == "no-mount-point"] == [ICD]
    assert "no-mount-point" in [finding.code for finding in made.findings]


def test_a_link_of_the_images_is_followed_in_the_image() -> None:
    opened = image(glibc(), {"/usr/share/vulkan": Link("/opt/vulkan"), "/opt/vulkan/icd.d/nvidia_icd.x86_64.json": ""})
    made = make(opened=opened, staged={ICD: "/cache/icd.json"})
    assert "/cache/icd.json:/opt/vulkan/icd.d/nvidia_icd.x86_64.json" in binds(made)


def test_the_driver_is_said_to_have_no_place_where_the_image_would_be_written() -> None:
    for facts in ({"version": (0, 31)}, {"options": CH_RUN.user_option_values(["--write"], {})}):
        with pytest.raises(RuntimeLimitError) as caught:
            make(**facts)
        assert (caught.value.code, caught.value.where) == ("no-place", "/.gpubind/libs/libcuda.so")
    assert "-W" not in make("--write", opened=image(glibc(), {"/.gpubind": Dir()})).options


def test_what_an_overlay_hides_is_named() -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        make(skeleton=HostPath("/srv/home/u/.cache/s"))
    assert (caught.value.code, caught.value.where) == ("hidden-path", "/srv/home/u/.cache/s/.gpubind")
    for name, where in (("/srv/ct/x", "/srv"), ("ct/x", "/srv")):
        with pytest.raises(RuntimeLimitError, match="would not find"):
            CH_RUN.start_command(StartCall("ch-run", "exec", name, ("true",)), started(working_directory=where), make())


def test_a_source_with_a_colon_is_refused_and_named() -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        make(staged={ICD: "/home/a:b/icd.json"})
    assert (caught.value.code, caught.value.where) == ("unsupported-path", "/home/a:b/icd.json")


def test_libraries_come_behind_the_users_own_and_before_the_images() -> None:
    opened = image(glibc(), sandbox("export LD_LIBRARY_PATH=/own"))
    assert said(make(opened=opened), "LD_LIBRARY_PATH") == ["$LD_LIBRARY_PATH:/.gpubind/libs:/own"]
    assert said(make(), "PATH") == ["$PATH:/.gpubind/bin"]


def test_the_images_own_comes_last_when_the_user_has_it_set() -> None:
    opened = image(glibc(), {"/ch/environment": "X=1\nLD_LIBRARY_PATH=/ch/lib\n"})
    made = make("--set-env", opened=opened, environ={"LD_LIBRARY_PATH": "/host::/more"})
    assert said(made, "LD_LIBRARY_PATH") == ["/host:/more:/.gpubind/libs:/ch/lib"]


def test_without_expansion_the_values_are_said_in_full() -> None:
    made = make("--env-no-expand", environ={"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/host"})
    assert said(made, "LD_LIBRARY_PATH") == ["/host:/.gpubind/libs"]
    assert said(made, "PATH") == ["/usr/bin:/bin:/.gpubind/bin"]


@pytest.mark.parametrize(("value", "expected"), [("'a'", "''a''"), ("a'", "a'"), ("'a", "'a"), ("a", "a")])
def test_a_value_in_quotes_is_quoted_again_because_the_program_removes_one_pair(value: str, expected: str) -> None:
    assert said(make(env=(EnvVar("A", "set", value, None, "gpus"),)), "A") == [expected]


def test_the_users_own_variable_wins_and_others_are_taken_away() -> None:
    env = (EnvVar("A", "set", "1", None, "gpus"), EnvVar("B", "unset", None, None, "gpus"))
    made = make("--set-env=A=2", env=env)
    assert said(made, "A") == []
    assert "--unset-env=B" in made.options
    assert said(make(env=env), "A") == ["1"]


@pytest.mark.parametrize(("arguments", "overridden"), [
    (("--unset-env=CUDA*",), True), (("--unset-env=CUDA_?ISIBLE*",), True), (("--unset-env=cuda*",), False),
    (("--set-env=CUDA_VISIBLE_DEVICES=1",), True), (("--unset-e=*", "--set-env=A=1"), True), ((), False),
])  # fmt: skip
def test_unset_env_takes_patterns(arguments: tuple[str, ...], overridden: bool) -> None:
    assert CH_RUN.hides_caller_variable(started(*arguments), "CUDA_VISIBLE_DEVICES") is overridden


def test_the_last_of_set_env_and_unset_env_takes_effect() -> None:
    assert started("--set-env=A=1", "--unset-env=?", "--set-env=B=2").user.options.env == {"B": "2"}


def test_what_unset_env_removes_is_not_the_callers() -> None:
    environ = {"LD_LIBRARY_PATH": "/host", "LD_PRELOAD": "/x.so", "PATH": "/usr/bin"}
    found = CH_RUN.base_mounts(planned(None), started("--unset-env=LD_*", environ=environ))
    assert found is not None
    assert [variable.name for variable in found.env] == ["PATH"]


@pytest.mark.parametrize("value", ["two\nlines", "/a:$HOME/b", "$HOME"])
def test_a_value_that_ch_run_would_change_is_refused(value: str) -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        make(env=(EnvVar("A", "set", value, None, "cdi"),))
    assert (caught.value.code, caught.value.where) == ("unsupported-value", "A")


def test_a_value_in_quotes_keeps_its_quotes() -> None:
    assert said(make(env=(EnvVar("A", "set", "'x'", None, "cdi"),)), "A") == ["''x''"]


def test_files_that_the_caller_can_write_are_bound_only_when_that_is_accepted() -> None:
    writable = frozenset(["/usr/lib64/libcuda.so.550.54.14"])
    with pytest.raises(RuntimeLimitError) as caught:
        make(writable=writable)
    assert (caught.value.code, caught.value.where) == ("writable-bind", "/usr/lib64/libcuda.so.550.54.14")
    found = {finding.code: finding.severity for finding in make(writable=writable, allow_writable=True).findings}
    assert found["no-read-only-bind"] == "warning"
    assert {finding.code: finding.severity for finding in make().findings}["no-read-only-bind"] == "note"


def test_without_an_image_only_our_own_directory_has_a_place() -> None:
    made = CH_RUN.arguments(planned(None), started(), Stage({ContainerPath(ICD): HostPath("/cache/icd.json")}))
    assert {bind.target.split("/")[1] for bind in made.binds} == {".gpubind"}


@pytest.mark.parametrize(("source", "why"), [("/tmp/mps", []), ("/run/mps", ["/tmp/mps"])])
def test_the_hosts_tmp_is_the_containers_so_nothing_else_is_bound_below_it(source: str, why: list[str]) -> None:
    made = planned(None)
    mount = made.mounts[0]._replace(source=HostPath(source), target=ContainerPath("/tmp/mps"), required=False)
    found = CH_RUN.arguments(made._replace(mounts=(mount,)), started())
    assert not any("/tmp/mps" in bind for bind in binds(found))
    assert [finding.where for finding in found.findings if "ch-run binds the host's own" in (finding.why or "")] == why


def test_a_user_is_named_for_ch_run_does_not_start_without() -> None:
    opened = image(glibc())
    call = StartCall("/usr/bin/ch-run", "exec", "/images/x", ("true",))
    made = CH_RUN.start_command(call, started("-v", home="/home/me", tree=opened.tree), make("-v"))
    assert made.environ["USER"] == "me"
    assert made.argv[:2] == ("/usr/bin/ch-run", "-v")
    assert made.argv[-3:] == ("/images/x", "--", "true")


def test_versions_are_read() -> None:
    assert CH_RUN.identify("0.38\n")[1] == (0, 38)
    assert CH_RUN.identify("")[1] is None


def test_files_of_two_vendors_without_a_place_are_a_finding_of_the_first() -> None:
    made = planned(None)
    first = made.mounts[0]._replace(source=HostPath("/run/x"), target=ContainerPath("/tmp/nvidia"), vendor="nvidia")
    outside = (first, first._replace(target=ContainerPath("/tmp/amd"), vendor="amd"))
    found = CH_RUN.arguments(made._replace(mounts=outside), started())
    lost = next(finding for finding in found.findings if finding.code == "no-mount-point")
    assert (lost.vendor, lost.where, lost.severity) == ("nvidia", "/tmp/amd, /tmp/nvidia", "warning")
    assert lost.why == "ch-run binds the host's own directory there"


@pytest.mark.parametrize(
    ("arguments", "environ", "directory"),
    [
        (("--storage=/s",), {"CH_IMAGE_STORAGE": "/c", "USER": "u"}, "/s"),
        ((), {"CH_IMAGE_STORAGE": "/c", "USER": "u"}, "/c"),
        ((), {"USER": "u", "LOGNAME": "l", "HOME": "/home/h"}, "/var/tmp/u.ch"),
        ((), {"LOGNAME": "l", "HOME": "/home/h"}, "/var/tmp/l.ch"),
        ((), {"HOME": "/home/h"}, "/var/tmp/h.ch"),
        ((), {}, "/var/tmp/user.ch"),
    ],
)
def test_an_image_by_name_is_in_the_users_storage(
    arguments: tuple[str, ...], environ: dict[str, str], directory: str
) -> None:
    options = CH_RUN.user_option_values(arguments, environ)
    reference = native_reference("a/b:1", RUNTIMES["docker"])
    assert CH_RUN.stored_image(reference, options, environ, {}) == f"{directory}/img/a%b+1"


@pytest.mark.parametrize("skeleton", ["/srv", "/srv/x", "/srvx"])
def test_only_what_is_below_srv_is_hidden_by_the_overlay(skeleton: str) -> None:
    if skeleton == "/srvx":
        assert make(skeleton=HostPath(skeleton)).binds[0].source == "/srvx/.gpubind"
        return
    with pytest.raises(RuntimeLimitError) as caught:
        make(skeleton=HostPath(skeleton))
    error = caught.value
    assert (error.what, error.where, error.why, error.hint) == (
        "ch-run would not find what lies below /srv",
        f"{skeleton}/.gpubind",
        "-W puts a tmpfs onto the host's /srv, and without -W there is no place for the driver",
        "put it elsewhere; for an image, an empty directory /.gpubind in it does, too",
    )
