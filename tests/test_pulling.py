"""Images that the store of podman or docker does not have yet, with programs that play those and write down how."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from gpubind.errors import EXIT_NOT_STARTED
from gpubind.model.data import BUNDLED_HOSTS
from tests.support.driver import rhel
from tests.support.forked import run_forked, trusted_programs
from tests.support.images import glibc
from tests.support.layers import archive, docker_archive, packed, tar
from tests.support.trees import make_tree

ENV = ["PATH=/usr/bin", "LD_LIBRARY_PATH=/own", "NVIDIA_VISIBLE_DEVICES=all"]
PLAYER = """#!/bin/sh
cd DIRECTORY
name=$(basename "$0")
case "$*" in
--version) echo "$name version 26.1.5"; exit ;;
esac
echo "$name $*" >> calls
case "$*" in
version)
    test -e unreachable || exit 0
    echo "Client: Docker Engine"
    echo "Cannot connect to the Docker daemon at unix:///run/docker.sock." >&2; exit 1 ;;
"run "* | *" run "*) exit 42 ;;
*"image inspect "*)
    test -e unreachable && { echo "Cannot connect to the Docker daemon at unix:///run/docker.sock." >&2; exit 1; }
    test -e stored || { echo 'time="now" level=warning msg="old"' >&2; echo "Error: No such image: x" >&2; exit 1; }
    cat inspected ;;
*"pull "*)
    case "$*" in *--retry*) test -e old && exit 125 ;; esac
    echo "Pulling from library" >&2
    test -e offline && { echo "no route to registry" >&2; exit 1; }
    touch stored
    case "$name $*" in
    podman*) echo 0123abcd ;;
    *--quiet=true*) echo registry.example.org/library/x:latest ;;
    *) echo "Status: Downloaded" ;;
    esac ;;
