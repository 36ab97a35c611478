"""`gpubind wrap` as a process. The programs here are small, and write down what they were started with."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple, Optional

import pytest

from gpubind import record, wrap
from gpubind.host import Host
from gpubind.model.data import BUNDLED_HOSTS
from tests.layouts.families.windows import STORE, store, wsl
from tests.support.amd import amd_host, drm_device, kernel, kfd_node, merged, opt
from tests.support.commands import gpubind
from tests.support.driver import host as machine_with
from tests.support.driver import kernel as nvidia_kernel
from tests.support.driver import rhel
from tests.support.forked import run_forked
from tests.support.images import glibc
from tests.support.trees import Spec, make_tree

HOST = BUNDLED_HOSTS[0]
ROOT = Path(__file__).parents[1]
TESTS = Path(__file__).parent
RECORDER = """#!/bin/sh
[ "$1" = --version ] && { echo "NAME version 1.4.5"; exit; }
printf '%s\\0' "$0" "$@" > DIRECTORY/started
env -0 > DIRECTORY/environ
grep ^SigIgn: /proc/self/status > DIRECTORY/ignored
exit 42
"""


BEFORE = f"import sys; sys.argv[0] = {str(ROOT / 'gpubind/__main__.py')!r}"
"""The name of a process that `python -m gpubind` starts."""


class Machine(NamedTuple):
    """A directory with programs, alone in PATH before the system's."""

    directory: Path

    def run(self, *arguments: str, env: Optional[dict[str, str]] = None) -> subprocess.CompletedProcess[str]:
        python = {"PYTHONPATH": os.pathsep.join(sys.path), "GPUBIND_MEMO": "off", "PYTHONDONTWRITEBYTECODE": "1"}
        environ = {"PATH": f"{self.directory}:{os.environ['PATH']}", **python, **(env or {})}
        return run_forked(["wrap", *arguments], environ, self.directory, before=BEFORE)

    @property
    def started(self) -> Optional[list[str]]:
        """The words with which a program was started; its own path first."""
        file = self.directory / "started"
        return os.fsdecode(file.read_bytes()).split("\0")[:-1] if file.exists() else None

    @property
    def environ(self) -> dict[str, str]:
        text = (self.directory / "environ").read_text()
        return dict(line.split("=", 1) for line in text.split("\0") if line)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for name in ("apptainer", "singularity", "docker", "podman", "srun", "sudo"):
        program = tmp_path / name
        program.write_text(RECORDER.replace("DIRECTORY", str(tmp_path)).replace("NAME", name))
        program.chmod(0o755)
    (tmp_path / "img.sif").symlink_to("elsewhere.sif")  # there, for gpubind; what it leads to only the runtime says
    return Machine(tmp_path)


def driver(machine: Machine) -> tuple[str, ...]:
    """Options for a host with a driver and without GPUs."""
    root = str(make_tree(machine.directory / "driver", rhel()).root)
    return ("--root", root, "--dev-root", root)


@pytest.mark.parametrize(
    "line",
    [
        "singularity build --nv img.sif def",
        "singularity pull docker://ubuntu",
        "singularity cache list",
        "singularity --version2",
        "singularity exec img.sif cmd --nv",
        "singularity exec --brand-new '' 'two words' '*' --",
        "docker ps -a",
        "docker run -it img --gpus 2",
        "apptainer exec instance://web true",
    ],
)
def test_a_line_without_gpus_is_started_as_it_is(machine: Machine, line: str) -> None:
    words = shlex.split(line)
    done = machine.run("--", *words)
    assert (done.returncode, done.stdout, done.stderr) == (42, "", "")
    assert machine.started == [f"{machine.directory}/{words[0]}", *words[1:]]


