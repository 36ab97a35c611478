"""docker's and podman's words."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tarfile
from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.errors import RuntimeLimitError
from gpubind.files import Tree
from gpubind.files.blob import BytesBlob
from gpubind.image.environment import DEFAULT_PATH
from gpubind.image.facts import Image, read_image
from gpubind.image.layers import LayeredTree, LayerIndex, members_with_ident
from gpubind.loader.namespace import UserBind
from gpubind.model import ContainerPath, EnvVar, HostPath, Plan, Request
from gpubind.planner.placement import GPUBIND_LAYOUT, cdi_layout
from gpubind.runtimes import RUNTIMES, WRAPPED
from gpubind.runtimes.cmdline.programs import Action
from gpubind.runtimes.cmdline.reader import ParseFailure
from gpubind.runtimes.cmdline.values import parse_list
from gpubind.runtimes.edits import Bind, RuntimeArguments
from gpubind.runtimes.engines.engines import DOCKER, INIT_PROGRAMS, NERDCTL, PODMAN
from gpubind.runtimes.engines.options import parse_env_option, read_env_file, user_mounts
from gpubind.runtimes.engines.remote import remote_docker
from gpubind.runtimes.runtime import Command, Stage, Start, StartCall
from tests.support import starts
from tests.support.driver import host, kernel, rhel
from tests.support.golden import GOLDEN, assert_golden
from tests.support.images import glibc, image, sandbox
from tests.support.starts import words
from tests.support.trees import File, Spec, recorded_tree

BOTH = pytest.mark.parametrize("program", ["docker", "podman"])
ICD = ContainerPath("/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json")
STAGED = {ICD: HostPath("/cache/icd.json")}
PLAIN = image(glibc())
NO_FILES: dict[str, str] = {}


def with_env(*parts: Spec, **env: str) -> Image:
    """An image of a store's, whose configuration sets *env*."""
    spec = {path: item for part in (glibc(), *parts) for path, item in part.items()}
    return read_image(recorded_tree(spec, "/images/test"), "test", "docker", env)


def begun(program: str, *arguments: str, **facts: Any) -> Start:
    return starts.start(*arguments, program=program, **{"version": None, "uid": 0, **facts})


def planned(opened: Optional[Image] = PLAIN, **asked: Any) -> Plan:
    layout = GPUBIND_LAYOUT if opened is not None else cdi_layout("x86_64")
    return plan(host(rhel(), kernel()), Request(**asked), image=opened, layout=layout)


def make(start: Start, opened: Optional[Image] = PLAIN, env: tuple[EnvVar, ...] = (), **asked: Any) -> RuntimeArguments:
    made = planned(opened, **asked)
    return words(made._replace(env=(*made.env, *env)), start, opened.tree if opened else None, Stage(STAGED))


def values(made: RuntimeArguments, option: str) -> list[str]:
    """What follows each *option*."""
    return [made.options[i + 1] for i, word in enumerate(made.options) if word == option]


def started(start: Start, action: Action, name: str, *argv: str, opened: Image = PLAIN) -> Command:
    call = StartCall(f"/usr/bin/{start.runtime.name}", action, name, argv)
    return start.runtime.start_command(
        call, start._replace(tree=opened.tree), RuntimeArguments(("--env", "OURS=1"), unset=("GONE",))
    )


@BOTH
def test_libraries_are_mounted_read_only(program: str) -> None:
    libcuda = "type=bind,source=/usr/lib64/libcuda.so.550.54.14,target=/.gpubind/libs/libcuda.so.1,readonly"
    assert libcuda in values(make(begun(program)), "--mount")


@BOTH
def test_nodes_are_devices_and_never_mounted(program: str) -> None:
    made = make(begun(program))
    assert "/dev/nvidia0" in values(made, "--device")
    assert not any("/dev/" in value for value in values(made, "--mount"))


@BOTH
def test_chosen_gpus_alone_are_devices_and_their_numbers_are_said(program: str) -> None:
    made = make(begun(program), gpus="1")
    assert "/dev/nvidia1" in values(made, "--device")
    assert "/dev/nvidia0" not in values(made, "--device")
    assert dict(made.env)["CUDA_VISIBLE_DEVICES"] == "0"