*"image exists "*) test -e stored ;;
*"image mount "*) exit 125 ;;
*save*) cat saved ;;
*) exit 3 ;;
esac
"""


class Machine(NamedTuple):
    """A directory with both programs, one store for them, and a driver."""

    directory: Path

    def run(self, *words: str, host: str = "") -> subprocess.CompletedProcess[str]:
        before = trusted_programs(f"{self.directory}/bin")
        environ = {"PATH": f"{self.directory}/bin:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
        environ |= {"GPUBIND_MEMO": "off", "HOME": str(self.directory)}
        driver = str(self.directory / "driver")
        where = ["--host", host, "--dry-run"] if host else ["--root", driver, "--dev-root", driver]
        command = [words[0], *where, *words[1:]]
        return run_forked(command, environ, self.directory, "gpubind.cli.main", before)

    def has(self, *names: str) -> None:
        for name in names:
            (self.directory / name).touch()

    @property
    def calls(self) -> list[str]:
        return (self.directory / "calls").read_text().splitlines() if (self.directory / "calls").exists() else []

    @property
    def started(self) -> str:
        """The last call, which is to be the start."""
        assert " run " in self.calls[-1]
        return self.calls[-1]

    @property
    def pulls(self) -> list[str]:
        return [call for call in self.calls if " pull " in call]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "bin").mkdir()
    inspected = [{"Os": "linux", "Architecture": "amd64", "Config": {"Env": ENV}}]
    (tmp_path / "inspected").write_text(json.dumps(inspected))
    (tmp_path / "saved").write_bytes(archive(docker_archive([packed(tar(dict(glibc("2.36"))))], ENV)))
    make_tree(tmp_path / "driver", rhel())
    for name in ("podman", "docker"):
        program = tmp_path / "bin" / name
        program.write_text(PLAYER.replace("DIRECTORY", str(tmp_path)))
        program.chmod(0o755)
    return Machine(tmp_path)


def verbs(machine: Machine) -> list[str]:
    return [word for call in machine.calls for word in call.split() if word in ("inspect", "pull", "save", "run")]


KNOWN = "--env LD_LIBRARY_PATH=/.gpubind/libs:/own "
"""What only a plan can say that has seen the image."""
LINES = [
    ("wrap", "--", "docker", "run", "--gpus", "all", "new/image", "true"),
    ("wrap", "--", "podman", "run", "--gpus", "all", "new/image", "true"),
    ("exec", "--backend", "docker", "new/image", "true"),
    ("exec", "--backend", "podman", "new/image", "true"),
    ("wrap", "--", "docker", "run", "--runtime=nvidia", "new/image"),
]


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_an_image_that_is_not_there_is_pulled_and_then_looked_at(machine: Machine, line: tuple[str, ...]) -> None:
    done = machine.run(*line)
    assert (done.returncode, verbs(machine)) == (42, ["inspect", "pull", "inspect", "save", "run"]), done.stderr
    assert KNOWN in machine.started
    assert (done.stdout, "Pulling from library" in done.stderr) == ("", True)
    assert "image-unknown" not in done.stderr


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_an_image_that_is_there_is_not_pulled(machine: Machine, line: tuple[str, ...]) -> None:
    machine.has("stored")
    assert (machine.run(*line).returncode, verbs(machine)) == (42, ["inspect", "save", "run"])


@pytest.mark.parametrize(("program", "own", "is_looked_at"), [
    *[("docker", "--debug", True), ("podman", "--log-level=debug", True), ("podman", "--root=/other", False)],
    *[("docker", "--config=/other", False), ("docker", "--context=default", False)],
    ("docker", "--host=unix:///run/docker.sock", False),
])  # fmt: skip
def test_where_an_option_may_name_another_store_no_image_of_the_usual_one_is_looked_at(
    machine: Machine, program: str, own: str, is_looked_at: bool
) -> None:
    machine.has("stored")
    done = machine.run("wrap", "--", program, own, "run", "--gpus", "all", "new/image", "true")
    assert (done.returncode, verbs(machine)) == (42, ["inspect", "save", "run"] if is_looked_at else ["run"])


@pytest.mark.parametrize("program", ["docker", "podman"])
def test_pull_always_is_done_before_the_look_and_not_again(machine: Machine, program: str) -> None:
    machine.has("stored")
    done = machine.run("wrap", "--", program, "run", "--pull", "always", "--gpus", "all", "new/image", "true")
    assert (done.returncode, verbs(machine)) == (42, ["pull", "inspect", "save", "run"])
    assert machine.started.index("--pull always") < machine.started.index("--pull=never")
    assert machine.started.endswith(" --pull=never new/image true")


@pytest.mark.parametrize("program", ["docker", "podman"])
def test_with_pull_never_the_runtime_says_what_is_missing(machine: Machine, program: str) -> None:
    done = machine.run("exec", "--backend", program, "--", "--pull=never", "new/image", "true")
    assert (done.returncode, verbs(machine)) == (42, ["inspect", "run"])
    assert "note: image-unknown: " in done.stderr
    assert "level=warning" not in done.stderr
    assert KNOWN not in machine.started


def test_an_image_is_pulled_with_the_lines_own_options(machine: Machine) -> None:
    own = ("--tls-verify=false", "--authfile=/auth", "--creds", "me:secret", "-q", "--platform", "linux/amd64")
    machine.run("wrap", "--", "podman", "--log-level=debug", "run", *own, "--gpus=all", "-v/a:/b", "reg:5000/x", "true")
    assert machine.pulls == [
        "podman --log-level=debug pull --authfile=/auth --creds=me:secret --platform=linux/amd64 --quiet=true "
        "--tls-verify=false reg:5000/x"
    ]


def test_the_progress_of_a_pull_goes_where_the_runtimes_own_would_go(machine: Machine) -> None:
    done = machine.run("wrap", "--", "docker", "run", "--platform=linux/amd64", "--gpus=all", "x", "true")
    assert (done.stdout, done.stderr.splitlines()[:2]) == ("", ["Pulling from library", "Status: Downloaded"])
    (machine.directory / "stored").unlink()
    done = machine.run("wrap", "--", "docker", "run", "--quiet", "--gpus=all", "x", "true")
    assert (done.stdout, "registry.example.org" in done.stderr) == ("", False)
    assert machine.pulls == ["docker pull --platform=linux/amd64 x", "docker pull --quiet=true x"]


def test_what_podman_pulls_is_looked_at_by_its_id(machine: Machine) -> None:
    """A short name, a directory or an archive has another name in the store."""
    machine.run("wrap", "--", "podman", "run", "--gpus", "all", "dir:/images/x", "true")
    assert machine.calls[1:3] == ["podman pull dir:/images/x", "podman image inspect 0123abcd"]
    assert machine.started.endswith(" dir:/images/x true")


@pytest.mark.parametrize("line", LINES[:4], ids=" ".join)
def test_where_the_pull_fails_nothing_is_started(machine: Machine, line: tuple[str, ...]) -> None:
    machine.has("offline")
    done = machine.run(*line)
    assert (done.returncode, verbs(machine)) == (EXIT_NOT_STARTED, ["inspect", "pull"])
    assert "no route to registry\nerror: image-store: the image cannot be pulled\n" in done.stderr


def test_credentials_are_in_no_message(machine: Machine) -> None:
    machine.has("offline")
    done = machine.run("wrap", "--", "podman", "run", "--creds=me:secret", "--gpus=all", "x", "true")
    assert done.returncode == EXIT_NOT_STARTED
    assert "secret" not in done.stderr


NEWER = ("wrap", "--", "podman", "run", "--pull=newer", "--tls-verify=false", "--gpus=all", "x", "true")
QUIETLY = "podman pull --tls-verify=false --quiet --retry=0 x"


def test_a_newer_image_is_pulled_in_silence_and_the_start_does_not_pull_again(machine: Machine) -> None:
    machine.has("stored")
    done = machine.run(*NEWER)
    assert (done.returncode, "ull" in done.stderr, machine.pulls) == (42, False, [QUIETLY])
    assert "podman image inspect 0123abcd" in machine.calls
    assert KNOWN in machine.started
    assert machine.started.endswith(" --pull=never x true")


@pytest.mark.parametrize("why", ["offline", "old"])
def test_a_newer_image_that_cannot_be_pulled_leaves_the_one_that_is_there(machine: Machine, why: str) -> None:
    """A podman before 5 has no --retry: the start itself pulls then."""
    machine.has(why, "stored")
    done = machine.run(*NEWER)
    assert (done.returncode, "ull" in done.stderr, machine.pulls) == (42, False, [QUIETLY])
    assert KNOWN in machine.started
    assert "--pull=never" not in machine.started


def test_with_pull_newer_an_absent_image_is_pulled_once_with_its_progress(machine: Machine) -> None:
    done = machine.run(*NEWER)
    assert (done.returncode, machine.pulls) == (42, ["podman pull --tls-verify=false x"])
    assert "Pulling from library" in done.stderr
    assert machine.started.endswith(" --pull=never x true")


def test_with_pull_newer_nothing_starts_after_a_failed_pull_of_an_absent_image(machine: Machine) -> None:
    machine.has("offline")
    done = machine.run(*NEWER)
    assert (done.returncode, verbs(machine)) == (EXIT_NOT_STARTED, ["inspect", "pull"])
    assert "error: image-store: the image cannot be pulled" in done.stderr


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_without_a_daemon_the_runtime_speaks_for_itself(machine: Machine, line: tuple[str, ...]) -> None:
    machine.has("unreachable")
    done = machine.run(*line)
    assert (done.returncode, verbs(machine)) == (42, ["inspect", "run"])
    assert done.stderr.startswith("note: image-unknown: ")
    assert "libcuda.so.1" in machine.started


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_dry_run_pulls_nothing_and_says_that_the_image_is_unknown(machine: Machine, line: tuple[str, ...]) -> None:
    done = machine.run(line[0], "--dry-run", *line[1:])
    assert (done.returncode, verbs(machine)) == (0, ["inspect"])
    assert "note: image-unknown: " in done.stderr
    assert "libcuda.so.1" in done.stdout


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_that_a_named_image_is_unknown_is_told_once_with_the_reason(machine: Machine, line: tuple[str, ...]) -> None:
    done = machine.run(line[0], "-v", "--dry-run", *line[1:])
    (told,) = (text for text in done.stderr.splitlines() if "image-unknown: " in text)
    assert "new/image could not be inspected" in told


def test_an_image_that_the_runtime_pulls_itself_is_not_called_unnamed(machine: Machine) -> None:
    done = machine.run("wrap", "-v", "--", "apptainer", "exec", "--nv", "img.sif", "true", host="debian13-nvidia550")
    (told,) = (text for text in done.stderr.splitlines() if "image-unknown: " in text)
    assert "named" not in told


def test_nothing_is_checked_that_was_not_looked_at(machine: Machine) -> None:
    done = machine.run("exec", "--check", "--dry-run", "--backend", "docker", "new/image", "true")
    assert (done.returncode, "error: image-store" in done.stderr) == (EXIT_NOT_STARTED, True)


@pytest.mark.parametrize("root", ["root", "root:O", "./root", "root:idmap", "/HERE/root:O"])
def test_a_directory_of_podmans_is_no_name_in_a_store(machine: Machine, root: str) -> None:
    make_tree(machine.directory / "root", glibc("2.36"))
    root = root.replace("/HERE", str(machine.directory))
    done = machine.run("wrap", "--", "podman", "run", "--rootfs", "--gpus", "all", root, "true")
    assert (done.returncode, verbs(machine)) == (42, ["run"]), done.stderr
    assert "image-unknown" not in done.stderr
    assert machine.started.endswith(f" {root} true")


AMDS = "mi300x-rocm62"
"""A host with eight GPUs of AMD's."""