def test_bytes_that_are_no_text_and_the_callers_variables_pass(machine: Machine) -> None:
    env = {"WEIRD": "\udcff\n=", "LC_ALL": "C"}
    machine.run("--", "singularity", "inspect", "\udcff\n", "", env=env)
    assert machine.started == [f"{machine.directory}/singularity", "inspect", "\udcff\n", ""]
    started = (machine.directory / "environ").read_bytes()
    assert b"WEIRD=\xff\n=\0" in started
    assert b"LC_CTYPE=" not in started


@pytest.mark.parametrize("line", ["singularity cache list", "apptainer exec --nv img.sif true"])
def test_a_broken_pipe_ends_what_is_started_as_it_always_did(machine: Machine, line: str) -> None:
    machine.run(*driver(machine), "--", *line.split())
    ignored = int((machine.directory / "ignored").read_text().split()[1], 16)  # who runs the tests may ignore others
    assert [name for name in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (name - 1) & 1] == []


def test_the_gpu_flag_makes_room_for_the_plan(machine: Machine) -> None:
    line = ("apptainer", "-s", "exec", "-B", "/a b", "--nv", "-ec", "img.sif", "cmd", "--nv")
    done = machine.run("-q", *driver(machine), "--", *line, env={"APPTAINER_NVCCLI": "1"})
    started = machine.started
    assert done.returncode == 42
    assert started is not None
    assert started[:6] == [f"{machine.directory}/apptainer", "-s", "exec", "-B", "/a b", "-ec"]
    assert started[-3:] == ["img.sif", "cmd", "--nv"]
    assert "--nv" not in started[:-1]
    assert any("/.singularity.d/libs/libcuda.so.1" in word for word in started)
    assert "APPTAINER_NVCCLI" not in machine.environ


def test_the_line_becomes_what_exec_makes_of_the_same_options(machine: Machine) -> None:
    own = ("-B", "/a", "--contain", "--env", "LD_LIBRARY_PATH=/mine")
    record = ("-q", "--host", HOST, "--dry-run")
    wrapped = machine.run(*record, "--gpus", "1", "--", "apptainer", "exec", "--nv", *own, "img.sif", "a b").stdout
    command = ["exec", "--nv", "--gpus", "1", "--backend", "apptainer", *record, "--", *own, "img.sif", "a b"]
    environ = {"PATH": f"{machine.directory}:{os.environ['PATH']}", "GPUBIND_MEMO": "off"}
    made = run_forked(command, environ).stdout
    assert shlex.split(wrapped.replace("\\\n", ""))[1:] == shlex.split(made.replace("\\\n", ""))[1:]


def test_a_dry_run_prints_an_option_with_its_value_on_each_line(machine: Machine) -> None:
    line = ("time", "apptainer", "exec", "--nv", "-B", "/a b", "--contain", "img.sif", "cmd", "-x")
    lines = machine.run("-q", "--dry-run", "--host", HOST, "--", *line).stdout.split(" \\\n  ")
    assert lines[:4] == ["time apptainer exec", "-B '/a b'", "--contain", "--no-nv"]
    assert lines[-1] == "img.sif cmd -x\n"
    assert machine.run("--dry-run", "--", "apptainer", "cache", "list").stdout == "apptainer cache list\n"
    assert machine.started is None


@pytest.mark.parametrize("prefix", [("srun", "-n", "4"), ("sudo",), ("srun", "env", "A=b")])
def test_behind_what_changes_the_environment_gpubind_plans_anew(machine: Machine, prefix: tuple[str, ...]) -> None:
    line = ("apptainer", "exec", "--nv", "img.sif", "true")
    done = machine.run("-q", "--gpus", "0", "--", *prefix, *line)
    again = (sys.executable, str(ROOT / "gpubind/__main__.py"), "wrap", "-q", "--gpus", "0", "--")
    assert (done.returncode, done.stderr) == (42, "")
    assert machine.started == [f"{machine.directory}/{prefix[0]}", *prefix[1:], *again, *line]