@BOTH
def test_a_variable_has_the_users_value_then_ours_then_the_images(program: str) -> None:
    opened = with_env(LD_LIBRARY_PATH="/own:", PATH="/opt/bin:/bin")
    env = dict(make(begun(program), opened).env)
    assert (env["LD_LIBRARY_PATH"], env["PATH"]) == ("/.gpubind/libs:/own", "/opt/bin:/bin:/.gpubind/bin")
    env = dict(make(begun(program, "-eLD_LIBRARY_PATH=/users", "--env", "PATH=/u"), opened).env)
    assert (env["LD_LIBRARY_PATH"], env["PATH"]) == ("/users:/.gpubind/libs:/own", "/u:/.gpubind/bin")
    env = dict(make(begun(program, env_files={"LD_LIBRARY_PATH": "/file"}), PLAIN).env)
    assert (env["LD_LIBRARY_PATH"], env["PATH"]) == ("/file:/.gpubind/libs", f"{DEFAULT_PATH}:/.gpubind/bin")


@BOTH
def test_a_value_that_cannot_be_composed_is_not_guessed(program: str) -> None:
    with pytest.raises(RuntimeLimitError, match="image-needed: "):
        make(begun(program, has_unread_env_files=True))
    start = begun(program)
    with pytest.raises(RuntimeLimitError, match="image-needed: "):
        words(planned()._replace(image=None), start, stage=Stage(STAGED))


@BOTH
@pytest.mark.parametrize("value", ["a\udcff", "a\0b"])
def test_a_value_that_is_not_utf8_or_has_a_nul_is_named(program: str, value: str) -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        make(begun(program), env=(EnvVar("A", "set", value, None, "cdi"),))
    assert (caught.value.code, caught.value.where) == ("unsupported-value", "A")


@BOTH
def test_without_an_image_nothing_takes_the_place_of_its_variables(program: str) -> None:
    made = make(begun(program), None)
    assert dict(made.env) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert any(",target=/usr/lib/x86_64-linux-gnu/libcuda.so.1,readonly" in word for word in values(made, "--mount"))
    assert [finding.code for finding in made.findings] == ["image-unknown"]
    start = begun(program, architecture="x86_64")
    assert start.runtime.layout(start, is_blind=True) == cdi_layout("x86_64")


@BOTH
def test_nvidias_hook_brings_no_second_driver_unless_the_user_says_so(program: str) -> None:
    assert dict(make(begun(program), with_env(NVIDIA_VISIBLE_DEVICES="all")).env)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "NVIDIA_VISIBLE_DEVICES" not in dict(make(begun(program, "-e", "NVIDIA_VISIBLE_DEVICES=all")).env)


@BOTH
def test_the_users_own_value_is_never_said_anew(program: str) -> None:
    for start in (
        begun(program, "-e", "CUDA_VISIBLE_DEVICES=GPU-1"),
        begun(program, env_files={"CUDA_VISIBLE_DEVICES": "1"}),
    ):
        assert "CUDA_VISIBLE_DEVICES" not in dict(make(start, gpus="1").env)
        assert DOCKER.hides_caller_variable(start, "CUDA_VISIBLE_DEVICES")
    assert not DOCKER.hides_caller_variable(
        begun(program, environ={"CUDA_VISIBLE_DEVICES": "1"}), "CUDA_VISIBLE_DEVICES"
    )


@BOTH
def test_a_default_gives_way_to_the_images_value(program: str) -> None:
    default = EnvVar("VDPAU_DRIVER_PATH", "default", "/x", None, "vdpau-driver")
    assert dict(make(begun(program), env=(default,)).env)["VDPAU_DRIVER_PATH"] == "/.gpubind/libs"  # the plan's own
    assert "VDPAU_DRIVER_PATH" not in dict(make(begun(program), with_env(VDPAU_DRIVER_PATH="/own"), (default,)).env)


def test_what_the_image_must_not_say_is_taken_away() -> None:
    gone = (EnvVar("CUDA_VISIBLE_DEVICES", "unset", None, None, "gpus"),)
    opened = with_env(CUDA_VISIBLE_DEVICES="1")
    podman, docker = make(begun("podman"), opened, gone), make(begun("docker"), opened, gone)
    assert (values(podman, "--unsetenv"), podman.unset) == (["CUDA_VISIBLE_DEVICES"], ())
    assert ("CUDA_VISIBLE_DEVICES" in values(docker, "--env"), docker.unset) == (True, ("CUDA_VISIBLE_DEVICES",))
    assert make(begun("docker"), PLAIN, gone).unset == ()
    assert "GONE" not in started(begun("docker", environ={"GONE": "1", "KEPT": "1"}), "exec", "x", "true").environ


