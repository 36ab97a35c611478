"""Containers of docker and podman that are started again after a change of the driver."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, Optional

import pytest

from gpubind import plan
from gpubind.documents.mounts.cdi import render_cdi
from gpubind.inventory.cdi.specs import read_registry
from gpubind.launch.lasting import _names, restart_severity
from gpubind.model import Request
from gpubind.planner.placement import cdi_layout
from tests.support.driver import V, host, kernel, rhel
from tests.support.elf import elf
from tests.support.forked import run_forked, trusted_programs
from tests.support.images import glibc
from tests.support.starts import start
from tests.support.trees import make_tree

PROGRAM = """#!/bin/sh
case "$*" in
--version) echo "VERSION" ;;
"info --format "*) echo 'DIRECTORIES' ;;
*) echo "Error: No such image: img" >&2; exit 1 ;;
esac
"""
VERSIONS = {
    "docker": "Docker version 28.5.2, build x",
    "dockerd": "Docker version 28.5.2, build x",
    "podman": "podman version 5.4.2",
}
BOTH = pytest.mark.parametrize("engine", ["docker", "podman"])


class Machine(NamedTuple):
    """A directory with a driver, a docker and a podman."""

    directory: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        before = trusted_programs(f"{self.directory}/bin")
        environ = {"PATH": f"{self.directory}/bin:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
        roots = ("--root", f"{self.directory}/driver", "--dev-root", f"{self.directory}/host")
        words = (words[0], *roots, *words[1:])
        environ |= {"GPUBIND_MEMO": "off", "HOME": str(self.directory)}
        return run_forked(words, environ, self.directory, "gpubind.cli.main", before)

    def wrapped(self, line: str, *options: str) -> tuple[list[str], str]:
        """The words that *line* becomes, and the messages about the container's life."""
        done = self.run("wrap", "-v", "--dry-run", *options, "--", *line.split())
        assert done.returncode == 0, done.stderr
        told = "".join(part for part in done.stderr.splitlines(True) if "container-outlives-driver" in part)
        return shlex.split(done.stdout.replace("\\\n", " ")), told

    def write_spec(self, name: str = "gpubind.json") -> Path:
        file = self.directory / "host/etc/cdi" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.run("plan", "-q", "--nv", "--format", "cdi").stdout)
        return file


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bin").mkdir()
    make_tree(tmp_path / "driver", rhel())
    (tmp_path / "host/dev").mkdir(parents=True)
    for name, version in VERSIONS.items():
        program = tmp_path / "bin" / name
        program.write_text(PROGRAM.replace("VERSION", version).replace("DIRECTORIES", '["/etc/cdi"]'))
        program.chmod(0o755)
    return Machine(tmp_path)


LASTING = ("create", "create --rm", "run -d", "run --detach=true", "run --restart=always", "run --name box")
ENDING = ("run --rm", "run -d --rm", "run -it --rm --restart=no")


@BOTH
@pytest.mark.parametrize("start", LASTING)
def test_a_container_that_stays_gets_a_cdi_device_where_a_spec_has_one(
    machine: Machine, engine: str, start: str
) -> None:
    machine.write_spec()
    words, told = machine.wrapped(f"{engine} {start} -v /a:/b --gpus all img true")
    at = words.index("/a:/b") + 1
    assert words[:at] == [engine, *start.split(), "-v", "/a:/b"]
    assert words[at:] == ["--device", "nvidia.com/gpu=all", "--env", "NVIDIA_VISIBLE_DEVICES=void", "img", "true"]
    assert told == ""


@BOTH
@pytest.mark.parametrize("start", ENDING)
def test_a_container_that_is_removed_at_its_end_gets_the_plan(machine: Machine, engine: str, start: str) -> None:
    machine.write_spec()
    words, told = machine.wrapped(f"{engine} {start} --gpus all img true")
    assert any("libcuda.so" in word for word in words)
    assert told == ""


@BOTH
@pytest.mark.parametrize("start", LASTING)
def test_without_a_spec_it_is_told_that_an_update_of_the_driver_ends_the_container(
    machine: Machine, engine: str, start: str
) -> None:
    words, told = machine.wrapped(f"{engine} {start} --gpus all img true")
    assert any(f"libcuda.so.{V}" in word for word in words)
    severity = "note" if start in ("run --name box", "create --rm") else "warning"
    what = f"the container keeps paths of driver {V}, and will not start after an update has removed them"
    assert told == f"{severity}: container-outlives-driver: {what}\n"


