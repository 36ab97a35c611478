"""The config.json of an engine's container, before and after."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpubind.errors import CheckError, FormatError, GpubindError, NothingToBindError, UsageError
from gpubind.formats.archive.bundle import ANNOTATION, SIZE_LIMIT
from gpubind.host import Host
from gpubind.launch.oci.edit import edit_bundle
from gpubind.model import CudaNote, Finding
from gpubind.model.notice import Message
from tests.launch.oci.bundles import bundle, config, edit, machine, request
from tests.planner.cases_compat import COMPAT, package
from tests.support.amd import mi300x
from tests.support.driver import V, host, kernel, rhel
from tests.support.trees import Fifo, Link, Node, Spec

LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
ALL = "NVIDIA_VISIBLE_DEVICES=all"


def mounts(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["destination"]: mount for mount in document["mounts"]}


def nodes(document: dict[str, Any]) -> list[str]:
    return sorted(node["path"] for node in document["linux"].get("devices", []))


def test_a_container_without_a_request_stays_byte_for_byte(tmp_path: Path) -> None:
    path = bundle(tmp_path, config("A=b"))
    before = path.read_bytes(), path.stat().st_ino
    assert not edit_bundle(request(), str(path.parent), str(path), "runc", machine)
    assert (path.read_bytes(), path.stat().st_ino) == before


def test_libraries_land_where_the_loader_of_the_image_looks_and_no_variable_is_set(tmp_path: Path) -> None:
    """A later process of the container, of `docker exec`, has no variables of config.json."""
    document = edit(bundle(tmp_path, config(ALL)))
    assert mounts(document)[LIBCUDA]["options"] == ["bind", "ro", "nosuid", "nodev"]
    assert document["process"]["env"] == ["PATH=/usr/bin:/bin", ALL]
    assert nodes(document)[-2:] == ["/dev/nvidia1", "/dev/nvidiactl"]


def test_an_images_forward_compatibility_comes_first_as_with_nvidias_toolkit(tmp_path: Path) -> None:
    """The data centre's GPU of the host has driver 550, and the image is for CUDA 13."""
    note = CudaNote("13.1", (535, 550, 570, 575, 580, 590))
    image = {**package("590.44.01", note), "/usr/local/cuda/version.json": '{"cuda": {"version": "13.1"}}'}
    document = edit(bundle(tmp_path, config(ALL, "LD_LIBRARY_PATH=/opt/lib"), image))
    assert f"LD_LIBRARY_PATH={COMPAT}:/opt/lib" in document["process"]["env"]


def test_only_the_nodes_choose_and_the_users_variable_stays(tmp_path: Path) -> None:
    own = "CUDA_VISIBLE_DEVICES=0"
    document = edit(bundle(tmp_path, config("NVIDIA_VISIBLE_DEVICES=1", own)))
    assert "/dev/nvidia0" not in nodes(document)
    assert "/dev/nvidia1" in nodes(document)
    assert document["process"]["env"][1:] == ["NVIDIA_VISIBLE_DEVICES=1", own]


def test_none_brings_the_driver_without_a_gpu(tmp_path: Path) -> None:
    document = edit(bundle(tmp_path, config("NVIDIA_VISIBLE_DEVICES=none")))
    assert LIBCUDA in mounts(document)
    assert nodes(document) == []


def test_mode_and_owner_of_the_configuration_stay(tmp_path: Path) -> None:
    path = bundle(tmp_path, config(ALL))
    path.chmod(0o640)
    edit(path)
    assert (path.stat().st_mode & 0o7777, path.stat().st_uid) == (0o640, os.geteuid())
    assert sorted(os.listdir(tmp_path)) == ["config.json", "rootfs"]


def test_what_gpubind_does_not_know_stays(tmp_path: Path) -> None:
    more = {"hostname": "x", "linux": {"seccomp": {"x": 1}, "maskedPaths": ["/proc/keys"]}, "hooks": {"poststop": []}}
    document = edit(bundle(tmp_path, config(ALL, **more)))
    assert (document["hostname"], document["hooks"]) == ("x", {"poststop": []})
    assert document["linux"]["maskedPaths"] == ["/proc/keys"]
    assert document["linux"]["seccomp"] == {"x": 1}


