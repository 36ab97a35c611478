"""A machine as WSL has it: /dev/dxg and Windows' two directories, with the rig's real driver under Windows' names."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.live.containers import CONTAINERS, EXCLUDES, image, privileges
from tests.live.copies import OF_THE_DRIVER, copy_without_driver
from tests.live.engine_starts import IMPORT, LIMITS, SOCKET, dockerd
from tests.live.machine import PYTHON_ENV, RIG, Machine, document, pairs
from tests.support.elf import elf

pytestmark = pytest.mark.live

LIB, DRIVERS = "/usr/lib/wsl/lib", "/usr/lib/wsl/drivers"
STORE = f"{DRIVERS}/nv_dispi.inf_amd64_7cc7738d8e428783"
OLD = f"{DRIVERS}/nv_dispi.inf_amd64_0a1b2c3d4e5f6071"
OTHER = f"{DRIVERS}/iigd_dch.inf_amd64_5566778899aabbcc"
LINUX = "/usr/lib/x86_64-linux-gnu"
IN_LIB = {
    "libcuda": ("libcuda.so", "libcuda.so.1", "libcuda.so.1.1"),
    "libnvidia-ml": ("libnvidia-ml.so.1",),
    "libnvcuvid": ("libnvcuvid.so", "libnvcuvid.so.1"),
    "libnvidia-encode": ("libnvidia-encode.so", "libnvidia-encode.so.1"),
    "libnvidia-opticalflow": ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
}
IN_STORE = {
    "libcuda": ("libcuda.so.1.1", "libcuda_loader.so"),
    "libnvidia-ml": ("libnvidia-ml.so.1", "libnvidia-ml_loader.so"),
    "libnvidia-ptxjitcompiler": ("libnvidia-ptxjitcompiler.so.1",),
    "libnvidia-nvvm": ("libnvidia-nvvm.so.4",),
    "libnvidia-opticalflow": ("libnvidia-opticalflow.so.1",),
}
DATA = ("nvcubins.bin", "nvcuda64.dll")
TOLD = "0, GPU-00000000-0000-0000-0000-000000000000, 00000000:01:00.0, Made-up GPU"
NVIDIA_SMI = f"#!/bin/sh\ncase $* in *--query-gpu=index*) echo '{TOLD}' ;; *) exit 9 ;; esac\n"
LOOK = f"""
import ctypes, os, stat
node = os.stat('/dev/dxg')
print(stat.S_ISCHR(node.st_mode), os.major(node.st_rdev), os.minor(node.st_rdev))
print(ctypes.CDLL('libcuda.so.1').cuInit(0), ctypes.CDLL('{STORE}/libcuda.so.1.1').cuInit(0))
ctypes.CDLL('libnvidia-ptxjitcompiler.so.1')
print(os.listdir('{DRIVERS}'), *(os.access(path, os.R_OK) for path in ('{STORE}/nvcubins.bin', '{LIB}/libdxcore.so')))
try:
    open('{STORE}/nvcubins.bin', 'a')
except OSError:
    print('nothing can be written')