def test_where_there_is_nothing_to_bind_the_line_starts_as_it_is(machine: Machine) -> None:
    (machine.directory / "empty").mkdir()
    roots = ("--root", str(machine.directory / "empty"), "--dev-root", str(machine.directory / "empty"))
    line = ("apptainer", "exec", "--nv", "img.sif", "true")
    done = machine.run(*roots, "--", *line)
    assert (done.returncode, done.stderr.startswith("warning: nothing-to-bind: ")) == (42, True)
    assert machine.started == [f"{machine.directory}/apptainer", *line[1:]]


@pytest.mark.parametrize("option", ["--require-gpu", "--check"])
def test_who_needs_a_gpu_can_say_so(machine: Machine, option: str) -> None:
    done = machine.run(option, *driver(machine), "--", "apptainer", "exec", "--nv", "img.sif", "true")
    assert (done.returncode, machine.started) == (125, None)


def test_a_line_that_cannot_be_read_is_not_started(machine: Machine) -> None:
    done = machine.run("--", "apptainer", "exec", "--nv", "--brand-new", "img.sif", "true")
    assert (done.returncode, done.stderr.split(": ")[1], machine.started) == (125, "wrap-option", None)


def test_an_option_without_its_value_is_to_get_one(machine: Machine) -> None:
    done = machine.run("--", "apptainer", "exec", "--nv", "--bind")
    assert done.returncode == 125
    assert "  where: argument 4\n  why:   its value is missing\n  hint:  give it its value\n" in done.stderr


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("docker run --gpus device=0,1 img", 3),
        ("srun -n 2 apptainer exec --nv --brand-new img.sif true", 7),
        ("docker run --gpus all --gpus 1 img", 5),
    ],
)
def test_an_error_says_which_argument_of_the_line_it_is_about(machine: Machine, line: str, place: int) -> None:
    assert f"  where: argument {place}\n" in machine.run("--", *line.split()).stderr


def test_what_is_not_there_ends_as_in_a_shell(machine: Machine) -> None:
    (machine.directory / "bin").mkdir()
    (machine.directory / "bin" / "singularity").touch()
    assert machine.run("--", "./nowhere/singularity", "cache", "list").returncode == 127
    assert machine.run("--", "bin/singularity", "cache", "list").returncode == 126
    done = machine.run("--host", HOST, "--", "apptainer", "exec", "--nv", "img.sif", "true")
    assert (done.returncode, done.stderr.split(": ")[1]) == (125, "host-to-start")
    assert machine.run("--brand-new", "--", "apptainer", "cache", "list").returncode == 2


def test_a_variable_that_asks_for_gpus_counts_as_the_flag(machine: Machine) -> None:
    line = ("apptainer", "exec", "img.sif", "true")
    machine.run("-q", *driver(machine), "--", *line, env={"APPTAINER_NV": "1"})
    assert machine.started is not None
    assert any("libcuda" in word for word in machine.started)


def test_a_line_without_gpus_loads_next_to_nothing(machine: Machine) -> None:
    code = (
        "import sys, gpubind.__main__, gpubind.launch.wrap.passing\n"
        "def stop(*_): print(*sys.modules); sys.stdout.flush(); raise SystemExit\n"
        "gpubind.launch.wrap.passing.replace_process = stop\n"
        "gpubind.__main__.main(sys.argv[1:])"
    )
    environ = {"PATH": f"{machine.directory}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}

    def loaded(code: str) -> set[str]:
        command = [sys.executable, "-c", code, "wrap", "-q", "--", "singularity", "exec", "img.sif", "true"]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)
        return set(done.stdout.split())

    found = loaded(code) - loaded("import sys; print(*sys.modules)")
    rooms = {
        *("gpubind", "gpubind.__main__", "gpubind.memo", "gpubind.machine", "gpubind.machine.mounts"),
        *(f"gpubind.memo.{name}" for name in ("answer", "files", "questions")),
        *("gpubind.launch", "gpubind.launch.named", "gpubind.launch.wrap", "gpubind.launch.wrap.passing"),
    }
    assert {name for name in found if name.startswith("gpubind")} == rooms
    assert not {"collections.abc", "errno", "re", "typing"} & found