def amds_line(machine: Machine, *devices: str) -> tuple[list[str], str]:
    """The words of a line that brings *devices* by itself, with what becomes of it, and what is said."""
    own = ["docker", "run", *(f"--device={path}" for path in devices), "--group-add", "video", "img", "rocminfo"]
    done = machine.run("wrap", "--", *own, host=AMDS)
    assert done.returncode == 0
    return shlex.split(done.stdout.replace("\\\n", "")), done.stderr


def test_the_nodes_of_amds_gpus_are_the_lines_own_and_the_plan_adds_the_rest(machine: Machine) -> None:
    machine.has("stored")
    words, _ = amds_line(machine, "/dev/kfd", "/dev/dri")
    assert words[:6] == ["docker", "run", "--device=/dev/kfd", "--device=/dev/dri", "--group-add", "video"]
    assert words[-2:] == ["img", "rocminfo"]
    assert "--device" not in words
    assert any("target=/opt/amdgpu/share/libdrm/amdgpu.ids" in word for word in words)
    assert "LD_LIBRARY_PATH=/.gpubind/libs:/own" in words
    assert not any("ROCR_VISIBLE_DEVICES" in word for word in words)


def test_single_render_nodes_are_a_choice_of_gpus(machine: Machine) -> None:
    machine.has("stored")
    words, _ = amds_line(machine, "/dev/kfd", "/dev/dri/renderD136", "/dev/dri/renderD144")
    assert [word for word in words if "renderD" in word] == [
        "--device=/dev/dri/renderD136",
        "--device=/dev/dri/renderD144",
    ]
    assert "ROCR_VISIBLE_DEVICES=0,1" in words


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_line_that_brings_its_gpus_starts_without_a_plan_too(machine: Machine, is_stored: bool) -> None:
    """Where a node is no GPU's, or where the image is not known: whose ROCm it has cannot be told."""
    devices = ("/dev/kfd", "/dev/dri/renderD255" if is_stored else "/dev/dri")
    machine.has(*(["stored"] if is_stored else []))
    words, said = amds_line(machine, *devices)
    assert words == [
        "docker",
        "run",
        *(f"--device={path}" for path in devices),
        *["--group-add", "video", "img", "rocminfo"],
    ]
    assert said.startswith("warning: unknown-gpu" if is_stored else "note: image-unknown")