"""
SEEN = f"""True 10 125
100 100
{[STORE.rpartition("/")[2]]} True True
nothing can be written
"""


class Way(NamedTuple):
    """A runtime, and who starts it."""

    backend: str
    image: str
    options: tuple[str, ...] = ()
    user: bool = False


WAYS = (
    Way("docker", "engines:bookworm", ("--network=none",)),
    Way("podman", image("bookworm"), ("--network=none", *(f"--ulimit={word}" for word in LIMITS))),
    Way("bwrap", image("bookworm"), user=True),
    Way("apptainer", image("bookworm-sb"), user=True),
    Way("apptainer", image("bookworm-sb"), privileges("apptainer", user=False)),
)


@pytest.fixture(scope="module")
def wsl(trixie: Machine) -> Iterator[Machine]:
    """The machine `trixie` without its driver, its nodes and its stores, and with what Windows would show."""
    root = tempfile.mkdtemp(prefix="wsl-", dir=RIG)
    os.chmod(root, 0o755)
    machine = Machine(root, trixie.python)
    try:
        copy_without_driver(trixie.root, root)
        _install(f"{trixie.root}{LINUX}/nvidia/current", root)
        machine.run(["ldconfig"])
        with dockerd(machine):
            words = IMPORT.format(program="docker", suite="bookworm", changes="", excludes=EXCLUDES)
            machine.run(["sh", "-ec", words], binds=[CONTAINERS], env={"DOCKER_HOST": SOCKET})
            yield machine
    finally:
        shutil.rmtree(root)


def _install(driver: str, root: str) -> None:
    """The libraries of *driver* under Windows' names; of an earlier driver, files of other sizes."""
    os.mknod(f"{root}/dev/dxg", stat.S_IFCHR | 0o666, os.makedev(10, 125))
    os.chmod(f"{root}/dev/dxg", 0o666)
    for directory, several in ((LIB, IN_LIB), (STORE, IN_STORE), (OLD, IN_STORE)):
        os.makedirs(root + directory)
        for stem, names in several.items():
            (real,) = (name for name in os.listdir(driver) if re.fullmatch(rf"{stem}\.so\.[0-9]+(\.[0-9]+)+", name))
            for name in names:
                if directory != OLD:
                    os.link(f"{driver}/{real}", f"{root}{directory}/{name}")
                else:
                    _write(f"{root}{directory}/{name}", b"\x7fELF of an earlier driver")
    os.makedirs(root + OTHER)
    for directory in (STORE, OLD, OTHER):
        for name in (*DATA, "nvlddmkm.sys"):
            _write(f"{root}{directory}/{name}", b"\0")
    for path in (f"{LIB}/nvidia-smi", f"{STORE}/nvidia-smi"):
        _write(root + path, NVIDIA_SMI.encode(), 0o555)
    _write(f"{root}{LIB}/libdxcore.so", elf("libdxcore.so"))
    _write(f"{root}/etc/ld.so.conf.d/ld.wsl.conf", f"{LIB}\n".encode())


def _write(path: str, data: bytes, mode: int = 0o444) -> None:
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)


def gpubind(wsl: Machine, *words: str, user: bool = False, status: int = 0) -> subprocess.CompletedProcess[str]:
    env = {"DOCKER_HOST": SOCKET}
    return wsl.tried(*words, user=user, env=env, binds=[CONTAINERS], status=status)


def test_a_plan_has_the_node_and_the_drivers_directory_in_use(wsl: Machine) -> None:
    plan = document(gpubind(wsl, "plan", "--nv", "--json").stdout)
    assert [(node["source"], node["major"], node["minor"]) for node in plan["devices"]] == [("/dev/dxg", 10, 125)]
    own = {source for source, target in pairs(plan) if source == target}
    names = {*DATA, "nvidia-smi", *(name for names in IN_STORE.values() for name in names)}
    assert own == {f"{LIB}/libdxcore.so", *(f"{STORE}/{name}" for name in names)}
    assert (f"{LIB}/libcuda.so.1", "/.gpubind/libs/libcuda.so.1") in pairs(plan)
    assert [decision for decision in plan["decisions"] if decision["rule"] == "collision"] == []
    assert {finding["code"] for finding in plan["findings"]} == {"vendor-neutral-left-out"}


def test_check_is_satisfied_and_gpus_asks_the_driver(wsl: Machine) -> None:
    found = document(gpubind(wsl, "check", "--nv", "--json", "--image", image("bookworm")).stdout)
    assert found["verdict"] == "ok"
    assert [(one["code"], one["severity"]) for one in found["findings"] if one["code"] == "wsl"] == [("wsl", "note")]
    gpus = document(gpubind(wsl, "gpus", "--json").stdout)["gpus"]
    assert [(gpu["index"], gpu["model"], gpu["pci"]) for gpu in gpus] == [(0, "Made-up GPU", "0000:01:00.0")]
    assert "inseparable-gpus" in gpubind(wsl, "plan", "--nv", "--gpus", "0", status=2).stderr