def test_the_installed_program_loads_nothing_before_the_memo_is_asked(machine: Machine) -> None:
    script = Path(__file__).parent.parent / "packaging" / "gpubind"
    assert script.stat().st_mode & 0o777 == 0o755
    environ = {"PATH": f"{machine.directory}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script), "wrap", "--", "apptainer", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert (done.returncode, done.stdout) == (0, "apptainer version 1.4.5\n")
    assert script.read_text().split("\n")[1:] == ["from gpubind.__main__ import run", "", "run()", ""]


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's programs are anybody's")
def test_root_starts_a_program_of_others_by_its_path_and_not_by_its_name(machine: Machine) -> None:
    os.chown(machine.directory / "apptainer", 12345, 12345)
    line = ("exec", "--nv", "img.sif", "true")
    host = driver(machine)
    done = machine.run(*host, "--", "apptainer", *line)
    assert (done.returncode, machine.started) == (125, None)
    path = str(machine.directory / "apptainer")
    assert f"`gpubind wrap -- {path} ...`" in done.stderr
    done = machine.run("-q", *host, "--", path, *line)
    assert (done.returncode, (machine.started or [""])[0]) == (42, path)


@pytest.mark.parametrize("line", [
    "docker -H tcp://node7:2375 run --gpus all img", "docker --context node7 run --gpus all img",
    "podman --remote run --gpus all img", "podman --url ssh://node7 run --gpus all img",
    "podman -c node7 run --gpus all img",
    "docker -H unix:///home/me/.docker/desktop/docker.sock run --gpus all img",
])  # fmt: skip
def test_a_line_for_another_machines_daemon_is_refused(machine: Machine, line: str) -> None:
    done = machine.run(*driver(machine), "--", *line.split())
    assert (done.returncode, "remote-engine" in done.stderr) == (125, True)
    assert machine.started is None


@pytest.mark.parametrize("own", [("--root", "/mine"), ("--cdi-spec-dir", "/mine")])
def test_an_option_of_podmans_own_stays_where_it_is(machine: Machine, own: tuple[str, ...]) -> None:
    """With another store the image is not looked at in the usual one."""
    done = machine.run(*driver(machine), "--", "podman", *own, "run", "--gpus", "all", "img")
    assert done.returncode == 42
    assert machine.started is not None
    assert machine.started[1:4] == [*own, "run"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("--gpus 3", "`--gpus 3`: this host has fewer GPUs"),
        ("--gpus device=7", "`--gpus device=7`: this host has no `7`"),
        ("--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=7", "`NVIDIA_VISIBLE_DEVICES=7`: this host has no `7`"),
    ],
)
def test_a_gpu_that_is_not_there_is_named_in_the_words_of_the_line(words: str, what: str) -> None:
    done = gpubind("wrap", "-q", "--dry-run", "--host", HOST, "--", "docker", "run", *words.split(), "img", "true")
    assert (done.returncode, done.stdout) == (125, "")
    assert f"error: unknown-gpu: {what}\n  hint:  there are: 0 (" in done.stderr
    assert "not a count" not in done.stderr


def test_podman_reads_a_number_as_a_gpu_and_the_hint_says_so() -> None:
    done = gpubind("wrap", "-q", "--dry-run", "--host", HOST, "--", "podman", "run", "--gpus", "3", "img", "true")
    assert (done.returncode, done.stdout) == (125, "")
    assert "error: unknown-gpu: `--gpus 3`: this host has no `3`" in done.stderr
    assert "hint:  podman reads a number as the GPU with that index, and docker as a count; there are: 0" in done.stderr


NODES = ("--device=/dev/nvidia0", "--device=/dev/nvidiactl")


