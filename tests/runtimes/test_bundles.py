"""crun and runc: a bundle's config.json with a plan in it, and the command line that starts it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.errors import HostReadError, RuntimeLimitError, UnseenError
from gpubind.formats.archive.bundle import Bundle, parse_bundle
from gpubind.image.facts import Image
from gpubind.image.open import open_image
from gpubind.model import ContainerPath, EnvVar, HostPath, Plan, Request
from gpubind.planner.placement import cdi_layout
from gpubind.runtimes import RUNTIMES
from gpubind.runtimes.bundles import CRUN, NODE_OPTIONS, EngineRuntime
from gpubind.runtimes.cmdline.programs import Action
from gpubind.runtimes.edits import GPUBIND_DIRECTORY, RuntimeArguments
from gpubind.runtimes.runtime import STAGED_DIRECTORY, Command, Stage, Start, StartCall
from tests.support.driver import host, kernel, rhel
from tests.support.forked import run_forked
from tests.support.images import glibc, image
from tests.support.starts import start_by
from tests.support.trees import Dir, Spec

ICD = ContainerPath("/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json")
STAGED = {ICD: HostPath("/cache/icd.json")}
LIBCUDA = "/.gpubind/libs/libcuda.so.1"
SOURCE = "/usr/lib64/libcuda.so.550.54.14"
NOTHING: Spec = {}
ROOTLESS = {"namespaces": [{"type": "user"}, {"type": "mount"}]}


def config(**more: Any) -> dict[str, Any]:
    process = {"cwd": "/", "args": ["sh"], "env": ["PATH=/usr/bin:/bin"]}
    return {"ociVersion": "1.2.0", "process": process, "root": {"path": "rootfs"}, "mounts": [], "linux": {}, **more}


def bundle(*, is_writable: bool = True, directory: str = "/srv/bundle", **more: Any) -> Bundle:
    found = parse_bundle(json.dumps(config(**more)).encode())
    return found._replace(directory=directory, is_writable=is_writable)


def with_env(*lines: str) -> dict[str, Any]:
    return {"process": {**config()["process"], "env": [*lines]}}


def planned(opened: Optional[Image] = None) -> Plan:
    return plan(host(rhel(), kernel()), Request(), image=opened or image(glibc()))


def start(own: Bundle, **facts: Any) -> Start:
    return start_by("crun", **{"bundle": own, **facts})


def make(
    own: Optional[Bundle] = None, made: Optional[Plan] = None, more: Spec = NOTHING, **facts: Any
) -> RuntimeArguments:
    opened = image(glibc(), more)
    found = CRUN.arguments(made or planned(opened), start(own or bundle(), tree=opened.tree, **facts), Stage(STAGED))
    assert found is not None
    return found


def edited(
    own: Optional[Bundle] = None, made: Optional[Plan] = None, more: Spec = NOTHING, **facts: Any
) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(make(own, made, more, **facts).document)
    return document


def mounts(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["destination"]: mount for mount in document["mounts"]}


def variables(document: dict[str, Any]) -> dict[str, str]:
    return dict(line.split("=", 1) for line in document["process"]["env"])


def call(action: Action, *argv: str, **facts: Any) -> StartCall:
    return StartCall("/usr/bin/crun", action, "bundle", argv, **facts)


def started(made: Command) -> dict[str, Any]:
    assert made.file is not None
    document: dict[str, Any] = json.loads(made.file.content)
    return document


def test_a_library_is_bound_read_only_and_without_devices() -> None:
    mount = mounts(edited())[LIBCUDA]
    assert mount == {
        "destination": LIBCUDA,
        "type": "bind",
        "source": SOURCE,
        "options": ["bind", "ro", "nosuid", "nodev"],
    }


def test_the_places_of_our_own_are_on_a_tmpfs_which_comes_first() -> None:
    made = edited()["mounts"]
    assert (made[0]["destination"], made[0]["type"]) == (GPUBIND_DIRECTORY, "tmpfs")
    assert "ro" in made[0]["options"]


def test_a_generated_file_is_bound_from_where_it_was_written() -> None:
    assert mounts(edited())[ICD]["source"] == "/cache/icd.json"


def test_root_has_nodes_made_and_allowed() -> None:
    linux = edited()["linux"]
    made = {node["path"]: (node["major"], node["minor"]) for node in linux["devices"]}
    assert made["/dev/nvidia0"] == (195, 0)
    rules = linux["resources"]["devices"]
    assert {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"} in rules
    assert len(rules) == len(made)


@pytest.mark.parametrize(("linux", "is_root"), [(ROOTLESS, False), (ROOTLESS, True), ({}, False)])
def test_without_roots_rights_nodes_are_bound_and_can_be_opened(linux: dict[str, Any], is_root: bool) -> None:
    made = edited(bundle(linux=linux), is_root=is_root)
    assert mounts(made)["/dev/nvidia0"]["options"] == [*NODE_OPTIONS]
    assert "nodev" not in NODE_OPTIONS
    assert "devices" not in made["linux"]


@pytest.mark.parametrize(
    ("linux", "is_root", "is_ruled"),
    [
        ({}, True, True),
        (ROOTLESS, True, True),
        (ROOTLESS, False, False),
        ({**ROOTLESS, "resources": {"devices": [{"allow": False, "access": "rwm"}]}}, False, True),
    ],
)
def test_nodes_are_allowed_where_there_is_a_device_cgroup(linux: Any, is_root: bool, is_ruled: bool) -> None:
    rules = edited(bundle(linux=linux), is_root=is_root)["linux"].get("resources", {}).get("devices", [])
    assert any(rule["allow"] for rule in rules) == is_ruled


def test_a_node_of_the_bundles_own_stays() -> None:
    own = {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "fileMode": 384}
    made = edited(bundle(linux={"devices": [own]}))
    assert [node for node in made["linux"]["devices"] if node["path"] == "/dev/nvidia0"] == [own]


def test_what_the_bundle_mounts_at_a_place_of_the_plans_stays() -> None:
    own = {"destination": LIBCUDA, "type": "bind", "source": "/mine/libcuda.so", "options": ["bind"]}
    made = make(bundle(mounts=[own]))
    there = [mount for mount in json.loads(made.document)["mounts"] if mount["destination"] == LIBCUDA]
    assert there == [own]
    assert [finding.code for finding in made.findings] == ["no-mount-point"]


def test_the_same_file_at_the_same_place_is_bound_once_and_nothing_is_said() -> None:
    own = {"destination": LIBCUDA, "type": "bind", "source": SOURCE, "options": ["bind"]}
    made = make(bundle(mounts=[own]))
    assert made.document.count(f'"{LIBCUDA}"') == 1
    assert made.findings == ()


def test_nothing_optional_is_made_inside_a_bind_of_the_bundles() -> None:
    own = {"destination": "/usr/share", "type": "bind", "source": "share", "options": ["bind"]}
    made = make(bundle(mounts=[own]))
    assert ICD not in mounts(json.loads(made.document))
    assert ICD in {decision.target for decision in made.decisions}


def test_a_place_that_cannot_be_made_is_not_asked_for() -> None:
    here: Spec = {GPUBIND_DIRECTORY: Dir()}
    assert ICD not in mounts(edited(bundle(is_writable=False), more=here))
    assert ICD in mounts(edited(bundle(is_writable=False), more={**here, ICD: ""}))
    assert LIBCUDA in mounts(edited(bundle(is_writable=False), more=here))


def test_a_root_file_system_with_no_place_for_ours_is_told_before_the_start() -> None:
    with pytest.raises(RuntimeLimitError) as caught:
        make(bundle(is_writable=False))
    assert caught.value.code == "read-only-rootfs"


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ((), "/.gpubind/libs"),
        (("LD_LIBRARY_PATH=/own",), "/.gpubind/libs:/own"),
        (("LD_LIBRARY_PATH=",), "/.gpubind/libs"),
        (("LD_LIBRARY_PATH=:/own::/x:",), "/.gpubind/libs:/own:/x"),
        (("LD_LIBRARY_PATH=/own:/.gpubind/libs",), "/.gpubind/libs:/own"),
        (("LD_LIBRARY_PATH=/a", "LD_LIBRARY_PATH=/b"), "/.gpubind/libs:/b"),
    ],
)
def test_the_bundles_own_library_path_is_kept_behind_ours(lines: tuple[str, ...], value: str) -> None:
    assert variables(edited(bundle(**with_env(*lines))))["LD_LIBRARY_PATH"] == value


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (("PATH=/bin",), "/bin:/.gpubind/bin"),
        ((), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/.gpubind/bin"),
    ],
)
def test_programs_come_last_in_path(lines: tuple[str, ...], value: str) -> None:
    assert variables(edited(bundle(**with_env(*lines))))["PATH"] == value


def test_a_default_gives_way_to_the_bundles_own_value_and_a_variable_can_go() -> None:
    env = (
        EnvVar("A", "default", "ours", None, "test"),
        EnvVar("B", "default", "ours", None, "test"),
        EnvVar("C", "unset", None, None, "test"),
        EnvVar("D", "set", "ours", None, "test"),
    )
    made = edited(bundle(**with_env("A=own", "C=own", "D=own")), planned()._replace(env=env))
    assert variables(made) == {"A": "own", "B": "ours", "D": "ours"}


def test_limits_and_user_are_the_users() -> None:
    process = {**config()["process"], "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 9, "soft": 9}], "user": {"uid": 7}}
    made = edited(bundle(process=process))["process"]
    assert (made["rlimits"], made["user"]) == (process["rlimits"], process["user"])


@pytest.mark.parametrize("own", [bundle(), bundle(linux=ROOTLESS), bundle(**with_env("LD_LIBRARY_PATH=/own"))])
def test_to_edit_twice_is_to_edit_once(own: Bundle) -> None:
    once = make(own).document
    again = parse_bundle(once.encode())._replace(directory=own.directory)
    assert make(again).document == once


@pytest.mark.parametrize("name", ["ü {}", 'quote"', "back\\slash", "new\nline", "a,b:c", "\x7f"])
def test_a_hostile_name_stays_byte_for_byte(name: str) -> None:
    made = planned()
    mount = next(mount for mount in made.mounts if mount.target == LIBCUDA)
    odd = mount._replace(source=HostPath(f"/x/{name}"), target=ContainerPath(f"/.gpubind/libs/{name}"))
    found = mounts(edited(made=made._replace(mounts=(odd,))))
    assert found[f"/.gpubind/libs/{name}"]["source"] == f"/x/{name}"


@pytest.mark.parametrize(("source", "target"), [("/x/\udcff", LIBCUDA), ("/x", "/.gpubind/libs/\udcff")])
def test_a_path_that_is_not_utf8_cannot_be_said(source: str, target: str) -> None:
    made = planned()
    odd = made.mounts[0]._replace(source=HostPath(source), target=ContainerPath(target))
    with pytest.raises(RuntimeLimitError) as caught:
        make(made=made._replace(mounts=(odd,)))
    assert (caught.value.code, caught.value.exit_code) == ("unsupported-path", 6)


def test_a_value_that_is_not_utf8_cannot_be_said() -> None:
    env = (EnvVar("A", "set", "\udcff", None, "test"),)
    with pytest.raises(RuntimeLimitError) as caught:
        make(made=planned()._replace(env=env))
    assert caught.value.code == "unsupported-value"


def test_the_command_runs_a_bundle_of_its_own() -> None:
    own = bundle()
    called = call("exec", "ls", "-l", unique_name="7-ab", stdin_is_terminal=True)
    made = CRUN.start_command(called, start(own), make(own))
    assert made.argv == ("/usr/bin/crun", "run", "--bundle", STAGED_DIRECTORY, "gpubind-7-ab")
    process = started(made)["process"]
    assert (process["args"], process["terminal"]) == (["ls", "-l"], True)
    assert started(made)["root"]["path"] == "/srv/bundle/rootfs"


def test_run_starts_what_the_bundle_runs_and_shell_a_shell() -> None:
    own, made = bundle(), make()
    assert started(CRUN.start_command(call("run", "-l"), start(own), made))["process"]["args"] == ["sh", "-l"]
    assert started(CRUN.start_command(call("shell"), start(own), made))["process"]["args"] == ["/bin/sh"]
    bash = start(own, tree=image(glibc(), {"/usr/bin/bash": ""}).tree)
    assert started(CRUN.start_command(call("shell", "-l"), bash, made))["process"]["args"] == [
        "/bin/bash",
        "-l",
    ]


def test_a_word_of_the_command_that_is_not_utf8_cannot_be_said() -> None:
    with pytest.raises(RuntimeLimitError):
        CRUN.start_command(call("exec", "\udcff"), start(bundle()), make())


def test_the_users_words_stand_where_the_runtime_reads_them() -> None:
    arguments = ("--root", "/r", "--no-pivot", "--pid-file", "/p", "--debug", "--preserve-fds=3")
    made = CRUN.start_command(call("exec", "x"), start(bundle(), arguments=arguments), make())
    options = ("--no-pivot", "--pid-file", "/p", "--preserve-fds=3", "gpubind-ID")
    assert made.argv[1:] == ("--root", "/r", "--debug", "run", "--bundle", STAGED_DIRECTORY, *options)


def test_the_beginning_of_an_option_of_run_stands_after_run() -> None:
    begun = start(bundle(), arguments=("--deb", "--de"))  # --debug of crun itself, --detach of `run`
    made = CRUN.start_command(call("exec", "x"), begun, make())
    assert made.argv[1:] == ("--deb", "run", "--bundle", STAGED_DIRECTORY, "--de", "gpubind-ID")


@pytest.mark.parametrize(("program", "option"), [("runc", "-pid-file"), ("crun", "--pid-f"), ("crun", "--pid-file")])
def test_an_option_of_run_is_known_in_each_of_its_spellings(program: str, option: str) -> None:
    runtime = RUNTIMES[program]
    begun = start(bundle(), arguments=(option, "/p", "--root=/r"))._replace(runtime=runtime)
    made = runtime.start_command(call("exec", "x"), begun, make())
    assert made.argv[1:] == ("--root=/r", "run", "--bundle", STAGED_DIRECTORY, option, "/p", "gpubind-ID")


def test_what_the_bundle_binds_is_looked_at() -> None:
    own = bundle(mounts=[{"destination": "/data", "type": "bind", "source": "data"}, {"destination": "/proc"}])
    found = RUNTIMES["runc"].base_mounts(planned(), start(own))
    assert found is not None
    assert [(bind.source, bind.target) for bind in found.binds] == [("/srv/bundle/data", "/data")]


def write_bundle(directory: Path, text: Optional[str] = None, **more: Any) -> Path:
    (directory / "rootfs/usr/bin").mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config(**more)) if text is None else text)
    return directory


def gpubind(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    around = {
        "PATH": "/usr/bin:/bin",
        "GPUBIND_MEMO": "off",
        **{k: v for k, v in os.environ.items() if k == "PYTHONPATH"},
        **env,
    }
    return run_forked(arguments, around)


def test_a_bundle_is_an_image(tmp_path: Path) -> None:
    opened = open_image(str(write_bundle(tmp_path, **with_env("LD_LIBRARY_PATH=/own", "HOME=/x"))))
    assert opened.facts.kind == "bundle"
    assert opened.facts.env == {"LD_LIBRARY_PATH": "/own"}
    assert opened.tree.root == str(tmp_path / "rootfs")
    assert opened.bundle is not None
    assert opened.bundle.directory == str(tmp_path)


def test_a_bundle_without_its_root_file_system_is_told_apart_from_one_that_nobody_could_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(tmp_path, root={"path": "gone"})
    with pytest.raises(HostReadError) as caught:
        open_image(str(tmp_path))
    assert (caught.value.code, caught.value.where) == ("no-image", str(tmp_path / "gone"))
    assert caught.value.hint == "root.path of config.json names it"
    real = os.stat

    def stat(path: Any, **named: Any) -> os.stat_result:
        if path == str(tmp_path / "gone/."):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, **named)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(UnseenError):
        open_image(str(tmp_path))


def test_a_root_file_system_with_a_config_json_is_no_bundle(tmp_path: Path) -> None:
    write_bundle(tmp_path / "rootfs", "no json")
    (tmp_path / "rootfs/usr").mkdir()
    assert open_image(str(tmp_path / "rootfs")).facts.kind == "directory"


def test_the_format_edits_in_place_and_twice_is_once(tmp_path: Path) -> None:
    config_json = write_bundle(tmp_path) / "config.json"
    words = ("plan", "--host", "debian13-nvidia550", "--format", "oci", "--image", str(tmp_path), "-q")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    printed = gpubind(*words, **cache)
    assert printed.stderr == ""
    gpubind(*words, "-o", str(config_json), **cache)
    once = config_json.read_text()
    assert once == printed.stdout
    gpubind(*words, "-o", str(config_json), **cache)
    assert config_json.read_text() == once
    assert "/usr/share/vulkan/icd.d/nvidia_icd.json" in mounts(json.loads(once))


@pytest.mark.parametrize(
    ("text", "code", "status"), [("{", "bad-bundle", 5), ('{"ociVersion": "1.0"}', "bad-bundle", 5)]
)
def test_a_malformed_bundle_is_named_with_the_place(tmp_path: Path, text: str, code: str, status: int) -> None:
    write_bundle(tmp_path, text)
    done = gpubind("plan", "--host", "debian13-nvidia550", "--format", "oci", "--image", str(tmp_path))
    assert (done.returncode, code in done.stderr) == (status, True)
    assert f"{tmp_path}/config.json: " in done.stderr


def test_the_format_wants_a_bundle(tmp_path: Path) -> None:
    for image_words in ((), ("--image", str(tmp_path))):
        done = gpubind("plan", "--host", "debian13-nvidia550", "--format", "oci", *image_words)
        assert (done.returncode, "format-without-image" in done.stderr) == (2, True)


def test_each_runtime_is_given_what_it_starts(tmp_path: Path) -> None:
    """A bundle for crun and runc alone, and these nothing else; `auto` knows."""
    write_bundle(tmp_path / "bundle")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bwrap", "crun"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    env = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path)}
    words = ("exec", "--dry-run", "-q", "--host", "debian13-nvidia550")
    wrong = gpubind(*words, "--backend", "bwrap", str(tmp_path / "bundle"), "/x", **env)
    assert (wrong.returncode, "no-image" in wrong.stderr) == (125, True)
    wrong = gpubind(*words, "--backend", "crun", str(tmp_path / "bundle/rootfs"), "/x", **env)
    assert (wrong.returncode, "no-image" in wrong.stderr) == (125, True)
    done = gpubind(*words[:-2], "--gpus", "none", "--backend", "auto", str(tmp_path / "bundle"), "x", **env)
    assert "no-such-command" in done.stderr
    done = gpubind(*words[:-2], "--gpus", "none", "--backend", "auto", str(tmp_path / "bundle"), "/usr", **env)
    assert (done.returncode, "not-executable" in done.stderr) == (126, True)


def test_a_container_of_an_engine_has_the_layout_of_a_cdi_spec() -> None:
    runtime = EngineRuntime("runc", ("/opt/lib",))
    for architecture, name in ((None, "x86_64"), ("aarch64", "aarch64")):
        layout = cdi_layout(name, ("/opt/lib",))._replace(adds_variables=True)
        assert runtime.layout(start_by("runc", architecture=architecture)) == layout


@pytest.mark.parametrize(
    ("env", "gets_managers"),
    [((), False), (("NVIDIA_MIG_CONFIG_DEVICES=",), False), (("NVIDIA_MIG_CONFIG_DEVICES=all",), True),
     (("NVIDIA_MIG_MONITOR_DEVICES=all",), True)],
)  # fmt: skip
def test_a_container_of_an_engine_manages_mig_only_on_request(env: tuple[str, ...], gets_managers: bool) -> None:
    made = planned()
    managers = tuple(
        made.devices[0]._replace(target=ContainerPath(path), source=HostPath(path))
        for path in ("/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2", "/dev/nvidia-caps/nvidia-cap3")
    )
    choices = tuple(EnvVar(rule, "set", "1", None, rule) for rule in ("gpus", "handed-on", "cdi"))
    made = made._replace(devices=managers, env=choices)
    begun = start(bundle(**with_env(*env)), tree=image(glibc()).tree, is_root=False)
    found = EngineRuntime("runc", ()).arguments(made, begun)
    assert found is not None
    document = json.loads(found.document)
    nodes = [place for place in mounts(document) if place.startswith("/dev/nvidia-caps/")]
    assert nodes == [node.target for node in (managers if gets_managers else managers[2:])]
    assert dict(found.env) == {"cdi": "1"}