def test_nothing_of_the_hosts_rocm_is_put_into_an_image_that_is_not_known(machine: Machine) -> None:
    for own in (["--runtime=amd", "-e", "AMD_VISIBLE_DEVICES=0"], ["--gpus", "1"], ["--device", "amd.com/gpu=0"]):
        made = machine.run("wrap", "--", "docker", "run", *own, "img", host=AMDS).stdout
        assert "--device /dev/dri/renderD128 " in made
        assert "/dev/dri/renderD136" not in made
        assert ".so" not in made


def lines() -> list[str]:
    text = (Path(__file__).parent / "launch" / "wrap" / "unpulled.txt").read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_a_dry_run_on_a_machine_without_runtime_or_image_prints_every_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from gpubind.cli.main import main
    from gpubind.host import programs

    monkeypatch.setattr(programs, "PROGRAM_DIRECTORIES", (str(tmp_path),))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GPUBIND_MEMO", "off")
    refused = []
    for line in lines():
        host = "mi300x-rocm62" if "rocm" in line or "amd" in line else BUNDLED_HOSTS[0]
        status = main(["wrap", "-q", "--dry-run", "--caps=utility", "--host", host, "--", *shlex.split(line)])
        made = capfd.readouterr()
        by_line = "--device=/dev/kfd" in line or "--device /dev/kfd" in line
        if status != 0 or not (by_line or "--device" in made.out):
            refused.append((line, status, made.err))
    assert refused == []
    assert len(lines()) >= 200