@pytest.mark.parametrize("program", ["docker", "podman", "nerdctl"])
def test_a_line_with_nvidias_nodes_keeps_them_and_gets_the_rest_of_the_plan(program: str) -> None:
    line = (program, "run", *NODES, "img", "nvidia-smi")
    done = gpubind("wrap", "--dry-run", "--host", HOST, "--", *line)
    words = shlex.split(done.stdout.replace("\\\n", " "))
    assert (done.returncode, words[:4], words[-2:]) == (0, [*line[:4]], ["img", "nvidia-smi"])
    assert any("libcuda.so" in word for word in words)
    added = {words[at + 1] for at, word in enumerate(words) if word == "--device"}
    assert {"/dev/nvidia-uvm", "/dev/nvidia-modeset"} <= added
    assert added.isdisjoint({"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia1"})


def test_a_line_with_nodes_of_a_gpu_that_is_not_there_starts_as_it_is() -> None:
    line = ("docker", "run", "--device=/dev/nvidia7", "--device=/dev/nvidiactl", "img", "true")
    done = gpubind("wrap", "--dry-run", "--host", HOST, "--", *line)
    assert (done.returncode, done.stdout) == (0, shlex.join(line) + "\n")
    assert "warning: unknown-gpu: `--device=/dev/nvidia7`: this host has no" in done.stderr


# ROCr, and so `--gpus`, counts in the order of the topology; AMD's toolkit by PCI address.
CROSSED = merged(
    *(opt(), kernel(gpus=0, bmc=False), kfd_node(2, 128, bus=0x26, unique=1), kfd_node(3, 129, bus=0x05, unique=2)),
    *(drm_device("0000:26:00.0", 1, 128), drm_device("0000:05:00.0", 2, 129)),
)