@BOTH
def test_what_is_handed_on_is_counted_as_the_caller_counts(program: str) -> None:
    handed = (EnvVar("CUDA_VISIBLE_DEVICES", "set", "1,x", None, "handed-on"),)
    env = dict(make(begun(program, environ={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}), env=handed).env)
    assert (env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"]) == ("1,x", "PCI_BUS_ID")


@pytest.mark.parametrize(("program", "environ"), [
    ("docker", {"DOCKER_HOST": "tcp://node7:2375"}), ("docker", {"DOCKER_HOST": "ssh://node7"}),
    ("docker", {"DOCKER_CONTEXT": "node7"}),
    ("podman", {"CONTAINER_HOST": "ssh://node7/run/x.sock"}), ("podman", {"CONTAINER_CONNECTION": "node7"}),
])  # fmt: skip
def test_a_daemon_on_another_machine_is_refused(program: str, environ: dict[str, str]) -> None:
    place = RUNTIMES[program].remote_daemon(environ, NO_FILES.get, {})
    assert place == "=".join(*environ.items())
    with pytest.raises(RuntimeLimitError, match="remote-engine"):
        make(begun(program, remote=place))


def test_neither_reads_the_others_variables() -> None:
    dockers = {"DOCKER_HOST": "ssh://node7", "DOCKER_CONTEXT": "node7"}
    assert RUNTIMES["podman"].remote_daemon(dockers, NO_FILES.get, {}) is None
    podmans = {"CONTAINER_HOST": "ssh://node7", "CONTAINER_CONNECTION": "node7"}
    assert RUNTIMES["docker"].remote_daemon(podmans, NO_FILES.get, {}) is None


def test_a_daemon_behind_a_socket_of_this_machine_is_not_remote() -> None:
    socket = "unix:///run/user/1000/docker.sock"
    environ = {"DOCKER_HOST": socket, "DOCKER_CONTEXT": "node7", "CONTAINER_HOST": socket}
    assert remote_docker(environ, NO_FILES.get, {}) is None
    assert remote_docker({"DOCKER_CONTEXT": "default"}, NO_FILES.get, {}) is None


DESKTOP = "unix:///home/me/.docker/desktop/docker.sock"


@pytest.mark.parametrize(("environ", "remote"), [
    ({"DOCKER_HOST": DESKTOP}, f"DOCKER_HOST={DESKTOP}"),
    ({"DOCKER_HOST": "unix:///home/me/.rd/docker.sock"}, "DOCKER_HOST=unix:///home/me/.rd/docker.sock"),
    ({"DOCKER_CONTEXT": "desktop-linux"}, f"DOCKER_CONTEXT=desktop-linux, {DESKTOP}"),
    ({}, f"currentContext of /home/me/.docker/config.json: desktop-linux, {DESKTOP}"),
    ({"DOCKER_HOST": "unix:///run/docker.sock"}, None),
])  # fmt: skip
def test_a_socket_of_a_daemon_in_a_virtual_machine_leads_to_another_machine(
    environ: dict[str, str], remote: Optional[str]
) -> None:
    files = contexts("/home/me/.docker", "desktop-linux", **{"desktop-linux": DESKTOP})
    assert remote_docker({"HOME": "/home/me", **environ}, files.get, {}) == remote


def contexts(directory: str, current: str, **hosts: str) -> dict[str, str]:
    """docker's own files, with a context for each of *hosts*."""
    files = {f"{directory}/config.json": json.dumps({"auths": {}, "currentContext": current})}
    for name, place in hosts.items():
        meta = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": place, "SkipTLSVerify": False}}}
        files[f"{directory}/contexts/meta/{hashlib.sha256(name.encode()).hexdigest()}/meta.json"] = json.dumps(meta)
    return files


@pytest.mark.parametrize(("environ", "current", "remote"), [
    ({}, "node7", "currentContext of /home/me/.docker/config.json: node7, ssh://node7"),
    ({}, "rootless", None),
    ({}, "default", None),
    ({}, "gone", "currentContext of /home/me/.docker/config.json: gone"),
    ({"DOCKER_CONTEXT": "rootless"}, "node7", None),
    ({"DOCKER_CONTEXT": "node7"}, "rootless", "DOCKER_CONTEXT=node7"),
    ({"DOCKER_HOST": "unix:///run/docker.sock"}, "node7", None),
    ({"DOCKER_CONFIG": "/nowhere"}, "node7", None),
])  # fmt: skip
def test_a_context_counts_that_docker_itself_was_told_to_use(
    environ: dict[str, str], current: str, remote: Optional[str]
) -> None:
    files = contexts("/home/me/.docker", current, node7="ssh://node7", rootless="unix:///run/user/1000/docker.sock")
    assert RUNTIMES["docker"].remote_daemon({"HOME": "/home/me", **environ}, files.get, {}) == remote


@pytest.mark.parametrize("text", ["", "{", "[]", '{"currentContext": 7}', '{"currentContext": ""}'])
def test_a_configuration_of_dockers_that_names_no_context_changes_nothing(text: str) -> None:
    assert remote_docker({"HOME": "/h"}, {"/h/.docker/config.json": text}.get, {}) is None


def test_podman_knows_no_contexts_of_dockers() -> None:
    files = contexts("/h/.docker", "node7", node7="ssh://node7")
    assert RUNTIMES["podman"].remote_daemon({"HOME": "/h"}, files.get, {}) is None


SOCKET = "unix:///run/user/1000/docker.sock"


@pytest.mark.parametrize(("program", "own", "environ", "remote"), [
    ("docker", {"host": "tcp://node7:2375"}, {}, "--host=tcp://node7:2375"),
    ("docker", {"host": SOCKET}, {"DOCKER_HOST": "tcp://node7:2375"}, None),
    ("docker", {"context": "node7"}, {"DOCKER_HOST": SOCKET}, "--context=node7"),
    ("docker", {"context": "rootless"}, {"DOCKER_HOST": "tcp://node7:2375"}, None),
    ("docker", {"context": "default"}, {}, None),
    ("docker", {"context": "default"}, {"DOCKER_HOST": "ssh://node7"}, "DOCKER_HOST=ssh://node7"),
    ("docker", {"config": "/h/other"}, {}, "currentContext of /h/other/config.json: far, ssh://far"),
    ("podman", {"remote": "true"}, {}, "--remote"),
    ("podman", {"remote": "true"}, {"CONTAINER_HOST": SOCKET}, None),
    ("podman", {"remote": "false"}, {}, None),
    ("podman", {"url": "ssh://node7"}, {"CONTAINER_HOST": SOCKET}, "--url=ssh://node7"),
    ("podman", {"url": SOCKET, "remote": "true"}, {"CONTAINER_HOST": "ssh://node7"}, None),
    ("podman", {"host": "tcp://node7"}, {}, "--host=tcp://node7"),
    ("podman", {"connection": "node7"}, {"CONTAINER_HOST": SOCKET}, "--connection=node7"),
    ("podman", {"context": "node7"}, {}, "--context=node7"),
    ("podman", {"root": "/mine"}, {"CONTAINER_CONNECTION": "node7"}, "CONTAINER_CONNECTION=node7"),
])  # fmt: skip
def test_an_option_of_the_programs_own_counts_before_its_variable(
    program: str, own: dict[str, str], environ: dict[str, str], remote: Optional[str]
) -> None:
    files = contexts("/h/.docker", "node7", node7="ssh://node7", rootless=SOCKET)
    files.update(contexts("/h/other", "far", far="ssh://far"))
    assert RUNTIMES[program].remote_daemon({"HOME": "/h", **environ}, files.get, own) == remote


HOSTILE = (
    "/a,b",
    "/a:b",
    '/a"b',
    "/a b ",
    "/a\nb",
    "/a\rb",
    "/a\tb",
    "/a=b",
    "/a'b",
    "/a\\b",
    "/a$(b)",
    "/é€",
    "/a;b\n",
)


@pytest.mark.parametrize("path", HOSTILE)
def test_a_mount_says_any_path_as_the_programs_read_it(path: str) -> None:
    word = DOCKER.mount_value(Bind(path, f"/x{path}", True))
    assert next(csv.reader([word], strict=True)) == ["type=bind", f"source={path}", f"target=/x{path}", "readonly"]
    assert parse_list(word)[1] == f"source={path}"


@pytest.mark.parametrize("path", [path for path in HOSTILE if "," not in path])
def test_nerdctl_splits_a_mount_at_its_commas_and_takes_quotes_and_blanks_as_they_are(path: str) -> None:
    fields = NERDCTL.mount_value(Bind(path, f"/x{path}", True)).split(",")
    assert fields == ["type=bind", f"source={path}", f"target=/x{path}", "readonly"]


@pytest.mark.parametrize("path", ["/a,b", "/a\udcff"])
def test_a_path_that_no_mount_of_nerdctl_says_is_named(path: str) -> None:
    with pytest.raises(RuntimeLimitError, match="unsupported-path") as caught:
        NERDCTL.mount_value(Bind(path, "/x", True))
    assert caught.value.where == path


@pytest.mark.parametrize("path", ["/a\r\nb", "/a\udcff"])
def test_a_path_that_no_mount_says_is_named(path: str) -> None:
    with pytest.raises(RuntimeLimitError, match="unsupported-path") as caught:
        DOCKER.mount_value(Bind(path, "/x", True))
    assert caught.value.where == path


@BOTH
def test_a_node_with_a_colon_is_named(program: str) -> None:
    made = planned()
    node = made.devices[0]._replace(source=HostPath("/x:y/nvidia0"))
    with pytest.raises(RuntimeLimitError, match="unsupported-path"):
        words(made._replace(devices=(node,)), begun(program), PLAIN.tree, Stage(STAGED))
    moved = made.devices[0]._replace(source=HostPath("/x/nvidia0"))
    options = words(made._replace(devices=(moved,)), begun(program), PLAIN.tree, Stage(STAGED))
    assert values(options, "--device") == [f"/x/nvidia0:{moved.target}"]


@BOTH
def test_what_the_user_mounts_counts(program: str) -> None:
    made = make(begun(program, "-v", "/mine:/usr/share/vulkan/icd.d:ro", "--device=/dev/nvidia0"))
    assert not any(ICD in word for word in made.options)
    assert [(d.subject, d.detail) for d in made.decisions] == [
        (ICD, "/usr/share/vulkan/icd.d is bound by you or the site, which takes precedence")
    ]
    assert "/dev/nvidia0" not in values(made, "--device")
    same = begun(program, "-v", f"/cache:{ICD.rpartition('/')[0]}")
    stage = Stage({ICD: HostPath("/cache/nvidia_icd.x86_64.json")})
    assert words(planned(), same, PLAIN.tree, stage).decisions == ()


def test_places_of_the_users_are_read_as_the_programs_read_them() -> None:
    arguments = ("-v", "name:/a", "-v/b", "--mount", '"type=bind","source=/s,t",dst=/c/', "--tmpfs=/d:size=1m")
    start = begun("docker", *arguments, "--volume=./rel:/e:ro", working_directory="/here")
    assert [bind.target for bind in user_mounts(start)] == ["/a", "/b", "/e", "/c", "/d"]
    found = DOCKER.base_mounts(planned(), start)
    assert found.binds == (
        UserBind(HostPath("/here/rel"), ContainerPath("/e")),
        UserBind(HostPath("/s,t"), ContainerPath("/c")),
    )


def test_an_ordinary_users_podman_keeps_groups_where_a_node_wants_one() -> None:
    made = planned()
    node = made.devices[0]._replace(mode=0o660, uid=0)
    for_group = made._replace(devices=(node,))

    def groups(start: Start, chosen: Plan = for_group) -> list[str]:
        return values(words(chosen, start, PLAIN.tree, Stage(STAGED)), "--group-add")

    assert groups(begun("podman", uid=1000)) == ["keep-groups"]
    assert groups(begun("podman", uid=1000), made) == []
    assert groups(begun("podman", uid=0)) == []
    assert groups(begun("docker", uid=1000)) == []
    assert groups(begun("podman", "--group-add", "video", uid=1000)) == []


@BOTH
def test_labels_of_selinux_are_off_where_it_is_enforced(program: str) -> None:
    assert values(make(begun(program, has_selinux=True)), "--security-opt") == ["label=disable"]
    assert values(make(begun(program)), "--security-opt") == []
    assert values(make(begun(program, "--security-opt=label=type:x", has_selinux=True)), "--security-opt") == []


@BOTH
def test_exec_starts_the_command_itself(program: str) -> None:
    made = started(begun(program, "--user", "1000"), "exec", "ubuntu", "echo", "--rm")
    usual = ["--rm", "--interactive", "--tmpfs", "/dev/shm", "--entrypoint", "", "--user", "1000", "--env", "OURS=1"]
    assert list(made.argv) == [f"/usr/bin/{program}", "run", *usual, "ubuntu", "echo", "--rm"]


@BOTH
def test_run_starts_the_images_entrypoint_and_shell_a_shell(program: str) -> None:
    start = begun(program, inits=INIT_PROGRAMS, has_terminal=True)
    run = started(start, "run", "ubuntu", "a").argv
    assert list(run[2:]) == ["--rm", "--interactive", "--tty", "--tmpfs", "/dev/shm", "--env", "OURS=1", "ubuntu", "a"]
    shell = started(start, "shell", "ubuntu").argv
    assert shell[shell.index("--entrypoint") + 1] == "/bin/sh"
    with_bash = with_env({"/usr/bin/bash": File(b"", 0o755)})
    assert "/bin/bash" in started(start, "shell", "ubuntu", opened=with_bash).argv


@BOTH
def test_each_default_can_be_taken_back(program: str) -> None:
    own = ["--rm=false", "-i=false", "--tty=false", "--init=false", "--shm-size=1g"]
    made = started(begun(program, *own, inits=INIT_PROGRAMS, has_terminal=True), "exec", "ubuntu", "true").argv
    assert list(made[2:9]) == ["--entrypoint", "", *own]
    assert "--rm" not in started(begun(program, "--restart=always"), "exec", "x", "true").argv
    assert not {"-i", "--interactive", "--tty"} & set(
        started(begun(program, "-d", has_terminal=True), "exec", "x", "y").argv
    )
    assert "--init" not in started(begun(program, "--pid=host", inits=INIT_PROGRAMS), "exec", "x", "y").argv


@BOTH
@pytest.mark.parametrize(
    "own",
    [
        ["--shm-size", "8g"],
        ["--ipc=host"],
        ["--tmpfs=/dev/shm:size=1g"],
        ["-v", "/dev/shm:/dev/shm"],
        ["--mount=type=tmpfs,target=/dev/shm/"],
        ["-v/dev:/dev"],
    ],
    ids=" ".join,
)
def test_the_users_own_shared_memory_is_left_alone(program: str, own: list[str]) -> None:
    made = started(begun(program, *own), "exec", "x", "y").argv
    assert list(made[2:]) == ["--rm", "--interactive", "--entrypoint", "", *own, "--env", "OURS=1", "x", "y"]
    assert "--tmpfs" in started(begun(program, "-v/dev/shm2:/dev/shm2"), "exec", "x", "y").argv


@BOTH
@pytest.mark.parametrize("own", ["/dev", "/dev/nvidia0", "/dev/nvidia0:/dev/other", "/x:/dev/nvidia0:rw", "/dev/"])
def test_a_node_that_the_user_brings_is_not_brought_again(program: str, own: str) -> None:
    made = values(make(begun(program, "--device", own)), "--device")
    assert "/dev/nvidia0" not in made
    assert ("/dev/nvidiactl" in made) == (own not in ("/dev", "/dev/"))


def test_the_first_process_hands_signals_on_where_this_machine_has_one_for_it() -> None:
    def init(program: str, *inits: str) -> list[str]:
        made = started(begun(program, inits=inits), "exec", "x", "y").argv
        return list(made[made.index("/dev/shm") + 1 : made.index("--entrypoint")])

    assert init("docker", "/usr/bin/docker-init") == ["--init"]
    assert init("docker", "/usr/bin/catatonit") == init("podman") == []
    assert init("podman", "/usr/bin/catatonit", "/usr/bin/docker-init") == ["--init"]
    assert init("podman", "/usr/bin/docker-init") == ["--init", "--init-path", "/usr/bin/docker-init"]


def test_a_directory_is_podmans_rootfs_with_an_overlay() -> None:
    start = begun("podman", working_directory="/here")
    assert started(start, "exec", "./dir", "true").argv[-3:] == ("--rootfs", "/here/dir:O", "true")
    assert started(start, "run", "/dir").argv[-2:] == ("/dir:O", "/bin/sh")
    own = image(glibc(), sandbox())
    assert started(start, "run", "/dir", "a", opened=own).argv[-2:] == ("/.singularity.d/runscript", "a")


@pytest.mark.parametrize("path", ["/a:b", "/a,b", "/a b", '/a"b', "/a\\b", "/a\udcff"])
def test_a_directory_that_rootfs_cannot_say_is_named(path: str) -> None:
    with pytest.raises(RuntimeLimitError, match="unsupported-path") as caught:
        started(begun("podman"), "exec", path, "true")
    assert caught.value.why.startswith("--rootfs takes no path with a colon, a comma, a quote, ")


def test_an_ordinary_users_podman_starts_no_directory_of_anothers() -> None:
    with pytest.raises(RuntimeLimitError, match="rootfs-of-another"):
        started(begun("podman", uid=1000), "exec", "/dir", "true")
    assert started(begun("podman", uid=0), "exec", "/dir", "true").argv


def test_a_docker_that_is_podmans_is_podman() -> None:
    assert DOCKER.identify("Docker version 26.1.5+dfsg1, build a72d7cd") == (DOCKER, (26, 1, 5))
    assert DOCKER.identify("podman version 5.4.2") == (PODMAN, (5, 4, 2))


@BOTH
def test_options_are_read_by_the_programs_own_table(program: str) -> None:
    words = ("-it", "-eA=1", "--env=B=x=y", "-e", "HOME", "-e", "NONE", "--net", "host")
    given = RUNTIMES[program].user_option_values(words, {"HOME": "/h"})
    assert dict(given.env) == {"A": "1", "B": "x=y", "HOME": "/h"}
    assert (given.has("interactive"), given.has("tty"), given.all("net")) == (True, True, ("host",))
    assert RUNTIMES[program].parse_user_options(("--volume",)).error == ParseFailure("no-value", 0)
    assert RUNTIMES[program].parse_user_options(("--nonsense", "x")).skipped_errors == (ParseFailure("unknown", 0),)


def test_a_file_of_variables_is_read_to_the_letter() -> None:
    text = "\ufeffA=1\r\n# B=2\n\n  C=$A 'x'\nHOME\nNONE\nD=\n"
    assert read_env_file(text, {"HOME": "/h"}) == {"A": "1", "C": "$A 'x'", "HOME": "/h", "D": ""}


def test_what_the_user_says_of_search_paths_is_known() -> None:
    start = begun("docker", "-e", "LD_LIBRARY_PATH=/u", "-e", "PATH=/p", "-e", "LD_PRELOAD=/l.so", "-w", "/work")
    found = DOCKER.base_mounts(planned(), start)
    assert [(v.name, v.op, v.value) for v in found.env] == [
        ("LD_LIBRARY_PATH", "prepend", "/u"), ("LD_PRELOAD", "set", "/l.so"), ("PATH", "set", "/p:/.gpubind/bin"),
    ]  # fmt: skip
    assert found.working_directory == "/work"


PULLS = """
    | --pull=always -q | --pull=never | --pull=newer | --pull=x | --pull=missing --platform=linux/arm64
    | --pull=ifmissing --override-arch=arm64 | --pull=ifnewer --tls-verify=false | --pull=ifnotpresent
"""


@pytest.mark.parametrize("program", ["docker", "podman", "nerdctl"])
def test_each_policy_of_pulling_is_the_programs(program: str) -> None:
    text = ""
    for line, name in (*((line, "a/b:1") for line in PULLS.split("|")), ("--pull=always", "-x")):
        options = WRAPPED[program].user_option_values(tuple(line.split()), {})
        made = WRAPPED[program].pull(options, {"host": "unix:///s"}, name)
        fields = "; ".join(f"{field} {value}" for field, value in made._asdict().items())
        text += f"$ {program} run {line.strip()} {name}\n  {fields}\n"
    assert_golden(GOLDEN / "runtimes" / f"{program}-pull.txt", text)


def test_a_variable_by_the_beginning_of_its_name_is_each_of_the_callers() -> None:
    environ = {"AB": "1", "AC": "2", "B": "3"}
    assert parse_env_option("A*", environ) == {"AB": "1", "AC": "2"}
    assert parse_env_option("A*=1", environ) == {"A*": "1"}
    assert parse_env_option("B", environ) == {"B": "3"}
    assert parse_env_option("*", environ) == environ


@pytest.mark.parametrize("directory", ["/.docker/desktop/", "/.rd/", "/.colima/", "/.lima/"])
def test_each_directory_of_a_virtual_machines_socket_is_remote(directory: str) -> None:
    socket = f"unix:///home/me{directory}docker.sock"
    assert remote_docker({"DOCKER_HOST": socket}, NO_FILES.get, {}) == f"DOCKER_HOST={socket}"
    assert remote_docker({"DOCKER_HOST": "tcp://x"}, NO_FILES.get, {}) == "DOCKER_HOST=tcp://x"


@BOTH
def test_a_value_that_is_not_known_is_refused_with_what_to_do(program: str) -> None:
    texts = []
    for begun_, opened in ((begun(program, has_unread_env_files=True), PLAIN), (begun(program), None)):
        with pytest.raises(RuntimeLimitError) as caught:
            words(planned()._replace(image=opened.facts if opened else None), begun_, stage=Stage(STAGED))
        error = caught.value
        assert (error.code, error.where) == ("image-needed", "PATH")
        assert error.what == "the value of PATH in the container is not known, and what an option says takes its place"
        texts.append((error.why, error.hint))
    assert texts == [
        ("a file of --env-file cannot be looked at", ""),
        ("the image is not known", "name the image: `--image podman:NAME`, `--image docker:NAME`"),
    ]


def owned_by(uid: int, *names: str) -> Tree:
    """An image of one layer, whose directories *names* belong to *uid*."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.type, info.uid = tarfile.DIRTYPE, uid
            archive.addfile(info)
    layers, blob = LayerIndex(), BytesBlob(out.getvalue())
    layers.add(blob, members_with_ident(blob))
    return LayeredTree(layers, HostPath("/dir"))


@pytest.mark.parametrize("name", ["usr", "bin", "etc", "proc"])
@pytest.mark.parametrize(
    ("caller", "owner", "is_refused"),
    [(1000, 0, True), (1000, 1001, True), (1000, 1000, False), (0, 1000, False), (0, 0, False), (None, 1000, False)],
)
def test_only_root_and_the_owner_start_a_directory(
    name: str, caller: Optional[int], owner: int, is_refused: bool
) -> None:
    begun_ = begun("podman", uid=caller)._replace(tree=owned_by(owner, name))
    call = StartCall("podman", "exec", "/dir", ("true",))
    if not is_refused:
        assert "/dir:O" in begun_.runtime.start_command(call, begun_, RuntimeArguments(())).argv
        return
    with pytest.raises(RuntimeLimitError) as caught:
        begun_.runtime.start_command(call, begun_, RuntimeArguments(()))
    assert caught.value.why == f"it is of uid {owner}, and podman maps only your own uids into the container"


@pytest.mark.parametrize(
    ("uid", "node_uid", "mode", "arguments", "expected"),
    [
        (1000, 0, 0o660, (), ["--group-add", "keep-groups"]),
        (1000, 0, 0o664, (), ["--group-add", "keep-groups"]),
        (1000, 0, 0o662, (), ["--group-add", "keep-groups"]),
        (1000, 0, 0o666, (), []),
        (1000, 1000, 0o660, (), []),
        (0, 0, 0o660, (), []),
        (None, 0, 0o660, (), []),
        (1000, 0, 0o660, ("--group-add=video",), []),
    ],
)
def test_groups_are_kept_only_for_a_node_that_needs_one(
    uid: Optional[int], node_uid: int, mode: int, arguments: tuple[str, ...], expected: list[str]
) -> None:
    node = planned().devices[0]._replace(uid=node_uid, mode=mode)
    assert PODMAN.group_args((node,), begun("podman", *arguments, uid=uid)) == expected
    assert DOCKER.group_args((node,), begun("docker", *arguments, uid=uid)) == []


@BOTH
def test_a_container_that_stays_is_told_of_the_first_driver_of_the_plan(program: str) -> None:
    made = planned()
    (nvidia,) = made.drivers
    amd = nvidia._replace(driver=nvidia.driver._replace(vendor="amd", version="6.2.4"))
    start = begun(program)._replace(restarts="warning")
    for drivers, version in (((nvidia, amd), "550.54.14"), ((amd, nvidia), "6.2.4")):
        findings = words(made._replace(drivers=drivers), start).findings
        (told,) = (each for each in findings if each.code == "container-outlives-driver")
        assert version in told.what