def test_a_spec_that_does_not_give_the_container_what_the_plan_requires_is_not_used(machine: Machine) -> None:
    file = machine.write_spec()
    whole: dict[str, Any] = json.loads(file.read_text())

    def is_used(**changed: Any) -> bool:
        spec = json.loads(json.dumps(whole))
        spec.update(changed.pop("top", {}))
        spec["containerEdits"].update(changed)
        file.write_text(json.dumps(spec))
        words, told = machine.wrapped("podman create --gpus all img")
        assert ("nvidia.com/gpu=all" in words) == (told == "")
        return "nvidia.com/gpu=all" in words

    mounts = (whole.get("containerEdits") or {}).get("mounts") or whole["devices"][-1]["containerEdits"]["mounts"]
    assert is_used(mounts=mounts)
    gone = [{**mounts[0], "hostPath": "/usr/lib64/libcuda.so.1.2.3"}]
    assert not is_used(mounts=[*mounts, *gone])
    hook = {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook"]}
    assert not is_used(mounts=mounts, hooks=[hook])  # which is not installed
    program = machine.directory / f"host{hook['path']}"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.touch(0o755)
    assert is_used(mounts=mounts, hooks=[hook])
    assert not is_used(mounts=mounts, top={"cdiVersion": "1.1.0"})  # podman 5.4 reads 0.8.0
    assert not is_used(mounts=mounts, top={"kind": "amd.com/gpu"})


def test_the_nodes_of_gpus_decide_which_device_it_is_and_no_others() -> None:
    bare = host(rhel(), kernel())
    spec = json.loads(render_cdi(plan(bare, Request(), layout=cdi_layout("x86_64")), {}))

    def names(*more: str) -> list[str]:
        made = json.loads(json.dumps(spec))
        for device in made["devices"]:
            device["containerEdits"]["deviceNodes"] += [{"path": path} for path in more]
        there = host(rhel(), kernel(), {"/etc/cdi/gpubind.json": json.dumps(made)})
        return list(_names(read_registry(there), plan(there, Request(gpus="1")), "nvidia"))

    assert names() == names("/dev/dri/renderD129") == ["nvidia.com/gpu=1"]
    assert names("/dev/nvidia0") == []


def test_a_named_capability_needs_no_opencl_loader_of_the_host_in_the_spec(machine: Machine) -> None:
    make_tree(machine.directory / "driver", {"/usr/lib64/nvidia/libOpenCL.so.1": elf("libOpenCL.so.1")})
    make_tree(machine.directory / "image", glibc())
    line = f"podman create --gpus all --rootfs {machine.directory}/image true"
    # podman's --gpus takes whole CDI devices, of which only the user's own --caps chooses a part.
    options = ("--caps", "compute,utility", "--library-path", "/usr/lib64/nvidia")
    words, _ = machine.wrapped(line, *options)
    assert any("libOpenCL.so.1" in word for word in words)
    machine.write_spec()
    words, told = machine.wrapped(line, *options)
    assert ("nvidia.com/gpu=all" in words, told) == (True, "")


def test_a_docker_that_reads_no_specs_gets_the_plan(machine: Machine) -> None:
    machine.write_spec()
    program = machine.directory / "bin/docker"
    for answer in ("null", "[]", "", "broken"):
        program.write_text(PROGRAM.replace("VERSION", VERSIONS["docker"]).replace("DIRECTORIES", answer))
        words, told = machine.wrapped("docker create --gpus all img")
        assert any("libcuda.so" in word for word in words)
        assert "container-outlives-driver" in told


def test_lines_whose_nodes_are_the_users_and_nerdctls_keep_the_plan(machine: Machine) -> None:
    machine.write_spec()
    for line, why in (
        ("podman --cdi-spec-dir /mine create --gpus all img", "such a line"),
        ("nerdctl create --gpus all img", "this engine, or for these vendors"),
    ):
        done = machine.run("wrap", "-v", "--dry-run", "--", *line.split())
        assert (done.returncode, "nvidia.com/gpu=all" in done.stdout) == (0, False)
        assert "warning: container-outlives-driver" in done.stderr
        assert f"no CDI device takes the place of paths: gpubind uses none for {why}\n" in done.stderr


def test_exec_removes_its_container_unless_the_user_keeps_it(machine: Machine) -> None:
    machine.write_spec()
    for own, is_used in (((), False), (("--restart=always",), True), (("--rm=false",), True), (("-d",), False)):
        done = machine.run("exec", "--dry-run", "--backend", "podman", "--", *own, "img", "true")
        assert (done.returncode, "nvidia.com/gpu=all" in done.stdout) == (0, is_used)


@pytest.mark.parametrize(
    ("gpus", "names"),
    [(None, ["all"]), ("all", ["all"]), ("1", ["1"]), ("0,1", ["0", "1"]), ("minor:1", ["1"]), ("none", [])],
)
def test_the_devices_have_exactly_the_gpus_of_the_plan(gpus: Optional[str], names: list[str]) -> None:
    bare = host(rhel(), kernel())
    spec = render_cdi(plan(bare, Request(), layout=cdi_layout("x86_64")), {})
    there = host(rhel(), kernel(), {"/etc/cdi/gpubind.json": spec})
    made = plan(there, Request(gpus=gpus))
    assert list(_names(read_registry(there), made, "nvidia")) == [f"nvidia.com/gpu={name}" for name in names]


@pytest.mark.parametrize(
    ("words", "is_created", "severity"),
    [
        ((), False, "note"),
        ((), True, "warning"),
        (("-d",), False, "warning"),
        (("--restart=no",), False, "note"),
        (("--restart=unless-stopped",), False, "warning"),
        (("--rm",), True, "note"),
        (("--rm",), False, None),
        (("--rm=false", "-d"), False, "warning"),
    ],
)
def test_what_is_created_for_later_is_told_louder(
    words: tuple[str, ...], is_created: bool, severity: Optional[str]
) -> None:
    begun = start(*words, program="docker", version=None)
    assert restart_severity(begun, "created" if is_created else "kept") == severity


@pytest.mark.parametrize(
    ("program", "words", "severity"),
    [
        ("docker", (), None),
        ("podman", ("-d",), None),
        ("docker", ("--restart=always",), "warning"),
        ("podman", ("--rm=false",), "note"),
        ("apptainer", (), None),
    ],
)
def test_exec_removes_a_container_unless_the_user_keeps_it(
    program: str, words: tuple[str, ...], severity: Optional[str]
) -> None:
    assert restart_severity(start(*words, program=program, version=None), "removed") == severity