KFD_NODES = (kfd_node(2, 128, bus=0x05, unique=0), kfd_node(3, 129, bus=0x26, unique=0))
DRM_NODES = (drm_device("0000:05:00.0", 1, 128), drm_device("0000:26:00.0", 2, 129))
RECORDED: dict[str, Callable[[], Host]] = {
    "one node": lambda: machine_with({**wsl(), **store(STORE)}),
    "crossed": lambda: amd_host(CROSSED),
    "both vendors": lambda: amd_host(opt(), kernel(gpus=2), rhel(), nvidia_kernel()),
    "no unique ids": lambda: amd_host(opt(), kernel(gpus=0, bmc=False), *KFD_NODES, *DRM_NODES),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return the file of a record of `RECORDED`."""

    @cache
    def path(name: str) -> str:
        file = tmp_path_factory.mktemp("recorded") / "host.json"
        file.write_text(record(RECORDED[name]()))
        return str(file)

    return path


@pytest.mark.parametrize("words", ["--gpus 1", "--gpus device=0", "--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=0"])
def test_where_one_node_is_all_gpus_a_line_gets_them_all_and_is_told(
    recorded: Callable[[str], str], words: str
) -> None:
    line = ("--dry-run", "--host", recorded("one node"), "--", "docker", "run", *words.split(), "img", "true")
    done = gpubind("wrap", *line)
    assert (done.returncode, "/dev/dxg" in done.stdout) == (0, True)
    assert "warning: inseparable-gpus: `" in done.stderr


def amds_spec(*nodes: int) -> Spec:
    """A spec with a device for each of the render *nodes*, by number."""
    edits = [{"deviceNodes": [{"path": f"/dev/dri/renderD{node}"}, {"path": "/dev/kfd"}]} for node in nodes]
    devices = [{"name": str(at), "containerEdits": one} for at, one in enumerate(edits)]
    return {"/etc/cdi/amd.json": json.dumps({"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": devices})}


@pytest.mark.parametrize(
    ("words", "spec", "node"),
    [
        (("docker", "run", "--runtime=amd", "-e", "AMD_VISIBLE_DEVICES=0"), {}, 129),
        (("docker", "run", "--runtime=amd", "-e", "AMD_VISIBLE_DEVICES=7,1-3"), {}, 128),
        (("docker", "run", "--device", "amd.com/gpu=0"), {}, 129),
        (("docker", "run", "--device", "amd.com/gpu=0"), amds_spec(129, 128), 129),
        (("docker", "run", "--device", "amd.com/gpu=0"), amds_spec(128, 129), 128),
        (("docker", "run", "--gpus", "driver=amd,device=1"), {}, 128),
        (("docker", "run", "--gpus", "1"), {}, 129),
        (("docker", "run", "--gpus", "1"), amds_spec(128, 129), 128),
        (("docker", "run", "--gpus", "1,capabilities=amd"), {}, 129),
        (("podman", "run", "--gpus", "1"), amds_spec(128, 129), 129),
        (("docker", "run", "--runtime=amd", "-e", "AMD_VISIBLE_DEVICES=0"), amds_spec(128, 129), 129),
        (("podman", "run", "--gpus", "1"), {}, 128),
        (("docker", "run", "--device=/dev/kfd", "--device=/dev/dri/renderD128"), {}, 128),
    ],
)
def test_wrap_counts_amds_gpus_as_amds_toolkit_does(words: tuple[str, ...], spec: Spec, node: int) -> None:
    made = wrap((*words, "img", "true"), host=amd_host(CROSSED, spec), dry_run=True)
    assert set(re.findall(r"/dev/dri/renderD[0-9]+", " ".join(made.argv))) == {f"/dev/dri/renderD{node}"}


@pytest.mark.parametrize("words", ["docker run --gpus 1", "docker run --gpus device=0", "podman run --gpus 0"])
def test_a_number_counts_nvidias_gpus_on_a_host_that_has_amds_too(recorded: Callable[[str], str], words: str) -> None:
    """As docker and podman do: an index of gpubind's own `--gpus` is ambiguous there."""
    host = recorded("both vendors")

    def nodes(*own: str) -> set[str]:
        done = gpubind("wrap", "-q", "--dry-run", "--host", host, *own, "--", *words.split(), "img", "true")
        assert done.returncode == 0
        return set(re.findall(r"/dev/(?:dri/renderD|nvidia)[0-9]+", done.stdout))

    assert nodes() == {"/dev/nvidia0"}
    assert nodes("--rocm") == nodes("--gpus", "renderD128") == {"/dev/dri/renderD128"}


@pytest.mark.parametrize(
    ("value", "visible", "unknown"),
    [
        *(("1,0", "0,1", ""), ("0,1", "0,1", ""), ("0,9,2", "0", "9, 2"), ("0x77", "-1", "GPU-0000000000000077")),
        ("0,3-1", "0", "3-1"),
        *((",1", "0", ""), ("0,,1", "0,1", ""), (",", "-1", ""), ("01", "0", ""), ("00,01", "0,1", "")),
        ("first", "-1", "first"),
        ("0x2,0x1,0", "GPU-0000000000000001,GPU-0000000000000002", ""),
    ],
)
def test_amds_variable_is_a_set_and_what_the_host_lacks_is_ignored_and_told(
    recorded: Callable[[str], str], value: str, visible: str, unknown: str
) -> None:
    """GPU 1 of AMD's toolkit is ROCr's first one, in the container, too."""
    docker = ("docker", "run", "--runtime=amd", "-e", f"AMD_VISIBLE_DEVICES={value}", "img", "true")
    done = gpubind("wrap", "--dry-run", "--host", recorded("crossed"), "--", *docker)
    assert done.returncode == 0
    assert f"ROCR_VISIBLE_DEVICES={visible} " in done.stdout
    told = (
        f"warning: visible-devices-unknown: AMD_VISIBLE_DEVICES={value}: this host has no {unknown}, which is ignored"
    )
    assert (told in done.stderr) == bool(unknown)


@pytest.mark.parametrize(("value", "renders"), [(",1", {129}), ("0,,1", {128, 129}), (",", set()), ("0x0", set())])
def test_an_empty_element_of_amds_variable_is_no_gpu_of_a_host_without_unique_ids(
    recorded: Callable[[str], str], value: str, renders: set[int]
) -> None:
    docker = ("docker", "run", "--runtime=amd", "-e", f"AMD_VISIBLE_DEVICES={value}", "img", "true")
    done = gpubind("wrap", "--dry-run", "--host", recorded("no unique ids"), "--", *docker)
    assert done.returncode == 0
    assert {int(number) for number in re.findall(r"/dev/dri/renderD([0-9]+)", done.stdout)} == renders


STORAGES = [
    ((), {"CH_IMAGE_STORAGE": "HERE/storage"}),
    (("-s", "HERE/storage"), {}),
    (("--storage=HERE/storage",), {"CH_IMAGE_STORAGE": "/nowhere"}),
]


@pytest.mark.parametrize(("name", "directory"), [("bull:1", "bull+1"), ("host:5000/a/b:1", "host+5000%a%b+1")])
@pytest.mark.parametrize(("options", "env"), STORAGES, ids=str)
def test_an_image_by_charliecloud_s_own_name_is_read_in_its_storage_and_handed_over_as_written(
    tmp_path: Path, name: str, directory: str, options: tuple[str, ...], env: dict[str, str]
) -> None:
    make_tree(tmp_path / "storage/img" / directory, glibc())
    (tmp_path / "bull:1").mkdir()  # a directory of that name comes after the storage
    options = tuple(word.replace("HERE", str(tmp_path)) for word in options)
    env = {variable: value.replace("HERE", str(tmp_path)) for variable, value in env.items()}
    line = ("ch-run", *options, name, "--", "true")
    done = gpubind("wrap", "--dry-run", "--host", HOST, "--", *line, cwd=tmp_path, env=env)
    words = shlex.split(done.stdout.replace("\\\n", " "))
    assert (done.returncode, words[: len(options) + 1], words[-3:]) == (0, ["ch-run", *options], [name, "--", "true"])
    assert any("libcuda.so" in word for word in words)
    made = gpubind(
        "exec", "--dry-run", "--host", HOST, "--backend", "ch-run", "--", *options, name, "true", cwd=tmp_path, env=env
    )
    assert (made.returncode, f" {name} -- true" in made.stdout, "libcuda.so" in made.stdout) == (0, True, True)


UNREAD = (
    "ch-run bull:1 -- true",
    "ch-run ./nowhere -- true",
    "ch-run ./image.squashfs -- true",
    "bwrap --ro-bind ./nowhere / true",
    "crun run -b ./nowhere name",
    "systemd-nspawn --image=disk.raw true",
    "proot -R ./nowhere true",
    "podman run --rootfs --gpus all ./nowhere true",
)


@pytest.mark.parametrize("line", UNREAD)
def test_a_line_with_an_image_that_cannot_be_read_starts_as_it_is_with_a_note(tmp_path: Path, line: str) -> None:
    (tmp_path / "image.squashfs").write_bytes((TESTS / "data/images/lz4.squashfs").read_bytes())
    (tmp_path / "disk.raw").write_bytes(b"\0" * 4096)
    done = gpubind("wrap", "--dry-run", "--host", HOST, "--", *line.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{line}\n")
    assert done.stderr.startswith("note: image-unknown: ")
    assert done.stderr.endswith("; started without a plan\n")


@pytest.mark.parametrize("line", ["apptainer exec --nv ./nowhere.sif true", "singularity run --nv ./nowhere"])
def test_a_missing_file_is_apptainers_to_report(machine: Machine, line: str) -> None:
    done = machine.run(*driver(machine), "--", *line.split())
    assert (done.returncode, done.stderr.startswith("note: image-unknown: ./nowhere")) == (42, True)
    program, *words = line.split()
    assert machine.started == [f"{machine.directory}/{program}", *words]


@pytest.mark.parametrize("line", UNREAD)
@pytest.mark.parametrize("more", ["--check", "--require-gpu", "--gpus=0"])
def test_an_image_that_cannot_be_read_is_an_error_for_who_needs_a_gpu(tmp_path: Path, line: str, more: str) -> None:
    (tmp_path / "image.squashfs").write_bytes((TESTS / "data/images/lz4.squashfs").read_bytes())
    (tmp_path / "disk.raw").write_bytes(b"\0" * 4096)
    done = gpubind("wrap", more, "--dry-run", "--host", HOST, "--", *line.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (125, "")
    assert "error: " in done.stderr


UNPLANNED = {
    "bwrap --args 3 --ro-bind ./img / true": "wrap-unseen",
    "bwrap --brand-new --ro-bind ./img / true": "wrap-option",
    "bwrap --ro-bind ./img /": "wrap-no-image",
    "bwrap --overlay-src ./img --ro-overlay / true": "fixed-root",
    "ch-run --brand-new ./img -- true": "wrap-option",
    "ch-run --cdi=/etc/cdi/nvidia.yaml ./img -- true": "wrap-gpus",
    "ch-run --write ./img -- true": "no-place",
    "runc run -b ./bundle": "wrap-no-image",
    "mpirun -np 2 ch-run ./img -- x : -np 2 ch-run ./img -- y": "wrap-several",
}
"""Lines that work without GPUs, and the error that keeps a plan out of them."""


@pytest.mark.parametrize(("line", "code"), UNPLANNED.items())
def test_a_line_of_a_runtime_without_a_gpu_flag_starts_as_it_is_where_no_plan_can_be_made(
    tmp_path: Path, line: str, code: str
) -> None:
    make_tree(tmp_path / "img", glibc())
    words = ("--dry-run", "--host", HOST, "--", *line.split())
    done = gpubind("wrap", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{shlex.join(line.split())}\n")
    assert done.stderr.startswith(f"warning: {code}: ")
    assert "the line starts as it is, without a plan\n" in done.stderr


@pytest.mark.parametrize(
    "option", ["--check", "--require-gpu", "--gpus=0", "--gpus=all", "--cdi-device=nvidia.com/gpu=0"]
)
@pytest.mark.parametrize("line", ["bwrap --args 3 true", "ch-run --write ./img -- true"])
def test_an_option_of_gpubinds_that_demands_gpus_makes_that_an_error(tmp_path: Path, line: str, option: str) -> None:
    make_tree(tmp_path / "img", glibc())
    done = gpubind("wrap", option, "--dry-run", "--host", HOST, "--", *line.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (125, "")
    assert "error: " in done.stderr


@pytest.mark.parametrize("image", ["img", "./img"])
def test_nerdctls_images_are_not_read_and_the_line_gets_its_plan(tmp_path: Path, image: str) -> None:
    """A directory with the name of the image has nothing to do with it; --rootfs names one."""
    (tmp_path / "img/bin").mkdir(parents=True)
    own = ["--rootfs"] if image == "./img" else []
    line = ("nerdctl", "run", "--gpus", "1", *own, "-v", "/a:/b", image, "true")
    done = gpubind("wrap", "--dry-run", "--host", HOST, "--", *line, cwd=tmp_path)
    assert done.returncode == 0
    words = shlex.split(done.stdout.replace("\\\n", " "))
    assert [*words[: len(own) + 4], *words[-2:]] == ["nerdctl", "run", *own, "-v", "/a:/b", image, "true"]
    assert {"/dev/nvidia0", "/dev/nvidiactl", "CUDA_VISIBLE_DEVICES=0"} <= {*words}
    assert "/dev/nvidia1" not in words
    assert any("libcuda.so" in word for word in words) == (not own)  # the directory has no C library
    assert ("gpubind does not read the images of nerdctl" in done.stderr) == (not own)