def test_root_runs_no_nvidia_smi_that_others_may_write(wsl: Machine) -> None:
    program = f"{wsl.root}{LIB}/nvidia-smi"
    os.chmod(program, 0o757)
    try:
        assert gpubind(wsl, "gpus").stdout == "no GPU is known: all are /dev/dxg\n"
        assert "Made-up GPU" in gpubind(wsl, "gpus", user=True).stdout
    finally:
        os.chmod(program, 0o555)


def test_a_record_has_the_same_plan_and_the_gpus(wsl: Machine) -> None:
    record = "/var/tmp/wsl.json"
    gpubind(wsl, "record", "-o", record)
    plans = [document(gpubind(wsl, "plan", "--nv", "--json", *on).stdout) for on in ((), ("--host", record))]
    assert plans[0]["digest"] == plans[1]["digest"]
    assert "Made-up GPU" in gpubind(wsl, "gpus", "--host", record).stdout


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way.backend}-{'user' if way.user else 'root'}")
def test_a_container_has_the_node_and_its_libcuda_loads(wsl: Machine, way: Way) -> None:
    arguments = [f"--backend-arg={option}" for option in way.options]
    words = ["exec", "--nv", "--backend", way.backend, *arguments, way.image]
    done = gpubind(wsl, *words, "python3", "-c", LOOK, user=way.user)
    assert done.stdout == SEEN
    assert not re.search("^(warning|error)", done.stderr, re.MULTILINE)
    shown = gpubind(wsl, *words, "ls", "-l", "/dev/dxg", user=way.user).stdout
    assert re.match(r"crw-rw-rw-.* 10, 125 .*/dev/dxg", shown)


def test_apptainers_own_nv_gets_no_more(wsl: Machine) -> None:
    listed = "ls /.singularity.d/libs"
    own = wsl.run(
        ["apptainer", "-s", "exec", "--nv", image("bookworm-sb"), "sh", "-c", listed], user=True, binds=[CONTAINERS]
    )
    ours = gpubind(wsl, "exec", "--nv", "--backend", "apptainer", image("bookworm-sb"), "sh", "-c", listed, user=True)
    of_driver = {name for name in own.stdout.split() if OF_THE_DRIVER.search(name)}  # the image has its own libglvnd
    assert of_driver == {f"{stem}.so.1" for stem in IN_LIB}
    assert of_driver <= {*ours.stdout.split()}
    like = document(gpubind(wsl, "plan", "--nv", "--json", "--like", "apptainer").stdout)
    bound = {target.rpartition("/")[2] for _, target in pairs(like) if target.startswith("/.singularity.d/libs")}
    assert bound == {*own.stdout.split()}


def test_a_wrapped_line_and_a_cdi_device_get_the_node(wsl: Machine) -> None:
    line = ["docker", "run", "--rm", "--network=none", "--gpus", "all", "engines:bookworm", "python3", "-c", LOOK]
    assert gpubind(wsl, "wrap", "--", *line).stdout == SEEN
    podman = ["podman", "run", "--rm", "--network=none", *(f"--ulimit={word}" for word in LIMITS)]
    run = shlex.join(
        [*podman, "--device=nvidia.com/gpu=all", "--rootfs", f"{image('bookworm')}:O", "python3", "-c", LOOK]
    )
    make = "mkdir -p /etc/cdi && python3 -m gpubind plan --nv --format cdi -o /etc/cdi/nvidia.json"
    script = f"{make} && {run}; s=$?; rm /etc/cdi/nvidia.json; exit $s"
    assert wsl.run(["sh", "-c", script], env=PYTHON_ENV, binds=[*wsl.modules, CONTAINERS]).stdout == SEEN


def test_the_tree_without_its_nodes_named_is_told_whose_devices_are_planned(wsl: Machine) -> None:
    words = ["plan", "--nv", "--json", "--root", "/mnt"]
    script = f"mkdir -p /mnt/usr/lib && cp -a /usr/lib/wsl /mnt/usr/lib && python3 -m gpubind {shlex.join(words)}"
    done = wsl.run(["sh", "-ec", script], env=PYTHON_ENV, binds=wsl.modules)
    assert [one["code"] for one in document(done.stdout)["findings"]] == ["dev-root-assumed", "no-ldcache"]