@pytest.mark.parametrize("name", ["new/image", "docker:27"])
@pytest.mark.parametrize("program", ["docker", "podman"])
@pytest.mark.parametrize("more", [(), ("--check",), ("--backend", "auto")], ids=" ".join)
def test_a_name_with_its_store_is_pulled_inspected_and_started_without_it(
    machine: Machine, program: str, name: str, more: tuple[str, ...]
) -> None:
    machine.has(*(["stored"] if more == ("--check",) else []))
    backend = () if "--backend" in more else ("--backend", program)
    done = machine.run("exec", *backend, *more, f"{program}:{name}", "/lib64/ld-linux-x86-64.so.2")
    assert {call.split()[0] for call in machine.calls} == {program}
    named = [word for call in machine.calls for word in call.split() if name in word or word.startswith(program + ":")]
    assert {*named} == {name}
    assert (done.returncode, "run" in verbs(machine)) == ((125, False) if more == ("--check",) else (42, True))


@pytest.mark.parametrize("program", ["docker", "podman"])
def test_what_was_checked_can_be_pasted_into_a_start_and_the_reverse(machine: Machine, program: str) -> None:
    machine.has("stored")
    verdicts = {
        machine.run("check", "-q", *backend, "--image", image).stdout
        for image in ("new/image", f"{program}:new/image")
        for backend in [("--backend", program), *([()] if ":" in image else [])]
    }
    assert len(verdicts) == len({*verdicts} - {""})
    assert set(machine.calls) == {f"{program} image inspect new/image", *machine.calls[1:2]}
    assert " new/image" in machine.calls[1]
    dry = machine.run("exec", "--backend", program, "--dry-run", "--check", f"{program}:new/image", "true")
    assert f"{program}:{program}:" not in dry.stderr + dry.stdout
    assert f"{program} image inspect new/image" == machine.calls[-2]


def test_a_plain_name_without_a_backend_is_told_how_a_store_is_named(machine: Machine) -> None:
    done = machine.run("check", "--image", "new/image:1")
    assert (done.returncode, done.stdout, machine.calls) == (4, "", [])
    assert "`podman:new/image:1` or `docker:new/image:1`" in done.stderr


def test_a_daemon_that_does_not_answer_is_told_without_v_and_only_where_docker_starts(machine: Machine) -> None:
    machine.has("unreachable")
    done = machine.run("check", "--backend", "docker")
    assert "\nwarning: daemon-unreachable: docker's daemon does not answer\n" in done.stdout
    assert "Cannot connect to the Docker daemon at unix:///run/docker.sock." in done.stdout
    assert machine.calls == ["docker version"]
    for backend in ((), ("--backend", "podman"), ("--backend", "bwrap")):
        assert "daemon" not in machine.run("check", *backend).stdout
    assert machine.calls == ["docker version"]


def test_a_daemon_that_gives_the_image_or_answers_is_no_finding(machine: Machine) -> None:
    machine.has("stored")
    for image in ((), ("--image", "new/image")):
        assert "daemon" not in machine.run("check", "--backend", "docker", *image).stdout
    assert machine.calls.count("docker version") == 1