def test_the_hook_that_docker_adds_for_its_option_is_replaced_by_the_plan(tmp_path: Path) -> None:
    other = {"path": "/usr/bin/other"}
    hooks = {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook", "args": ["x", "prestart"]}, other]}
    document = edit(bundle(tmp_path, config(ALL, hooks=hooks)))
    assert document["hooks"]["prestart"] == [other]


def test_an_annotation_in_the_form_of_ours_takes_nothing_back(tmp_path: Path) -> None:
    """Podman copies the annotations of an image into config.json."""
    text = json.dumps({"added": [[["linux", "maskedPaths"], ["/proc/keys"]]], "env": []})
    linux = {"maskedPaths": ["/proc/keys"]}
    document = edit(bundle(tmp_path, config(ALL, linux=linux, annotations={ANNOTATION: text})))
    assert document["linux"]["maskedPaths"] == ["/proc/keys"]
    assert document["annotations"] == {ANNOTATION: text}


def test_a_node_that_is_open_to_a_group_gives_the_process_that_group(tmp_path: Path) -> None:
    path = bundle(tmp_path, config(ALL))
    closed = {**kernel(), "/dev/nvidia0": Node("char", 195, 0, 0o660, 0, 44)}
    edit_bundle(
        request(), str(path.parent), str(path), "runc", lambda variables: host(rhel(), closed, euid=0, groups=(0,))
    )
    assert json.loads(path.read_text())["process"]["user"]["additionalGids"] == [44]


def test_dockers_option_brings_amds_gpus_where_there_are_no_others(tmp_path: Path) -> None:
    hooks = {"prestart": [{"path": "/usr/local/sbin/nvidia-container-runtime-hook"}]}
    path = bundle(tmp_path, config("NVIDIA_VISIBLE_DEVICES=0", hooks=hooks))
    edit_bundle(request(), str(tmp_path), str(path), "runc", lambda variables: mi300x())
    targets = {mount["destination"] for mount in json.loads(path.read_text())["mounts"]}
    assert "/dev/kfd" in targets
    assert len([target for target in targets if "/dev/dri/renderD" in target]) == 1


@pytest.mark.parametrize("gone", ["/sys/module/nvidia/version", "/dev/nvidiactl"])
def test_dockers_option_brings_nvidias_gpus_where_its_driver_is_there(tmp_path: Path, gone: str) -> None:
    """Processors with graphics of AMD's have /dev/kfd, too."""
    version = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {V}  Thu Jan  1 00:00:00 UTC 1970\n"
    spec = {**kernel(), "/dev/kfd": Node("char", 236, 0), "/proc/driver/nvidia/version": version}
    spec.pop(gone)
    hooks = {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}
    path = bundle(tmp_path, config("NVIDIA_VISIBLE_DEVICES=all", hooks=hooks))
    edit_bundle(request(), str(tmp_path), str(path), "runc", lambda variables: host(rhel(), spec, euid=0))
    assert LIBCUDA in mounts(json.loads(path.read_text()))


def test_amds_variable_chooses_nodes(tmp_path: Path) -> None:
    path = bundle(tmp_path, config("AMD_VISIBLE_DEVICES=0-1"))
    edit_bundle(request(), str(tmp_path), str(path), "runc", lambda variables: mi300x())
    document = json.loads(path.read_text())
    targets = {mount["destination"] for mount in document["mounts"]}
    assert len([target for target in targets if "/dev/dri/renderD" in target]) == 2
    assert document["process"]["env"] == ["PATH=/usr/bin:/bin", "AMD_VISIBLE_DEVICES=0-1"]


def test_the_links_of_a_hostile_image_lead_nowhere_out_of_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    image: Spec = {
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1": Link(str(outside / "libcuda.so.1")),
        "/usr/lib/x86_64-linux-gnu/nvidia": Link("../../../../../../../outside"),
        "/etc/ld.so.cache": Fifo(),
        "/usr/share/vulkan": Link("/proc/self/root"),
    }
    document = edit(bundle(tmp_path, config(ALL), image))
    assert LIBCUDA in mounts(document)
    assert list(outside.iterdir()) == []
    assert not any(str(outside) in mount["source"] for mount in document["mounts"])


def test_a_link_in_the_place_of_the_configuration_is_refused(tmp_path: Path) -> None:
    path = bundle(tmp_path, config(ALL))
    path.rename(tmp_path / "other.json")
    path.symlink_to("other.json")
    before = (tmp_path / "other.json").read_bytes()
    with pytest.raises(GpubindError, match=r"config\.json"):
        edit(path)
    assert (tmp_path / "other.json").read_bytes() == before


HOSTILE = {
    "a key twice": '{"process": {}, "process": {}}',
    "a key in two cases": '{"ociVersion": "1", "process": {}, "Process": {}, "root": {"path": "r"}}',
    "a long number": '{"ociVersion": "1", "process": {}, "root": {"path": "r"}, "x": ' + "9" * 5000 + "}",
    "nested": '{"process": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "no object": "[]",
    "cut off": '{"process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]',
    "wrong type": '{"ociVersion": "1", "process": {"env": "NVIDIA_VISIBLE_DEVICES=all"}, "root": {"path": "r"}}',
    "too large": " " * (SIZE_LIMIT + 1),
    "half a character": '{"ociVersion": "1", "process": {"env": ["A=\\ud800"]}, "root": {"path": "r"}}',
    "annotations": '{"ociVersion": "1", "process": {}, "root": {"path": "r"}, "annotations": ["cdi.k8s.io/x"]}',
    "a NUL": '{"ociVersion": "1", "process": {"env": ["A=\\u0000"]}, "root": {"path": "r"}}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_malformed_configuration_is_an_error_and_stays_as_it_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(HOSTILE[name])
    with pytest.raises(FormatError, match="bad-bundle") as caught:
        edit(path)
    assert str(path) in caught.value.where
    assert path.read_text() == HOSTILE[name]


def test_without_its_gpu_no_container_starts(tmp_path: Path) -> None:
    path = bundle(tmp_path, config(ALL))
    before = path.read_bytes()
    with pytest.raises(NothingToBindError):
        edit_bundle(request(), str(path.parent), str(path), "runc", lambda variables: host({}, euid=0))
    with pytest.raises(CheckError, match="gpu-required"):
        edit_bundle(request(), str(path.parent), str(path), "runc", lambda variables: host(rhel(), euid=0))
    path.write_text(path.read_text().replace("DEVICES=all", "DEVICES=7"))
    with pytest.raises(UsageError, match=r"unknown-gpu.*NVIDIA_VISIBLE_DEVICES=7"):
        edit(path)
    assert path.read_bytes() == before.replace(b"DEVICES=all", b"DEVICES=7")
    assert sorted(os.listdir(tmp_path)) == ["config.json", "rootfs"]


@pytest.mark.parametrize(
    "variables",
    [
        ["NVIDIA_VISIBLE_DEVICES=" + "x" * 5000],
        ["NVIDIA_VISIBLE_DEVICES=" + "7," * 2500],
        ["NVIDIA_VISIBLE_DEVICES=0", "AMD_VISIBLE_DEVICES=" + "x" * 5000],
        [ALL, "NVIDIA_DRIVER_CAPABILITIES=" + "x" * 5000],
        [ALL, "NVIDIA_MIG_CONFIG_DEVICES=" + "x" * 5000],
    ],
    ids=lambda variables: variables[-1][:28],
)
def test_an_error_repeats_only_the_beginning_of_a_long_value(tmp_path: Path, variables: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        edit(bundle(tmp_path, config(*variables)))
    assert len(str(caught.value)) < 1000
    assert variables[-1][:60] in str(caught.value)


NEWER = "NVIDIA_REQUIRE_CUDA=cuda>=99.0 brand=tesla,driver>=900"
HOOK = {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}
LEGACY = '[nvidia-container-runtime]\nmode = "legacy"\n'


@pytest.mark.parametrize(
    ("env", "hooks", "toolkit", "outcome"),
    [
        ([NEWER], HOOK, "", "stops"),
        ([NEWER], {}, LEGACY, "stops"),
        ([NEWER], {}, "", "warns"),
        ([NEWER], HOOK, "disable-require = true\n", "warns"),
        ([NEWER, "NVIDIA_DISABLE_REQUIRE=1"], HOOK, "", "starts"),
        (["NVIDIA_REQUIRE_CUDA=cuda>=12.0"], HOOK, "", "starts"),
        (["NVIDIA_REQUIRE_CUDA=brand=tesla"], HOOK, "", "starts"),
        (["NVIDIA_REQUIRE_JETPACK=csv-mounts=all"], HOOK, "", "starts"),
    ],
    ids=str,
)
def test_an_image_for_a_newer_driver_does_not_start_where_nvidias_hook_would_stop_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    env: list[str],
    hooks: dict[str, Any],
    toolkit: str,
    outcome: str,
) -> None:
    """In the mode that NVIDIA's runtime has by default, nothing compares the variables with the driver."""
    (tmp_path / "toolkit.toml").write_text(toolkit)
    monkeypatch.setattr("gpubind.launch.oci.edit.TOOLKIT_FILE", str(tmp_path / "toolkit.toml"))
    said: list[Message] = []
    path = bundle(tmp_path, config(ALL, *env, hooks=hooks))
    before = path.read_bytes()
    arguments = (request(said.append), str(tmp_path), str(path), "runc", machine)
    if outcome == "stops":
        with pytest.raises(CheckError, match=r"require-unsatisfied.*NVIDIA_REQUIRE_CUDA") as caught:
            edit_bundle(*arguments)
        assert "NVIDIA_DISABLE_REQUIRE=1" in caught.value.hint
        assert path.read_bytes() == before
        return
    assert edit_bundle(*arguments)
    found = [(one.code, one.severity) for one in said if isinstance(one, Finding) and one.severity != "note"]
    assert found == ([("require-unsatisfied", "warning")] if outcome == "warns" else [])


def test_a_request_for_no_gpu_starts_on_a_host_without_a_driver(tmp_path: Path) -> None:
    said: list[Message] = []
    path = bundle(tmp_path, config("NVIDIA_VISIBLE_DEVICES=none"))
    edit_bundle(request(said.append), str(path.parent), str(path), "runc", lambda variables: host({}, euid=0))
    assert [one.code for one in said if isinstance(one, Finding)] == ["nothing-to-bind"]


def test_a_full_disk_leaves_the_configuration_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bundle(tmp_path, config(ALL))
    before = path.read_bytes()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(GpubindError, match="unwritable-file"):
        edit(path)
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["config.json", "rootfs"]


def test_mounts_of_the_user_take_precedence(tmp_path: Path) -> None:
    own = {"destination": LIBCUDA, "type": "bind", "source": "/srv/mine.so", "options": ["bind"]}
    document = edit(bundle(tmp_path, config(ALL, mounts=[own])))
    assert [mount for mount in document["mounts"] if mount["destination"] == LIBCUDA] == [own]


@pytest.mark.parametrize(("variable", "privileged", "managers"), [("", False, 0), ("", True, 0), ("all", True, 2)])
def test_the_rights_over_mig_as_a_whole_are_for_containers_that_request_them(
    tmp_path: Path, variable: str, privileged: bool, managers: int
) -> None:
    env = [f"NVIDIA_MIG_CONFIG_DEVICES={variable}"] if variable else []
    path = bundle(tmp_path, config(ALL, *env))
    if privileged:
        document = json.loads(path.read_text())
        document["process"]["capabilities"] = {"bounding": ["CAP_SYS_ADMIN"]}
        path.write_text(json.dumps(document))
    managing = {f"/dev/nvidia-caps/nvidia-cap{number}": Node("char", 234, number, 0o400) for number in (1, 2)}
    spec = {
        **kernel(),
        **managing,
        "/proc/devices": "Character devices:\n195 nvidia\n234 nvidia-caps\n235 nvidia-uvm\n",
    }

    def open_host(variables: Mapping[str, str]) -> Host:
        return host(rhel(), spec, euid=0, environ=dict(variables))

    edit_bundle(request(), str(path.parent), str(path), "runc", open_host)
    found = [node for node in nodes(json.loads(path.read_text())) if node.startswith("/dev/nvidia-caps/")]
    assert len(found) == managers
